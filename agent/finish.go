package agent

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/recording"
)

// finish closes the window, takes the probes off and reads what was counted.
func (s *Session) finish(end recording.WindowEnd) (*recording.Recording, error) {
	windowEnd, err := s.closeWindow()
	if err != nil {
		return nil, err
	}
	// At once: the code objects of the last samples may not be there for long.
	if err := s.samples.read(); err != nil {
		s.warnOnce(err.Error())
	}
	cpu := agentCPU() - s.startCPU
	// While the target's program is there, its latest libraries can still be named.
	if end != recording.EndExec {
		if err := s.names.refresh(); err != nil && !errors.Is(err, target.ErrTargetExited) {
			s.warnOnce(fmt.Sprintf("callers in libraries that were loaded late have no names: %v", err))
		}
	}
	detached := s.quiesce()
	if s.config.Live || len(s.retired.serials) > 0 { // else all rows are in the tables still
		if err := s.retire(); err != nil {
			s.warnOnce(err.Error()) // the rows are still in one of both places
		}
	}
	s.warnOfChildren()
	unseeded, err := s.unseeded()
	if err != nil {
		return nil, err
	}
	// Only the ends of threads still change what is read now.
	dump, dumpErr := readIterator(s.iterate)
	if dumpErr != nil {
		s.warnOnce(fmt.Sprintf("stages that were open at the end are missing: %v", dumpErr))
	}

	states, err := parseStates(dump)
	if err != nil {
		return nil, err
	}
	d := drain{Session: s, windowEnd: windowEnd, r: s.header(end, windowEnd), states: states, complete: dumpErr == nil, unseeded: unseeded}
	if s.skips && d.complete {
		if err := d.awaitEnds(endPatience); err != nil {
			return nil, err
		}
	}
	if err := s.objects.ProcessStages.Lookup(uint32(0), &d.shared); err != nil {
		return nil, fmt.Errorf("reading the process's stages: %w", err)
	}
	if err := d.run(); err != nil {
		return nil, err
	}
	s.spans.kept = nil
	d.r.Overhead = s.overhead(d.r, cpu, detached)
	d.addFollowed()
	return d.r, s.bill(d.r)
}

// quiesce makes sure that no program changes the maps any more, and returns how
// long taking the probes off took, 0 if that comes later. Perf events take so long to
// remove that the Recording is made before: the window is over, and what begins now
// changes nothing.
func (s *Session) quiesce() time.Duration {
	begin := time.Now()
	s.leaveGates()
	links := []*probe.Links{&s.scheduler}
	if s.mechanism != probe.PerfEvent {
		links = append(links, &s.probes)
	}
	for _, l := range links {
		if err := l.Close(); err != nil {
			s.warnOnce(fmt.Sprintf("taking the probes off: %v", err))
		}
	}
	took := time.Since(begin)
	if err := awaitPrograms(); err != nil {
		s.warnOnce(fmt.Sprintf("programs that are still running were not waited for: %v", err))
	}
	if s.mechanism == probe.PerfEvent {
		return 0
	}
	return took
}

// awaitPrograms returns when all programs that were running have ended, on whatever CPU
// and however long they were away from it. Replacing a map in a map waits for that.
func awaitPrograms() error {
	inner := &ebpf.MapSpec{Name: "inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "outer", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return err
	}
	defer outer.Close()
	in, err := ebpf.NewMap(inner)
	if err != nil {
		return err
	}
	defer in.Close()
	return outer.Put(uint32(0), in)
}

// ahead is how far ahead the window's end is set: every program must know of it
// before it comes, so that none accounts time beyond it.
const ahead = 2 * time.Millisecond

// closeWindow ends the window, unless the target's program has ended it.
func (s *Session) closeWindow() (uint64, error) {
	var end uint64
	if err := s.objects.WindowEnd.Get(&end); err != nil || end != 0 {
		return end, err
	}
	for {
		end = monotonic() + uint64(ahead)
		if err := s.objects.WindowEnd.Set(end); err != nil {
			return 0, fmt.Errorf("closing the window: %w", err)
		}
		if monotonic() < end { // else this process was held up, and the end came first
			time.Sleep(ahead)
			return end, nil
		}
	}
}

func (s *Session) header(end recording.WindowEnd, windowEnd uint64) *recording.Recording {
	p := s.process
	rank := p.Rank()
	r := &recording.Recording{
		Format: recording.FormatVersion,
		Tool: recording.Tool{
			Version: s.config.Version, Command: s.config.Command,
			Kernel: kernelRelease(), Arch: runtime.GOARCH, Mechanism: string(s.mechanism),
		},
		Target: recording.Target{
			PID: p.PID(), NSPID: p.NSPID(), StartTime: p.StartTime(), Exe: p.Exe(), Comm: p.Comm(), Cmdline: p.Cmdline(),
			Rank: max(rank.Rank, 0), LocalRank: max(rank.LocalRank, 0), WorldSize: max(rank.WorldSize, 1),
		},
		Window: recording.Window{
			Start: s.startWall, StartNS: s.startMono, Duration: time.Duration(windowEnd - s.startMono), End: end,
		},
		Absent:   s.plan.absent(),
		Warnings: slices.Clone(s.warnings),
	}
	if s.pythonMatch == nil && s.markerLibs+s.rangePoints+s.stageFunctions() == 0 {
		r.Warnings = append(r.Warnings, s.noStages())
	}
	if python := s.plan.Python; python.Path != "" {
		r.Target.Python = &recording.Python{
			Version: python.Version, Path: python.Path, GILMethod: python.Method.String(), GILReason: python.Reason,
			Stacks: string(s.stacks()), StacksReason: s.stacksReason,
		}
	}
	return r
}
