#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# libcuda.sh: prints the path of a real libcuda.so.1 of driver 535, which it
# downloads from the distribution's non-free packages into build/real unless it
# is there. Nothing is installed, and the machine's package sources stay as they
# are.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly HOME_DIR=build/real
found() { find "$HOME_DIR" -name 'libcuda.so.535.*' -type f 2>/dev/null | head -n 1; }

if [ -z "$(found)" ]; then
    command -v apt-get >/dev/null || { echo "libcuda: needs apt-get and Debian's packages" >&2; exit 1; }
    mkdir -p "$HOME_DIR"/{lists,cache,unpacked}
    echo "libcuda: downloading the package libcuda1 (driver 535, about 3 MB) into $HOME_DIR" >&2

    # The sources of this machine, with the component that holds the driver.
    apt-get -qq update
    apt-get indextargets --format "\$(SITE) \$(RELEASE)" 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
        sort -u |
        sed 's|^|deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |; s|$| non-free|' >"$HOME_DIR/sources.list"
    [ -s "$HOME_DIR/sources.list" ] || { echo "libcuda: this machine has no Debian package source" >&2; exit 1; }
    apt=(apt-get -qq -o APT::Sandbox::User=root
        -o "Dir::Etc::SourceList=$PWD/$HOME_DIR/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$PWD/$HOME_DIR/lists" -o "Dir::Cache=$PWD/$HOME_DIR/cache")
    "${apt[@]}" update
    (cd "$HOME_DIR" && "${apt[@]}" download libcuda1 >/dev/null)
    dpkg-deb -x "$HOME_DIR"/libcuda1_*.deb "$HOME_DIR/unpacked"
fi
library=$(found)
[ -n "$library" ] || { echo "libcuda: the package libcuda1 holds no driver 535" >&2; exit 1; }
echo "$PWD/$library"
