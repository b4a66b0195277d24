package correlate

import (
	"strings"

	"stageprof/recording"
)

// Ledger is a Recording, joined. All its tables are in a fixed order, so that
// the same Recording gives the same Ledger.
type Ledger struct {
	// Source is the Recording that was joined. It holds the target, the window,
	// the overhead and so on, and the modules, symbols and frames that the
	// sites of the calls refer to.
	Source *recording.Recording

	Calls   []Call    // by stage path, thread, symbol, gil, attribution
	Stages  []Stage   // parents before children; those of the whole process last
	Regions []Region  // by stage, outer ones before those inside them
	Outside Breakdown // calls outside any stage
	Threads []Thread  // by name and tid
	All     Breakdown // every reported call

	Allocations []Allocations // by stage; none unless asked for

	Debts   []Debt         // by waiting stage path, thread, symbol, owner
	Waiting []WaitingStage // the same by stages only, those that waited longest first

	Devices []DeviceStage // GPUs while stages were open, by stage, then device; none without single spans

	Losses  []recording.Loss // calls, then spans, other, samples, names; the largest first
	Balance Balance

	// PartsOutside divides the time that threads were outside any stage, summed
	// over threads; nil when the Recording does not say. OutsideByRegion splits it
	// as Stage.ByRegion does.
	PartsOutside    *Partition
	OutsideByRegion []RegionPartition

	Paths    []Path // by the Recording's path ID
	ThreadOf []int  // by the Recording's thread ID: index of Threads
}

// Call is all calls of one visible key.
type Call struct {
	Thread      int // index of Ledger.Threads
	Path        Path
	Symbol      string
	API         string
	GIL         recording.GIL
	Attribution recording.Attribution
	Total
	Sites []Site // the parts of Total
}

// Site is where calls were made from, and the function that they entered.
type Site struct {
	Symbol int // ID in Source.Symbols
	Caller int // ID in Source.Frames, -1 when it is not known
	Region int // ID in Source.RegionPaths; 0: no region was open
	Total
	Stacks []Stack // the parts of Total by Python stack; nil when no call was sampled
}

// Path is a stage path. Its zero value is outside any stage.
type Path struct {
	Joined string   // Names joined with "/"
	Names  []string // outermost first
}

// Outside reports whether the path names no stage.
func (p Path) Outside() bool { return len(p.Names) == 0 }

// Innermost returns the name of the innermost stage, "" outside any.
func (p Path) Innermost() string {
	if p.Outside() {
		return ""
	}
	return p.Names[len(p.Names)-1]
}

// Sum is a Total and its parts by the state of the GIL at call entry.
type Sum struct {
	Total
	GIL map[recording.GIL]Total // only states that occurred
}

// GILStates lists the states of the GIL in the order in which they are shown.
var GILStates = []recording.GIL{
	recording.GILFree, recording.GILHeld, recording.GILUnknown, recording.GILDisabled, recording.GILNone,
}

// Named is the Sum of the calls of one symbol or api.
type Named struct {
	Name string
	Sum
}

// Breakdown is a Sum and its parts by function. Both lists are complete and
// start with the one that took the most wall time.
type Breakdown struct {
	Sum
	Symbols []Named
	APIs    []Named
}

// Stage is what is known of one stage path, over all threads.
type Stage struct {
	Path    Path
	Process bool      // opened for the whole process, on no thread
	Python  bool      // a Python function, whose calls alone are known
	Spans   *Spans    // nil when no span was seen
	Own     Breakdown // calls of the stage itself
	Within  Breakdown // Own, and that of all stages inside it
	Adopted []Adopted // calls of other threads on its behalf
	Threads []StageThread

	// Parts divides the wall time inside the window without the stages inside
	// it, PartsWithin all of it. Both are nil when the Recording has no parts
	// of it; the stages of the whole process never have any.
	Parts       *Partition
	PartsWithin *Partition

	// ByRegion splits Parts by the regions in which the time was spent, in a fixed
	// order; outside any comes first and is always there. They sum to Parts, part by
	// part. Nil when the Recording does not say.
	ByRegion   []RegionPartition
	Iterations *Iterations // nil when the Recording has no single spans of it
}

