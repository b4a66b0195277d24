# SPDX-License-Identifier: Apache-2.0
"""workers.py N [LIBRARY...]: N threads that wait in native code, with the lock released or held as
they are told. The libraries are loaded and not used.

Thread k blocks in read() on descriptor 3+2k without the lock; a byte there makes it block in read() on
descriptor 4+2k with the lock, until a byte there makes it start over. Thread 0 is the main thread.
Two more threads wait for ever for an event and for a queue. Prints the thread ids on one line first,
those of the two last.
"""

import ctypes
import queue
import sys
import threading

released = ctypes.CDLL(None)
held = ctypes.PyDLL(None)
unused = [ctypes.CDLL(path) for path in sys.argv[2:]]
count = int(sys.argv[1])
tids = [0] * (count + 2)
started = threading.Barrier(count + 2)


def work(k):
    tids[k] = threading.get_native_id()
    started.wait()
    if k == 0:
        print(*tids, flush=True)
    byte = ctypes.create_string_buffer(1)
    while released.read(3 + 2 * k, byte, 1) == 1 and held.read(4 + 2 * k, byte, 1) == 1:
        pass


def wait(k, function):
    tids[k] = threading.get_native_id()
    started.wait()
    function()


threads = [threading.Thread(target=work, args=(k,)) for k in range(1, count)]
for k, function in enumerate((threading.Event().wait, queue.Queue().get), start=count):
    threads.append(threading.Thread(target=wait, args=(k, function), daemon=True))
for thread in threads:
    thread.start()
work(0)
