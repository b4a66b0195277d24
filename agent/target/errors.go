package target

import "errors"

// The errors that say why a process can not be a target. Messages that wrap them name the
// process and what to do instead.
var (
	ErrNoProcess    = errors.New("no such process")
	ErrThread       = errors.New("not a process but one of its threads")
	ErrKernelThread = errors.New("a kernel thread")
	ErrZombie       = errors.New("already exited")
	ErrSelf         = errors.New("the profiler itself")
	// ErrPermission is wrapped by messages that name the missing capability.
	ErrPermission = errors.New("permission denied")
	// ErrTargetExited is returned once the process is gone, even if another one has its pid.
	ErrTargetExited = errors.New("the target has exited")
	// ErrFileGone is returned by [Process.OpenMapped] when the mapped file can not be reached
	// any more and what lies at its path is another file.
	ErrFileGone = errors.New("the mapped file can not be reached")
	// ErrClosed is returned by methods of a closed [Process].
	ErrClosed = errors.New("the target was closed")
)
