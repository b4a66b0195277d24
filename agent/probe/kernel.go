package probe

import (
	"sync"

	"golang.org/x/sys/unix"

	"stageprof/agent/elfsym"
)

// Kernel is what placement must know of the running kernel. Emulation of long
// nops (Linux 6.18) shows in nothing but time, so this is one of the two places
// that ask for the version; a wrong answer costs microseconds, never a call.
func Kernel() elfsym.Kernel { return elfsym.Kernel{LongNops: ReleaseAtLeast(6, 18)} }

// ReleaseAtLeast tells whether the running kernel calls itself at least
// major.minor. It is for behaviour that can't be probed without harm.
func ReleaseAtLeast(major, minor int) bool { return atLeast(release(), major, minor) }

var release = sync.OnceValue(func() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
})

// atLeast compares the beginning of a release like "6.18.44-amd64".
func atLeast(release string, major, minor int) bool {
	var have [2]int
	field := 0
	for _, c := range release {
		if c >= '0' && c <= '9' {
			have[field] = have[field]*10 + int(c-'0')
			continue
		}
		if field++; c != '.' || field == len(have) {
			break
		}
	}
	return have[0] > major || have[0] == major && have[1] >= minor
}
