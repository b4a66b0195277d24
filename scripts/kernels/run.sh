#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [[arm64/]VERSION...]: runs the end-to-end tests on Debian's kernels of
# these versions (default: 5.10, too old, 6.1, 6.12 and the newest, and two for
# arm64), each in a machine that QEMU emulates. Nothing is installed on this
# machine but QEMU and a compiler for arm64; kernels are kept in build/kernels.
# Those for arm64 also run what the other machines' tests show of Python, with
# Debian's Pythons.
#
# A kernel passes if every test does, or, where stageprof says that the kernel
# is too old, if `doctor` says so with exit status 1 and the missing feature.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly HOME_DIR=$PWD/build/kernels
readonly SUITES='bullseye bookworm bookworm-backports trixie trixie-backports sid'
# What runs everywhere; where there are multi-uprobe links, more. And what runs
# where there is a Python.
readonly TESTS='TestKernel'
readonly PYTHON_TESTS='TestCaseC21GIL|TestGILOfEmbeddedPython|TestPythonStacksEqualTruth|TestPythonFunctionsAreStages'
readonly STATIC_PYTHONS='3.9 3.13' SHARED_PYTHONS='3.11 3.14'
readonly MINUTES=${MINUTES:-60}
readonly ARM64_CC=aarch64-linux-gnu-gcc

[ "$(uname -m)" = x86_64 ] || { echo "test-kernels: emulates machines on x86-64 only" >&2; exit 1; }
mkdir -p "$HOME_DIR/logs"

# The emulated machine is $MACHINE, in the words of Debian and Go, in what follows.

# apt COMMAND...: for that machine, apart from what this one has installed.
apt() {
    local command=$1
    shift
    "apt-$command" -qq -o APT::Sandbox::User=root -o Dir::State::status=/dev/null \
        -o "APT::Architecture=$MACHINE" -o "APT::Architectures=$MACHINE" \
        -o "Dir::Etc::SourceList=$HOME_DIR/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$HOME_DIR/$MACHINE/lists" -o "Dir::Cache=$HOME_DIR/$MACHINE/cache" "$@"
}

# package_lists: the distribution's releases, by this machine's own source of
# packages. A release that the source has no longer is left out.
package_lists() {
    local site suite
    mkdir -p "$HOME_DIR/$MACHINE"/{lists,cache}
    site=$(apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    [ -n "$site" ] || { echo "test-kernels: this machine has no Debian package source" >&2; exit 1; }
    for suite in $SUITES; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite main"
    done >"$HOME_DIR/sources.list"
    apt get update 2>"$HOME_DIR/logs/apt" || true
}

# kernel_package VERSION: the newest package with a kernel of that version.
kernel_package() {
    local pattern="^linux-image-[0-9][^ ]*-cloud-$MACHINE\$"
    apt cache search --names-only "$pattern" | awk '{ print $1 }' | grep -v unsigned |
        if [ "$1" = newest ]; then cat; else grep -F "linux-image-$1." || true; fi | sort -V | tail -n 1
}

# kernel VERSION: the path of its image, downloaded unless it is there.
kernel() {
    local package
    package=$(kernel_package "$1")
    [ -n "$package" ] || return 0
    local image=$HOME_DIR/$package
    if [ ! -e "$image" ]; then
        rm -rf "$HOME_DIR/unpack"
        mkdir "$HOME_DIR/unpack"
        # From some version on the image is in a package that this one asks for.
        local names
        names="$package $(apt cache depends "$package" | sed -n 's/.*Depends: \(linux-binary-[^ ]*\)/\1/p')"
        # shellcheck disable=SC2086 # a list
        (cd "$HOME_DIR/unpack" && apt get download $names >/dev/null && for deb in *.deb; do dpkg-deb -x "$deb" .; done)
        mv "$(find "$HOME_DIR/unpack" -name 'vmlinuz*' -type f | head -n 1)" "$image"
        rm -rf "$HOME_DIR/unpack"
    fi
    echo "$image"
}

# products: builds what is tested, for the emulated machine, and prints where it is.
products() {
    case $MACHINE in
    amd64) echo build ;; # of this machine: built already
    arm64)
        make -s -C sim "CC=$ARM64_CC" BUILD="$PWD/build/arm64" >&2
        make -s -C marker "CC=$ARM64_CC" BUILD="$PWD/build/arm64" >&2
        echo build/arm64
        ;;
    esac
}

