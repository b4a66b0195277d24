package agent

import (
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

// Find returns the one process of a user, or of [AnyUser], that has mapped a CUDA
// driver and whose name or command line a pattern matches.
func Find(pattern *regexp.Regexp, user int) (int, error) {
	pids, err := target.Find(pattern, user)
	switch {
	case err != nil:
		return 0, err
	case len(pids) == 0:
		return 0, fmt.Errorf("%w %q", ErrNoMatch, pattern)
	case len(pids) > 1:
		return 0, fmt.Errorf("%w %q: %v", ErrManyMatch, pattern, pids)
	}
	return pids[0], nil
}
