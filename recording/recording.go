package recording

import (
	"fmt"
	"path"
	"time"
)

// FormatVersion is written to every saved Recording. It changes when a reader
// of the previous version would misread a file.
const FormatVersion = 1

// HistBuckets is the number of buckets of a Hist.
const HistBuckets = 32

// MaxDepth bounds the number of names in a stage path.
const MaxDepth = 256

// Hist counts durations by their binary magnitude: bucket i counts durations
// d with 2^i <= d < 2^(i+1) nanoseconds; bucket 0 also counts d = 0 and the
// last one everything longer.
type Hist [HistBuckets]uint64

// GIL is the state of Python's global interpreter lock, as seen by the calling
// thread at call entry.
type GIL string

// The GIL states.
const (
	GILHeld     GIL = "held"     // the calling thread held it
	GILFree     GIL = "free"     // the calling thread did not hold it
	GILNone     GIL = "none"     // the target has no Python
	GILDisabled GIL = "disabled" // a free-threaded interpreter: there is no lock
	GILUnknown  GIL = "unknown"  // it can't be known, see Python.GILReason
)

// Attribution says why a call has its stage.
type Attribution string

// The attributions.
const (
	AttributionOwn      Attribution = "own"      // the calling thread's innermost open stage
	AttributionAutograd Attribution = "autograd" // the stage of the thread that called backward
	AttributionProcess  Attribution = "process"  // a stage the target opened for the whole process
	AttributionNone     Attribution = "none"     // outside any stage
)

// Recording is what one run of the agent observed. Cross references between
// its tables are the ID fields of the rows they name.
type Recording struct {
	Format int    `json:"format"` // FormatVersion
	Tool   Tool   `json:"tool"`
	Target Target `json:"target"`
	Window Window `json:"window"`

	Modules []Module    `json:"modules"` // [0] is the target's executable
	Symbols []Symbol    `json:"symbols"`
	Frames  []Frame     `json:"frames"`
	Threads []Thread    `json:"threads"`
	Paths   []StagePath `json:"paths"`

	// The Python stacks of sampled calls.
	PythonFunctions []PythonFunction `json:"python_functions,omitempty"`
	PythonStacks    []PythonStack    `json:"python_stacks,omitempty"`

	Calls  []Call  `json:"calls"`
	Stages []Stage `json:"stages"`
	Spans  []Span  `json:"spans,omitempty"` // in the order in which they ended; bounded, see the losses
	Open   []Span  `json:"open,omitempty"`  // of a snapshot, see EndOpen
	Debts  []Debt  `json:"debts,omitempty"` // nil when they were not recorded
	Losses []Loss  `json:"losses"`          // only reasons that occurred, sorted by reason
	Seen   *Seen   `json:"seen,omitempty"`

	Regions     []Region      `json:"regions,omitempty"`
	RegionPaths []RegionPath  `json:"region_paths,omitempty"`
	RegionTimes []RegionTime  `json:"region_times,omitempty"`
	RegionParts []RegionParts `json:"region_parts,omitempty"` // one row of each thread, path and region path
	Allocations []Allocation  `json:"allocations,omitempty"`

	Timeline *Timeline `json:"timeline,omitempty"` // nil when none was asked for

	Absent   []string `json:"absent"`   // wanted symbols that no mapped driver exports, sorted
	Warnings []string `json:"warnings"` // what was degraded and why, for people

	Overhead Overhead `json:"overhead"`
	Budget   *Budget  `json:"budget,omitempty"` // nil when none was set
	GPU      *GPU     `json:"gpu,omitempty"`    // nil when NVML was not read
	GPUNote  string   `json:"gpu_note,omitempty"`
}

// Tool identifies the agent that made the Recording.
type Tool struct {
	Version   string   `json:"version"`
	Command   []string `json:"command"`
	Kernel    string   `json:"kernel"`    // uname -r
	Arch      string   `json:"arch"`      // GOARCH of the agent
	Mechanism string   `json:"mechanism"` // "uprobe-multi" or "perf-event"
}

