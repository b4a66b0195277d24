package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"stageprof/agent/gil"
	"stageprof/agent/probe"
	"stageprof/bpf"

	"github.com/cilium/ebpf"
)

// leastDescriptors is what a recording takes: its programs, tables and links, and
// some of the target's files.
const leastDescriptors = 100

// checkDescriptors finds out at once what would fail somewhere on the way: where
// it fails inside a test of the kernel's features, the kernel seems to lack them.
func checkDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("counting open files: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if uint64(len(open))+leastDescriptors > limit.Cur {
		return fmt.Errorf("%w: attaching takes %d more, the limit is %d (ulimit -n)", unix.EMFILE, leastDescriptors, limit.Cur)
	}
	return nil
}

// programs names the programs that the recording can need. The others would make
// attaching last longer.
func (s *Session) programs() []string {
	names := []string{
		"driver_entry", "driver_return", "autograd_hit", "loader_hit",
		"on_switch", "on_wakeup", "on_new", "on_rename", "on_exit", "on_exec",
		"init_threads", "peek_threads", "dump_threads",
	}
	for _, of := range []struct {
		programs []string
		wanted   bool
	}{
		{[]string{"driver_notice"}, !s.config.NoSyncDebt},
		{[]string{"marker_announced", "gate_holder"}, s.announcing},
		{[]string{
			"on_new_again1", "on_new_again2", "on_new_again3", "on_new_again4",
			"on_exit_again1", "on_exit_again2", "on_exit_again3", "on_exit_again4",
		}, s.skips},
		{[]string{"marker_hit"}, slices.Contains(s.config.StagesFrom, SourceMarkers)},
		{[]string{"range_hit"}, slices.ContainsFunc(s.config.StagesFrom, isRangeSource)},
		{[]string{"function_entry", "function_exit", "catch_hit"}, len(s.functionPatterns) > 0},
		{[]string{"allocation_hit"}, s.config.Allocations},
	} {
		if of.wanted {
			names = append(names, of.programs...)
		}
	}
	return names
}

func isRangeSource(source string) bool {
	return source != SourceMarkers && !strings.HasPrefix(source, functionPrefix) && !strings.HasPrefix(source, pythonPrefix)
}

// load loads the programs and tells them of the target.
func (s *Session) load() error {
	spec, err := bpf.LoadProbe()
	if err != nil {
		return fmt.Errorf("reading the programs: %w", err)
	}
	probe.Prepare(spec, s.mechanism)
	s.prepareAllocations(spec)
	if err := s.prepareRegions(spec); err != nil {
		return err
	}
	if s.config.family != nil {
		shareRoom(spec)
	}
	if s.config.PythonStacks == PythonStacksAll {
		spec.Maps["python_samples"].MaxEntries = roomForAll
	}
	if err := spec.Variables["target_tgid"].Set(uint32(s.process.PID())); err != nil {
		return fmt.Errorf("setting the target: %w", err)
	}
	if s.skips, err = kernelSkips(); err != nil {
		return err
	}
	if err := s.prepareAnnouncements(spec); err != nil {
		return err
	}
	if err := errors.Join(s.prepareStageMatch(spec), s.preparePythonStages(spec)); err != nil {
		return err
	}
	if err := spec.Variables["sync_debt"].Set(!s.config.NoSyncDebt); err != nil {
		return fmt.Errorf("switching sync debt: %w", err)
	}
	if err := spec.Variables["metered"].Set(s.meter != nil); err != nil {
		return fmt.Errorf("switching the meter: %w", err)
	}
	if err := s.prepareTimeline(spec); err != nil {
		return err
	}
	if err := bpf.LoadSelected(spec, &s.objects, s.programs()...); err != nil {
		return fmt.Errorf("loading the programs: %w", err)
	}
	spans, err := newSpanReader(s.objects.Spans, s.config.Live)
	if err != nil {
		return err
	}
	s.spans = spans
	if s.samples, err = newSampleReader(s.objects.PythonSamples); err != nil {
		return err
	}
	return errors.Join(s.openTimeline(), s.setMatches(), s.setPython())
}

// familyShare is the part of the usual room that each process of a family gets:
// the rows of one rank are some hundred, and many ranks have to fit.
const familyShare = 4

// ownShare is what of some room the Session gets.
func (s *Session) ownShare(room int) int {
	if s.config.family == nil {
		return room
	}
	return room / familyShare
}

// shareRoom makes the tables smaller that grow with what a process does.
func shareRoom(spec *ebpf.CollectionSpec) {
	for _, name := range []string{
		"calls", "stages", "spans", "threads", "debts", "regions", "texts", "hidden_names", "hidden_texts", "python_samples",
	} {
		spec.Maps[name].MaxEntries /= familyShare
	}
}

// setPython tells the kernel side how to read the interpreter that the plan is
// about.
func (s *Session) setPython() error {
	return errors.Join(s.setGIL(s.plan.Python), s.setStacks(s.plan.Python))
}

var gilReadings = map[gil.Method]bpf.ProbeGilReading{
	gil.None:               bpf.ProbeGilReadingGIL_METHOD_NONE,
	gil.Unknown:            bpf.ProbeGilReadingGIL_METHOD_UNKNOWN,
	gil.ThreadLocal:        bpf.ProbeGilReadingGIL_METHOD_THREAD_LOCAL,
	gil.CurrentThreadState: bpf.ProbeGilReadingGIL_METHOD_CURRENT_THREAD_STATE,
}

func (s *Session) setGIL(plan gil.Plan) error {
	// The programs may be running: no state while the plan is half the old one.
	err := errors.Join(s.objects.GilMethod.Set(uint32(bpf.ProbeGilReadingGIL_METHOD_UNKNOWN)), s.objects.Gil.Set(bpf.ProbeGilPlan{
		Address: plan.Address, ThreadIdOffset: plan.ThreadIDOffset, SelfBelow: plan.SelfBelow,
		TlsModule: plan.TLSModule, TlsOffset: plan.TLSOffset, EnabledAddress: plan.GILEnabledAddress,
		LockStart: plan.LockStart, LockEnd: plan.LockEnd,
	}))
	return errors.Join(err, s.objects.GilMethod.Set(uint32(gilReadings[plan.Method])))
}
