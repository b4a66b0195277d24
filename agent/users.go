package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stageprof/agent/target"
)

// User is a descendant of a process that has mapped a CUDA driver.
type User struct {
	PID     int
	Rank    int // -1: unknown
	Command string
	// Copy: it was forked and has executed no program since. It has mapped
	// whatever its parent had, and may never call the driver.
	Copy bool
}

func (u User) String() string {
	what := u.Command
	if u.Copy {
		what = "forked, " + what
	}
	if u.Rank >= 0 {
		what = fmt.Sprintf("rank %d, %s", u.Rank, what)
	}
	return fmt.Sprintf("%d (%s)", u.PID, what)
}

// Users returns the descendants of a process that have mapped a CUDA driver,
// parents before children. Those that may not be looked at are left out.
func Users(pid int) ([]User, error) {
	return usersBeside(pid, nil)
}

// usersBeside leaves out those that are known.
func usersBeside(pid int, known []User) ([]User, error) {
	below, err := target.Descendants(pid)
	if err != nil {
		return nil, err
	}
	var users []User
	for _, d := range below {
		if slices.ContainsFunc(known, func(u User) bool { return u.PID == d.PID }) {
			continue
		}
		if u, ok := asUser(d); ok {
			users = append(users, u)
		}
	}
	return users, nil
}

func asUser(d target.Descendant) (User, bool) {
	p, err := target.Open(d.PID)
	if err != nil {
		return User{}, false // it has ended, or is none of this user's business
	}
	defer p.Close()
	drivers, err := p.Drivers()
	return newUser(p, d), err == nil && len(drivers) > 0
}

func newUser(p *target.Process, d target.Descendant) User {
	return User{PID: p.PID(), Rank: p.Rank().Rank, Command: shortCommand(p), Copy: d.Copy}
}

// longestCommand is how much of a command line tells one process from another in
// a list of them.
const longestCommand = 60

func shortCommand(p *target.Process) string {
	command := strings.Join(p.Cmdline(), " ")
	if command == "" {
		command = p.Comm()
	}
	if runes := []rune(command); len(runes) > longestCommand {
		command = string(runes[:longestCommand-1]) + "…"
	}
	return strings.ToValidUTF8(strings.Map(oneLine, command), "?")
}

// oneLine keeps what a process calls itself from breaking or colouring the line
// that tells of it.
func oneLine(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return '?'
	}
	return r
}

// mostNamed bounds the processes that one message names.
const mostNamed = 16

// listUsers names processes in one line.
func listUsers(users []User) string {
	var names []string
	for _, u := range users[:min(mostNamed, len(users))] {
		names = append(names, u.String())
	}
	list := strings.Join(names, ", ")
	if more := len(users) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// errNoDriver explains who uses the driver instead, or what is mapped instead.
func errNoDriver(process *target.Process) error {
	users, err := Users(process.PID())
	if err != nil {
		return errors.Join(ErrNoDriver, err)
	}
	if len(users) == 0 {
		return errNothingNear(process)
	}
	return fmt.Errorf("%w, but it has in these descendants of process %d (%s): %s; record all of them with --children, or one with --pid",
		ErrNoDriver, process.PID(), process.Comm(), listUsers(users))
}

// children keeps in mind which of a target's descendants have mapped the driver,
// and are none of the recording's business.
type children struct {
	seen     []User
	forks    uint32 // at the latest look
	lastLook time.Time
}

// maxChildren bounds how many are kept in mind.
const maxChildren = 1024

// lookForChildren looks at the target's descendants when there are new ones.
func (s *Session) lookForChildren() error {
	var forks uint32
	if err := s.objects.Forks.Get(&forks); err != nil {
		return fmt.Errorf("reading the number of the target's children: %w", err)
	}
	if forks == s.children.forks || time.Since(s.children.lastLook) < lookInterval {
		return nil
	}
	s.children.forks, s.children.lastLook = forks, time.Now()
	return s.rememberChildren()
}

func (s *Session) rememberChildren() error {
	if s.config.family != nil { // it follows them
		return nil
	}
	users, err := usersBeside(s.process.PID(), s.children.seen)
	if err != nil {
		return fmt.Errorf("looking for the target's children: %w", err)
	}
	s.children.seen = append(s.children.seen, users[:min(len(users), maxChildren-len(s.children.seen))]...)
	return nil
}

// warnOfChildren names those that were not recorded.
func (s *Session) warnOfChildren() {
	if err := s.rememberChildren(); err != nil {
		s.warnOnce(err.Error())
	}
	if n := len(s.children.seen); n > 0 {
		s.warnOnce(fmt.Sprintf("not recorded, though they have mapped the CUDA driver: %d descendants of the process (--children records them): %s",
			n, listUsers(s.children.seen)))
	}
}