# libraries FOLDER ROOT: puts what the products in a folder load besides each
# other into the emulated machine's file system, and Pythons where it has some.
libraries() {
    local library
    case $MACHINE in
    amd64)
        find "$1" -type f -print0 | xargs -0 ldd 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' | grep -v "^$PWD" | sort -u |
            while read -r library; do
                mkdir -p "$2$(dirname "$library")"
                cp -L "$library" "$2$library"
            done
        ;;
    arm64)
        pythons
        cp -a "$HOME_DIR/$MACHINE/pythons/." "$2/"
        ;;
    esac
}

# pythons: makes a folder with the files of Debian's Pythons for the emulated
# machine: static ones, and shared libraries in a program of a few lines. The C
# library is among what they need.
pythons() {
    local folder=$HOME_DIR/$MACHINE/pythons version names=() deb
    [ ! -e "$folder" ] || return 0
    for version in $STATIC_PYTHONS; do names+=("python$version-minimal" "libpython$version"-{minimal,stdlib}); done
    for version in $SHARED_PYTHONS; do names+=("libpython$version"{,-minimal,-stdlib}); done
    rm -rf "$folder.new"
    mkdir -p "$folder.new/debs" "$folder.new/files/usr/"{bin,lib}
    ln -s usr/lib "$folder.new/files/lib"
    (cd "$folder.new/debs" && apt get download "${names[@]}" libc6 libgcc-s1 libexpat1 zlib1g libffi7 libffi8)
    for deb in "$folder.new"/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --exclude=./usr/share -C "$folder.new/files"
    done
    for version in $SHARED_PYTHONS; do
        echo 'int Py_BytesMain(int, char **); int main(int c, char **v) { return Py_BytesMain(c, v); }' |
            "$ARM64_CC" -o "$folder.new/files/usr/bin/python$version-shared" -xc - -xnone \
                "$folder.new"/files/usr/lib/*-linux-gnu/"libpython$version.so.1.0" -Wl,--unresolved-symbols=ignore-all
    done
    mv "$folder.new/files" "$folder"
    rm -rf "$folder.new"
}

# has_python: whether the emulated machine has Pythons.
has_python() { [ "$MACHINE" = arm64 ]; }

# tests: what runs in it.
tests() {
    if has_python; then echo "^($TESTS|$PYTHON_TESTS)\$"; else echo "^$TESTS\$"; fi
}

# shell: the path of a busybox for the emulated machine.
shell() {
    case $MACHINE in
    amd64) command -v busybox ;;
    arm64)
        local folder=$HOME_DIR/$MACHINE/busybox
        if [ ! -e "$folder" ]; then
            rm -rf "$folder.new"
            mkdir "$folder.new"
            (cd "$folder.new" && apt get download busybox-static >/dev/null && dpkg-deb -x ./*.deb .)
            mv "$folder.new" "$folder"
        fi
        find "$folder" -name busybox -type f -perm -u+x
        ;;
    esac
}

# user_space: an initramfs with the tests, their targets and what these load, all
# at the paths that they have here.
user_space() {
    local root=$HOME_DIR/$MACHINE/root built
    built=$(products)
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc} "$root$PWD"/{agent,build/sim}
    cp scripts/kernels/init "$root/init"
    cp "$(shell)" "$root/bin/"
    GOARCH=$MACHINE CGO_ENABLED=0 go build -o "$root/bin/stageprof" ./cmd/stageprof
    GOARCH=$MACHINE CGO_ENABLED=0 go test -c -o "$root/bin/agent.test" ./agent
    cp go.mod "$root$PWD/"
    cp "$built"/libstageprof.so* "$root$PWD/build/"
    cp -r "$built"/sim/*.so* "$built/sim/testers" "$root$PWD/build/sim/"
    [ ! -e "$built/sim/variants" ] || cp -r "$built/sim/variants" "$root$PWD/build/sim/"
    libraries "$root$PWD/build" "$root"
    if has_python; then
        GOARCH=$MACHINE CGO_ENABLED=0 go test -c -o "$root/bin/gil.test" ./agent/gil
        mkdir -p "$root$PWD/agent/gil"
        cp -r agent/testdata "$root$PWD/agent/"
        cp -r agent/gil/testdata "$root$PWD/agent/gil/"
    fi
    (cd "$root" && find . -print0 | cpio -0 -o -H newc --quiet | gzip -1) >"$HOME_DIR/$MACHINE/initramfs"
}

# boot IMAGE TESTS LOG: with KVM where this machine has it working (ACCEL=kvm).
# The emulated processors take turns: at the same time QEMU's see each other's
# changes of the kernel's code, which tracepoints are switched on by, too late.
boot() {
    local emulator console accelerator=${ACCEL:-tcg,thread=single}
    case $MACHINE in
    amd64)
        emulator='qemu-system-x86_64 -cpu max'
        console=ttyS0
        ;;
    arm64) # the architecture's own way to sign pointers takes most of an emulator's time
        emulator='qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on'
        console=ttyAMA0
        accelerator=tcg,thread=single
        ;;
    esac
    # shellcheck disable=SC2086 # a command with options
    timeout "${MINUTES}m" $emulator -nographic -no-reboot -accel "$accelerator" -smp 2 -m 3072 \
        -kernel "$1" -initrd "$HOME_DIR/$MACHINE/initramfs" \
        -append "console=$console quiet panic=-1 stageprof.dir=$PWD stageprof.tests=$2" \
        </dev/null 2>&1 | sed -u 's|\r||g' >"$3"
}

# costs LOG: of a call, with each mechanism.
costs() {
    local found
    found=$(grep -oE 'as much as [0-9.]+ system calls' "$1" | grep -oE '[0-9.]+' | paste -sd , | sed 's/,/ and /')
    echo "${found:-an unknown number of} system calls"
}

# verdict LOG: one line about a kernel; fails unless everything is as it must be.
verdict() {
    local log=$1 passed failed
    passed=$(grep -c -- '--- PASS' "$log" || true)
    failed=$(grep -c -- '--- FAIL' "$log" || true)
    if grep -q '^== kernel complains' "$log"; then
        echo "the kernel complains"
        return 1
    fi
    if grep -q '^== doctor 1' "$log"; then
        echo "refused: $(grep -m 1 '^Problem:' "$log")"
        grep -q '^Problem:.*or newer is needed' "$log"
        return
    fi
    echo "$passed passed, $failed failed; $(grep -q 'not in this kernel' "$log" && echo perf events || echo multi-uprobe links and perf events);" \
        "markers $(grep -q 'ok *announced markers' "$log" && echo announced || echo probed);" \
        "a call costs $(costs "$log")"
    grep -q '^== record 0' "$log" && grep -q '^== tests 0' "$log" && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

failures=0
[ $# -gt 0 ] || set -- 5.10 6.1 6.12 newest arm64/6.1 arm64/newest
prepared=
for kernel in "$@"; do
    version=${kernel#*/}
    case $kernel in */*) MACHINE=${kernel%/*} ;; *) MACHINE=amd64 ;; esac
    case " $prepared " in *" $MACHINE "*) ;; *)
        package_lists
        user_space
        prepared+=" $MACHINE"
        ;;
    esac
    image=$(kernel "$version")
    if [ -z "$image" ]; then
        echo "kernel $kernel: not among this machine's packages"
        failures=$((failures + 1))
        continue
    fi
    log=$HOME_DIR/logs/${kernel/\//-}
    boot "$image" "$(tests)" "$log" || true
    if text=$(verdict "$log"); then result=ok; else result=FAIL failures=$((failures + 1)); fi
    printf '%-4s  %-12s  %-32s  %s\n' "$result" "$kernel" "$(grep -o -m 1 '== kernel .*' "$log" | cut -c 11-)" "$text"
    [ "$result" = ok ] || tail -n 40 "$log"
done
exit $((failures > 0))
