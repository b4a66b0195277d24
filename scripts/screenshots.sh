#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# screenshots.sh: makes the pictures in docs/images anew, from a recording of the
# simulated pipeline, with a headless Chromium. Look at them before you commit.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly IMAGES=docs/images
PYTHON=${PYTHON:-python3}

make --no-print-directory all >/dev/null
scripts/need.sh browser
browser=$(scripts/browser.sh)

work=$(mktemp -d)
started=()
cleanup() {
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

mkdir -p "$IMAGES"
record sync --copy sync
record async --copy async
page html 1120,1300 "$work/sync.rec"
page html-diff 1120,790 "$work/sync.rec" "$work/async.rec"
flame_graph stages-flamegraph "$work/sync-stages.pb.gz" 1200,160
