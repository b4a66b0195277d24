#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# need.sh THING...: makes sure that each thing is on this machine. What is
# missing is installed with apt-get, after saying so; without apt-get or without
# root it says what to install and fails. PYTHON (default python3) is the
# interpreter that the Python things are for.
set -euo pipefail

PYTHON=${PYTHON:-python3}
readonly GO_WANTED=1.26

# present THING: whether it is there already.
present() {
    case $1 in
    go) have_go ;;
    python) command -v "$PYTHON" ;;
    python-headers) "$PYTHON" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ;;
    python-venv) "$PYTHON" -c 'import ensurepip, venv' ;;
    # gcc runs without the C library'"'"'s headers, but builds nothing.
    gcc) command -v gcc && echo '#include <stdlib.h>' | gcc -E - ;;
    libffi-headers) echo '#include <ffi.h>' | gcc -E - ;;
    libbpf-headers) [ -e /usr/include/bpf/bpf_core_read.h ] ;;
    g++) command -v g++ && echo '#include <cstdlib>' | g++ -x c++ -E - ;;
    browser) "${0%/*}/browser.sh" ;;
    *) command -v "$(program "$1")" ;;
    esac >/dev/null 2>&1
}

# program THING: what it is called on the command line, where that differs.
program() {
    case $1 in
    llvm) echo llvm-strip ;;
    qemu) echo qemu-system-x86_64 ;;
    qemu-arm) echo qemu-system-aarch64 ;;
    *) echo "$1" ;;
    esac
}

# packages THING: the Debian and Ubuntu packages that hold it.
packages() {
    case $1 in
    gcc) echo gcc libc6-dev ;;
    python) echo python3 ;;
    python-headers) echo python3-dev ;;
    python-venv) echo python3-venv ;;
    libffi-headers) echo libffi-dev ;;
    libbpf-headers) echo libbpf-dev ;;
    bpftool) bpftool_package ;;
    unshare) echo util-linux ;;
    systemd-analyze) echo systemd ;;
    qemu) echo qemu-system-x86 ;;
    qemu-arm) echo qemu-system-arm ;;
    busybox) echo busybox-static ;;
    browser) echo chromium-headless-shell ;;
    aarch64-linux-gnu-gcc) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
    x86_64-linux-gnu-gcc) echo gcc-x86-64-linux-gnu libc6-dev-amd64-cross ;;
    *) echo "$1" ;;
    esac
}

# bpftool_package: Debian has a package of that name; Ubuntu ships the program
# with its kernel tools.
bpftool_package() {
    if apt-cache show bpftool 2>/dev/null | grep -q '^Version:'; then
        echo bpftool
    else
        echo linux-tools-common linux-tools-generic
    fi
}

have_go() {
    local version
    version=$(go env GOVERSION 2>/dev/null) || return 1
    version=${version#go}
    [ "$(printf '%s\n' "$GO_WANTED" "$version" | sort -V | head -n 1)" = "$GO_WANTED" ]
}

# debian_python: whether PYTHON is the distribution's own (or will be, once it
# is installed), the only one that its packages can complete.
debian_python() {
    [ "$PYTHON" = python3 ] && ! present python && return
    [ "$(readlink -f "$(command -v "$PYTHON")")" = "$(readlink -f /usr/bin/python3)" ]
}

die() {
    echo "need: $*" >&2
    exit 1
}

missing=()
find_missing() {
    missing=()
    local thing
    for thing in "$@"; do
        present "$thing" || missing+=("$thing")
    done
}

find_missing "$@"
[ ${#missing[@]} -gt 0 ] || exit 0

# Under make -j several of us may want to install: one after the other.
exec 9>"${TMPDIR:-/tmp}/stageprof-need.lock"
flock 9
find_missing "$@"
[ ${#missing[@]} -gt 0 ] || exit 0

wanted=()
for thing in "${missing[@]}"; do
    case $thing in
    go) die "Go $GO_WANTED or later is missing; see https://go.dev/doc/install" ;;
    python-headers | python-venv)
        debian_python || die "$thing of $PYTHON is missing, and no package of this machine completes it;" \
            "choose another interpreter with PYTHON=/usr/bin/python3"
        ;;
    esac
    read -r -a names <<<"$(packages "$thing")"
    wanted+=("${names[@]}")
done

command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's packages are called: ${wanted[*]})"
[ "$(id -u)" = 0 ] || die "missing: ${missing[*]}; as root: apt-get install ${wanted[*]}"

echo "need: ${missing[*]} missing, installing the packages ${wanted[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${wanted[@]}" >/dev/null

for thing in "${missing[@]}"; do
    present "$thing" || die "$thing is still missing after installing ${wanted[*]}"
done
