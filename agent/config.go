package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"stageprof/agent/probe"
	"stageprof/recording"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrUsage: the Config can't be what was meant.
	ErrUsage = errors.New("bad request")
	// ErrNoDriver: the target has mapped no CUDA driver.
	ErrNoDriver = errors.New("the process has mapped no CUDA driver")
	// ErrNoSymbols: the driver exports none of the selected functions.
	ErrNoSymbols = errors.New("the driver exports none of the selected functions")
	// ErrKernel: the kernel lacks something that recording needs.
	ErrKernel = errors.New("this kernel can't be used")
	// ErrPrivileges: a capability is missing.
	ErrPrivileges = errors.New("not permitted")
	// ErrInterrupted: the context was done before the window opened.
	ErrInterrupted = errors.New("interrupted before the recording began")
	// ErrExeced: the target executed another program before the window opened.
	ErrExeced = errors.New("it executed another program while the probes were put in; record again")
	// ErrNoFrames: Python functions were to be stages, and can't be read.
	ErrNoFrames = errors.New("stages can't be taken from Python functions")
	// ErrSeccomp: the target's system call filter could kill it at a return probe.
	ErrSeccomp = errors.New("the process is under a system call filter that return probes may violate")
)

// MaxDuration bounds a window: clocks are nanoseconds in 64 bits, and a mistyped
// duration should be found before the recording.
const MaxDuration = 30 * 24 * time.Hour

// Config says what to record.
type Config struct {
	PID       int
	Duration  time.Duration   // length of the window; 0: until the context is done
	Probes    string          // selection of driver functions, see probe.ParseSelector; "": default
	Mechanism probe.Mechanism // "": probe.Auto
	// StagesFrom names the sources of stages, see Sources; nil: the markers.
	StagesFrom []string
	// StageMatch is a regular expression: only stages with a match of it in their
	// name are stages, the others are as if they were not there. "": all.
	StageMatch string
	// RegionSets names built-in lists of functions to follow as regions, see
	// RegionSets; Regions names further ones as LIB:SYMBOL.
	RegionSets, Regions []string

	// Allocations asks for what PyTorch's CUDA allocator gives to tensors.
	Allocations bool

	// PythonStacks says of which calls the Python stack is read; "": sampled.
	PythonStacks PythonStacks

	Wait bool // for the driver to be mapped, instead of ErrNoDriver
	// Live: the window may be open for a long time, and be looked at meanwhile
	// with Snapshot. Of the single spans the latest are kept instead of the
	// first, and sooner only the sum of threads that ended long ago, see doc.go.
	Live bool
	// Timeline asks for the single events of the window's last part of this
	// length; 0: none. Not in a window that is looked at while it is open.
	Timeline time.Duration
	// TimelineRoom is the size of their ring buffer in bytes, a power of two of
	// at least a page; 0: as much as the highest rate of calls needs.
	TimelineRoom int
	// NoSyncDebt leaves out whose work waits were for: launches cost less then.
	NoSyncDebt bool

	// Budget is the share of one CPU that the target may pay, in time of all its
	// threads together: 0.01 is 1 %; 0: any. The Recording then consists of as many
	// windows as that allows for, with no probe in the target between them. For
	// Record, and for RecordFamily, where each process pays no more than that.
	Budget float64
	// LeaveOut lets a recording with a Budget do without some groups of functions, if
	// the others fit into it then: see Recording.Budget.Trial.
	LeaveOut bool

	leftOut []probe.Group // groups that are not probed, whatever Probes says
	advance time.Duration // see usualAdvance, which 0 is
	meter   *meter        // nil: there is no budget
	costs   *calibrations // nil: measured for each Session
	family  *membership   // nil: the target is recorded alone
	started uint64        // in clock ticks since boot; 0: whoever has the PID

	Version string   // of stageprof, for the Recording
	Command []string // the command line, for the Recording

	Ready    func() error   // called once, when every probe is live
	Progress func(Progress) // called about twice a second
	// Recorded is called with the Recording as soon as it is complete. Some
	// probes may be still on then: perf events take long to remove.
	Recorded func(*recording.Recording) error
	Log      *slog.Logger // nil: slog.Default()
}

// PythonStacks says of which calls the Python stack is read.
type PythonStacks string

// The choices.
const (
	PythonStacksOff     PythonStacks = "off"
	PythonStacksSampled PythonStacks = "sampled" // of few, so that they cost next to nothing
	PythonStacksAll     PythonStacks = "all"
)

// PythonStacksChoices lists them.
func PythonStacksChoices() []PythonStacks {
	return []PythonStacks{PythonStacksOff, PythonStacksSampled, PythonStacksAll}
}

// Progress is what a recording has seen so far.
type Progress struct {
	Elapsed time.Duration
	Calls   uint64 // entered
	Lost    uint64 // of these, not accounted
	State   string // one of those below
}

// States of a recording. Under a budget it also goes through the last two.
const (
	StateWaiting   = "waiting for the CUDA driver"
	StateRecording = "recording"
	StateDetaching = "taking the probes off"
	StateAttaching = "putting the probes in"
	StatePaused    = "between two windows"
)

// Validate checks everything that can be checked without a target, and fills
// in defaults. Its errors wrap ErrUsage.
func (c *Config) Validate() error {
	if c.PID <= 0 {
		return fmt.Errorf("%w: process id %d is not positive", ErrUsage, c.PID)
	}
	if c.Duration < 0 {
		return fmt.Errorf("%w: duration %v is negative", ErrUsage, c.Duration)
	}
	if c.Duration > MaxDuration {
		return fmt.Errorf("%w: duration %v is longer than %v", ErrUsage, c.Duration, MaxDuration)
	}
	if err := c.validateTimeline(); err != nil {
		return err
	}
	if err := c.validateBudget(); err != nil {
		return err
	}
	if c.Probes == "" {
		c.Probes = "default"
	}
	if _, err := probe.ParseSelector(c.Probes); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if c.Mechanism == "" {
		c.Mechanism = probe.Auto
	}
	if !slices.Contains(probe.Mechanisms(), c.Mechanism) {
		return fmt.Errorf("%w: mechanism %q is none of %v", ErrUsage, c.Mechanism, probe.Mechanisms())
	}
	if len(c.StagesFrom) == 0 {
		c.StagesFrom = []string{SourceMarkers}
	}
	if _, err := c.functionPatterns(); err != nil {
		return err
	}
	if _, err := c.probePairs(); err != nil {
		return err
	}
	for _, source := range c.StagesFrom {
		if !IsSource(source) {
			return fmt.Errorf("%w: stage source %q is none of %v, nor python:REGEXP, nor function:LIB:SYMBOL, nor usdt:LIB:PROVIDER:BEGIN,END", ErrUsage, source, Sources())
		}
	}
	if _, err := compileStageMatch(c.StageMatch); err != nil {
		return err
	}
	if _, err := c.compilePythonMatch(); err != nil {
		return err
	}
	if c.PythonStacks == "" {
		c.PythonStacks = PythonStacksSampled
	}
	if !slices.Contains(PythonStacksChoices(), c.PythonStacks) {
		return fmt.Errorf("%w: Python stacks %q is none of %v", ErrUsage, c.PythonStacks, PythonStacksChoices())
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}
