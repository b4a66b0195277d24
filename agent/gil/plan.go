package gil

// Method says by which rule the kernel side decides.
type Method uint32

const (
	// None: no interpreter is mapped, no call can hold a lock.
	None Method = iota
	// Unknown: an interpreter is mapped but its state can't be read; Plan.Reason says why.
	Unknown
	// ThreadLocal: the calling thread holds the lock iff the 8 bytes of its own copy of a
	// thread-local variable are not zero.
	ThreadLocal
	// CurrentThreadState: the calling thread holds the lock iff the process's current thread
	// state is the caller's.
	CurrentThreadState
)

// String returns the method's name in messages and profiles' comments.
func (m Method) String() string {
	switch m {
	case None:
		return "none"
	case Unknown:
		return "unknown"
	case ThreadLocal:
		return "thread-local"
	case CurrentThreadState:
		return "current-thread-state"
	}
	return "invalid"
}

// Plan is all that the kernel side needs to decide for one process. Addresses are the target's.
//
// With tp the calling thread's thread pointer and u64(a) the 8 bytes at address a:
//
//   - ThreadLocal, TLSModule == 0: held iff u64(tp + TLSOffset) != 0.
//   - ThreadLocal, TLSModule != 0 (glibc): dtv = u64(tp + 8), on arm64 u64(tp). The thread has the variable
//     iff TLSModule <= u64(dtv - 16) and block = u64(dtv + 16*TLSModule) is neither 0 nor ^0;
//     then held iff u64(block + TLSOffset) != 0. A thread without it is free.
//   - CurrentThreadState: ts = u64(Address); held iff ts != 0 and u64(ts + ThreadIDOffset) == tp - SelfBelow.
type Plan struct {
	Method Method
	// Version is the interpreter's version, "3.12.1" or "3.14.0rc2"; only "3.10" when no more
	// than the file's name is known; "" when nothing is.
	Version string
	// Path is the interpreter's file as the target maps it.
	Path string
	// Reason says, for Unknown, what was looked at and why it does not suffice.
	Reason string
	// Provisional says that an interpreter had not started yet, or not far enough to tell its version:
	// once it has, [Detect] knows more.
	Provisional bool

	Address        uint64 // of the pointer to the current thread state
	ThreadIDOffset uint64 // of the owner's pthread_self() in a thread state
	SelfBelow      uint64 // pthread_self() is so many bytes below the thread pointer: 0 on x86-64
	TLSModule      uint64 // index in the thread's vector of TLS blocks; 0: TLSOffset is from tp
	TLSOffset      int64

	// FreeThreaded is set for builds that can run without the lock. In those the 4 bytes at
	// GILEnabledAddress are 0 while the lock is off (it may be switched on later, by importing
	// an extension that needs it); otherwise ThreadLocal's rule holds.
	FreeThreaded      bool
	GILEnabledAddress uint64

	// A thread that is blocked in futex(2) on a word in [LockStart, LockEnd) waits for the lock:
	// there lie the condition variables and mutexes of the main interpreter's lock, which the
	// sub-interpreters without a lock of their own use too. Both are 0 when that is not known:
	// for None and Unknown, with another C library than glibc, whose condition variables let
	// threads wait elsewhere, and from 3.12 on for a Python that has not started yet.
	LockStart, LockEnd uint64

	// Runtime is the address of _PyRuntime, CodeType that of the type of code objects (0: it is not
	// exported) and Lists where the thread states are. They are 0 for None and Unknown, and where the
	// layout of the version is not known, nor, where threads are told by it, what pthread_self() returns.
	Runtime  uint64
	CodeType uint64
	Lists    Lists
}

// Lists says how to get at the thread states of all threads: the pointer at First leads to the newest
// interpreter, the others are offsets into interpreters and thread states.
type Lists struct {
	First           uint64
	NextInterpreter uint64
	FirstThread     uint64
	NextThread      uint64
	ThreadID        uint64 // the owner's pthread_self(), which Plan.SelfBelow is about
}
