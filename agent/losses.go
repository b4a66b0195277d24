package agent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

// reasons gives every loss counter of the kernel side its name in a Recording.
var reasons = map[bpf.ProbeCounter]recording.Loss{
	bpf.ProbeCounterLOST_RETURN: {Reason: "lost_return", Kind: "calls",
		Help: "the call's return was not seen: it was left by longjmp, or more than 64 return probes were pending"},
	bpf.ProbeCounterLOST_IN_FLIGHT: {Reason: recording.LossInFlight, Kind: "calls",
		Help: "the calls were still running when the window ended"},
	bpf.ProbeCounterLOST_AT_EXIT: {Reason: "thread_exit_in_call", Kind: "calls",
		Help: "the thread or process ended inside the call"},
	bpf.ProbeCounterLOST_ROW: {Reason: "rows_full", Kind: "calls",
		Help: "the table of rows is full: record for a shorter time, or fewer functions (--probes)"},
	bpf.ProbeCounterLOST_IMPOSSIBLE: {Reason: "impossible_duration", Kind: "calls",
		Help: "the call's time does not add up and was rejected"},
	bpf.ProbeCounterLOST_THREAD: {Reason: "no_thread_state", Kind: "calls",
		Help: "the kernel had no memory for the thread's state"},
	bpf.ProbeCounterLOST_STAGE_ROW: {Reason: "stage_rows_full", Kind: "spans",
		Help: "the table of stages is full: use fewer distinct stage names"},
	bpf.ProbeCounterLOST_OUTSIDE_ROW: {Reason: "outside_rows_full", Kind: "other",
		Help: "the table of stages is full: the time that some threads spent outside any stage is missing"},
	bpf.ProbeCounterLOST_STAGE_DEPTH: {Reason: "stages_too_deep", Kind: "spans",
		Help: "stages were nested deeper than 32"},
	bpf.ProbeCounterLOST_SPAN_RECORD: {Reason: "span_records_full", Kind: "other",
		Help: "the ring buffer was full: the spans are in the totals, but not kept one by one"},
	bpf.ProbeCounterLOST_STAGE_THREAD: {Reason: "no_thread_state_for_marker", Kind: "spans",
		Help: "the kernel had no memory for the thread's state"},
	bpf.ProbeCounterLOST_MARKER: {Reason: "missed_stage_end", Kind: "spans",
		Help: "the end of a stage was missed; it was closed at the thread's next marker and counted as partial"},
	bpf.ProbeCounterLOST_PATH: {Reason: "stage_paths_full", Kind: "names",
		Help: "too many distinct stage paths; further ones are shown as \"(other stages)\""},
	bpf.ProbeCounterLOST_NAME_FULL: {Reason: "stage_names_full", Kind: "names",
		Help: "too many distinct stage names; further ones are shown as \"(other stages)\""},
	bpf.ProbeCounterLOST_NAME_UNREADABLE: {Reason: "stage_name_unreadable", Kind: "names",
		Help: "a stage name could not be read; the stage is shown as \"(other stages)\""},
	bpf.ProbeCounterLOST_NAME_REGISTERED: {Reason: "stage_name_registered", Kind: "names",
		Help: "the name of an NVTX range was a registered string, whose text nobody keeps while no tool is in the process; the stage is shown as \"(other stages)\""},
	bpf.ProbeCounterLOST_RANGE_START: {Reason: "nvtx_start_end", Kind: "other",
		Help: "NVTX ranges of start and end belong to no thread, and without a tool in the process their ends can't be told apart: they are not stages"},
	bpf.ProbeCounterLOST_THREAD_STATE: {Reason: "no_state_for_new_thread", Kind: "other",
		Help: "the kernel had no memory for a new thread's state: its time before its first event is missing"},
	bpf.ProbeCounterLOST_THREAD_BEGIN: {Reason: "thread_begin_unseen", Kind: "other",
		Help: "the kernel skipped the program that notes new threads: their time before their first event is missing, of those without an event all of it"},
	bpf.ProbeCounterLOST_THREAD_NAME: {Reason: "threads_full", Kind: "names",
		Help: "too many threads; further ones have no name"},
	bpf.ProbeCounterLOST_FUNCTION_EXIT: {Reason: "function_left_otherwise", Kind: "other",
		Help: "a function was left by an exception or longjmp; it was closed where the exception was caught, or at a later event of the thread, and counted as partial"},
	bpf.ProbeCounterLOST_FUNCTION_DEPTH: {Reason: "functions_too_deep", Kind: "spans",
		Help: "functions were entered inside of 16 open ones"},
	bpf.ProbeCounterLOST_REGION_PARTS: {Reason: "region_parts_full", Kind: "other",
		Help: "the table of what the time in regions consists of is full: some of it is shown as outside any region"},
	bpf.ProbeCounterLOST_ALLOCATION_ROW: {Reason: "allocation_rows_full", Kind: "other",
		Help: "the table of allocations is full: some are missing"},
	bpf.ProbeCounterLOST_ALLOCATION_SIZE: {Reason: "allocation_sizes_full", Kind: "other",
		Help: "too much was allocated at a time: the bytes of some frees are missing"},
	bpf.ProbeCounterLOST_REGION_ROW: {Reason: "region_rows_full", Kind: "other",
		Help: "the table of regions is full: the time spent in some is missing"},
	bpf.ProbeCounterLOST_SAMPLE_STATE: {Reason: "no_state_for_python", Kind: "samples",
		Help: "the kernel had no memory for reading a thread's Python stack"},
	bpf.ProbeCounterLOST_SAMPLE_READ: {Reason: "python_stack_unreadable", Kind: "samples",
		Help: "Python frames could not be followed: the interpreter's lists changed while they were read"},
	bpf.ProbeCounterLOST_SAMPLE_ROOM: {Reason: "python_samples_full", Kind: "samples",
		Help: "the ring buffer was full: the calls are in the totals, their Python stacks are not known"},
	bpf.ProbeCounterLOST_LOOK_STATE: {Reason: "no_state_for_python_stage", Kind: "other",
		Help: "the kernel had no memory for looking at a thread's Python stack: calls belong to the stage around their function"},
	bpf.ProbeCounterLOST_LOOK_READ: {Reason: "python_stage_unreadable", Kind: "other",
		Help: "a Python stack could not be read: the call belongs to the stage around its function"},
	bpf.ProbeCounterLOST_LOOK_DEPTH: {Reason: "python_stage_too_deep", Kind: "other",
		Help: "no function that is a stage was among the 128 innermost Python frames, and there were more: the call belongs to the stage around"},
	bpf.ProbeCounterLOST_DEBT_STREAM: {Reason: "debt_streams_full", Kind: "other",
		Help: "too many streams: what further ones were given to do is missing from the sync debt"},
	bpf.ProbeCounterLOST_DEBT_EVENT: {Reason: "debt_events_full", Kind: "other",
		Help: "too many recorded events: whose work a wait for further ones is for is not known"},
	bpf.ProbeCounterLOST_DEBT_CONTEXT: {Reason: "debt_contexts_full", Kind: "other",
		Help: "too many contexts: the default streams of further ones are taken for the first one's"},
	bpf.ProbeCounterLOST_DEBT_THREAD: {Reason: "debt_no_thread_state", Kind: "other",
		Help: "the kernel had no memory for a thread's waits: they are missing from the sync debt"},
	bpf.ProbeCounterLOST_DEBT_ROW: {Reason: "debt_rows_full", Kind: "other",
		Help: "the table of sync debt is full: parts of waits are missing from it"},
	bpf.ProbeCounterLOST_TIMELINE_CALL: {Reason: "timeline_calls_full", Kind: "other",
		Help: "the ring buffer was full: the calls are in the totals, but not in the timeline; --probes with fewer functions helps"},
	bpf.ProbeCounterLOST_TIMELINE_CUT: {Reason: "timeline_cut_calls_full", Kind: "other",
		Help: "the ring buffer was full: calls in which their thread ended are not in the timeline"},
	bpf.ProbeCounterLOST_TIMELINE_OFF: {Reason: "timeline_off_full", Kind: "other",
		Help: "the ring buffer was full: times off the CPU are missing from the timeline, where they look like running"},
	bpf.ProbeCounterLOST_TIMELINE_WAIT: {Reason: "timeline_waits_full", Kind: "other",
		Help: "the ring buffer was full: what some waits were for is missing from the timeline"},
}

