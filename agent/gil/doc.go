// Package gil decides how the kernel side finds out, at the entry of a driver call, whether the
// calling thread holds Python's global interpreter lock.
//
// # Words
//
//   - interpreter: a mapped file that defines _PyRuntime (CPython 3.7 and newer): a libpython or an
//     executable that contains one. Extension modules only import that symbol.
//   - thread state: CPython's PyThreadState, one per thread (and sub-interpreter) that ran Python.
//   - held: the calling thread owns the lock. No other thread can take it away while the thread is
//     inside native code, so one look at call entry is right for the whole call.
//   - thread pointer: the base of thread-local storage, fs_base on x86-64, tpidr_el0 on arm64.
//   - self: what pthread_self returns, by which CPython tells threads. On x86-64 it is the thread
//     pointer; on arm64 glibc has it some 1800 bytes below, which its own code tells.
//
// # Methods
//
// The state is read, never traced: no probe is put on the interpreter.
//
//   - [ThreadLocal], CPython 3.12 and newer: the thread-local variable that holds the attached
//     thread state is non-zero. CPython clears it before it gives the lock up and sets it after
//     the lock was taken, and no other thread writes it. Where it lies is decoded from an exported
//     function that returns it ([Detect] looks at _PyThreadState_GetCurrent first), because the
//     variable itself is not exported.
//   - [CurrentThreadState], CPython 3.8 to 3.11: one variable of the process names the thread state
//     that holds the lock; it is the caller's when it carries the caller's self.
//
// In a free-threaded build the lock may be off altogether: [Plan].GILEnabledAddress says so.
//
// # Waiting for the lock
//
// [Plan].LockStart and LockEnd bound the words that threads wait on for the lock. A thread that
// the scheduler takes off the CPU inside futex(2) waits for the lock iff the word lies there.
//
// # What holds where
//
//   - Stripped files and files that were replaced on disk work: only exported symbols, section
//     headers (optional) and the target's memory are used.
//   - So do files whose code was rearranged after linking (BOLT): a function that is decoded is
//     found by its exported symbol, and followed no further than its first branch.
//   - Sub-interpreters with a lock of their own (3.12 and newer): held means that the thread holds
//     the lock of the interpreter that it is running. Waiting for such a lock is not told from
//     waiting for anything else.
//   - An interpreter that a C program loads with dlopen works; its variable is found through the
//     thread's vector of TLS blocks, see [Plan].TLSModule.
//   - What is known of an interpreter that has not started is provisional ([Plan].Provisional). A second one that
//     starts is noticed when the process is looked at again.
//   - CPython 3.8 to 3.11 note in a thread state which thread created it. A program that creates a
//     thread state on one thread and runs it on another, without PyGILState_Ensure, is seen as free.
//   - A program that contains CPython 3.8 or 3.9 without exporting it, and is stripped, looks like
//     one without Python. A newer one is noticed; from 3.12 on its state stays unknown.
//   - Two initialised interpreters in one process, PyPy, CPython before 3.8, CPython from 3.12 on in a
//     shared libpython with another C library than glibc, and every other architecture than x86-64
//     and arm64 give [Unknown] with the reason. So does CPython up to 3.11 on arm64 with another C
//     library than glibc.
package gil
