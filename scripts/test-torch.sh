#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-torch.sh: the tests that attach to stock PyTorch of version TORCH on the
# simulated driver. They are those behind the build tag "torch".
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
export TORCH=${TORCH:-2.6.0}

# PyTorch's interpreter may be another than ours: it needs the markers too.
scripts/need.sh python-venv
torch=$(sim/torch/install.sh "$TORCH")
make --no-print-directory -C marker python PYTHON="$torch/bin/python"

mapfile -t files < <(git grep -lE '^//go:build torch$' -- '*_test.go')
mapfile -t packages < <(dirname "${files[@]}" | sort -u | sed 's|^|./|')
# Their packages hold other tests as well, which `make test` runs.
tests=$(sed -nE 's/^func (Test[A-Za-z0-9_]+)\(t .*/\1/p' "${files[@]}" | paste -sd '|' -)

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
go test -json -count=1 -timeout 20m -tags torch -run "^($tests)\$" ${TESTFLAGS:-} "${packages[@]}" |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