// Share returns which part of the stage's wall time inside the window was
// spent in calls that sum up to t; ok is false when that time is not known.
// It is meant for the stage's own calls: adopted ones run beside its wall time
// and are not part of it.
func (s *Stage) Share(t Total) (share float64, ok bool) {
	if s.Spans == nil || s.Spans.WindowNS() == 0 {
		return 0, false
	}
	return float64(t.WallNS) / float64(s.Spans.WindowNS()), true
}

// Spans sums the spans of a stage.
type Spans struct {
	Count       uint64 // complete spans; the next six are about them
	WallNS      uint64
	ExclusiveNS uint64 // outside the stages inside it
	CPUNS       uint64
	MinNS       uint64
	MaxNS       uint64
	Hist        recording.Hist
	Parts       recording.Parts // of ExclusiveNS as measured, 0 where it is not known
	Partial     Partial
}

// Partial sums the spans that the edge of the window cut.
type Partial struct {
	Count       uint64
	WallNS      uint64 // inside the window
	ExclusiveNS uint64
	CPUNS       uint64
	Parts       recording.Parts // of ExclusiveNS
}

// WindowNS is the wall time inside the window, of complete and partial spans.
func (s *Spans) WindowNS() uint64 { return add(s.WallNS, s.Partial.WallNS) }

// ExclusiveWindowNS is the part of WindowNS outside the stages inside it.
func (s *Spans) ExclusiveWindowNS() uint64 { return add(s.ExclusiveNS, s.Partial.ExclusiveNS) }

// Adopted is the work that other threads did for a stage, by the reason for
// which it belongs there.
type Adopted struct {
	Attribution recording.Attribution
	Own         Breakdown // for the stage itself
	Within      Breakdown // Own, and that of all stages inside it
}

// StageThread is one thread's part of a stage.
type StageThread struct {
	Thread int    // index of Ledger.Threads
	Spans  *Spans // nil when no span was seen
	Own    Total

	Parts       *Partition // as those of Stage
	PartsWithin *Partition
	ByRegion    []RegionPartition
}

// Thread is one thread of the target.
type Thread struct {
	Name         string
	TID          int // in the agent's pid namespace
	NTID         int // in the target's innermost pid namespace
	Incarnations int // threads that had this name and tid, one after the other
	// StagesNS is the time inside the thread's outermost stages; it has no
	// meaning unless Staged, which says that any span of them was seen.
	StagesNS uint64
	Staged   bool
	All      Breakdown // every call it made
	Outside  Total     // those outside any stage
	Adopted  Total     // those made on behalf of another thread's stage

	// Parts divides the time that the thread lived in the window, as far as the
	// Recording knows of it; PartsOutside what of it was outside any stage,
	// calls for other threads' stages included. They are nil when it has no
	// parts of them.
	Parts           *Partition
	PartsOutside    *Partition
	OutsideByRegion []RegionPartition // of PartsOutside, as Stage.ByRegion
}

// Role is what a thread is there for, as far as its name says.
type Role string

// The roles.
const (
	RoleAutograd  Role = "autograd"   // runs PyTorch's backward passes
	RoleWatchdog  Role = "watchdog"   // looks after NCCL
	RolePinMemory Role = "pin memory" // copies a DataLoader's batches
	RoleNone      Role = "none"
)

// Role goes by the names that PyTorch gives to its threads.
func (t *Thread) Role() Role {
	for prefix, role := range map[string]Role{
		"pt_autograd_": RoleAutograd, "pt_nccl_watchdg": RoleWatchdog, "pt_data_pin": RolePinMemory,
	} {
		if strings.HasPrefix(t.Name, prefix) {
			return role
		}
	}
	return RoleNone
}

// Balance is the account of calls: Seen = Reported + Lost.
type Balance struct {
	Seen     uint64 // as the kernel side counted them; no meaning unless Counted
	Counted  bool
	Reported uint64
	Lost     uint64 // losses of kind "calls"
}

// Holds reports whether nothing is missing from the account, or nothing can be
// said about it.
func (b Balance) Holds() bool { return !b.Counted || b.Seen == add(b.Reported, b.Lost) }

// The kinds of loss.
const (
	LossCalls = "calls"
	LossSpans = "spans"
)

// ImpossibleDuration is the reason of the losses that Build finds itself.
const ImpossibleDuration = "impossible_duration"
