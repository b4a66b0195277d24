package agent_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/calibrate"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// What has to hold on every kernel that is supported, by each mechanism that it
// has. scripts/kernels/run.sh runs this on other kernels than the machine's, in
// an emulator: few functions, since perf events are slow to put on and off.
func TestKernel(t *testing.T) {
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			chosen, err := probe.Choose(mechanism)
			if errors.Is(err, ebpf.ErrNotSupported) {
				t.Logf("not in this kernel: %v", err) // the perf events show the rest
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			k := kernelTest{agent.Config{Mechanism: chosen, Probes: "cuLaunchKernel,cuStreamSynchronize,cuMemAlloc_v2"}}
			t.Run("calls equal the truth", k.equality)
			t.Run("attach in mid-stage", k.midStage)
			t.Run("lost returns", k.lostReturns)
			t.Run("threads come and go", k.churn)
			t.Run("exec", k.exec)
			t.Run("cost", k.cost)
		})
	}
}

// Linux 6.6 to 6.9 compare threads where they should compare processes. Probes are
// then attached for all processes, and the programs tell the target from others.
func TestFilterOfThreads(t *testing.T) {
	k := kernelTest{agent.Config{Mechanism: probe.UprobeMulti, Probes: "cuLaunchKernel,cuStreamSynchronize,cuMemAlloc_v2"}.FilterOfThreads()}
	t.Run("calls equal the truth", k.equality)
	t.Run("attach in mid-stage", k.midStage)
	t.Run("another process", k.anotherProcess)
}

type kernelTest struct{ config agent.Config }

// selected keeps what the suite's probes see.
func selected(k simtest.Key) bool {
	return slices.Contains([]string{"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuStreamSynchronize",
		"cuStreamSynchronize_ptsz", "cuMemAlloc", "cuMemAlloc_v2"}, k.Symbol)
}

func (k kernelTest) equality(t *testing.T) {
	for _, threads := range []int{1, 16} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			got, p := runTester(t, k.config, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
				"--calls", "2000", "--stages", "16", "--bad-every", "50", "--markers", simtest.Markers(t)))
			probed := map[string]bool{}
			for _, s := range got.Symbols {
				probed[s.Name] = true
			}
			expectEqual(t, got, p.Truth().Counts().Only(func(k simtest.Key) bool { return probed[k.Symbol] }))
			expectPartition(t, got)
		})
	}
}

func (k kernelTest) midStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w begin step", "w begin forward", "w launch 7")
	baseline := p.truthSoFar().Counts()
	k.config.PID = p.PID
	r := record(t, k.config)
	p.order("w launch 10", "w end", "w launch 20", "w begin backward", "w launch 30", "w end", "w end", "w launch 40")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()).Only(selected))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step/forward"}:  {0, 1},
		{"w", "step/backward"}: {1, 0},
		{"w", "step"}:          {0, 1},
	})
	expectWholeSums(t, got, "w")
}

func (k kernelTest) anotherProcess(t *testing.T) {
	other := startPuppet(t)
	other.order("main start w", "w begin step", "w launch 5")
	p := startPuppet(t)
	p.order("main start w")
	k.config.PID = p.PID
	r := record(t, k.config)
	other.order("w launch 100", "w end", "w begin step", "w launch 200", "w end")
	p.order("w begin step", "w launch 10", "w end")
	other.order("w launch 300")
	got := r.interrupt()
	other.end()
	expectEqual(t, got, p.end().Counts().Only(selected))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
	if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, calibrate.ErrProcessFilter.Error()) }) {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

func (k kernelTest) lostReturns(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	k.config.PID, k.config.Probes = p.PID, "cuLaunchKernel,cuStreamQuery"
	r := record(t, k.config)
	p.order("w begin step", "w launch 3", "w abandon", "w below 4", "w launch 5", "w nest 6", "w end")
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	if n := launchCount(got); n != 3+4+5 || losses(got)["lost_return"] != 1 {
		t.Errorf("%d launches, losses %v", n, losses(got))
	}
}

func (k kernelTest) churn(t *testing.T) {
	got, p := runTester(t, k.config, simtest.Tester(t, "churn", "--threads", "200", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts().Only(selected))
}

func (k kernelTest) exec(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	k.config.PID = p.PID
	r := record(t, k.config)
	p.order("w begin step", "w launch 100")
	want := since(baseline, p.truthSoFar().Counts()).Only(selected)
	p.tell("main exec")
	got := r.finish()
	expectEnd(t, got, recording.EndExec)
	expectEqual(t, got, want)
}

// cost says what a probed call costs, in system calls of this machine that do
// nothing: emulated machines can be compared by nothing else.
func (k kernelTest) cost(t *testing.T) {
	got, _ := runTester(t, k.config, simtest.Tester(t, "calls", "--calls", "2000"))
	if !got.Overhead.Calibrated { // an emulator can be too slow for it
		t.Logf("the cost is not known: %s", got.Overhead.Calibration)
		return
	}
	t.Logf("a probed call costs as much as %.1f system calls", got.Overhead.CallCostNS/float64(systemCall().Nanoseconds()))
}

// systemCall is how long a system call takes that does nothing, in the quietest of
// many batches.
func systemCall() time.Duration {
	const batches, calls = 100, 1000
	least := time.Duration(math.MaxInt64)
	for range batches {
		begin := time.Now()
		for range calls {
			unix.Getppid()
		}
		least = min(least, time.Since(begin)/calls)
	}
	return least
}
