package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"stageprof/agent/calibrate"
	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
)

// membership is what the Sessions of a family share.
type membership struct {
	duration time.Duration             // of the recording, 0: not known
	until    atomic.Pointer[time.Time] // when that will be over; nil: it has not begun
	over     chan struct{}             // closed when it is
	opening  chan struct{}             // a token for each Session that may attach now
}

// errOver: the family's recording was over first.
var errOver = errors.New("the recording was over before its window opened")

func newMembership(duration time.Duration) *membership {
	// Attaching is work for a CPU, and the target wants some, too.
	return &membership{
		duration: duration, over: make(chan struct{}), opening: make(chan struct{}, min(4, max(1, runtime.NumCPU()/2))),
	}
}

// enter returns when a Session may attach, and what says that it has. One that is
// recorded alone may at once.
func (m *membership) enter(ctx context.Context) (leave func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	select {
	case m.opening <- struct{}{}:
		leave = func() { <-m.opening }
	case <-ctx.Done():
	case <-m.over:
	}
	// Of several that are ready select takes any: nobody is attached to after the end.
	switch {
	case ctx.Err() != nil:
		err = interrupted(ctx)
	case m.isOver():
		err = errOver
	default:
		return leave, nil
	}
	if leave != nil {
		leave()
	}
	return nil, err
}

func (m *membership) isOver() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

// ended is closed when the recording's duration is over.
func (m *membership) ended() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.over
}

// length is how long a recording will last that began then, 0 if that is not known.
// While others are still being attached to, that is the least that it can be: then the
// duration begins.
func (m *membership) length(began time.Time) time.Duration {
	if until := m.until.Load(); until != nil {
		return max(1, until.Sub(began))
	}
	if m.duration == 0 {
		return 0
	}
	return time.Since(began) + m.duration
}

// calibrations are measured once for all Sessions of a family, and all windows under a
// budget. Its zero value is ready to use; nil measures anew each time.
type calibrations struct {
	measure calibration // nil: calibrate.Run
	mu      sync.Mutex
	results map[string]calibrate.Result
}

// calibrationTries is how often a calibration is tried: its child may be starved on a
// busy machine, and under a budget a process without one is not recorded.
const calibrationTries = 2

// mayPass tells whether what has failed may succeed at another time.
func mayPass(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, calibrate.ErrProcessFilter) && !errors.Is(err, calibrate.ErrUnsupported)
}

type calibration func(ctx context.Context, mechanism probe.Mechanism, filter bool, classes []elfsym.Class) (calibrate.Result, error)

func (c *calibrations) run(ctx context.Context, mechanism probe.Mechanism, filter bool, classes []elfsym.Class) (calibrate.Result, error) {
	if c == nil {
		return calibrate.Run(ctx, mechanism, filter, classes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(mechanism, filter, classes)
	if result, ok := c.results[key]; ok {
		return result, nil
	}
	measure := c.measure
	if measure == nil {
		measure = calibrate.Run
	}
	result, err := measure(ctx, mechanism, filter, classes)
	for try := 1; try < calibrationTries && mayPass(ctx, err); try++ {
		result, err = measure(ctx, mechanism, filter, classes)
	}
	if err == nil {
		if c.results == nil {
			c.results = map[string]calibrate.Result{}
		}
		c.results[key] = result
	}
	return result, err
}
