#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# python314.sh: prints the path of a CPython 3.14 for the tests of `stageprof
# mark`, and builds the marker package's C extension for it: python3.14, if this
# machine has it and its headers, else Debian's packages, downloaded once and
# unpacked into build/python3.14. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly DIR=$PWD/build/python3.14
readonly PACKAGES='python3.14-minimal libpython3.14-minimal libpython3.14-stdlib libpython3.14-dev
    libc6 libexpat1 libffi8 libgcc-s1 libssl3t64 libzstd1 zlib1g'

# shellcheck disable=SC1091 # it is checked itself
. scripts/debian.sh

# installed: whether there is nothing to download.
installed() {
    python3.14 -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

mkdir -p "$DIR"
exec 9>"$DIR/lock" # tests run side by side
flock 9
if installed; then
    python=$(command -v python3.14)
    make --no-print-directory -s -C marker python PYTHON="$python" >&2
else
    python=$DIR/python
    # shellcheck disable=SC2086 # a list of words
    [ -e "$DIR/files" ] || debian_unpack "$DIR" sid $PACKAGES >&2
    debian_wrap "$python" "$DIR/files" "PYTHONHOME=$DIR/files/usr" "$DIR/files/usr/bin/python3.14"
    make --no-print-directory -s -C marker python PYTHON="$python" PYTHON_INCLUDE="$DIR/files/usr/include/python3.14 $DIR/files/usr/include" >&2
fi
echo "$python"
