# SPDX-License-Identifier: Apache-2.0
"""Stage markers for training code, and statistics about the stages.

::

    from stageprof import stage, format_stats

    for batch in loader:
        with stage("step"):
            with stage("forward"):
                loss = model(batch)
            with stage("backward"):
                loss.backward()
    print(format_stats())

A stage is a named interval of wall time on one thread. Stages nest; each thread
has its own. ``stageprof record`` sees them from outside the process, and
``stats()`` counts the same spans from inside.
"""

import dataclasses
import warnings
from typing import TYPE_CHECKING, List, Optional

__all__ = [
    "Stage",
    "StageStats",
    "add_time",
    "begin",
    "end",
    "format_stats",
    "implementation",
    "process_stage",
    "reset",
    "stage",
    "stats",
]

#: How markers are made: ``"native"`` (C extension), ``"ctypes"`` (Python over
#: libstageprof.so: slower) or ``"statistics"`` (no markers at all:
#: ``stageprof record`` sees no stages, ``stats()`` works).
implementation: str = "native"

if TYPE_CHECKING:
    from . import _native as _markers
else:
    try:
        import stageprof._native as _markers
    except ImportError as _error:
        from . import _fallback as _markers

        implementation = _markers.implementation
        warnings.warn(
            "stageprof: the C extension is not available (%s); %s"
            % (_error, _markers.consequence),
            RuntimeWarning,
            stacklevel=2,
        )

Stage = _markers.Stage
stage = _markers.stage
begin = _markers.begin
end = _markers.end
add_time = _markers.add_time
reset = _markers.reset


class process_stage:
    """A stage of the whole process, as a context manager.

    It gives a stage to work on threads that have none open, such as a
    library's own threads. These stages nest in the order in which they are
    entered, on whatever thread; leaving one ends the innermost. ``stats()``
    does not count them.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "process_stage":
        _markers.process_begin(self.name)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _markers.process_end()


@dataclasses.dataclass(frozen=True)
class StageStats:
    """The spans of one stage on one thread since the last ``reset()``.

    All times are in seconds of wall time. ``p50`` and ``p99`` come from a
    histogram and are within 1.6 % of the exact value; the others are exact. A
    stage's time includes the stages nested in it.
    """

    stage: str
    #: None when it is the sum over all threads.
    thread: Optional[str]
    #: The kernel's thread id; 0 when the row stands for several threads.
    tid: int
    count: int
    total: float
    mean: float
    min: float
    max: float
    p50: float
    p99: float


def stats(by_thread: bool = True) -> List[StageStats]:
    """Returns the statistics, the longest total time first.

    One row per stage and thread, or with ``by_thread=False`` one per stage.
    Only closed spans count; a stage without any has no row. Threads that have
    ended keep their rows; when there are more than 256 of them, the oldest are
    summed up as thread ``"(ended threads)"``.
    """
    rows = [
        StageStats(
            name,
            thread,
            tid,
            count,
            total / 1e9,
            total / 1e9 / count,
            shortest / 1e9,
            longest / 1e9,
            p50 / 1e9,
            p99 / 1e9,
        )
        for name, thread, tid, count, total, shortest, longest, p50, p99 in _markers.rows(by_thread)
    ]
    rows.sort(key=lambda row: (-row.total, row.stage, row.thread or "", row.tid))
    return rows


def format_stats(by_thread: bool = False, table: bool = False) -> str:
    """Returns the statistics as text, the longest total time first.

    By default one line for a training log, with count, mean, p99 and total of
    each stage over all threads::

        forward 100x 3.41ms (p99 4.02ms, total 341ms) | pack 100x 210us (...)

    With ``table=True`` a line per row and all columns.
    """
    rows = stats(by_thread)
    if not rows:
        return "(no stages)"
    return _table(rows) if table else " | ".join(_short(row) for row in rows)


def _short(row: StageStats) -> str:
    name = row.stage if row.thread is None else "%s[%s]" % (row.stage, row.thread)
    return "%s %dx %s (p99 %s, total %s)" % (
        name,
        row.count,
        _duration(row.mean),
        _duration(row.p99),
        _duration(row.total),
    )


def _table(rows: List[StageStats]) -> str:
    lines = [["stage", "thread", "count", "total", "mean", "min", "max", "p50", "p99"]]
    for row in rows:
        times = (row.total, row.mean, row.min, row.max, row.p50, row.p99)
        thread = "(all)" if row.thread is None else row.thread
        lines.append([row.stage, thread, str(row.count)] + [_duration(t) for t in times])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        )
        for line in lines
    )


def _duration(seconds: float) -> str:
    """Three significant digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            value = seconds / size
            return "%.*f%s" % (2 if value < 9.995 else 1 if value < 99.95 else 0, value, unit)
    return "%.0fns" % (seconds * 1e9)
