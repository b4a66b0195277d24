#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-receivers.sh: the tests that send profiles to an OpenTelemetry Collector, which
# is built from its own modules (scripts/receivers/collector) and kept in a cache
# folder. They are those behind the build tag "receivers".
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
readonly CACHE=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}

sum=$(cat scripts/receivers/collector/* | sha256sum)
collector=$CACHE/collector-${sum:0:12}
if [ ! -x "$collector" ]; then
    echo "receivers: building a collector into $collector: some minutes" >&2
    mkdir -p "$CACHE"
    work=$(mktemp -d) # a module of its own, which the tools that look at this one need not know
    trap 'rm -rf "$work"' EXIT
    cp scripts/receivers/collector/go.* "$work"
    cp scripts/receivers/collector/main.go.in "$work/main.go"
    (cd "$work" && go build -o "$collector" .)
fi

# shellcheck disable=SC2086 # TESTFLAGS is a list of words
STAGEPROF_COLLECTOR=$collector \
    go test -json -count=1 -timeout 10m -tags receivers -run '^TestCollector' ${TESTFLAGS:-} ./cmd/stageprof |
    "$PYTHON" scripts/testreport.py ${CI:+--allowed-skips .ci/allowed-skips}