// Target identifies the recorded process.
type Target struct {
	PID       int       `json:"pid"`    // in the agent's pid namespace
	NSPID     int       `json:"ns_pid"` // in the target's innermost pid namespace
	StartTime time.Time `json:"start_time"`
	Exe       string    `json:"exe"`
	Comm      string    `json:"comm"`
	Cmdline   []string  `json:"cmdline"`
	Python    *Python   `json:"python,omitempty"`
	Rank      int       `json:"rank"`       // RANK of torchrun and friends, 0 when unset
	LocalRank int       `json:"local_rank"` // LOCAL_RANK, 0 when unset
	WorldSize int       `json:"world_size"` // WORLD_SIZE, 1 when unset
}

// Python describes the target's interpreter.
type Python struct {
	Version   string `json:"version"` // "3.11.7", or "3.11" when only that is known
	Path      string `json:"path"`    // the file that holds the interpreter's code
	GILMethod string `json:"gil_method"`
	GILReason string `json:"gil_reason,omitempty"` // why the GIL state is unknown, if it is
	// Stacks says of which calls the Python stack was read: "off", "sampled" or
	// "all"; StacksReason why of none, if that was not asked for.
	Stacks       string `json:"stacks,omitempty"`
	StacksReason string `json:"stacks_reason,omitempty"`
}

// WindowEnd says what closed the recording window.
type WindowEnd string

// The ends of a window.
const (
	EndDuration  WindowEnd = "duration"
	EndInterrupt WindowEnd = "interrupt"
	EndExit      WindowEnd = "target exited"
	EndExec      WindowEnd = "target executed another program"

	// EndOpen: the Recording is a snapshot of a window that is still open, as if
	// it had ended now. Open lists the spans that are open; their time so far is
	// in the partial sums of their rows too.
	EndOpen WindowEnd = "snapshot"
)

// Window is the time during which every call was seen. Under a Budget it can be
// in several pieces, which that lists.
type Window struct {
	Start    time.Time     `json:"start"`       // wall clock, for people
	StartNS  uint64        `json:"start_ns"`    // CLOCK_MONOTONIC, nanoseconds
	Duration time.Duration `json:"duration_ns"` // of all pieces together
	End      WindowEnd     `json:"end"`

	// OpenedNS is when the recording began that the window is an interval of, 0 if
	// it is all of it. Calls that returned in the interval can be as old.
	OpenedNS uint64 `json:"opened_ns,omitempty"`
}

// Module is one file (or anonymous executable memory) mapped by the target.
type Module struct {
	ID      int    `json:"id"`
	Path    string `json:"path"` // as the target sees it, "//anon" for anonymous memory
	BuildID string `json:"build_id"`
	Start   uint64 `json:"start"`  // first mapped executable address
	Limit   uint64 `json:"limit"`  // one past the last
	Offset  uint64 `json:"offset"` // file offset of Start
}

// Symbol is one probed driver function.
type Symbol struct {
	ID          int     `json:"id"`
	Name        string  `json:"name"`
	API         string  `json:"api"`
	Group       string  `json:"group"` // launch, sync, memory-map, memory, copy, event, graph, other
	Module      int     `json:"module"`
	Address     uint64  `json:"address"`      // in the target's address space
	ProbeOffset uint64  `json:"probe_offset"` // bytes from the function's entry to the probe
	Placement   string  `json:"placement"`    // class of the instruction under the probe: "nop", "push", "jump", "stepped"
	BiasNS      float64 `json:"bias_ns"`      // what the probe pair adds to each measured duration
}

// Frame is one caller, resolved as far as it can be. Its Address is the return
// address that the call left on the stack, one instruction past the call.
type Frame struct {
	ID       int    `json:"id"`
	Address  uint64 `json:"address"` // in the target's address space
	Module   int    `json:"module"`
	Function string `json:"function,omitempty"` // empty when there is no symbol
	Offset   uint64 `json:"offset"`             // from Function, else from the start of the module's file
}

// FrameName names a frame by its function, or else by module and offset.
func (r *Recording) FrameName(id int) string {
	f := &r.Frames[id]
	if f.Function != "" {
		return f.Function
	}
	return fmt.Sprintf("%s+%#x", path.Base(r.Modules[f.Module].Path), f.Offset)
}

