#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pythons.sh: gets the interpreters that `make test-pythons` tests with beside
# those of this machine, and prints their paths, with colons between. They are
# downloaded (470 MB) and built (some minutes of both cores) once, and kept in
# the cache folder (sim/torch/install.sh). Nothing is installed but tools.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CACHE=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}/pythons
readonly BIN=$CACHE/bin

# shellcheck disable=SC1091 # it is checked itself
. scripts/debian.sh

say() { echo "pythons: $*" >&2; }

# once NAME COMMAND...: does it unless it is done.
once() {
    local name=$1
    shift
    [ ! -e "$CACHE/$name.done" ] || return 0
    say "$name"
    rm -rf "${CACHE:?}/$name"
    mkdir -p "$CACHE/$name"
    # Not in an `if`: there errors would not end it.
    (set -e; "$@") >"$CACHE/$name.log" 2>&1 || { tail -n 20 "$CACHE/$name.log" >&2; say "$name: see $CACHE/$name.log"; exit 1; }
    touch "$CACHE/$name.done"
}

# link_shared FILE LIBPYTHON OPTION...: a program that uses the shared library.
link_shared() {
    local file=$1 library=$2
    shift 2
    echo 'int Py_BytesMain(int, char **); int main(int c, char **v) { return Py_BytesMain(c, v); }' |
        gcc -o "$file" -xc - -xnone "$library" "$@"
}

# Debian's: static, stripped, optimised at link time and by profile; a program
# that uses the shared library; the debug build; and PyPy.
debian() {
    local dir=$CACHE/debian version packages=()
    for version in 3.13 3.14 3.15; do
        packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" "libpython$version")
    done
    debian_unpack "$dir" sid "${packages[@]}" python3.14-dbg libpython3.14-dbg pypy3 pypy3-lib \
        libc6 libexpat1 libffi8 libgcc-s1 libssl3t64 libzstd1 zlib1g liblzma5 libbz2-1.0 libncursesw6 libtinfo6
    for version in 3.13 3.14 3.15; do
        link_shared "$dir/files/usr/bin/python$version-shared" \
            "$dir/files/usr/lib/x86_64-linux-gnu/libpython$version.so.1.0" -Wl,--unresolved-symbols=ignore-all
    done
}

wrap_debian() {
    local root=$CACHE/debian/files name
    for name in python3.{13,14,15}{,-shared} python3.14d; do
        debian_wrap "$BIN/debian-$name" "$root" "PYTHONHOME=$root/usr" "$root/usr/bin/$name"
    done
    debian_wrap "$BIN/pypy3" "$root" "$root/usr/bin/pypy3"
}

# The debug build of Debian's python3 on this machine.
debug() {
    # shellcheck disable=SC1091 # this machine's
    debian_unpack "$CACHE/debug" "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$1-dbg" "lib$1-dbg"
}

wrap_debug() {
    local root=$CACHE/debug/files/usr
    # shellcheck disable=SC2016 # for the shell that starts it
    printf '#!/bin/sh\nPYTHONHOME=/usr PYTHONPATH=%s${PYTHONPATH:+:$PYTHONPATH} exec %s "$@"\n' \
        "$root/lib/$1" "$root/bin/$1d" >"$BIN/debug-$1"
    chmod +x "$BIN/debug-$1"
}

# build NAME OPTION...: CPython 3.13, which is installed below $CACHE/NAME.
build() {
    local dir=$CACHE/$1
    shift
    mkdir "$dir/objects"
    (
        cd "$dir/objects"
        "$CACHE/source/source/configure" -q --prefix="$dir" --without-ensurepip --disable-test-modules "$@"
        make -s -j"$(nproc)"
        make -s altinstall COMPILEALL_OPTS='-x .' # compiles nothing
    )
    rm -r "$dir/objects"
}

# wrap_built NAME PROGRAM: a program that was built, with its shared library.
wrap_built() {
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$CACHE/$1/lib" "$CACHE/$1/bin/$2" >"$BIN/$1-$2"
    chmod +x "$BIN/$1-$2"
}

# relocatable VERSION: a build of python-build-standalone, which runs in whatever
# folder it lies. A Go module has one in each of its versions; it is checked
# against go.sum, unpacked by a program of its own, and not kept.
relocatable() {
    local version=${1%%-*} dir=$CACHE/relocatable-$1
    local name=python${version%.*}
    mkdir "$dir/unpacker"
    cp scripts/pythons/relocatable/go.* "$dir/unpacker"
    cp scripts/pythons/relocatable/main.go.in "$dir/unpacker/main.go"
    (
        cd "$dir/unpacker"
        export GOMODCACHE=$PWD/modules
        go mod edit -require="github.com/kluctl/go-embed-python@v0.0.0-$1"
        go build -modcacherw -o unpack .
        ./unpack "$dir/files"
    )
    rm -r "$dir/unpacker"
    link_shared "$dir/files/bin/$name-shared" "$dir/files/lib/lib$name.so.1.0" -Wl,-rpath,"$dir/files/lib"
}

# wrap_relocatable VERSION: the program. The one of 3.14 is static and its
# compiler (JIT) off, so there are also one that is shared and one that compiles.
wrap_relocatable() {
    local version=${1%%-*} files=$CACHE/relocatable-$1/files
    local name=python${version%.*}
    ln -sfn "$files/bin/$name" "$BIN/relocatable-$name"
    [ "$name" = python3.14 ] || return 0
    ln -sfn "$files/bin/$name-shared" "$BIN/relocatable-$name-shared"
    printf '#!/bin/sh\nPYTHON_JIT=1 exec %s "$@"\n' "$files/bin/$name" >"$BIN/relocatable-$name-jit"
    chmod +x "$BIN/relocatable-$name-jit"
}

mkdir -p "$BIN"
exec 9>"$CACHE/lock" # runs side by side
flock 9
scripts/need.sh gcc clang go libffi-headers >&2

once debian debian
wrap_debian
own=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
once debug debug "$own"
wrap_debug "$own"
once source debian_source "$CACHE/source" trixie python3.13
once free-threaded build free-threaded CFLAGS='-O2 -g0' --disable-gil --enable-shared
wrap_built free-threaded python3.13t
once clang build clang CC=clang CFLAGS='-O2 -g0'
strip --strip-all "$CACHE/clang/bin/python3.13"
wrap_built clang python3.13
for version in 3.10.16-20241219-1 3.11.11-20241219-1 3.14.6-20260610-1; do
    once "relocatable-$version" relocatable "$version"
    wrap_relocatable "$version"
done

printf '%s\n' "$BIN"/* | paste -sd ':'
