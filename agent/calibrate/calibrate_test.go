package calibrate

import (
	"errors"
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

// On Linux 6.6 to 6.9 the filter by process lets the calls of its first thread
// through and no others, so none of the child's. Another process's filter does the
// same here.
func TestFilterOfThreads(t *testing.T) {
	c, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	}()
	c.only = os.Getpid()
	if _, err := c.measure(probe.UprobeMulti, []elfsym.Class{elfsym.Jump}); !errors.Is(err, ErrProcessFilter) {
		t.Errorf("a call's cost: %v", err)
	}
	if _, err := c.measureFunctions(probe.UprobeMulti); !errors.Is(err, ErrProcessFilter) {
		t.Errorf("a function's cost: %v", err)
	}
	c.filter(true)
	if _, err := c.measure(probe.UprobeMulti, []elfsym.Class{elfsym.Jump}); err != nil {
		t.Errorf("with a filter that works: %v", err)
	}
}
