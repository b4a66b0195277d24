#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh [torch]: starts the training pipeline on the simulated driver, in plain
# Python or in stock PyTorch, attaches to it while it runs, and leaves
# stageprof.pb.gz behind.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_TO_RECORD=${SECONDS_TO_RECORD:-5}
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-2.6.0}

die() {
    echo "demo: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || die "attaching to a process takes root: sudo make demo"

work=$(mktemp -d)
pipeline=
cleanup() {
    if [ -n "$pipeline" ]; then
        kill "$pipeline" 2>/dev/null || true
        wait "$pipeline" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start_sim and start_torch replace their shell by the pipeline, so that $! is
# the process to attach to.
start_sim() {
    exec "$PYTHON" sim/pipeline.py "$@"
}

start_torch() {
    exec sim/torch/run.sh "$TORCH" sim/torch_pipeline.py "$@"
}

prepare_torch() {
    scripts/need.sh python-venv
    local torch
    torch=$(sim/torch/install.sh "$TORCH")
    # PyTorch's interpreter may be another than ours: it needs the markers too.
    make --no-print-directory -C marker python PYTHON="$torch/bin/python"
}

case ${1:-sim} in
sim) start=start_sim what='the simulated training pipeline' ;;
torch)
    prepare_torch
    start=start_torch what="the training pipeline in PyTorch $TORCH on the simulated driver"
    ;;
*) die "no such demo: $1" ;;
esac

# It says "ready" once all of its threads have warmed up.
$start --copy "${COPY:-sync}" --duration 120 >"$work/log" 2>&1 &
pipeline=$!
for _ in $(seq 600); do
    grep -q '^ready' "$work/log" && break
    kill -0 "$pipeline" 2>/dev/null || break
    sleep 0.1
done
grep -q '^ready' "$work/log" || die "$what did not start:
$(cat "$work/log")"

echo
echo "$what runs as process $pipeline. Attaching to it:"
record=(bin/stageprof record --pid "$pipeline" --duration "${SECONDS_TO_RECORD}s")
echo "\$ ${record[*]}"
echo
"${record[@]}"

cat <<'TEXT'

Look at it with Go's own tool, for instance:
  go tool pprof -top stageprof.pb.gz
  go tool pprof -tags stageprof.pb.gz
  go tool pprof -top -tagroot=stage,gil stageprof.pb.gz
  go tool pprof -top -tagleaf=stage -focus=Synchronize stageprof.pb.gz
  go tool pprof -top -tagfocus=gil=held stageprof.pb.gz
  go tool pprof -http=: -tagroot=stage_path,gil stageprof.pb.gz
TEXT
