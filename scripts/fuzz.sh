#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh [TIME]: every fuzz target for TIME (default 15s), one after the other.
# What one finds goes to testdata/fuzz of its package, where `go test` runs it
# from then on. FUZZ=REGEXP chooses targets by package and name.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TIME=${1:-15s}

# targets: "package target" of every fuzz target, one a line.
targets() {
    git ls-files '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]+\(f \*testing\.F' /dev/null |
        sed -E 's|/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]+).*|\t\1|' | grep -E "${FUZZ:-.}" | sort
}

# only_ended OUTPUT: whether a run that failed has found nothing: before 1.27 Go can
# take the end of its time for a failure (golang.org/issue/75804).
only_ended() {
    grep -q '^    context deadline exceeded$' <<<"$1" && ! grep -q 'Failing input written' <<<"$1"
}

found=$(targets)
[ -n "$found" ] || { echo "fuzz: no target" >&2 && exit 1; }

failed=()
while IFS=$'\t' read -r package target; do
    printf '%-18s %-20s ' "$package" "$target"
    if out=$(go test "./$package" -run '^$' -fuzz "^$target\$" -fuzztime "$TIME" 2>&1) || only_ended "$out"; then
        grep -oE 'execs: [0-9]+' <<<"$out" | tail -n 1 || echo ok
    else
        echo FAIL
        printf '%s\n' "$out"
        failed+=("$package $target")
    fi
done <<<"$found"

[ ${#failed[@]} -eq 0 ] || { printf 'fuzz: %s found something\n' "${failed[@]}" >&2 && exit 1; }
