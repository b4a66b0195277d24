#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a page of what a terminal shows: `tmux capture-pane -e -p | terminal.py >page.html`.

It knows the colours and the weights that tmux writes (SGR), and nothing else.
"""

import html
import re
import sys

BACKGROUND, FOREGROUND = "#191a1f", "#d8d9dc"
BASIC = (
    "#000000", "#cc5555", "#2ea35a", "#c9a227", "#5b82d6", "#a85fb0", "#3aa6a6", "#c8c9cc",
    "#6f7177", "#e06c75", "#3fbf74", "#e0b93a", "#7da2f0", "#c678dd", "#56c4c4", "#ffffff",
)
SGR = re.compile(r"\x1b\[([0-9;:]*)m")


def indexed(n):
    """The colour of xterm's table."""
    if n < 16:
        return BASIC[n]
    if n < 232:
        n -= 16
        levels = [0 if c == 0 else 55 + 40 * c for c in (n // 36, n // 6 % 6, n % 6)]
        return "#{:02x}{:02x}{:02x}".format(*levels)
    return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (n - 232))


class Style:
    """What the text to come looks like."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.fore = self.back = None
        self.bold = self.faint = self.reverse = False

    def change(self, codes):
        codes = [int(c or 0) for c in re.split("[;:]", codes)]
        while codes:
            code = codes.pop(0)
            if code in (38, 48):
                self.colour(code, self.extended(codes))
            elif 30 <= code <= 37 or 40 <= code <= 47:
                self.colour(code // 10 * 10 + 8, BASIC[code % 10])
            elif 90 <= code <= 97 or 100 <= code <= 107:
                self.colour(38 if code < 100 else 48, BASIC[8 + code % 10])
            else:
                self.attribute(code)

    @staticmethod
    def extended(codes):
        if codes.pop(0) == 5:
            return indexed(codes.pop(0))
        red, green, blue = codes[:3]
        del codes[:3]
        return f"#{red:02x}{green:02x}{blue:02x}"

    def colour(self, code, value):
        if code == 38:
            self.fore = value
        else:
            self.back = value

    def attribute(self, code):
        if code == 0:
            self.reset()
        elif code in (1, 2, 7):
            setattr(self, {1: "bold", 2: "faint", 7: "reverse"}[code], True)
        elif code == 22:
            self.bold = self.faint = False
        elif code == 27:
            self.reverse = False
        elif code == 39:
            self.fore = None
        elif code == 49:
            self.back = None

    def css(self):
        fore, back = self.fore or FOREGROUND, self.back or BACKGROUND
        if self.reverse:
            fore, back = back, fore
        return f"color:{fore};background:{back}" + (";font-weight:bold" if self.bold else "") + (
            ";opacity:.55" if self.faint else "")


def main():
    style, out = Style(), []
    for i, part in enumerate(SGR.split(sys.stdin.read().rstrip("\n"))):
        if i % 2:
            style.change(part)
        elif part:
            out.append(f'<span style="{style.css()}">{html.escape(part)}</span>')
    print(
        '<!doctype html><meta charset="utf-8"><style>'
        f"body{{margin:10px 12px;background:{BACKGROUND}}}"
        "pre{margin:0;font:15px/19px 'DejaVu Sans Mono',monospace;letter-spacing:-.0308px}"  # 9 pixels each: no seams
        "</style><pre>" + "".join(out) + "</pre>"
    )


main()
