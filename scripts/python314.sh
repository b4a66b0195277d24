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

apt() {
    local command=$1
    shift
    "apt-$command" -qq -o APT::Sandbox::User=root \
        -o "Dir::Etc::SourceList=$DIR/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$DIR/lists" -o "Dir::Cache=$DIR/cache" "$@"
}

# unpack: the packages' files. The source of packages is this machine's.
unpack() {
    local site deb
    site=$(apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    [ -n "$site" ] || { echo "python314: this machine has no Debian package source" >&2; exit 1; }
    mkdir -p "$DIR"/{lists,cache,debs,new}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site sid main" >"$DIR/sources.list"
    apt get update
    # shellcheck disable=SC2086 # a list of words
    (cd "$DIR/debs" && apt get download $PACKAGES)
    ln -sfn usr/lib "$DIR/new/lib"
    ln -sfn usr/lib64 "$DIR/new/lib64"
    mkdir -p "$DIR"/new/usr/{lib,lib64}
    for deb in "$DIR"/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$DIR/new"
    done
    mv "$DIR/new" "$DIR/files"
    rm -rf "$DIR"/{lists,cache,debs}
}

# wrap: the interpreter with its own C library.
wrap() {
    cat >"$DIR/python.new" <<WRAPPER
#!/bin/sh
PYTHONHOME=$DIR/files/usr exec $DIR/files/usr/lib64/ld-linux-x86-64.so.2 \
    --library-path $DIR/files/usr/lib/x86_64-linux-gnu $DIR/files/usr/bin/python3.14 "\$@"
WRAPPER
    chmod +x "$DIR/python.new"
    mv "$DIR/python.new" "$DIR/python"
}

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
    [ -e "$DIR/files" ] || unpack >&2
    wrap
    make --no-print-directory -s -C marker python PYTHON="$python" PYTHON_INCLUDE="$DIR/files/usr/include/python3.14 $DIR/files/usr/include" >&2
fi
echo "$python"
