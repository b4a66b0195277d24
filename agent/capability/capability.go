// Package capability reads which of the kernel's capabilities this process has,
// and gives up those that it does not need.
package capability

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, one bit each, as in /proc/PID/status.
type Set uint64

// Of is the set of some of unix.CAP_….
func Of(capabilities ...int) (s Set) {
	for _, c := range capabilities {
		s |= 1 << c
	}
	return s
}

// Has tells whether all of some capabilities are in the set.
func (s Set) Has(all Set) bool { return s&all == all }

// Effective are those that count when this process asks for something, Permitted
// those that it could make count. Both are empty where the kernel does not tell.
func Effective() Set { return mine().effective }

// Permitted is described with Effective.
func Permitted() Set { return mine().permitted }

func mine() sets {
	s, err := ofThread()
	if err != nil {
		return sets{}
	}
	return s
}

// sets are what a thread has. Those of all threads are the same unless one has
// changed its own.
type sets struct{ effective, permitted, inheritable Set }

func ofThread() (sets, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the low 32 first
	if err := unix.Capget(&head, &data[0]); err != nil {
		return sets{}, fmt.Errorf("reading the capabilities: %w", err)
	}
	return sets{
		effective:   Set(data[0].Effective) | Set(data[1].Effective)<<32,
		permitted:   Set(data[0].Permitted) | Set(data[1].Permitted)<<32,
		inheritable: Set(data[0].Inheritable) | Set(data[1].Inheritable)<<32,
	}, nil
}

// apply makes them those of the calling thread. What is ambient goes with what is
// inheritable.
func (s sets) apply() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(s.effective), Permitted: uint32(s.permitted), Inheritable: uint32(s.inheritable)},
		{Effective: uint32(s.effective >> 32), Permitted: uint32(s.permitted >> 32), Inheritable: uint32(s.inheritable >> 32)},
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("changing the capabilities: %w", err)
	}
	return nil
}