// Thread is one thread incarnation of the target. Two threads that had the
// same tid one after the other are two rows.
type Thread struct {
	ID   int    `json:"id"`
	TID  int    `json:"tid"`    // in the agent's pid namespace
	NTID int    `json:"ns_tid"` // in the target's innermost pid namespace
	Name string `json:"name"`   // its last name in the window

	// Serial tells the incarnations apart in all snapshots of one recording,
	// where IDs differ. 0: not known.
	Serial uint64 `json:"serial,omitempty"`
	// Folded: the row stands for threads of which only the sum was kept: those that
	// ended long ago, or were too many in windows that were joined. It is no thread itself.
	Folded bool `json:"folded,omitempty"`
}

// StagePath is a stack of stage names, outermost first; the path without
// names is "outside any stage".
type StagePath struct {
	ID    int      `json:"id"`
	Names []string `json:"names"`
	// PythonFunction: the last name is that of a Python function that was the
	// innermost stage of calls, with "()" behind it. It has calls and no spans: its
	// time is that of the stage around it.
	PythonFunction bool `json:"python_function,omitempty"`
}

// Call is the exact total of all calls that share its key: thread, path,
// symbol, caller, gil, attribution and region.
//
// WallNS and CPUNS are what the probes measured. Every one of the Count calls
// includes the symbol's BiasNS on top of the driver's own time; correlate
// subtracts it. Min, Max and Hist are of raw durations too.
type Call struct {
	Thread      int         `json:"thread"`
	Path        int         `json:"path"`
	Symbol      int         `json:"symbol"`
	Caller      int         `json:"caller"` // Frame, -1 when it could not be read
	GIL         GIL         `json:"gil"`
	Attribution Attribution `json:"attribution"`
	Region      int         `json:"region,omitempty"` // RegionPath; 0: none was open
	Count       uint64      `json:"count"`
	Errors      uint64      `json:"errors"` // calls that returned a non-zero CUresult
	WallNS      uint64      `json:"wall_ns"`
	CPUNS       uint64      `json:"cpu_ns"`
	Bytes       uint64      `json:"bytes"` // requested by successful calls; 0 where the function has no size
	MinNS       uint64      `json:"min_ns"`
	MaxNS       uint64      `json:"max_ns"`
	Hist        Hist        `json:"hist"`
	Samples     []Sample    `json:"samples,omitempty"` // in no particular order, one for each stack

	// GILWaitCausedNS is how long other threads waited for the GIL while calls of
	// the row had it held, summed over these threads. It is a part of their
	// Parts.GILWaitNS; no wait is counted for two calls.
	GILWaitCausedNS uint64 `json:"gil_wait_caused_ns,omitempty"`
}

// Sample is what is known of those calls of a row that were made from one
// Python stack. Calls are picked at random, and each one that is stands for
// several, itself included: so what they stand for estimates which share of the
// row's exact totals belongs to the stack. Times are as measured, see Call.
type Sample struct {
	Stack     int    `json:"stack"` // PythonStack
	Count     uint64 `json:"count"` // calls whose stack was read
	WallNS    uint64 `json:"wall_ns"`
	CPUNS     uint64 `json:"cpu_ns"`
	ForCount  uint64 `json:"for_count"` // the calls that they stand for
	ForWallNS uint64 `json:"for_wall_ns"`
	ForCPUNS  uint64 `json:"for_cpu_ns"`

	GILWaitCausedNS    uint64 `json:"gil_wait_caused_ns,omitempty"`
	ForGILWaitCausedNS uint64 `json:"for_gil_wait_caused_ns,omitempty"`
}

// PythonFunction is one Python function.
type PythonFunction struct {
	ID        int    `json:"id"`
	Name      string `json:"name"` // qualified ("Pipeline.run") from CPython 3.11 on, before bare ("run")
	File      string `json:"file"` // as the interpreter knows it
	FirstLine int    `json:"first_line"`
}

// PythonStack is the Python frames of a thread inside a driver call, innermost
// first. The one without frames is of threads that ran no Python.
type PythonStack struct {
	ID     int           `json:"id"`
	Frames []PythonFrame `json:"frames"`
	Cut    bool          `json:"cut,omitempty"` // there were more outer frames
}

