#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints the interpreters to test with: python3, and every CPython from 3.8 on
# under ~/.pyenv/versions.
supported='import sys; sys.exit(sys.version_info < (3, 8) or sys.implementation.name != "cpython")'
for python in "$(command -v python3)" "$HOME"/.pyenv/versions/*/bin/python3; do
    test -x "$python" && "$python" -c "$supported" && "$python" -c 'import os, sys
print(os.path.realpath(sys.executable))'
done | sort -u
