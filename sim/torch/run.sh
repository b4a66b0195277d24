#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh VERSION SCRIPT [ARGUMENT...]: runs a Python script with the stock
# PyTorch of that version on the simulated driver, in this very process (the
# caller's $! is the script's pid). Installs PyTorch first if need be.
#
# The wheel's libraries find each other by DT_RPATH, which wins over
# LD_LIBRARY_PATH, so our runtime comes in by LD_PRELOAD: same SONAME, same
# version node, loaded first. The driver and NVML come by LD_LIBRARY_PATH.
#
# Our libraries are taken from STAGEPROF_BUILD (default: the checkout's build/).
# The simulation can be tuned with SIMCUDA_* (sim/README.md). Set here unless
# set already: SIMCUDA_VERSION, the CUDA version the wheel was built for, and
# SIMCUDA_DEVICES=2.
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: $0 VERSION SCRIPT [ARGUMENT...]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${STAGEPROF_BUILD:-$(cd "$here/../.." && pwd)/build}

die() { echo "torch: $*" >&2; exit 1; }

home=$("$here/install.sh" "$1")
shift
python=$home/bin/python

# "12.4" in torch/version.py is runtime 12, driver version 12040.
cuda=$(sed -n "s/^cuda[^=]*= *'\([0-9.]*\)'.*/\1/p" "$home"/lib/python*/site-packages/torch/version.py)
[ -n "$cuda" ] || die "$home holds no CUDA build of PyTorch"
major=${cuda%%.*}
minor=${cuda#*.}

runtime=$build/sim/libcudart.so.$major
blas=$build/sim/libsimblas.so
for library in "$build/sim/libcuda.so.1" "$build/sim/libnvidia-ml.so.1" "$runtime" "$blas"; do
    [ -e "$library" ] || die "no $library; run 'make' first"
done

exec env \
    SIMCUDA_VERSION="${SIMCUDA_VERSION:-$((major * 1000 + minor * 10))}" \
    SIMCUDA_DEVICES="${SIMCUDA_DEVICES:-2}" \
    LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    LD_PRELOAD="$runtime:$blas${LD_PRELOAD:+:$LD_PRELOAD}" \
    PYTHONPATH="$build/python${PYTHONPATH:+:$PYTHONPATH}" \
    TRITON_LIBCUDA_PATH="$build/sim" \
    "$python" "$@"
