package agent_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/mark"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// Functions that were marked from outside are stages like any others: as many spans as the program
// counts itself, and every driver call in the right one.
func TestMarkedFunctions(t *testing.T) {
	const count = 500
	script, err := filepath.Abs("testdata/marked.py")
	if err != nil {
		t.Fatal(err)
	}
	command := simtest.Command{Path: simtest.Python314(t), Args: []string{script, simtest.Driver(t), fmt.Sprint(count)}}
	p := simtest.Start(t, command.With("PYTHONPATH="+filepath.Dir(simtest.Build(t, "python/stageprof"))))
	p.WaitLine("up")
	outcomes, err := mark.Run(t.Context(), mark.Config{
		PID: p.PID, Functions: []string{"__main__:Trainer.step", "__main__:forward"}, Timeout: simtest.Patience,
	})
	if err != nil || len(outcomes) != 2 || outcomes[0].Status != mark.Marked || outcomes[1].Status != mark.Marked {
		t.Fatalf("outcomes %+v, error %v", outcomes, err)
	}
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	got := r.finish()
	p.Wait()

	want := map[stageKey]spanCount{}
	for _, thread := range []string{"first", "second"} {
		want[stageKey{thread, "Trainer.step"}] = spanCount{Whole: count}
		want[stageKey{thread, "Trainer.step/forward"}] = spanCount{Whole: 2 * count}
		want[stageKey{thread, "forward"}] = spanCount{Whole: count}
	}
	expectSpans(t, got, want)
	if diff := cmp.Diff(countedBy(t, p), spansOfInnermost(got)); diff != "" {
		t.Errorf("spans, as the program counts them (-want +got):\n%s", diff)
	}
	calls := map[string]uint64{}
	for _, c := range got.Calls {
		if name := got.Symbols[c.Symbol].Name; name == "cuCtxSynchronize" || name == "cuStreamQuery" {
			calls[name+" in "+strings.Join(got.Paths[c.Path].Names, "/")] += c.Count
		}
	}
	wantCalls := map[string]uint64{
		"cuCtxSynchronize in Trainer.step":      2 * count,
		"cuStreamQuery in Trainer.step/forward": 4 * count,
		"cuStreamQuery in forward":              2 * count,
	}
	if diff := cmp.Diff(wantCalls, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// countedBy reads the program's own counts.
func countedBy(t *testing.T, p *simtest.Process) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, line := range p.Lines() {
		var stage string
		var n uint64
		if _, err := fmt.Sscanf(line, "expect %s %d", &stage, &n); err == nil {
			counts[stage] = n
		}
	}
	return counts
}

// spansOfInnermost sums whole spans by the innermost stage.
func spansOfInnermost(r *recording.Recording) map[string]uint64 {
	counts := map[string]uint64{}
	for _, s := range r.Stages {
		if names := r.Paths[s.Path].Names; len(names) > 0 {
			counts[names[len(names)-1]] += s.Count
		}
	}
	return counts
}
