#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh: all tests that need no PyTorch. TESTFLAGS go to `go test`. With CI
# set, a skipped test is a failure unless .ci/allowed-skips names it.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}

# The tests attach to processes, which takes the kernel's leave.
[ "$(id -u)" = 0 ] || echo "test: not root; tests that load eBPF programs will fail" >&2

# All of them run, also when the first ones fail.
failed=0
make --no-print-directory -C marker test test-python || failed=1
"$PYTHON" -m unittest discover -q -s scripts/bench || failed=1

# Not cached: what these tests test lies in build/ and in the kernel too.
# shellcheck disable=SC2086 # TESTFLAGS is a list of words
go test -json -count=1 -timeout 45m ${TESTFLAGS:-} ./... |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips} || failed=1
exit "$failed"
