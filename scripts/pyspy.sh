#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pyspy.sh: where py-spy is. It is installed into a cache folder first if it isn't
# there yet.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VERSION=0.4.3
readonly HOME_OF=${STAGEPROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stageprof}/py-spy-$VERSION

if [ ! -x "$HOME_OF/bin/py-spy" ]; then
    echo "installing py-spy $VERSION into $HOME_OF" >&2
    scripts/need.sh python-venv
    "${PYTHON:-python3}" -m venv --clear "$HOME_OF"
    "$HOME_OF/bin/pip" --quiet --disable-pip-version-check install py-spy==$VERSION
fi
echo "$HOME_OF/bin/py-spy"
