package calibrate

import (
	"os"
	"testing"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
)

func TestMain(m *testing.M) {
	if Target() {
		return
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	classes := []elfsym.Class{elfsym.Jump, elfsym.Push, elfsym.Nop, elfsym.Stepped}
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			result, err := Run(t.Context(), mechanism, true, classes)
			if err != nil {
				t.Fatal(err)
			}
			for _, class := range classes {
				cost, ok := result[class]
				if !ok {
					t.Errorf("%v: not measured", class)
				}
				t.Logf("%-8v added %.0f ns per call, bias %.0f ns", class, cost.Added, cost.Bias)
				if cost.Bias <= 0 || cost.Added <= cost.Bias {
					t.Errorf("%v: %+v: a pair of probes costs more than what lies between its timestamps, which is more than nothing", class, cost)
				}
			}
		})
	}
}

func TestRunFunctions(t *testing.T) {
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			cost, err := RunFunctions(t.Context(), mechanism, true)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("a function that returns %.0f ns, one that ends with a jump %.0f ns", cost.ByReturn, cost.ByJump)
			if cost.ByReturn <= 0 || cost.ByJump <= 0 {
				t.Errorf("%+v: probes cost something", cost)
			}
		})
	}
}
