#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads `go test -json` from stdin and tells people what matters in it.

One line for each package, the whole output of what failed, and every skipped
test with its reason. Exits 1 if anything failed. With --allowed-skips FILE a
skip fails too, unless a line of FILE, a regular expression, matches all of
"package test: reason".
"""

import argparse
import collections
import json
import re
import sys


class Report:
    def __init__(self, allowed):
        self.allowed = allowed  # compiled expressions, None: skips are fine
        self.output = collections.defaultdict(list)  # (package, test) -> lines
        self.passed = collections.Counter()  # package -> tests
        self.failed = []
        self.skipped = []

    def feed(self, line):
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="")
            return
        # Build events name what is built instead of a package.
        key = (event.get("Package") or event.get("ImportPath", ""), event.get("Test", ""))
        handle = getattr(self, "on_" + event["Action"].replace("-", "_"), None)
        if handle:
            handle(key, event)

    def on_output(self, key, event):
        self.output[key].append(event["Output"])

    on_build_output = on_output

    def on_build_fail(self, key, event):
        self.fail(key)

    def on_pass(self, key, event):
        package, test = key
        if test:
            self.passed[package] += 1
            del self.output[key]
        else:
            print(f"ok    {package}  {self.passed[package]} tests, {event['Elapsed']:.1f}s", flush=True)

    def on_fail(self, key, event):
        # A package that did not build has said so already.
        if not event.get("FailedBuild"):
            self.fail(key)

    def on_skip(self, key, event):
        package, test = key
        if not test:
            return  # a package without tests
        self.skipped.append((package, test, skip_reason(self.output[key])))

    def fail(self, key):
        self.failed.append(key)
        print(f"FAIL  {' '.join(filter(None, key))}")
        sys.stdout.writelines("      " + line for line in self.output[key])
        sys.stdout.flush()

    def close(self):
        """Prints the end of the report; returns the exit status."""
        wrong = [s for s in self.skipped if not self.allows(s)]
        for skip in self.skipped:
            print("skip  " + ("NOT ALLOWED: " if skip in wrong else "") + describe(skip))
        print(f"{sum(self.passed.values())} passed, {len(self.failed)} failed, {len(self.skipped)} skipped")
        return 1 if self.failed or wrong else 0

    def allows(self, skip):
        return self.allowed is None or any(e.fullmatch(describe(skip)) for e in self.allowed)


def skip_reason(lines):
    """The text that the test gave to Skip: the last line that is not a header."""
    texts = [line.strip() for line in lines if not line.lstrip().startswith(("---", "==="))]
    return texts[-1] if texts else "no reason given"


def describe(skip):
    package, test, reason = skip
    return f"{package} {test}: {reason}"


def read_allowed(path):
    with open(path, encoding="utf-8") as f:
        lines = (line.strip() for line in f)
        return [re.compile(line) for line in lines if line and not line.startswith("#")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allowed-skips", metavar="FILE")
    args = parser.parse_args()
    report = Report(read_allowed(args.allowed_skips) if args.allowed_skips else None)
    for line in sys.stdin:
        report.feed(line)
    sys.exit(report.close())


if __name__ == "__main__":
    main()
