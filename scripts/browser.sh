#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# browser.sh: prints the path of a Chromium that runs without a screen. BROWSER
# names one that is not among the usual.
set -euo pipefail

for name in ${BROWSER:+"$BROWSER"} chromium-headless-shell chromium google-chrome-stable google-chrome chrome; do
    command -v "$name" && exit
done
echo "browser: no Chromium found; BROWSER=/path/to/chrome names one" >&2
exit 1
