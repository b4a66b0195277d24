#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# screenshots.sh: makes the pictures in docs/images anew, from recordings of the
# simulated pipeline, with a headless Chromium; those of `top` from a terminal in
# tmux. Look at them before you commit.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly IMAGES=docs/images
PYTHON=${PYTHON:-python3}

make --no-print-directory all >/dev/null
scripts/need.sh browser tmux
browser=$(scripts/browser.sh)

work=$(mktemp -d)
started=()
cleanup() {
    tmux -S "$work/tmux" kill-server 2>/dev/null || true
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT

# wait_for PATTERN FILE: until a line of the file matches, 30 s at most.
wait_for() {
    for _ in $(seq 300); do
        grep -qs "$1" "$2" && return
        sleep 0.1
    done
    echo "screenshots: no $1 in $2:" >&2
    cat "$2" >&2
    return 1
}

# record NAME ARGUMENTS...: records five seconds of the pipeline.
record() {
    local name=$1
    shift
    "$PYTHON" sim/pipeline.py --duration 120 "$@" >"$work/$name.log" 2>&1 &
    local pipeline=$!
    started+=("$pipeline")
    wait_for '^ready' "$work/$name.log"
    bin/stageprof record --quiet --pid "$pipeline" --duration 5s --output "$work/$name.pb.gz" \
        --stages-out "$work/$name-stages.pb.gz" --save "$work/$name.rec" >/dev/null
    kill "$pipeline"
}

# picture NAME URL SIZE OPTION...: what the browser shows.
picture() {
    local name=$1 url=$2 size=$3
    shift 3
    "$browser" --headless --no-sandbox --hide-scrollbars --window-size="$size" "$@" \
        --screenshot="$PWD/$IMAGES/$name.png" "$url" 2>"$work/browser.log"
    echo "$IMAGES/$name.png: $(stat -c %s "$IMAGES/$name.png") bytes"
}

# flame_graph NAME PROFILE SIZE: the stock tool's view of it.
flame_graph() {
    local name=$1 profile=$2 size=$3
    # The program itself: `go tool` would leave it behind when it is killed.
    "$(go tool -n pprof)" -no_browser -http=127.0.0.1: -ignore=stage:none "$profile" 2>"$work/pprof.log" &
    started+=($!)
    wait_for '^Serving web UI on ' "$work/pprof.log"
    picture "$name" "$(sed -n 's/^Serving web UI on //p' "$work/pprof.log")/ui/flamegraph" "$size"
}

# page NAME SIZE RECORDING...: what `stageprof html` makes of one or two.
page() {
    local name=$1 size=$2
    shift 2
    bin/stageprof html "$@" --output "$work/$name.html"
    picture "$name" "file://$work/$name.html" "$size" --force-device-scale-factor=0.8
}

# terminal NAME SIZE: what the terminal shows.
terminal() {
    tmux -S "$work/tmux" capture-pane -e -p >"$work/$1.txt"
    "$PYTHON" scripts/terminal.py <"$work/$1.txt" >"$work/$1.html"
    picture "$1" "file://$work/$1.html" "$2"
}

# live: the pages of commands that watch a running pipeline.
live() {
    "$PYTHON" sim/pipeline.py --duration 300 >"$work/live.log" 2>&1 &
    local pipeline=$!
    started+=("$pipeline")
    wait_for '^ready' "$work/live.log"
    tmux -S "$work/tmux" -f /dev/null new-session -d -x 120 -y 22 \
        env TERM=xterm-256color bin/stageprof top --pid "$pipeline"
    sleep 20 # the trend fills
    terminal top 1104,438
    # The stage that holds the GIL, wherever it stands.
    tmux -S "$work/tmux" resize-window -y 36
    tmux -S "$work/tmux" send-keys / pack_hidden Enter Enter
    sleep 3
    terminal top-stage 1104,704
    tmux -S "$work/tmux" send-keys q
    bin/stageprof serve --no-gpu --listen 127.0.0.1:0 --pid "$pipeline" 2>"$work/serve.log" &
    started+=($!)
    wait_for 'msg=serving' "$work/serve.log"
    PICTURE_URL=$(sed -n 's/.*msg=serving address=//p' "$work/serve.log") PICTURE_FILE=$PWD/$IMAGES/serve.png \
        go test -count=1 -tags browser,picture -run '^TestPicture$' ./serve
    kill "$pipeline"
}

mkdir -p "$IMAGES"
record sync --copy sync
record async --copy async
page html 1120,1300 "$work/sync.rec"
page html-diff 1120,790 "$work/sync.rec" "$work/async.rec"
flame_graph stages-flamegraph "$work/sync-stages.pb.gz" 1200,160
live
