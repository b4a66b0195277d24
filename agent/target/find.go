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

// AnyUser stands for whoever a process belongs to.
const AnyUser = -1

// Find returns the ids of the processes of a user (effective id) that have mapped a CUDA driver
// and whose name (comm) or command line, arguments joined with blanks, a pattern matches, in
// ascending order. Processes that come or go meanwhile may be missing, and so are those that may
// not be looked at. Nothing else is asked of processes of other users: their memory and the files
// that they have mapped, which they can make readers wait for, are not touched.
func Find(pattern *regexp.Regexp, user int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !matches(pid, pattern, user) {
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
func matches(pid int, pattern *regexp.Regexp, user int) bool {
	dir, err := openProcDir(pid)
	if err != nil {
		return false
	}
	defer dir.f.Close()
	if user != AnyUser && !dir.belongsTo(user) {
		return false
	}
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

func (d procDir) belongsTo(user int) bool {
	b, err := d.read("status", maxStatus)
	if err != nil {
		return false
	}
	s, err := parseStatus(b)
	return err == nil && s.uid == user
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
