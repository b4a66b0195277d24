package agent

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent/keeper"
	"stageprof/bpf"
	"stageprof/recording"
)

// overhead says what the recording has cost so far.
func (s *Session) overhead(r *recording.Recording, cpu, detach time.Duration) recording.Overhead {
	o := recording.Overhead{
		AgentCPU: cpu, AgentRSS: residentSize() + keeper.Memory(), Attach: s.attachTime, Detach: detach,
		Calibration: s.calibration, Calibrated: s.costs != nil, ProbedSites: len(s.symbols), KernelBytes: s.kernelMemory(),
	}
	if t, err := readTally(s.objects.Counters); err == nil {
		o.Samples, o.SamplesNS = t[bpf.ProbeCounterCOUNT_SAMPLES], t[bpf.ProbeCounterCOUNT_SAMPLE_TIME]
		o.Looks, o.LooksNS = t[bpf.ProbeCounterCOUNT_LOOKS], t[bpf.ProbeCounterCOUNT_LOOK_TIME]
	}
	o.Programs = s.programCosts()
	var calls uint64
	var added float64
	for _, c := range r.Calls {
		calls += c.Count
		added += float64(c.Count) * s.costs[s.symbols[c.Symbol].Placement.Class].Added
	}
	o.AddedNS = uint64(added)
	if calls > 0 {
		o.CallCostNS = added / float64(calls)
	}
	return o
}

// programCosts is what the programs took so far by the kernel's account, nil if it
// keeps none.
func (s *Session) programCosts() (costs []recording.Program) {
	programs := reflect.ValueOf(s.objects.ProbePrograms)
	for i := range programs.NumField() {
		p, _ := programs.Field(i).Interface().(*ebpf.Program)
		if p == nil { // not wanted
			continue
		}
		stats, err := p.Stats()
		if err != nil || stats.RunCount == 0 {
			continue
		}
		name := programs.Type().Field(i).Tag.Get("ebpf")
		costs = append(costs, recording.Program{Name: name, Runs: stats.RunCount, WallNS: uint64(stats.Runtime)})
	}
	return costs
}

func (s *Session) kernelMemory() uint64 {
	var total uint64
	for _, m := range []*ebpf.Map{
		s.objects.Calls, s.objects.Stages, s.objects.Paths, s.objects.Names, s.objects.Threads, s.objects.Slots,
		s.objects.ProcessStages, s.objects.Counters, s.objects.Texts,
		s.objects.NameMatches, s.objects.HiddenNames, s.objects.HiddenTexts,
		s.objects.PythonTexts, s.objects.PythonCodes, s.objects.PythonHidden,
		s.objects.Functions, s.objects.Regions, s.objects.Allocations, s.objects.Allocated, s.objects.PythonSamples,
		s.objects.Streams, s.objects.StreamLogs, s.objects.Events, s.objects.Contexts, s.objects.Debts, s.objects.TimelineEvents,
	} {
		if info, err := m.Info(); err == nil {
			if bytes, ok := info.Memlock(); ok {
				total += bytes
			}
		}
	}
	return total
}

// residentSize is this process's resident memory in bytes, 0 if unknown.
func residentSize() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

func kernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// agentCPU is the CPU time that this process and its keeper have used.
func agentCPU() time.Duration {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano()+usage.Stime.Nano()) + keeper.CPU()
}
