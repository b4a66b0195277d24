package target

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const maxThreads = 1 << 17

// Thread is a thread of the target.
type Thread struct {
	TID   int    // as this process sees it
	NSTID int    // as the target sees it: what gettid returns there
	Name  string // up to 15 bytes, any but NUL
	// Seccomp is its seccomp mode: 0 off, 1 strict, 2 filter, -1 if the kernel does
	// not say.
	Seccomp int
}

// Threads returns the target's threads in ascending order. Threads that come or go meanwhile may
// or may not be among them.
func (p *Process) Threads() ([]Thread, error) {
	const action = "listing the threads"
	tids, err := p.threadIDs()
	if err != nil {
		return nil, p.fail(action, err)
	}
	out := make([]Thread, 0, len(tids))
	for _, tid := range tids {
		t, err := p.thread(tid)
		if gone(err) {
			continue
		} else if err != nil {
			return nil, p.fail(action, err)
		}
		out = append(out, t)
	}
	if exited, err := p.hasExited(); err != nil || exited {
		return nil, p.fail(action, err)
	}
	return out, nil
}

// Running returns how many of the target's threads are on a CPU, or ready for one.
func (p *Process) Running() (int, error) {
	const action = "counting the running threads"
	tids, err := p.threadIDs()
	if err != nil {
		return 0, p.fail(action, err)
	}
	running := 0
	for _, tid := range tids {
		b, err := p.dir.read("task/"+strconv.Itoa(tid)+"/stat", maxStatus)
		if gone(err) {
			continue
		} else if err != nil {
			return 0, p.fail(action, err)
		}
		stat, err := parseStat(b)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", action, err)
		}
		if stat.state == 'R' {
			running++
		}
	}
	return running, nil
}

func (p *Process) threadIDs() ([]int, error) {
	d, err := p.dir.open("task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxThreads)
	if err != nil && err != io.EOF {
		return nil, err
	}
	tids := make([]int, 0, len(names))
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("thread id: %w", err)
		}
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	return tids, nil
}

func (p *Process) thread(tid int) (Thread, error) {
	dir := "task/" + strconv.Itoa(tid)
	b, err := p.dir.read(dir+"/status", maxStatus)
	if err != nil {
		return Thread{}, err
	}
	s, err := parseStatus(b)
	if err != nil {
		return Thread{}, err
	}
	// Unlike status, comm does not escape.
	comm, err := p.dir.read(dir+"/comm", maxStatus)
	if err != nil {
		return Thread{}, err
	}
	return Thread{TID: tid, NSTID: s.nspid, Name: strings.TrimSuffix(string(comm), "\n"), Seccomp: s.seccomp}, nil
}
