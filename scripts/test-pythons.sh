#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-pythons.sh: the tests that attach to Python, on the interpreters that
# pythons.sh gets (docs/interpreters.md). `make test` runs them on those that
# this machine has anyway.
set -euo pipefail
cd "$(dirname "$0")/.."

STAGEPROF_TEST_PYTHONS=$(scripts/pythons.sh)
export STAGEPROF_TEST_PYTHONS

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
go test -json -count=1 -timeout 60m ${TESTFLAGS:-} ./agent ./agent/gil \
    -run '^(TestCaseC2[12]|TestGILOf|TestPythonStack|TestInstalled|TestNotPlanned|TestNotStarted|TestOtherCopies|TestStripped|TestStatic|TestFreeThreaded|TestLoadedLate|TestNotExported)' |
    "${PYTHON:-python3}" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
