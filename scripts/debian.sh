# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# debian.sh: what scripts source to get files of Debian's packages, of any suite,
# without installing them. The source of packages is this machine's.

# debian_apt DIR COMMAND...: apt-COMMAND with its state in DIR.
debian_apt() {
    local dir=$1 command=$2
    shift 2
    "apt-$command" -qq -o APT::Sandbox::User=root \
        -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" "$@"
}

# debian_open DIR SUITE: makes the suite's packages known.
debian_open() {
    local dir=$1 suite=$2 site kind
    site=$(apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    [ -n "$site" ] || { echo "debian: this machine has no Debian package source" >&2; return 1; }
    mkdir -p "$dir"/{lists,cache,debs}
    for kind in deb deb-src; do
        echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite main"
    done >"$dir/sources.list"
    debian_apt "$dir" get update
}

debian_close() {
    rm -rf "$1"/{lists,cache,debs,sources.list}
}

# debian_unpack DIR SUITE PACKAGE...: their files, below DIR/files, except
# detached debugging information.
debian_unpack() {
    local dir=$1 suite=$2 deb
    shift 2
    debian_open "$dir" "$suite"
    (cd "$dir/debs" && debian_apt "$dir" get download "$@")
    mkdir -p "$dir"/new/usr/{lib,lib64}
    ln -sfn usr/lib "$dir/new/lib"
    ln -sfn usr/lib64 "$dir/new/lib64"
    for deb in "$dir"/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --exclude=./usr/lib/debug -C "$dir/new"
    done
    mv "$dir/new" "$dir/files"
    debian_close "$dir"
}

# debian_source DIR SUITE PACKAGE: the source that it is made from, below DIR/source.
debian_source() {
    local dir=$1 suite=$2 package=$3
    debian_open "$dir" "$suite"
    (cd "$dir/debs" && debian_apt "$dir" get --download-only source "$package")
    mkdir -p "$dir/new"
    tar -x --strip-components=1 -C "$dir/new" -f "$dir"/debs/*.orig.tar.xz
    mv "$dir/new" "$dir/source"
    debian_close "$dir"
}

# debian_wrap FILE ROOT COMMAND...: an executable FILE that starts a program below
# ROOT with the C library there. COMMAND may begin with variables to set.
debian_wrap() {
    local file=$1 root=$2 variables=()
    shift 2
    while [[ $1 == *=* ]]; do
        variables+=("$1")
        shift
    done
    cat >"$file.new" <<WRAPPER
#!/bin/sh
${variables[*]} exec $root/usr/lib64/ld-linux-x86-64.so.2 \\
    --library-path $root/usr/lib/x86_64-linux-gnu $* "\$@"
WRAPPER
    chmod +x "$file.new"
    mv "$file.new" "$file"
}
