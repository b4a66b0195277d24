package probe

import (
	"sync"

	"golang.org/x/sys/unix"

	"stageprof/agent/elfsym"
)

// kernel is what placement must know of the running kernel. Emulation of long
// nops (Linux 6.18) shows in nothing but time, so this is the one place that
// asks for the version; a wrong answer costs microseconds, never a call.
var kernel = sync.OnceValue(func() elfsym.Kernel {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return elfsym.Kernel{}
	}
	return elfsym.Kernel{LongNops: atLeast(unix.ByteSliceToString(name.Release[:]), 6, 18)}
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
