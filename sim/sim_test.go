package sim_test

import (
	"testing"

	"stageprof/sim/simtest"
)

func TestTruthEqualsWhatWasCalled(t *testing.T) {
	for name, args := range map[string][]string{
		"one thread":      {"--threads", "1", "--calls", "20000"},
		"64 threads":      {"--threads", "64", "--calls", "2000", "--stages", "2"},
		"16 stages deep":  {"--threads", "3", "--calls", "20000", "--stages", "16", "--per-stage", "7"},
		"refused handles": {"--threads", "2", "--calls", "5000", "--bad-every", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := simtest.Start(t, simtest.Tester(t, "calls", args...))
			p.Ready()
			p.Wait()
			want := p.Expected()
			if len(want) == 0 {
				t.Fatal("the tester expects nothing")
			}
			if diff := simtest.Diff(want, p.Truth().Counts()); diff != "" {
				t.Error(diff)
			}
			if n := p.Truth().Unfinished(); n != 0 {
				t.Errorf("%d unfinished calls, want 0", n)
			}
		})
	}
}
