package recording

import "time"

// EndBudget ends one of several windows of a recording under a budget: it was used
// up. The recording itself never ends by it.
const EndBudget WindowEnd = "budget"

// Budget says how a recording was kept below a share of its target's time. It
// consists of windows, each an exact recording; Window.Duration is their sum.
// Nothing is known of the time between them.
type Budget struct {
	Share   float64       `json:"share"`      // what was allowed, 0.01 is 1 %
	Elapsed time.Duration `json:"elapsed_ns"` // from the first window's start, or the Trial's, to the recording's end
	Windows []Covered     `json:"windows"`    // in the order of time
	Cost    Charge        `json:"cost"`       // of all windows, to all threads of the target together
	Trial   *Trial        `json:"trial,omitempty"`
}

// Trial is a first window, by which some groups of functions were left out of the
// recording: all functions were probed in it, and those that were left out never
// again. The Recording says nothing else of it, so that all of its numbers are about
// the same functions; only Budget.Elapsed and Budget.Cost hold it, too. Without a
// Trial nothing was left out.
type Trial struct {
	Covered
	Groups []GroupCost `json:"groups"` // that had calls; those that were left out come first, in this order
}

// GroupCost is what the calls of a group's functions cost in a Trial.
type GroupCost struct {
	Group   string `json:"group"` // see Symbol
	Calls   uint64 `json:"calls"`
	CostNS  uint64 `json:"cost_ns"`
	LeftOut bool   `json:"left_out"`
}

// Covered is one window.
type Covered struct {
	StartNS  uint64        `json:"start_ns"` // CLOCK_MONOTONIC
	Duration time.Duration `json:"duration_ns"`
	CostNS   uint64        `json:"cost_ns"`
}

// Charge is what a recording cost its target, in nanoseconds of all its threads
// together.
type Charge struct {
	CallsNS     uint64 `json:"calls_ns"`     // calls in the windows, as in Overhead.AddedNS, and those that were lost
	IdleNS      uint64 `json:"idle_ns"`      // the driver's probes while they were put in and taken off, and inside calls
	StagesNS    uint64 `json:"stages_ns"`    // all other probes
	SchedulerNS uint64 `json:"scheduler_ns"` // context switches and wake-ups, measured
	PythonNS    uint64 `json:"python_ns"`    // reading Python's stacks, measured
	SwitchingNS uint64 `json:"switching_ns"` // putting the probes in and taking them off, at most
}

// TotalNS is the sum.
func (c Charge) TotalNS() uint64 {
	return c.CallsNS + c.IdleNS + c.StagesNS + c.SchedulerNS + c.PythonNS + c.SwitchingNS
}

// Plus adds two charges.
func (c Charge) Plus(d Charge) Charge {
	return Charge{
		CallsNS:     c.CallsNS + d.CallsNS,
		IdleNS:      c.IdleNS + d.IdleNS,
		StagesNS:    c.StagesNS + d.StagesNS,
		SchedulerNS: c.SchedulerNS + d.SchedulerNS,
		PythonNS:    c.PythonNS + d.PythonNS,
		SwitchingNS: c.SwitchingNS + d.SwitchingNS,
	}
}
