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

STAGEPROF_PYSPY=$(scripts/pyspy.sh)
export STAGEPROF_PYSPY

STAGEPROF_TEST_PYTHONS=$(scripts/pythons.sh)
export STAGEPROF_TEST_PYTHONS

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
go test -json -count=1 -timeout 60m -tags pyspy ${TESTFLAGS:-} ./agent ./agent/gil \
    -run '^(TestCaseC2[12]|TestGILOf|TestPythonStack|TestPySpy|TestInstalled|TestNotPlanned|TestNotStarted|TestOtherCopies|TestStripped|TestStatic|TestFreeThreaded|TestLoadedLate|TestNotExported)' |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
