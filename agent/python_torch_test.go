//go:build torch

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// Stock PyTorch's launches are charged to the statements of the pipeline that made
// them.
func TestTorchPythonLines(t *testing.T) {
	p := startPipeline(t, "--iterations", "50")
	r := record(t, agent.Config{PID: p.PID, PythonStacks: agent.PythonStacksAll})
	p.begin(t)
	got := r.finish()
	p.Wait()
	statements := map[string]string{ // by stage
		"target_forward": "model(", "pack_hidden": "self._pack(",
		"drafter_forward": "forward(", "drafter_backward": "loss.backward(", "optimizer_step": "step()",
	}
	source := sourceLines(t, filepath.Join(simtest.Root(t), "sim/torch_pipeline.py"))
	seen := map[string]uint64{}
	for _, c := range got.Calls {
		path := strings.Join(got.Paths[c.Path].Names, "/")
		statement, known := statements[path]
		launch := probe.API(got.Symbols[c.Symbol].Name) == "cuLaunchKernel"
		if !known || !launch || c.Attribution != recording.AttributionOwn {
			continue
		}
		for _, s := range c.Samples {
			line := loopLine(got, &got.PythonStacks[s.Stack])
			if line == 0 || !strings.Contains(source[line-1], statement) {
				t.Errorf("%d calls of %s in %s from line %d, want %q", s.Count, got.Symbols[c.Symbol].Name, path, line, statement)
			}
			seen[path] += s.Count
		}
	}
	for path := range statements {
		if seen[path] == 0 {
			t.Errorf("no launch in %s", path)
		}
	}
}

func sourceLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

// loopLine is the line of the pipeline's loop that a stack goes through, 0 if
// there is none.
func loopLine(r *recording.Recording, s *recording.PythonStack) int {
	for _, f := range s.Frames {
		function := &r.PythonFunctions[f.Function]
		if strings.HasSuffix(function.File, "torch_pipeline.py") && strings.HasSuffix(function.Name, "_loop") {
			return f.Line
		}
	}
	return 0
}
