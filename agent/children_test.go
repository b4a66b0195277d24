package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// warning returns the one that starts with a text.
func warning(t *testing.T, warnings []string, start string) string {
	t.Helper()
	for _, w := range warnings {
		if strings.HasPrefix(w, start) {
			return w
		}
	}
	t.Errorf("no warning %q among %q", start, warnings)
	return ""
}

// Forked children that have the driver are not recorded with their parent, and
// that is said.
func TestCaseC15ForkedChildrenAreListed(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "forker", "--workers", "4", "--calls", "200", "--stay", "1",
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	children := p.WaitLines(`{"child":`, 4)
	p.WaitLines("worked", 5)
	got := r.interrupt()
	p.Release()
	p.Wait()
	expectEqual(t, got, p.Truth().Counts())
	text := warning(t, got.Warnings, "not recorded, though they have mapped the CUDA driver: 4 descendants")
	for _, line := range children {
		var pid int
		if _, err := fmt.Sscanf(line, `{"child":%d}`, &pid); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d (forked, ", pid); !strings.Contains(text, want) {
			t.Errorf("%q does not name %q", text, want)
		}
	}
}
