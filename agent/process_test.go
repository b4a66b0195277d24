package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// agentRequest is what an agent in a process of its own is asked to do.
type agentRequest struct {
	PID    int
	Probes string
	Output string // where the Recording goes
	Limits agentLimits

	Mechanism probe.Mechanism // "": UprobeMulti
	Duration  time.Duration   // 0: until its standard input ends
	Budget    float64         // 0: none
	Advance   time.Duration   // of the budget
}

// agentLimits bound what an agent's process may use. 0: as this process.
type agentLimits struct {
	Descriptors uint64
	Memory      uint64 // bytes of address space
}

func (l agentLimits) apply() error {
	for resource, limit := range map[int]uint64{unix.RLIMIT_NOFILE: l.Descriptors, unix.RLIMIT_AS: l.Memory} {
		if limit == 0 {
			continue
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}

const agentEnvironment = "STAGEPROF_TEST_AGENT"

// runAgent is the agent's process: this test binary with a request in its
// environment. It prints "live", and ends its window when its standard input
// ends. It reports whether this process is one.
func runAgent() bool {
	text := os.Getenv(agentEnvironment)
	if text == "" {
		return false
	}
	if err := obeyRequest([]byte(text)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func obeyRequest(text []byte) error {
	var request agentRequest
	if err := json.Unmarshal(text, &request); err != nil {
		return err
	}
	if err := request.Limits.apply(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	r, err := agent.Record(ctx, agent.Config{
		PID: request.PID, Probes: request.Probes, Mechanism: request.Mechanism, Duration: request.Duration,
		Budget: request.Budget,
		Ready:  func() error { _, err := fmt.Println("live"); return err },
	}.Advance(request.Advance))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := recording.Write(&b, r); err != nil {
		return err
	}
	return os.WriteFile(request.Output, b.Bytes(), 0o600)
}

// agentProcess is an agent that can be stopped and killed.
type agentProcess struct {
	*simtest.Process
	t      *testing.T
	output string
}

// startAgent starts a recording of a process; the probes are live when it
// returns.
func startAgent(t *testing.T, pid int) *agentProcess {
	t.Helper()
	a := launchAgent(t, pid, agentRequest{})
	a.WaitLine("live")
	return a
}

// launchAgent is startAgent without the wait, with more to ask for.
func launchAgent(t *testing.T, pid int, request agentRequest) *agentProcess {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "recording")
	request.PID, request.Output = pid, output
	request.Probes, request.Mechanism = cmp.Or(request.Probes, "all"), cmp.Or(request.Mechanism, probe.UprobeMulti)
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	process := simtest.Start(t, simtest.Command{Path: executable}.With(agentEnvironment+"="+string(text)))
	return &agentProcess{process, t, output}
}

// finish waits for the recording to end and reads it.
func (a *agentProcess) finish() *recording.Recording {
	a.t.Helper()
	a.Wait()
	file, err := os.Open(a.output)
	if err != nil {
		a.t.Fatal(err)
	}
	defer file.Close()
	r, err := recording.Read(file)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// interrupt ends the recording and reads it.
func (a *agentProcess) interrupt() *recording.Recording {
	a.t.Helper()
	a.Release()
	return a.finish()
}
