package agent

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"stageprof/agent/elfsym"
	"stageprof/bpf"
	"stageprof/recording"
)

// meter says what a Session costs the threads of its target, and ends the window
// when that is as much as it may. A nil one asks nothing.
type meter struct {
	limit func() time.Duration // what the window may have cost by now
	end   time.Duration        // what putting the probes in and taking them off cost the last time

	switching atomic.Int64 // CPU time, in nanoseconds, that changing the target's code took
	running   int          // threads that this may have held up
	perCall   float64      // nanoseconds; 0 while no call's class is known
}

// The window is looked at as often as its budget asks for, within these bounds.
const (
	leastWindow = 50 * time.Millisecond
	leastLook   = 5 * time.Millisecond
	mostLook    = 100 * time.Millisecond
	// lingering is how long the probes are hit after the window should have ended.
	lingering = 30 * time.Millisecond
)

func (m *meter) busy() *atomic.Int64 {
	if m == nil {
		return nil
	}
	return &m.switching
}

// classes adds the class of code that markers stand on to those of a plan.
func (m *meter) classes(planned []elfsym.Class) []elfsym.Class {
	if m == nil || slices.Contains(planned, elfsym.Nop) {
		return planned
	}
	planned = append(planned, elfsym.Nop)
	slices.Sort(planned)
	return planned
}

// check says why the costs can't be told, if they can't.
func (m *meter) check(s *Session) error {
	switch {
	case m == nil:
		return nil
	case s.costs == nil:
		return fmt.Errorf("%w: what a call costs is not known: %s", ErrBudget, s.calibration)
	case len(s.functionPatterns) > 0 && s.functionCost.ByReturn == 0:
		return fmt.Errorf("%w: what following functions costs is not known", ErrBudget)
	}
	running, err := s.process.Running()
	m.running = max(1, running)
	return err
}

// charge is what the Session has cost so far.
func (s *Session) charge() (recording.Charge, error) {
	t, err := readTally(s.objects.Counters)
	if err != nil {
		return recording.Charge{}, err
	}
	call := s.meter.perCall
	if call == 0 {
		call = s.dearestCall()
	}
	// A begin or an end of a stage is one of the two probes of a call.
	hit := s.costs[elfsym.Nop].Added / 2
	exit := max(0, s.functionCost.ByReturn-2*hit)
	times := func(which bpf.ProbeCounter, price float64) uint64 { return uint64(float64(t[which]) * price) }
	return recording.Charge{
		CallsNS:     times(bpf.ProbeCounterCOUNT_ENTERED, call),
		IdleNS:      times(bpf.ProbeCounterCOUNT_IDLE, call/2),
		StagesNS:    times(bpf.ProbeCounterCOUNT_HITS, hit) + times(bpf.ProbeCounterCOUNT_EXITS, exit),
		SchedulerNS: t[bpf.ProbeCounterCOUNT_SWITCH_TIME],
		PythonNS:    t[bpf.ProbeCounterCOUNT_SAMPLE_TIME] + t[bpf.ProbeCounterCOUNT_LOOK_TIME],
		SwitchingNS: uint64(s.meter.switching.Load()) * uint64(s.meter.running),
	}, nil
}

func (s *Session) dearestCall() float64 {
	dearest := 0.0
	for _, cost := range s.costs {
		dearest = max(dearest, cost.Added)
	}
	return dearest
}

// reprice takes the mean of the calls so far for what a call costs, those of threads
// that have ended among them.
func (s *Session) reprice() error {
	var calls, added float64
	add := func(key bpf.ProbeCallKey, row bpf.ProbeCallRow) {
		calls += float64(row.Count)
		added += float64(row.Count) * s.costs[s.symbols[key.Symbol].Placement.Class].Added
	}
	for key, row := range s.retired.calls.rows {
		add(key, row)
	}
	err := entries(s.objects.Calls, add)
	if err == nil && calls > 0 {
		s.meter.perCall = added / calls
	}
	return err
}

// lookAtCost returns when to look again, 0 if the window has to end now.
func (s *Session) lookAtCost() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, cost, err := s.left()
	if err == nil && left <= 0 { // by what may be too high a price
		if err = s.reprice(); err == nil {
			left, cost, err = s.left()
		}
	}
	if err != nil || left <= 0 {
		return 0, err
	}
	// At the rate so far this is half of the way to the end.
	age := time.Since(s.startWall)
	next := time.Duration(float64(left) / max(1, float64(cost)) * float64(age) / 2)
	return min(max(next, leastLook), mostLook), nil
}

// left is what the window may cost yet, without what its end will. That is not
// known the first time: then taking the probes off is reckoned to cost twice as much
// as putting them in, while they are hit on.
func (s *Session) left() (left, cost time.Duration, err error) {
	c, err := s.charge()
	cost = time.Duration(c.TotalNS())
	hits := float64(c.TotalNS()-c.SwitchingNS) * float64(lingering) / max(1, float64(time.Since(s.startWall)))
	end := max(s.meter.end-time.Duration(c.IdleNS+c.SwitchingNS), 2*time.Duration(c.SwitchingNS)+time.Duration(hits))
	return s.meter.limit() - cost - end, cost, err
}

// bill adds to the Recording what it has cost. The probes are off.
func (s *Session) bill(r *recording.Recording) error {
	if s.meter == nil {
		return nil
	}
	if r.Overhead.CallCostNS > 0 {
		s.meter.perCall = r.Overhead.CallCostNS
	}
	c, err := s.charge()
	r.Budget = &recording.Budget{
		Elapsed: r.Window.Duration, Cost: c,
		Windows: []recording.Covered{{StartNS: r.Window.StartNS, Duration: r.Window.Duration, CostNS: c.TotalNS()}},
	}
	return err
}
