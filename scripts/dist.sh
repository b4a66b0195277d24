#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh [DIR]: what a release consists of, into DIR (default build/dist): an
# archive of each of VARIANTS, with what it was built from beside it, the Python
# marker package, and the checksums of all. The same commit, Go and (for the
# nvml variants) gcc give archives of the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CYCLONEDX=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
PYTHON=${PYTHON:-python3}
VARIANTS=${VARIANTS:-amd64 arm64 amd64-nvml arm64-nvml}
VERSION=${VERSION:-$(git describe --tags --always --dirty)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

out=$(realpath -m "${1:-build/dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "dist: $*"; }

# compiler ARCH: the C compiler that makes code for it.
compiler() {
    [ "$1" = "$(go env GOHOSTARCH)" ] && echo gcc && return
    case $1 in
    amd64) echo x86_64-linux-gnu-gcc ;;
    arm64) echo aarch64-linux-gnu-gcc ;;
    esac
}

# binary ARCH[-nvml] FILE: the program; without nvml it is static.
binary() {
    local arch=${1%-nvml} flags="-X main.version=$VERSION"
    local -x GOOS=linux GOARCH=$arch CGO_ENABLED=0
    if [ "$arch" != "$1" ]; then
        CGO_ENABLED=1
        local -x CC CGO_CFLAGS="-O2 -Wno-deprecated-declarations"
        CC=$(compiler "$arch")
        scripts/need.sh "$CC"
        # The linker's build id would name temporary files.
        flags+=" -extldflags=-Wl,--build-id=none"
    fi
    go build -trimpath -ldflags "$flags" -o "$2" ./cmd/stageprof
}

# papers DIR: what every archive has beside the program.
papers() {
    mkdir -p "$1/completions"
    "$work/host" man -o "$1/man/man1"
    "$work/host" completion bash >"$1/completions/stageprof.bash"
    "$work/host" completion zsh >"$1/completions/_stageprof"
    "$work/host" completion fish >"$1/completions/stageprof.fish"
    cp -r README.md LICENSE LICENSES docs deploy "$1"
    rm "$1"/docs/*_test.go
}

# archive NAME: packs that directory of $work, every file as of the commit.
archive() {
    find "$work/$1" -exec chmod u=rwX,go=rX {} +
    tar -C "$work" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner -cf - "$1" | gzip -9n >"$out/$1.tar.gz"
}

# sbom FILE NAME: the modules in a program, as CycloneDX.
sbom() {
    go run "$CYCLONEDX" bin -json -std -noserial -notimestamp -version "$VERSION" \
        -output "$out/$2.cdx.json" "$1" 2>"$work/log" || { cat "$work/log" >&2 && return 1; }
}

# python_package: sdist and wheel of the markers, the wheel for PYTHON. Built from a
# copy, since setuptools writes beside its sources.
python_package() {
    scripts/need.sh gcc python python-headers python-venv
    "$PYTHON" -m venv "$work/venv"
    "$work/venv/bin/pip" --quiet --disable-pip-version-check install build==1.6.1
    git ls-files -z marker | xargs -0 cp --parents -t "$work"
    "$work/venv/bin/python" -m build --outdir "$out" "$work/marker" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2 && return 1; }
}

rm -rf "$out"
mkdir -p "$out"
say "stageprof $VERSION for: $VARIANTS"
binary "$(go env GOHOSTARCH)" "$work/host"
papers "$work/papers"
for variant in $VARIANTS; do
    name=stageprof-$VERSION-linux-$variant
    cp -r "$work/papers" "$work/$name"
    binary "$variant" "$work/$name/stageprof"
    archive "$name"
    sbom "$work/$name/stageprof" "$name"
    say "$name: $(stat -c %s "$work/$name/stageprof") bytes"
done
say "the Python package"
python_package
(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
say "all of it is in $out"
