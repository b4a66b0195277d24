# SPDX-License-Identifier: Apache-2.0
"""What a Recording and the simulated driver's truth say of the same calls."""

import collections
import gzip
import json
import pathlib

COUNTED = ("calls", "unfinished")  # what the driver's truth has of calls that began


def load(path):
    """A saved Recording."""
    with gzip.open(path, "rt", encoding="utf-8") as f:
        return json.load(f)


def recorded(recording, field="count"):
    """By function: calls, or another sum of theirs."""
    sums = collections.Counter()
    for call in recording["calls"]:
        sums[recording["symbols"][call["symbol"]]["name"]] += call[field]
    return sums


def truth(path, *fields):
    """By function: calls that began, or other sums of theirs."""
    sums = collections.Counter()
    for row in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["rows"]:
        sums[row["symbol"]] += sum(row[field] for field in fields or COUNTED)
    return sums


def lost(recording):
    """Calls that the Recording says it lacks."""
    return sum(loss["count"] for loss in recording["losses"] or [] if loss["kind"] == "calls")


def compared(counts, wanted, missing=0):
    """Counts against the truth, in words: "equal", "equal, 3 lost", or by how much they differ."""
    different = sum(abs(counts.get(name, 0) - n) for name, n in wanted.items())
    if different == missing:
        return f"equal, {missing:,} lost" if missing else "equal"
    more = sum(counts.get(name, 0) for name in wanted) - sum(wanted.values())
    return f"{more:+,}" if abs(more) == different else f"{more:+,}, {different:,} in other functions"


def against_truth(recording, counted):
    """The Recording's calls against the driver's own count, of the functions that were recorded."""
    known = {symbol["name"] for symbol in recording["symbols"]}
    wanted = {name: n for name, n in counted.items() if name in known}
    return compared(recorded(recording), wanted, lost(recording))


def median(values):
    """Of an odd number of values one of them."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