// PythonFrame is one frame of a PythonStack.
type PythonFrame struct {
	Function int `json:"function"`
	Line     int `json:"line"` // 0: the instruction belongs to no line
}

// Stage is the exact total of the spans of one stage path on one thread.
// Spans that were already open when the window began or still open when it
// ended are counted apart, with the part of their time that lies inside the
// window.
//
// The row of the path without names has no spans: its WallNS is the time that
// the thread, during its life in the window, was outside any stage.
type Stage struct {
	Thread         int    `json:"thread"`   // -1 for a stage of the whole process
	Path           int    `json:"path"`     //
	Count          uint64 `json:"count"`    // complete spans
	WallNS         uint64 `json:"wall_ns"`  // of complete spans, inclusive of child stages
	ChildNS        uint64 `json:"child_ns"` // the part of WallNS inside child stages
	CPUNS          uint64 `json:"cpu_ns"`   // inclusive, of complete spans
	MinNS          uint64 `json:"min_ns"`
	MaxNS          uint64 `json:"max_ns"`
	Hist           Hist   `json:"hist"`
	PartialCount   uint64 `json:"partial_count"`
	PartialWallNS  uint64 `json:"partial_wall_ns"`
	PartialChildNS uint64 `json:"partial_child_ns"`
	PartialCPUNS   uint64 `json:"partial_cpu_ns"`

	Parts        Parts `json:"parts"`         // of WallNS - ChildNS
	PartialParts Parts `json:"partial_parts"` // of PartialWallNS - PartialChildNS
}

// Parts is an exact partition of the time that a thread spent in a stage
// outside the stage's children: it sums to that time to the nanosecond. The
// stages of the whole process have none.
type Parts struct {
	RunningNS      uint64 `json:"running_ns"`      // on a CPU, outside driver calls
	CUDACPUNS      uint64 `json:"cuda_cpu_ns"`     // on a CPU, inside driver calls
	CUDABlockedNS  uint64 `json:"cuda_blocked_ns"` // off the CPU, inside driver calls
	GILWaitNS      uint64 `json:"gil_wait_ns"`     // asleep until Python's lock is free
	RunnableNS     uint64 `json:"runnable_ns"`     // ready to run, without a CPU
	BlockedFutexNS uint64 `json:"blocked_futex_ns"`
	BlockedPollNS  uint64 `json:"blocked_poll_ns"`
	BlockedReadNS  uint64 `json:"blocked_read_ns"`
	BlockedSleepNS uint64 `json:"blocked_sleep_ns"`
	BlockedFaultNS uint64 `json:"blocked_fault_ns"` // page faults
	BlockedOtherNS uint64 `json:"blocked_other_ns"`
}

// Total is the time that the parts sum to.
func (p Parts) Total() uint64 {
	return p.RunningNS + p.CUDACPUNS + p.CUDABlockedNS + p.GILWaitNS + p.RunnableNS + p.BlockedFutexNS +
		p.BlockedPollNS + p.BlockedReadNS + p.BlockedSleepNS + p.BlockedFaultNS + p.BlockedOtherNS
}

// Plus adds two partitions part by part.
func (p Parts) Plus(q Parts) Parts {
	return Parts{
		RunningNS:      p.RunningNS + q.RunningNS,
		CUDACPUNS:      p.CUDACPUNS + q.CUDACPUNS,
		CUDABlockedNS:  p.CUDABlockedNS + q.CUDABlockedNS,
		GILWaitNS:      p.GILWaitNS + q.GILWaitNS,
		RunnableNS:     p.RunnableNS + q.RunnableNS,
		BlockedFutexNS: p.BlockedFutexNS + q.BlockedFutexNS,
		BlockedPollNS:  p.BlockedPollNS + q.BlockedPollNS,
		BlockedReadNS:  p.BlockedReadNS + q.BlockedReadNS,
		BlockedSleepNS: p.BlockedSleepNS + q.BlockedSleepNS,
		BlockedFaultNS: p.BlockedFaultNS + q.BlockedFaultNS,
		BlockedOtherNS: p.BlockedOtherNS + q.BlockedOtherNS,
	}
}

