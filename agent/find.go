package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"stageprof/agent/target"
)

// Errors of Find.
var (
	// ErrNoMatch: no process with a CUDA driver matches.
	ErrNoMatch = errors.New("no process that has mapped a CUDA driver matches")
	// ErrManyMatch: it can't be told which process is meant.
	ErrManyMatch = errors.New("more than one process matches")
)

// AnyUser stands for whoever a process belongs to.
const AnyUser = target.AnyUser

// Finder looks for a process; see [target.Finder].
type Finder struct{ processes target.Finder }

// Find returns the one process of a user, or of [AnyUser], that has mapped a CUDA
// driver and whose name or command line a pattern matches. Processes that don't
// answer in time are left out; an error names them.
func (f *Finder) Find(ctx context.Context, pattern *regexp.Regexp, user int) (int, error) {
	found, err := f.processes.Find(ctx, pattern, user)
	if err != nil {
		return 0, err
	}
	pids := found.PIDs
	switch {
	case len(pids) == 1:
		return pids[0], nil
	case len(pids) > 1:
		return 0, fmt.Errorf("%w %q: %v", ErrManyMatch, pattern, pids)
	case len(found.Unanswered) > 0:
		return 0, fmt.Errorf("%w %q; these did not answer in time: %v", ErrNoMatch, pattern, found.Unanswered)
	}
	return 0, fmt.Errorf("%w %q", ErrNoMatch, pattern)
}