// Losses that are known only in user space.
const (
	reasonUnaccounted    = "unaccounted"
	reasonEndUnseen      = "thread_end_unseen"
	reasonNamesOverflow  = "marker_names_full"
	reasonThreadOverflow = "marker_threads_full"
	reasonCodeGone       = "python_code_gone"
	reasonStacksDropped  = "python_stacks_not_kept"
)

// tally is the kernel side's counters, summed over all CPUs.
type tally [bpf.ProbeCounterCOUNTERS]uint64

// readTally reads the losses before the number of calls: no loss is then seen
// without its call.
func readTally(counters *ebpf.Map) (tally, error) {
	var t tally
	for which := len(t) - 1; which >= int(bpf.ProbeCounterCOUNT_ENTERED); which-- {
		var perCPU []uint64
		if err := counters.Lookup(uint32(which), &perCPU); err != nil {
			return t, fmt.Errorf("reading counter %d: %w", which, err)
		}
		for _, n := range perCPU {
			t[which] += n
		}
	}
	return t, nil
}

// entered is the number of calls seen.
func (t tally) entered() uint64 { return t[bpf.ProbeCounterCOUNT_ENTERED] }

// lostCalls is the number of calls that were seen and are known to be lost.
func (t tally) lostCalls() uint64 {
	var n uint64
	for which, loss := range reasons {
		if loss.Kind == "calls" {
			n += t[which]
		}
	}
	return n
}

// snapshot leaves out the calls that came while the rows were read, up to counted
// of them. Of those that are in no row, as many are running as threads were in a
// call.
func (t tally) snapshot(counted, inCall uint64) tally {
	done := counted + t.lostCalls()
	running := min(t.entered()-min(done, t.entered()), inCall)
	t[bpf.ProbeCounterCOUNT_ENTERED] = done + running
	t[bpf.ProbeCounterLOST_IN_FLIGHT] += running
	return t
}

// losses lists what occurred, sorted by reason. counted is the sum of the rows.
func (t tally) losses(counted uint64) []recording.Loss {
	var losses []recording.Loss
	for which, loss := range reasons {
		if loss.Count = t[which]; loss.Count > 0 {
			losses = append(losses, loss)
		}
	}
	if done := counted + t.lostCalls(); t.entered() > done {
		losses = append(losses, recording.Loss{Reason: reasonUnaccounted, Kind: "calls", Count: t.entered() - done,
			Help: "the calls were seen and are in no row and no other loss: please report this as a fault of stageprof"})
	}
	sortLosses(losses)
	return losses
}

func sortLosses(losses []recording.Loss) {
	slices.SortFunc(losses, func(a, b recording.Loss) int { return cmp.Compare(a.Reason, b.Reason) })
}
