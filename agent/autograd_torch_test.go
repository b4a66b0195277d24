//go:build torch

package agent_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// startAutograd starts sim/torch/autograd.py, which obeys orders as the puppet
// does, on stock PyTorch of version TORCH.
func startAutograd(t *testing.T, passes int) *puppet {
	t.Helper()
	root := simtest.Root(t)
	process := simtest.Start(t, simtest.Command{
		Path: filepath.Join(root, "sim/torch/run.sh"),
		Args: []string{torchVersion(), filepath.Join(root, "sim/torch/autograd.py"), fmt.Sprint(passes)},
	})
	process.WaitLine("up")
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", process.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	return &puppet{Process: process, t: t, orders: orders}
}

// callers are what was recorded of some of autograd.py's callers running at the
// same time.
type callers struct {
	recording *recording.Recording
	truth     simtest.Truth
}

func recordCallers(t *testing.T, p *puppet, names string) callers {
	t.Helper()
	truth := filepath.Join(t.TempDir(), "truth.json")
	p.order("prepare " + names)
	r := record(t, agent.Config{PID: p.PID})
	p.order("run " + truth)
	got := callers{r.interrupt(), simtest.ReadTruth(t, truth)}
	p.order("end")
	return got
}

// expectTruth compares each caller's calls by stage and export, and autograd's
// by export: the driver does not know whose they are.
func (c callers) expectTruth(t *testing.T) {
	t.Helper()
	autograd := map[int]bool{}
	for _, thread := range c.recording.Threads {
		autograd[thread.TID] = isAutograd(thread.Name)
	}
	anybodys := func(k simtest.Key) simtest.Key {
		if autograd[k.TID] {
			k.Tag = ""
		}
		return k
	}
	if diff := simtest.Diff(c.truth.Counts(), counts(c.recording).By(anybodys)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectNoLosses(t, c.recording)
}

// adopted are the calls of autograd's threads by thread, stage and export.
func (c callers) adopted() simtest.Counts {
	r, adopted := c.recording, simtest.Counts{}
	for _, call := range r.Calls {
		thread := r.Threads[call.Thread]
		if isAutograd(thread.Name) {
			stage := strings.Join(r.Paths[call.Path].Names, "/")
			adopted.Add(simtest.Key{TID: thread.TID, Tag: stage, Symbol: r.Symbols[call.Symbol].Name},
				simtest.Count{Calls: call.Count, Errors: call.Errors, Bytes: call.Bytes})
		}
	}
	return adopted
}

// belongsTo tells the stages of some callers.
func belongsTo(names string) func(simtest.Key) bool {
	return func(k simtest.Key) bool {
		caller, _, _ := strings.Cut(k.Tag, ".")
		return slices.Contains(strings.Fields(names), caller)
	}
}

// Each caller alone first: then all that autograd's threads do is done for it.
// What they do for it is the same when they go from one caller to another.
func TestCaseC01AutogradBelongsToTheCaller(t *testing.T) {
	p := startAutograd(t, 100)
	alone := simtest.Counts{}
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		t.Run(name, func(t *testing.T) {
			got := recordCallers(t, p, name)
			got.expectTruth(t)
			expectAttributions(t, got.recording)
			adopted := got.adopted()
			if diff := simtest.Diff(adopted.Only(belongsTo(name)), adopted); diff != "" {
				t.Errorf("autograd's calls outside the stages of %s:\n%s", name, diff)
			}
			maps.Copy(alone, adopted)
		})
	}
	for _, names := range []string{"A B C", "A B C D E F"} {
		t.Run(names, func(t *testing.T) {
			got := recordCallers(t, p, names)
			got.expectTruth(t)
			expectAttributions(t, got.recording)
			if diff := simtest.Diff(alone.Only(belongsTo(names)), got.adopted()); diff != "" {
				t.Errorf("autograd's calls differ from those for each caller alone:\n%s", diff)
			}
		})
	}
}
