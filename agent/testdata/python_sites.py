# SPDX-License-Identifier: Apache-2.0
"""Calls the driver from many kinds of Python code, and notes who called, by Python's own account.

    python_sites.py DRIVER ROUNDS TRUTH [sites|stops|hot|remade|natives|forks] [PROGRAM]

"stops" is "sites" on one thread, which waits for a line of standard input in the first call from
each stack. When its standard input ends it exits, or executes PROGRAM.

ctypes runs a function's errcheck inside the call instruction, after the driver has returned: so
the frames that it sees are those of the driver call. TRUTH gets a list of [symbol, count, cut,
[[function, file, line], ...]], innermost frame first.
"""
import asyncio
import collections
import ctypes
import functools
import json
import os
import sys
import threading
import time

FRAMES = 32  # that a stack keeps

path, rounds, truth_file, what = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
local = threading.local()
tables = []


def readable(text):
    return "".join("\\x%02x" % (ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def note(result, function, arguments):
    try:
        table = local.table
    except AttributeError:
        table = local.table = collections.Counter()
        tables.append(table)
    stack, frame = [function.__name__], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        stack.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    if what == "stops" and tuple(stack) not in table:
        print("stop", function.__name__, flush=True)
        sys.stdin.readline()
    table[tuple(stack)] += 1
    return result


def bind(library, name):
    function = getattr(library, name)
    function.errcheck = note
    return function


free, held = ctypes.CDLL(path), ctypes.PyDLL(path)
query = bind(held, "cuStreamQuery")
version = bind(free, "cuDriverGetVersion")
count = bind(held, "cuDeviceGetCount")
synchronize = bind(free, "cuCtxSynchronize")
number = ctypes.byref(ctypes.c_int())


def plain():
    query(None)
    version(number); count(number)
    synchronize()


def several_lines():
    version(
        number,
    )
    return (
        count(number)
        + query(
            None
        )
    )


def nested():
    def inner():
        def innermost():
            version(number)
        innermost()
        count(number)
    inner()


def lambdas():
    (lambda: query(None))()
    sorted([2, 1], key=lambda _: count(number))


def comprehensions():
    [version(number) for _ in range(2)]
    return {k: count(number) for k in range(2)}


def generator():
    for _ in range(2):
        yield version(number)


def generators():
    for _ in generator():
        pass
    list(map(lambda _: query(None), generator()))


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        count(number)
        return function(*arguments)
    return wrapper


class Model:
    def __call__(self):
        return self.step()

    @decorated
    def step(self):
        return version(number)

    @classmethod
    def of_class(cls):
        return query(None)

    @staticmethod
    def of_none():
        return count(number)

    @property
    def value(self):
        return version(number)

    def __del__(self):
        query(None)


def methods():
    model = Model()
    model()
    Model.of_class()
    Model.of_none()
    model.value
    del model


def recursion(depth):
    if depth:
        return recursion(depth - 1)
    return version(number)


def depths():
    for depth in (1, 20, FRAMES - 8, FRAMES + 20, 150):
        recursion(depth)


async def coroutine():
    version(number)
    await asyncio.sleep(0)
    async with asyncio.Lock():
        query(None)


async def tasks():
    await asyncio.gather(coroutine(), coroutine())


def asynchronous():
    asyncio.run(tasks())


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compare(a, b):
    version(number)
    return 0


def through_c():
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(array, 2, ctypes.sizeof(ctypes.c_int), compare)


def größe():
    query(None)


def 文件():
    version(number)


def exceptions():
    try:
        raise ValueError
    except ValueError:
        version(number)
    finally:
        count(number)
    with open(os.devnull):
        query(None)


def branches():
    total = 0
    for i in range(300):  # a long way round in the bytecode, and back
        if i % 100 == 0:
            total += version(number)
        elif i % 77 == 0: total -= count(number)
    while total < 2:
        total += 1; query(None)


LONG = "def long(version, number):\n" + "    x = 1\n" * 700 + "    version(number)\n" * 3
FILES = [
    ("übung.py", "def f(version, number):\n\n    version(number)\n"),
    ("文件/模型.py", "def f(version, number):\n    version(number)\n\n    version(number)\n"),
    ("\U0001F680.py", "def f(version, number): version(number)\n"),
    (os.fsdecode(b"caf\xe9.py"), "\n" * 300 + "def f(version, number):\n    (version\n(number))\n"),
    ("long.py", LONG.replace("long", "f")),
]
if what == "stops":  # py-spy leaves out frames whose file name is no text
    FILES = [f for f in FILES if f[0].isprintable()]
COMPILED = []
for name, source in FILES:
    namespace = {}
    exec(compile(source, name, "exec"), namespace)
    COMPILED.append(namespace["f"])


def compiled():
    for function in COMPILED:
        function(version, number)


def sites():
    for _ in range(rounds):
        for site in (plain, several_lines, nested, lambdas, comprehensions, generators, methods, depths,
                     asynchronous, through_c, größe, 文件, exceptions, branches, compiled):
            site()


stops = sites


def hot():
    """A loop that is compiled to machine code where Python has a compiler (JIT) that is on."""
    def inner():
        count(number)

    jit, in_machine_code = getattr(sys, "_jit", None), 0
    for i in range(rounds):
        version(number)
        inner()
        if i % 2:
            query(None)
        if jit:
            in_machine_code += jit.is_active()
    if jit and jit.is_enabled() and not in_machine_code:
        raise SystemExit("the loop was not compiled")


def remade():
    """Makes functions and throws them away: names and lines change, the memory is the same."""
    for i in range(rounds):
        source = "%sdef f%d(version, number):\n%s    version(number)\n" % (
            "\n" * (i % 5), i % 7, "\n" * (i % 3))
        namespace = {}
        exec(compile(source, "made%d.py" % (i % 4), "exec"), namespace)
        namespace["f%d" % (i % 7)](version, number)
        exec(compile("\n" * (i % 6) + "version(number)\n", "code%d.py" % (i % 2), "exec"),
             {"version": version, "number": number})
        plain()


def natives():
    """Threads that run no Python call the driver, beside many that do and are idle."""
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    native = ctypes.cast(free.cuCtxSynchronize, ctypes.c_void_p)
    over = threading.Event()
    idle = [threading.Thread(target=over.wait) for _ in range(40)]
    for other in idle:
        other.start()
    for _ in range(rounds):
        libc.pthread_create(ctypes.byref(thread), None, native, None)
        libc.pthread_join(thread, None)
        plain()
        local.table[("cuCtxSynchronize",)] += 1
    over.set()
    for other in idle:
        other.join()


def forks():
    for _ in range(rounds):
        child = os.fork()
        if not child:
            plain()
            os._exit(0)
        os.waitpid(child, 0)
        plain()


def await_ready():
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)


free.cuInit(0)
print("up", flush=True)
await_ready()
free.simcuda_reset_truth()
threads = [threading.Thread(target=globals()[what]) for _ in range(0 if what in ("forks", "stops") else 2)]
for thread in threads:
    thread.start()
globals()[what]()
for thread in threads:
    thread.join()
rows = collections.Counter()
for table in tables:
    rows.update(table)
with open(truth_file, "w") as file:
    json.dump([[symbol, calls, len(stack) > FRAMES, [[readable(f), readable(p), line] for f, p, line in stack[:FRAMES]]]
               for (symbol, *stack), calls in rows.items()], file)
print("stop -\ndone" if what == "stops" else "done", flush=True)
sys.stdin.read()
if len(sys.argv) > 5:
    os.execv(sys.argv[5], sys.argv[5:])
