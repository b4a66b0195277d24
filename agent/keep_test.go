package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// keeperOf returns the process that keeps an agent's probes, 0 if there is none.
func keeperOf(t *testing.T, agent int) int {
	t.Helper()
	return simtest.ChildOf(t, agent, "probe-keeper")
}

// awaitKeeper returns the keeper of an agent when there is one.
func awaitKeeper(t *testing.T, agent int) (keeper int) {
	t.Helper()
	simtest.Eventually(t, "there is a keeper", func() bool { keeper = keeperOf(t, agent); return keeper != 0 })
	return keeper
}

// killKeeper ends the keeper of an agent, and returns when it is gone.
func killKeeper(t *testing.T, agent int) {
	t.Helper()
	keeper := awaitKeeper(t, agent)
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	simtest.Eventually(t, "the keeper has ended", func() bool { return keeperOf(t, agent) != keeper })
}

// The keeper is killed: the probes stay until the agent takes them off, and what the target
// loads later gets some, too.
func TestKeeperKilled(t *testing.T) {
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w")
			before := probedText(t, p)
			baseline := p.truthSoFar().Counts()
			a := launchAgent(t, p.PID, agentRequest{Mechanism: mechanism, Probes: "cuLaunchKernel"})
			a.WaitLine("live")
			p.order("w begin step", "w launch 100")
			killKeeper(t, a.PID)
			p.order("w launch 200")
			second, truth := simtest.Variant(t, "decoy"), filepath.Join(t.TempDir(), "second.json")
			p.order("main second " + second + " " + truth)
			awaitProbe(t, p.PID, second, "cuLaunchKernel")
			killKeeper(t, a.PID)
			p.order("w launch 300", "w end")
			got := a.interrupt()
			expectRestored(t, p, before)
			for _, w := range got.Warnings {
				if strings.Contains(w, "probes off") {
					t.Errorf("a warning: %s", w)
				}
			}
			want := since(baseline, p.end().Counts())
			for k, n := range simtest.ReadTruth(t, truth).Counts() {
				k.Tag = "step" // which the other driver does not know
				want.Add(k, n)
			}
			launches := func(k simtest.Key) bool { return k.Symbol == "cuLaunchKernel" }
			expectEqual(t, got, want.Only(launches))
		})
	}
}

// expectEnded fails if a process does not end.
func expectEnded(t *testing.T, pid int) {
	t.Helper()
	simtest.Eventually(t, "the keeper has ended", func() bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || len(line) == 0 // a zombie's is empty
	})
}

// An agent that uses perf events is killed as it puts them in, and as it takes them off.
func TestHostileAgentKilledWithPerfEvents(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	before := probedText(t, p)
	for range sized(3, 20) {
		launch := func() *agentProcess {
			return launchAgent(t, p.PID, agentRequest{Mechanism: probe.PerfEvent, Probes: "cuLaunchKernel,cuStreamSynchronize"})
		}
		a := launch()
		keeper := awaitKeeper(t, a.PID)
		awaitFirst(t, p, before)
		a.Signal(syscall.SIGKILL)
		p.order("w begin step", "w launch 100", "w end")
		expectRestored(t, p, before)
		expectEnded(t, keeper)
		a = launch()
		a.WaitLine("live")
		keeper = awaitKeeper(t, a.PID)
		a.Release()
		simtest.Eventually(t, "the first probes are off", func() bool { return !isFollowed(t, p.PID) })
		a.Signal(syscall.SIGKILL)
		p.order("w begin step", "w launch 100", "w end")
		expectRestored(t, p, before)
		expectEnded(t, keeper)
	}
}

// A budget's windows have one keeper, and have another one after that was killed.
func TestKeeperKilledUnderBudget(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	before := probedText(t, p)
	p.order("main start q")
	p.tell("q poll 1000000000 0") // windows are short
	a := launchAgent(t, p.PID, agentRequest{Budget: 0.2, Advance: 50 * time.Millisecond})
	a.WaitLine("live")
	awaitWindow := func() {
		simtest.Eventually(t, "a window is closed", func() bool { return !isFollowed(t, p.PID) })
		simtest.Eventually(t, "another one is open", func() bool { return isFollowed(t, p.PID) })
	}
	for range 3 {
		killKeeper(t, a.PID)
		awaitWindow()
		keeper := awaitKeeper(t, a.PID)
		awaitWindow()
		if next := keeperOf(t, a.PID); next != keeper {
			t.Errorf("the next window has process %d, not %d", next, keeper)
		}
	}
	got := a.interrupt()
	expectEnd(t, got, recording.EndInterrupt)
	expectAccounted(t, got)
	expectRestored(t, p, before)
}

// A stopped keeper does not hold the agent up.
func TestKeeperStopped(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	before := probedText(t, p)
	a := launchAgent(t, p.PID, agentRequest{})
	a.WaitLine("live")
	if err := syscall.Kill(awaitKeeper(t, a.PID), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.order("w begin step", "w launch 100", "w end")
	got := a.interrupt()
	if n := counts(got).By(simtest.BySymbol)[simtest.Key{Symbol: "cuLaunchKernel"}].Calls; n != 100 {
		t.Errorf("%d calls", n)
	}
	expectRestored(t, p, before)
}

// Several recordings of one process have one keeper, which ends with the last of them.
func TestKeeperIsShared(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	config := agent.Config{PID: p.PID, Probes: "launch"}
	first := record(t, config)
	keeper := keeperOf(t, syscall.Getpid())
	second := record(t, config)
	if keeper == 0 || keeperOf(t, syscall.Getpid()) != keeper {
		t.Errorf("the first recording's keeper is process %d, the second one's %d", keeper, keeperOf(t, syscall.Getpid()))
	}
	first.interrupt()
	if keeperOf(t, syscall.Getpid()) != keeper {
		t.Error("it has ended too early")
	}
	second.interrupt()
	if left := keeperOf(t, syscall.Getpid()); left != 0 {
		t.Errorf("process %d is left", left)
	}
}
