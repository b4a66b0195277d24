#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the built library shows to other tools: exactly the public symbols, and a
# USDT note at each probe point.
#
# Usage: symbols_test.sh PATH/libstageprof.so
set -eu
library=$1
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compares stdin with the file $2.
compare() {
    if diff -u "$2" - >"$work/diff"; then
        echo "ok   $1"
    else
        echo "FAIL $1"
        cat "$work/diff"
        touch "$work/failed"
    fi
}

nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort |
    compare only_public_symbols_are_exported "$here/exports.txt"

# Each note as "probe location", beside each probe point as "probe address".
nm -D --defined-only "$library" |
    sed -n 's/^0*\([0-9a-f]*\) T stageprof_mark_\(.*\)$/stageprof:\2 \1/p' |
    LC_ALL=C sort >"$work/points"
test -s "$work/points"
readelf -n "$library" | awk '
    $1 == "Provider:" { provider = $2 }
    $1 == "Name:" { name = $2 }
    $1 == "Location:" { sub(/^0x0*/, "", $2); sub(/,$/, "", $2); print provider ":" name, $2 }' |
    LC_ALL=C sort | compare notes_point_at_the_probe_points "$work/points"

echo NODELETE >"$work/flags"
readelf -d "$library" | awk '/FLAGS_1/ { print $4 }' |
    compare the_library_stays_loaded "$work/flags"

test ! -e "$work/failed"
