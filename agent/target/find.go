package target

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// AnyUser stands for whoever a process belongs to.
const AnyUser = -1

const (
	patience           = 5 * time.Second // with one process
	maxUnanswered      = 8               // processes of one user at a time
	maxUnansweredOfAll = 256
)

// Finder looks for processes. A process can make whoever reads its memory, or a file that it has
// mapped, wait for ever (by userfaultfd, or a FUSE file system of its own). So each is looked at
// for a bounded time, and is not looked at again while that reading is stuck; nor are further ones
// of a user who has several of that kind. The zero value is ready; it may be used by several
// goroutines.
type Finder struct {
	Patience time.Duration // with one process; 0: 5 s

	mu    sync.Mutex
	stuck map[int]reading // by pid
}

// reading is a look at a process that has not come to an end.
type reading struct {
	user   int
	wanted chan bool // what it will have found
}

// Found is what a look at all processes has found, by ascending ids.
type Found struct {
	PIDs       []int // wanted
	Unanswered []int // not known in time
}

// Find looks for the processes of a user (effective id) that have mapped a CUDA driver and whose
// name (comm) or command line, arguments joined with blanks, a pattern matches. Processes that
// come or go meanwhile may be missing, and so are those that may not be looked at. Nothing else
// is asked of processes of other users: their memory and the files that they have mapped are not
// touched.
func (f *Finder) Find(ctx context.Context, pattern *regexp.Regexp, user int) (Found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Found{}, fmt.Errorf("listing processes: %w", err)
	}
	var found Found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		owner, err := userOf(pid)
		if err != nil || user != AnyUser && owner != user {
			continue
		}
		wanted, answered := f.ask(ctx, pid, owner, pattern)
		switch {
		case ctx.Err() != nil:
			return Found{}, ctx.Err()
		case !answered:
			found.Unanswered = append(found.Unanswered, pid)
		case wanted:
			found.PIDs = append(found.PIDs, pid)
		}
	}
	slices.Sort(found.PIDs)
	slices.Sort(found.Unanswered)
	return found, nil
}

// ask looks at one process for a bounded time.
func (f *Finder) ask(ctx context.Context, pid, user int, pattern *regexp.Regexp) (wanted, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mayAsk(pid, user) {
		return false, false
	}
	r := reading{user, make(chan bool, 1)}
	go func() { r.wanted <- matches(pid, pattern) && hasDriver(pid) }()
	timer := time.NewTimer(cmp.Or(f.Patience, patience))
	defer timer.Stop()
	select {
	case wanted = <-r.wanted:
		return wanted, true
	case <-timer.C:
	case <-ctx.Done():
	}
	f.stuck[pid] = r
	return false, false
}

// mayAsk forgets the readings that have come to an end, and tells whether there
// may be one more.
func (f *Finder) mayAsk(pid, user int) bool {
	if f.stuck == nil {
		f.stuck = map[int]reading{}
	}
	ofUser := 0
	for id, r := range f.stuck {
		select {
		case <-r.wanted: // of then, or of a process that had this id before
			delete(f.stuck, id)
		default:
			if r.user == user {
				ofUser++
			}
		}
	}
	_, is := f.stuck[pid]
	return !is && ofUser < maxUnanswered && len(f.stuck) < maxUnansweredOfAll
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

// userOf asks the kernel alone, which no process can delay.
func userOf(pid int) (int, error) {
	dir, err := openProcDir(pid)
	if err != nil {
		return 0, err
	}
	defer dir.f.Close()
	b, err := dir.read("status", maxStatus)
	if err != nil {
		return 0, err
	}
	s, err := parseStatus(b)
	return s.uid, err
}

func hasDriver(pid int) bool {
	p, err := Open(pid)
	if err != nil {
		return false
	}
	drivers, err := p.Drivers()
	return errors.Join(err, p.Close()) == nil && len(drivers) > 0
}
