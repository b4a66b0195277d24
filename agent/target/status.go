package target

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

const (
	maxStatus  = 64 << 10 // bytes of stat and status
	kernelFlag = 0x200000 // PF_KTHREAD in the flags of stat
)

// statLine holds what is used of /proc/PID/stat.
type statLine struct {
	comm       string
	state      byte
	parent     uint64
	flags      uint64
	startTicks uint64 // clock ticks (1/100 s) since boot
	startStack uint64 // address; changes with every exec; 0 if not permitted to see it
}

// parseStat reads /proc/PID/stat. The command name may hold anything, also parentheses, so the
// last one ends it.
func parseStat(b []byte) (statLine, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return statLine{}, fmt.Errorf("parsing stat: no command name in %q", clip(b))
	}
	s := statLine{comm: string(b[open+1 : end])}
	fields := bytes.Fields(b[end+1:])
	const state, parent, flags, startTime, startStack = 0, 1, 6, 19, 25 // fields 3, 4, 9, 22 and 28 of proc(5)
	if len(fields) <= startStack || len(fields[state]) != 1 {
		return statLine{}, fmt.Errorf("parsing stat: %d fields", len(fields))
	}
	if s.state = fields[state][0]; s.state < 'A' || s.state > 'z' {
		return statLine{}, fmt.Errorf("parsing stat: state %q", s.state)
	}
	for _, f := range []struct {
		index int
		value *uint64
	}{{parent, &s.parent}, {flags, &s.flags}, {startTime, &s.startTicks}, {startStack, &s.startStack}} {
		v, err := strconv.ParseUint(string(fields[f.index]), 10, 64)
		if err != nil {
			return statLine{}, fmt.Errorf("parsing stat: field %d: %w", f.index+3, err)
		}
		*f.value = v
	}
	return s, nil
}

// status holds what is used of /proc/PID/status.
type status struct {
	tgid    int
	nspid   int // innermost pid namespace
	uid     int // effective
	threads int
	seccomp int // 0 off, 1 strict, 2 filter; -1 if the kernel does not say
}

// parseStatus reads /proc/PID/status. Lines that are missing leave their defaults; only Tgid,
// which every kernel writes, is required.
func parseStatus(b []byte) (status, error) {
	s := status{seccomp: -1}
	for line := range strings.Lines(string(b)) {
		key, rest, ok := strings.Cut(line, ":")
		values := strings.Fields(rest)
		if !ok || len(values) == 0 {
			continue
		}
		var dst *int
		value := values[0]
		switch key {
		case "Tgid":
			dst = &s.tgid
		case "Threads":
			dst = &s.threads
		case "Seccomp":
			dst = &s.seccomp
		case "NSpid":
			dst, value = &s.nspid, values[len(values)-1]
		case "Uid":
			if len(values) < 2 {
				continue
			}
			dst, value = &s.uid, values[1]
		default:
			continue
		}
		v, err := strconv.Atoi(value)
		if err != nil {
			return status{}, fmt.Errorf("parsing status: %s: %w", key, err)
		}
		*dst = v
	}
	if s.tgid <= 0 {
		return status{}, fmt.Errorf("parsing status: no Tgid in %q", clip(b))
	}
	if s.nspid <= 0 {
		s.nspid = s.tgid
	}
	return s, nil
}

// clip shortens bytes for an error message.
func clip(b []byte) []byte {
	return b[:min(len(b), 80)]
}
