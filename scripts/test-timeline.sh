#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-timeline.sh: the tests that read the traces of `stageprof timeline` with
# Perfetto's own definitions, from its Python package, which is kept in a cache
# folder like stock PyTorch (sim/torch/install.sh). They are those behind the
# build tag "perfetto".
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
readonly PACKAGES=(perfetto==0.59.1 protobuf==7.36.2)
readonly CACHE=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}

scripts/need.sh python-venv
home=$CACHE/perfetto-0.59.1-$("$PYTHON" -c 'import sys; print("py%d%d" % sys.version_info[:2])')
if ! "$home/bin/python" -c 'from perfetto.protos.perfetto.trace import perfetto_trace_pb2' 2>/dev/null; then
    echo "timeline: installing ${PACKAGES[*]} into $home" >&2
    "$PYTHON" -m venv --clear "$home"
    "$home/bin/pip" --quiet --disable-pip-version-check install "${PACKAGES[@]}"
fi

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
STAGEPROF_PERFETTO_PYTHON=$home/bin/python \
    go test -json -count=1 -timeout 10m -tags perfetto -run '^TestPerfetto' ${TESTFLAGS:-} ./cmd/stageprof |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
