// Package pystack makes Python frames readable: from the raw frames that the kernel side has read of a
// thread's stack to function, file and line. It reads the target's memory and stops nothing.
//
// # Words
//
//   - layout: where a version of CPython keeps what is read, see [Find].
//   - raw frame: a frame as the kernel side saw it: the address of its code object, where in the
//     bytecode it stood, and the identity of the code object.
//   - identity: the words of a code object that tell it from others: its address, what it points to and
//     its stamp.
//   - stamp: from 3.12 on the code object's version, a number that the interpreter gives only once;
//     before, the hash of its name.
//   - line table: which line each instruction belongs to. Its form changed in 3.10 and in 3.11.
//
// # What is shown is what was there
//
// A raw frame is decoded up to a moment after it was read, and by then its code object may be freed and
// another one at its place. So it is decoded only if a living code object with the identity of the frame
// is in memory, before and after its texts were read. From 3.12 on that is certain.
//
// Before, another code object of the same name may be made at the same place, with all its parts at the
// same places. So there a code object is [Code.Trusted] only if it was found again, the same, in a later
// round, if it was never found gone, and if nothing else was ever seen at its address. Code that is made
// and thrown away while it is being recorded is thus not shown by those versions.
//
// # What holds where
//
// CPython 3.8 to 3.15 on x86-64, free-threaded builds from 3.13 on. Function names are qualified from 3.11
// on ("Pipeline.run"), before they are bare ("run"). The memory may hold anything: everything that is read
// has a bound, and what makes no sense is an error, never a frame.
package pystack
