#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh sim|real|budget|debt|timeline: what a probed call costs, on the
# simulated or the real driver; what sync debt, or a timeline, adds to a launch,
# and what a budget leaves of a loop's speed, on the simulated one.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}

[ "$(id -u)" = 0 ] || { echo "bench: attaching needs root" >&2; exit 1; }
options=()
case ${1:-} in
budget | debt | timeline) driver=$PWD/build/sim/libcuda.so.1 options=("--$1") ;;
sim) driver=$PWD/build/sim/libcuda.so.1 ;;
real) driver=$(scripts/libcuda.sh) ;;
*) echo "usage: $0 sim|real|budget|debt|timeline" >&2; exit 2 ;;
esac

mkdir -p build/bench
gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o build/bench/loop.so scripts/bench/loop.c -lpthread
"$PYTHON" scripts/bench/bench.py "${options[@]}" "$driver" build/bench/loop.so build/libstageprof.so
