package target

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// Find returns the ids of the processes that have mapped a CUDA driver and whose name (comm) or
// command line, arguments joined with blanks, a pattern matches, in ascending order. Processes
// that come or go meanwhile may be missing, and so are those that may not be looked at.
func Find(pattern *regexp.Regexp) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !matches(pid, pattern) {
			continue
		}
		if has, err := hasDriver(pid); err == nil && has {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found, nil
}

// matches asks what every process may read of every other before anything else is looked at.
func matches(pid int, pattern *regexp.Regexp) bool {
	dir, err := openProcDir(pid)
	if err != nil {
		return false
	}
	defer dir.f.Close()
	comm, err := dir.read("comm", maxStatus)
	if err != nil {
		return false
	}
	cmdline, err := dir.read("cmdline", maxArguments)
	if err != nil {
		return false
	}
	cmdline = bytes.ReplaceAll(bytes.TrimRight(cmdline, "\x00"), []byte{0}, []byte{' '})
	return pattern.Match(bytes.TrimSuffix(comm, []byte("\n"))) || pattern.Match(cmdline)
}

func hasDriver(pid int) (has bool, err error) {
	p, err := Open(pid)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	drivers, err := p.Drivers()
	return len(drivers) > 0, err
}
