#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh sim|real|budget|debt|timeline|scale|peers|hostile: what a probed call
# costs, on the simulated or the real driver; what sync debt, or a timeline, adds to
# a launch, and what a budget leaves of a loop's speed, on the simulated one; what a
# target that grows costs the agent; what other tools cost the same pipeline, and
# say of it; the times of hostile targets' loops.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}

[ "$(id -u)" = 0 ] || { echo "bench: attaching needs root" >&2; exit 1; }
options=()
case ${1:-} in
budget | debt | timeline) driver=$PWD/build/sim/libcuda.so.1 options=("--$1") ;;
sim | scale | peers | hostile) driver=$PWD/build/sim/libcuda.so.1 ;;
real) driver=$(scripts/libcuda.sh) ;;
*) echo "usage: $0 sim|real|budget|debt|timeline|scale|peers|hostile" >&2; exit 2 ;;
esac

case $1 in
hostile) exec "$PYTHON" scripts/bench/hostile.py "$driver" build/libstageprof.so ;;
peers)
    PY_SPY=$(scripts/pyspy.sh) || echo "skipped: py-spy, which can't be installed" >&2
    PY_SPY=$PY_SPY exec "$PYTHON" scripts/bench/peers.py "$driver"
    ;;
esac

mkdir -p build/bench
gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o build/bench/loop.so scripts/bench/loop.c -lpthread
libraries=("$driver" build/bench/loop.so build/libstageprof.so)
if [ "$1" = scale ]; then
    exec "$PYTHON" scripts/bench/scale.py "${libraries[@]}"
fi
"$PYTHON" scripts/bench/bench.py "${options[@]}" "${libraries[@]}"
