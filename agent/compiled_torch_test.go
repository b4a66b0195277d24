//go:build torch

package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
)

// Triton gives the lock up around a launch, as PyTorch's eager launches do. What
// torch.compile made is launched by Triton in PyTorch 2.6; later versions have a
// launcher of their own, which keeps it.
func TestTorchCompiledLaunches(t *testing.T) {
	p := runScript(t, "sim/torch/compiled.py", "20")
	for _, line := range []string{"imported", "triton", "compiled", "ready"} { // each takes its time
		p.WaitLine(line)
	}
	r := record(t, agent.Config{PID: p.PID})
	p.begin(t)
	got := r.finish()
	p.Wait()
	type launches struct {
		Stage string
		GIL   recording.GIL
	}
	counted := map[launches]uint64{}
	for _, c := range got.Calls {
		if got.Symbols[c.Symbol].Group == "launch" {
			counted[launches{strings.Join(got.Paths[c.Path].Names, "/"), c.GIL}] += c.Count
		}
	}
	byCompiler := recording.GILHeld
	if version := os.Getenv("TORCH"); version == "" || strings.HasPrefix(version, "2.6.") {
		byCompiler = recording.GILFree
	}
	want := map[launches]uint64{
		{"triton", recording.GILFree}: 20, {"compiled", byCompiler}: 20, {"eager", recording.GILFree}: 20,
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("launches (-want +got):\n%s", diff)
	}
	expectPartition(t, got)
	expectNoLosses(t, got)
}
