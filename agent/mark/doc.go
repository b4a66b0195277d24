// Package mark makes stages of functions of a running Python program, and undoes it.
//
// # Words
//
//   - request: what is asked of the interpreter through CPython's own support for debuggers (PEP 768,
//     3.14 and newer): to execute a script. The main thread does, between two of its instructions.
//   - folder: where script and answer lie, in the target's own file system. Only the target's user
//     and root can look into it, and it is gone when [Run] returns.
//   - claim: script and agent each try to create one file of the folder. Who succeeds decides whether
//     the request is carried out, so none is both withdrawn and executed.
//   - answer: what the script says that it did, as JSON.
//
// # What is written into the target
//
// The path of the script, a flag, and one bit of the main thread's eval breaker, in this order and
// nothing else, at the addresses that the interpreter's own table gives (see package gil). The target
// isn't stopped. Only the lowest byte of the eval breaker is read and written back. A bit of it that
// another thread sets in just these microseconds is lost, but not what it stands for: the interpreter
// sets the bits for signals and pending calls anew whenever a thread takes the GIL, which the main
// thread does on its way to the script; the one for the GIL is set again after at most a switch
// interval, and that for the garbage collection with the next allocations. Free-threaded builds, where
// this does not hold, are refused.
package mark