// Span is one stage interval. Its parts and ChildNS sum to WallNS, unless it is
// a stage of the whole process.
type Span struct {
	Thread  int        `json:"thread"` // -1 for the whole process: only in Recording.Open
	Path    int        `json:"path"`
	BeginNS uint64     `json:"begin_ns"` // CLOCK_MONOTONIC; of a span that the window cut, the window's edge
	WallNS  uint64     `json:"wall_ns"`
	ChildNS uint64     `json:"child_ns"`
	CPUNS   uint64     `json:"cpu_ns,omitempty"` // inclusive of child stages
	Partial bool       `json:"partial,omitempty"`
	Parts   Parts      `json:"parts"`
	Calls   []SpanCall `json:"calls,omitempty"`
}

// SpanCall is the driver calls of one kind that ended in a span, outside its
// child stages. A span keeps its first 16 kinds; the time of further ones is
// in the span's parts only.
type SpanCall struct {
	Symbol    int    `json:"symbol"`
	GIL       GIL    `json:"gil"`
	Count     uint64 `json:"count"`
	CPUNS     uint64 `json:"cpu_ns"`
	BlockedNS uint64 `json:"blocked_ns"`
}

// LossInFlight is the reason of calls that had begun and not returned when the
// window ended, or when the snapshot was taken.
const LossInFlight = "in_flight_at_end"

// LossTimeline begins the reasons of events that are in the sums, but not in the
// timeline.
const LossTimeline = "timeline_"

// LossSpansNotKept is the reason of spans that are in the sums, but not among those
// that are kept one by one.
const LossSpansNotKept = "spans_not_kept"

// DebtKind says whom a part of a wait's time is owed to.
type DebtKind string

// The kinds of debt.
const (
	DebtStage     DebtKind = "stage"     // the stage Owner, or operations outside any stage
	DebtForgotten DebtKind = "forgotten" // stages that the kernel side had no more room to remember
	DebtUnseen    DebtKind = "unseen"    // nothing that was seen; there may have been something before
	DebtIdle      DebtKind = "idle"      // nothing: all that was seen was over when the wait began
)

// Debt is the share of one stage (the owner) in the time that one thread, in
// another stage or in the same one, waited in one function for the device. It
// is an estimate: a wait's time is divided in proportion to the number of
// operations that each owner had before it. The WallNS of the rows of one
// thread, path and symbol sum to the WallNS of its Calls.
type Debt struct {
	Thread     int      `json:"thread"`
	Path       int      `json:"path"` // of the waiting stage
	Symbol     int      `json:"symbol"`
	Kind       DebtKind `json:"kind"`
	Owner      int      `json:"owner"` // path; no meaning unless Kind is DebtStage
	Waits      uint64   `json:"waits"` // in which it had a share
	WallNS     uint64   `json:"wall_ns"`
	Operations uint64   `json:"operations"` // that were before those waits
}

// Loss counts what was seen but could not be accounted.
type Loss struct {
	Reason string `json:"reason"` // stable, lower case with underscores
	Kind   string `json:"kind"`   // what is lost: "calls", "spans", "names", "samples", "other"
	Count  uint64 `json:"count"`
	Help   string `json:"help"` // one line for people
}

// Seen is the kernel side's own count of what passed its probes, kept apart
// from the rows, so that a reader can check that nothing is missing: Calls is
// the sum of the rows' Count and of the losses of kind "calls". It is nil when
// the kernel side did not count.
type Seen struct {
	Calls uint64 `json:"calls"` // outermost entries into probed functions
}

