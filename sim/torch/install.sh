#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh VERSION: makes sure that the stock PyTorch CUDA wheel of that
# version is installed, and prints the folder of its virtual environment.
#
# It goes into a cache folder outside the checkout, shared by every checkout
# and every later run: $STAGEPROF_CACHE, else $XDG_CACHE_HOME/stageprof, else
# ~/.cache/stageprof. The interpreter is PYTHON (default python3) where the
# wheel supports it, else the first python3.N that it does support.
set -euo pipefail

[ $# -eq 1 ] || {
    echo "usage: $0 VERSION, for instance $0 2.6.0" >&2
    exit 2
}
readonly VERSION=$1
readonly CACHE=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}

say() { echo "torch: $*" >&2; }

# interpreters: those to try, the preferred one first.
interpreters() {
    local name
    for name in "${PYTHON:-python3}" python3.{11,12,10,13,14,9}; do
        if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$name"
        fi
    done
}

# home PYTHON: where this version lives for that interpreter.
home() {
    echo "$CACHE/torch-$VERSION-$("$1" -c 'import sys; print("py%d%d" % sys.version_info[:2])')"
}

# complete HOME: whether this is a finished install and its interpreter still exists.
complete() {
    "$1/bin/python" -c '
import importlib.util, sys
sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null
}

find_installed() {
    local python dir
    for python in $(interpreters); do
        dir=$(home "$python")
        if complete "$dir"; then
            echo "$dir"
            return
        fi
    done
    return 1
}

pip() {
    "$partial/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

# offered: whether there is a wheel of this version for the interpreter of $partial.
offered() {
    local versions
    versions=$(pip index versions torch 2>/dev/null) || return 1
    grep -qE "^Available versions:.* ${VERSION//./\\.}(,|$)" <<<"$versions"
}

# install_for PYTHON: into a folder beside the final one, then renamed, so that
# an interrupted install is never taken for a finished one. Returns 1 when the
# interpreter is none of the wheel's.
install_for() {
    local dir
    dir=$(home "$1")
    partial=$dir.partial.$$
    "$1" -m venv "$partial"
    if ! offered; then
        rm -rf "$partial"
        return 1
    fi
    say "installing the stock wheel of torch $VERSION for $("$1" --version):" \
        "downloads about 3 GB, takes about 6 GB in $dir"
    pip install --quiet "torch==$VERSION" numpy >&2 || exit 1
    rm -rf "$dir" # an install that is no longer complete
    mv -T "$partial" "$dir" || exit 1
    say "installed"
}

find_installed && exit

mkdir -p "$CACHE"
# One download at a time: whoever comes second finds it done.
exec 9>"$CACHE/torch-$VERSION.lock"
flock -n 9 || {
    say "waiting for another install of torch $VERSION"
    flock 9
}
find_installed && exit
# We hold the lock, so these belong to nobody any more.
rm -rf "$CACHE/torch-$VERSION-"*.partial.*

partial=
trap '[ -z "$partial" ] || rm -rf "$partial"' EXIT
for python in $(interpreters); do
    if install_for "$python"; then
        home "$python"
        exit
    fi
done
tried=$(interpreters | tr '\n' ' ')
say "no wheel of torch $VERSION for any interpreter here that can make virtual environments" \
    "(${tried:-there is none}), or the package registry did not answer"
exit 1
