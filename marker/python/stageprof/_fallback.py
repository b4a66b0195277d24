# SPDX-License-Identifier: Apache-2.0
"""What the C extension does, in Python.

The markers come from libstageprof.so through ctypes, if there is one: the file
that the environment variable STAGEPROF_LIBRARY names, else the one beside this
package, else the one that the loader finds. Without it there are statistics
only.
"""

import ctypes
import os
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

_DEPTH = 64
_NAMES = 4096
_MAX_ENDED = 256
_TOO_MANY = "(too many names)"


class _NoMarkers:
    """Stands in for the library when there is none."""

    def __init__(self) -> None:
        self._names: Dict[bytes, str] = {}
        self._open = threading.local()

    def intern(self, name: bytes) -> Tuple[Any, str]:
        if name not in self._names and len(self._names) == _NAMES:
            return None, _TOO_MANY
        text = name.decode("utf-8", "backslashreplace") or "(empty)"
        self._names[name] = text
        return None, text

    def depth(self) -> int:
        return 0

    def begin(self, name: Any) -> None:
        pass

    def end_to(self, depth: int) -> None:
        pass

    def process_begin(self, name: Any) -> None:
        pass

    def process_end(self) -> None:
        pass


class _Library:
    """libstageprof.so. Its functions are short: the GIL stays held in them."""

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path)
        address = ctypes.c_void_p
        self._intern = library.stageprof_intern
        self._intern.argtypes, self._intern.restype = [ctypes.c_char_p, ctypes.c_size_t], address
        self.depth = library.stageprof_depth
        self.depth.argtypes, self.depth.restype = [], ctypes.c_uint32
        self.begin = library.stageprof_begin_name
        self.begin.argtypes, self.begin.restype = [address], None
        self.end_to = library.stageprof_end_to
        self.end_to.argtypes, self.end_to.restype = [ctypes.c_uint32], None
        self.process_begin = library.stageprof_process_begin_name
        self.process_begin.argtypes, self.process_begin.restype = [address], None
        self.process_end = library.stageprof_process_end
        self.process_end.argtypes, self.process_end.restype = [], None

    def intern(self, name: bytes) -> Tuple[Any, str]:
        address = self._intern(name, len(name))
        return address, ctypes.string_at(address).decode("utf-8")


def _load() -> Optional[_Library]:
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libstageprof.so")
    for path in (os.environ.get("STAGEPROF_LIBRARY"), beside, "libstageprof.so.1"):
        if path:
            try:
                return _Library(path)
            except (OSError, AttributeError):
                continue
    return None


_library = _load()
_markers: Any = _library or _NoMarkers()
implementation = "ctypes" if _library else "statistics"
consequence = (
    "markers work through ctypes and cost microseconds"
    if _library
    else "statistics work, but there are no markers for `stageprof record`"
)

# Histograms: 32 buckets per power of two, as in the extension.
_SUB_BITS = 5
_SUB = 1 << _SUB_BITS


def _bucket(ns: int) -> int:
    shift = max(ns.bit_length() - 1 - _SUB_BITS, 0)
    return shift * _SUB + (ns >> shift)


def _middle(bucket: int) -> int:
    shift = max(bucket // _SUB - 1, 0)
    return ((bucket - shift * _SUB) << shift) + (1 << shift) // 2


class _Durations:
    __slots__ = ("count", "total", "min", "max", "buckets")

    def __init__(self) -> None:
        self.count = self.total = self.max = 0
        self.min = 1 << 63
        self.buckets: Dict[int, int] = {}

    def add(self, ns: int) -> None:
        self.count += 1
        self.total += ns
        self.min = min(self.min, ns)
        self.max = max(self.max, ns)
        bucket = _bucket(ns)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "_Durations") -> None:
        self.count += other.count
        self.total += other.total
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        for bucket, n in list(other.buckets.items()):
            self.buckets[bucket] = self.buckets.get(bucket, 0) + n

    def percentile(self, percent: int) -> int:
        rank = (self.count * percent + 99) // 100
        seen = 0
        for bucket, n in sorted(list(self.buckets.items())):
            seen += n
            if seen >= rank:
                return min(max(_middle(bucket), self.min), self.max)
        return self.max

    def row(self, stage: str, thread: Optional[str], tid: int) -> Tuple[Any, ...]:
        p50, p99 = self.percentile(50), self.percentile(99)
        return (stage, thread, tid, self.count, self.total, self.min, self.max, p50, p99)