// Overhead is what the recording itself cost.
type Overhead struct {
	CallCostNS  float64       `json:"call_cost_ns"` // calibrated: added to the target per probed call
	AddedNS     uint64        `json:"added_ns"`     // CallCostNS of each symbol's placement x its calls
	AgentCPU    time.Duration `json:"agent_cpu_ns"` // user + system of the agent and its keeper in the window
	AgentRSS    uint64        `json:"agent_rss"`    // bytes, at the end, without what both have in common
	Attach      time.Duration `json:"attach_ns"`    // from the first to the last probe
	Detach      time.Duration `json:"detach_ns"`    // 0: the probes were taken off later
	Calibration string        `json:"calibration"`  // how the bias was measured, or why it is 0
	Calibrated  bool          `json:"calibrated"`   //
	ProbedSites int           `json:"probed_sites"` // number of probed addresses
	KernelBytes uint64        `json:"kernel_bytes"` // memory of the BPF maps

	Followed   uint64 `json:"followed,omitempty"`    // executions of followed functions
	FollowedNS uint64 `json:"followed_ns,omitempty"` // calibrated: what they added to the target, 0 when it was not measured

	Samples   uint64 `json:"samples,omitempty"`    // calls whose Python stack was read, or tried to be
	SamplesNS uint64 `json:"samples_ns,omitempty"` // what that took the target's threads

	Looks   uint64 `json:"looks,omitempty"`    // at Python stacks, for functions that are stages
	LooksNS uint64 `json:"looks_ns,omitempty"` // what these took the target's threads

	// Programs is what the BPF programs took by the kernel's own account, by name.
	// Empty unless the kernel kept it (kernel.bpf_stats_enabled).
	Programs []Program `json:"programs,omitempty"`
}

// Program is what one BPF program took. The kernel's account includes what keeping
// it costs, and not the way into the program.
type Program struct {
	Name   string `json:"name"`
	Runs   uint64 `json:"runs"`
	WallNS uint64 `json:"wall_ns"` // in all of them
}

// GPU is NVML's view of the window.
type GPU struct {
	Driver  string   `json:"driver"`
	Devices []Device `json:"devices"`
}

// Device is one GPU's summary over the window. Means are over Samples.
type Device struct {
	Index          int     `json:"index"`
	Name           string  `json:"name"`
	UUID           string  `json:"uuid"`
	UtilizationPct float64 `json:"utilization_pct"` // NVML's own "GPU busy" gauge, mean
	MemoryUsed     uint64  `json:"memory_used"`     // bytes, maximum
	MemoryTotal    uint64  `json:"memory_total"`    // bytes
	PowerW         float64 `json:"power_w"`         // mean
	EnergyJ        float64 `json:"energy_j"`        // over the window, 0 when the device has no counter
	Samples        int     `json:"samples"`

	// Means of the clocks, 0 where NVML does not tell.
	GraphicsClockMHz float64 `json:"graphics_clock_mhz,omitempty"`
	SMClockMHz       float64 `json:"sm_clock_mhz,omitempty"`
	MemoryClockMHz   float64 `json:"memory_clock_mhz,omitempty"`
	// ClockLimits are NVML's reasons for which the clocks were lower than they
	// could be, in NVML's order; without those that no sample found.
	ClockLimits []ClockLimit `json:"clock_limits,omitempty"`

	Process *DeviceProcess `json:"process,omitempty"` // the target on this device, nil where NVML does not know it
	// Intervals are the samples, one after the other; those of long windows are
	// merged, so that there are never many.
	Intervals []DeviceInterval `json:"intervals,omitempty"`
}

// ClockLimit is a reason for lower clocks.
type ClockLimit struct {
	Reason  string `json:"reason"`  // as NVML names it, e.g. "sw_power_cap"
	Samples int    `json:"samples"` // of Device.Samples that found it
}

// DeviceProcess is one process on a device. What NVML does not tell is nil.
type DeviceProcess struct {
	MemoryUsed     *uint64  `json:"memory_used,omitempty"`     // bytes, maximum
	UtilizationPct *float64 `json:"utilization_pct,omitempty"` // mean; of the SMs, by NVML
}

// DeviceInterval is what a device said of the time since the sample before.
type DeviceInterval struct {
	BeginNS        uint64  `json:"begin_ns"` // CLOCK_MONOTONIC, as of spans
	EndNS          uint64  `json:"end_ns"`
	UtilizationPct float64 `json:"utilization_pct"`
	PowerW         float64 `json:"power_w"`
	EnergyJ        float64 `json:"energy_j"` // 0 when the device has no counter
}
