#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-pythons.sh: the tests that attach to Python, on the interpreters that
# pythons.sh gets (docs/interpreters.md). `make test` runs them on those that
# this machine has anyway. py-spy, in a cache folder, is asked about the same
# stacks (the build tag "pyspy").
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
readonly PYSPY=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}/py-spy-0.4.3

scripts/need.sh python-venv
if [ ! -x "$PYSPY/bin/py-spy" ]; then
    echo "pythons: installing py-spy 0.4.3 into $PYSPY" >&2
    "$PYTHON" -m venv --clear "$PYSPY"
    "$PYSPY/bin/pip" --quiet --disable-pip-version-check install py-spy==0.4.3
fi
export STAGEPROF_PYSPY=$PYSPY/bin/py-spy

STAGEPROF_TEST_PYTHONS=$(scripts/pythons.sh)
export STAGEPROF_TEST_PYTHONS

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
go test -json -count=1 -timeout 60m -tags pyspy ${TESTFLAGS:-} ./agent ./agent/gil \
    -run '^(TestCaseC2[12]|TestGILOf|TestPythonStack|TestPySpy|TestInstalled|TestNotPlanned|TestNotStarted|TestOtherCopies|TestStripped|TestStatic|TestFreeThreaded|TestLoadedLate|TestNotExported)' |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