class _Thread:
    """What one thread has open, and its statistics."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.tid = _own_tid()
        self.open: List[Tuple[str, int, int]] = []  # stage, marker depth before it, begin
        self.stages: Dict[str, _Durations] = {}
        self.epoch = _epoch

    def count(self, stage: str, ns: int) -> None:
        if self.epoch != _epoch:
            self.stages = {}
            self.epoch = _epoch
        durations = self.stages.get(stage)
        if durations is None:
            durations = self.stages[stage] = _Durations()
        durations.add(ns)

    def counted(self) -> List[Tuple[str, _Durations]]:
        return list(self.stages.items()) if self.epoch == _epoch else []


def _own_tid() -> int:
    return threading.get_native_id()


_epoch = 1
_local = threading.local()
_lock = threading.RLock()  # guards _threads, _ended and _stages
_threads: List[_Thread] = []
_ended: Dict[str, _Durations] = {}
_ended_epoch = 0
_stages: Dict[str, "Stage"] = {}


def _bury_oldest() -> None:
    """Sums up the oldest ended threads, so that what is kept stays bounded."""
    global _threads, _ended, _ended_epoch
    ended = [t for t in _threads if not t.thread.is_alive()]
    old = ended[: max(len(ended) - _MAX_ENDED, 0)]
    if not old:
        return
    if _ended_epoch != _epoch:
        _ended, _ended_epoch = {}, _epoch
    for t in old:
        for stage, durations in t.counted():
            _ended.setdefault(stage, _Durations()).merge(durations)
    _threads = [t for t in _threads if t not in old]


def _own() -> _Thread:
    own: Optional[_Thread] = getattr(_local, "thread", None)
    if own is None:
        own = _local.thread = _Thread()
        with _lock:
            _bury_oldest()
            _threads.append(own)
    return own


def _after_fork_in_child() -> None:
    global _epoch, _lock, _threads
    _lock = threading.RLock()
    _epoch += 1
    own: Optional[_Thread] = getattr(_local, "thread", None)
    _threads = [own] if own else []
    if own:
        own.tid = _own_tid()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Stage:
    """A named stage: a context manager and a decorator."""

    __slots__ = ("name", "_marker")
    name: str
    _marker: Any

    def __new__(cls, name: str) -> "Stage":
        return stage(name)

    def __enter__(self) -> "Stage":
        open_stages = _own().open
        depth = _markers.depth()
        begin_ns = time.monotonic_ns()
        _markers.begin(self._marker)
        open_stages.append((self.name, depth, begin_ns))
        return self

    def __exit__(self, *exc_info: object) -> None:
        own = _own()
        for at in range(len(own.open) - 1, -1, -1):
            if own.open[at][0] == self.name:
                _end_stages(own, at)
                return

    def __call__(self, function: Any) -> Any:
        from ._decorate import decorate

        return decorate(self, function)

    def __reduce__(self) -> Any:
        return Stage, (self.name,)

    def __repr__(self) -> str:
        return "stage(%r)" % self.name


def _end_stages(own: _Thread, at: int) -> None:
    """Ends the open stage number at and all inside it."""
    now = time.monotonic_ns()
    depth = own.open[at][1]
    while len(own.open) > at:
        name, _, begin_ns = own.open.pop()
        own.count(name, now - begin_ns)
    _markers.end_to(depth)


def stage(name: str) -> Stage:
    """The stage of this name."""
    if type(name) is not str:
        raise TypeError("a stage's name is a str, not %s" % type(name).__name__)
    found = _stages.get(name)
    if found is not None:
        return found
    with _lock:
        made: Stage = object.__new__(Stage)
        made._marker, made.name = _markers.intern(name.encode("utf-8", "surrogatepass"))
        if made.name != _TOO_MANY:
            _stages[name] = made
        return made


def begin(name: str) -> None:
    """Begin a stage on the calling thread."""
    stage(name).__enter__()


def end() -> None:
    """End the calling thread's innermost stage."""
    own = _own()
    if own.open:
        _end_stages(own, len(own.open) - 1)


def process_begin(name: str) -> None:
    """Begin a stage of the whole process."""
    _markers.process_begin(stage(name)._marker)


def process_end() -> None:
    """End the innermost stage of the process."""
    _markers.process_end()


def add_time(name: str, seconds: float) -> None:
    """Count a span of so many seconds."""
    if not 0 <= seconds < 9e9:
        raise ValueError("seconds must be a number from 0 to 9e9")
    _own().count(stage(name).name, round(seconds * 1e9))


def reset() -> None:
    """Begin the statistics anew."""
    global _epoch
    _epoch += 1


def rows(by_thread: bool) -> List[Tuple[Any, ...]]:
    """The statistics as (stage, thread, tid, count, total, min, max, p50, p99), in ns."""
    with _lock:
        counted = [(t.thread.name, t.tid, t.counted()) for t in _threads]
        if _ended_epoch == _epoch:
            counted.append(("(ended threads)", 0, list(_ended.items())))
    if by_thread:
        return [d.row(stage, name, tid) for name, tid, stages in counted for stage, d in stages]
    sums: Dict[str, _Durations] = {}
    for _, _, stages in counted:
        for name, durations in stages:
            sums.setdefault(name, _Durations()).merge(durations)
    return [durations.row(name, None, 0) for name, durations in sums.items()]
