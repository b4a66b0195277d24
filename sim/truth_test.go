package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

// run runs a tester to its end and returns it.
func run(t *testing.T, name string, args ...string) *simtest.Process {
	t.Helper()
	p := simtest.Start(t, simtest.Tester(t, name, args...))
	p.Ready()
	p.Wait()
	return p
}

func mustEqual(t *testing.T, want, got simtest.Counts) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nothing is expected")
	}
	if diff := simtest.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTruthEqualsWhatWasCalled(t *testing.T) {
	for name, args := range map[string][]string{
		"one thread":      {"calls", "--threads", "1", "--calls", "20000"},
		"64 threads":      {"calls", "--threads", "64", "--calls", "2000", "--stages", "2"},
		"16 stages deep":  {"calls", "--threads", "3", "--calls", "20000", "--stages", "16", "--per-stage", "7"},
		"refused handles": {"calls", "--threads", "2", "--calls", "5000", "--bad-every", "3"},
		"linked in":       {"calls-static", "--threads", "2", "--calls", "5000", "--stages", "1"},
		"short threads":   {"churn", "--threads", "500"},
		"bytes":           {"args"},
		"graphs":          {"graphs"},
		"late driver":     {"latedl", "--delay-ms", "1"},
		"callers":         {"callers"},
		"idle threads":    {"idle", "--threads", "20"},
	} {
		t.Run(name, func(t *testing.T) {
			p := simtest.Start(t, simtest.Tester(t, args[0], args[1:]...))
			p.Ready()
			p.ReadyLate()
			p.Wait()
			truth := p.Truth()
			mustEqual(t, p.Expected(), truth.Counts())
			if n := truth.Unfinished(); n != 0 {
				t.Errorf("%d unfinished calls, want 0", n)
			}
		})
	}
}

func TestTruthOfVariants(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant.name, func(t *testing.T) {
			p := run(t, "calls", "--driver", simtest.Build(t, variant.path()), "--threads", "2", "--stages", "1")
			mustEqual(t, p.Expected(), p.Truth().Counts())
		})
	}
}

// Threads that had one thread ID each keep rows of their own.
func TestTruthKeepsIncarnationsApart(t *testing.T) {
	p := run(t, "churn", "--threads", "300", "--at-once", "1", "--calls", "2")
	threads := map[int]bool{}
	for _, row := range p.Truth().Rows {
		if row.Symbol == "cuLaunchKernel" && row.Calls > 0 {
			threads[row.Thread] = true
			if row.Calls != 2 {
				t.Errorf("thread %d has %d calls, want 2", row.Thread, row.Calls)
			}
		}
	}
	if len(threads) != 300 {
		t.Errorf("%d threads have rows, want 300", len(threads))
	}
}

func TestTruthOfForkedChildren(t *testing.T) {
	for name, args := range map[string][]string{
		"each initialises":          {"--workers", "3"},
		"initialised before refuse": {"--workers", "3", "--initialised", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := run(t, "forker", args...)
			got := simtest.Counts{}
			all := p.AllTruth()
			for _, truth := range all {
				for k, n := range truth.Counts() {
					got.Add(k, n)
				}
			}
			if len(all) != 4 {
				t.Errorf("%d processes have truth, want the parent and 3 children", len(all))
			}
			mustEqual(t, p.Expected(), got)
		})
	}
}

func TestTruthOfNestedCalls(t *testing.T) {
	p := run(t, "nested", "--calls", "40", "--depth", "70")
	truth := p.Truth()
	mustEqual(t, p.Expected(), truth.Counts())
	want := map[string][2]uint64{ // inner, unfinished
		"inner cuDriverGetVersion": {40, 0},
		"deep cuStreamQuery":       {70, 0},
		"longjmp cuStreamQuery":    {0, 40},
	}
	for _, row := range truth.Rows {
		key := row.Tag + " " + row.Symbol
		if got := [2]uint64{row.Inner, row.Unfinished}; got != want[key] {
			t.Errorf("%s: inner and unfinished calls are %v, want %v", key, got, want[key])
		}
		delete(want, key)
	}
	if len(want) != 0 {
		t.Errorf("no rows for %v", want)
	}
}

// The truth is written while other threads call; what they had begun is unfinished, at most one call each.
func TestTruthAtExit(t *testing.T) {
	for name, how := range map[string]string{"exit": "0", "return from main": "1"} {
		t.Run(name, func(t *testing.T) {
			p := run(t, "exiter", "--threads", "4", "--after-ms", "20", "--how", how)
			truth := p.Truth()
			if truth.Counts().Total().Calls == 0 {
				t.Error("no calls")
			}
			if n := truth.Unfinished(); n > 4 {
				t.Errorf("%d unfinished calls of 4 threads", n)
			}
		})
	}
}

func TestTruthWithoutTime(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls").With("SIMCUDA_TIME=0"))
	p.Ready()
	p.Wait()
	mustEqual(t, p.Expected(), p.Truth().Counts())
	for _, row := range p.Truth().Rows {
		if row.WallNS != 0 {
			t.Errorf("%s has %d ns without time", row.Symbol, row.WallNS)
		}
	}
}

// A call that waits for kernels has a wall time of at least what is left of them.
func TestTruthHasWallTime(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "graphs", "--calls", "1").With("SIMCUDA_KERNEL_NS=3000000"))
	p.Ready()
	p.Wait()
	var before uint64
	if _, err := fmt.Sscanf(p.WaitLine("before "), "before %d", &before); err != nil {
		t.Fatal(err)
	}
	waits := 0
	for _, row := range p.Truth().Rows {
		if row.Symbol != "cuStreamSynchronize" {
			continue
		}
		waits++
		// The capture's three kernels become one launch of 9 ms.
		if before+row.WallNS < 9_000_000 {
			t.Errorf("cuStreamSynchronize took %d ns, %d ns after the kernels were given", row.WallNS, before)
		}
	}
	if waits != 1 {
		t.Errorf("%d rows of cuStreamSynchronize", waits)
	}
}

func TestBadEnvironmentIsSaid(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--calls", "1").With("SIMCUDA_SM=many", "SIMCUDA_SCHED=never"))
	p.Ready()
	p.Wait()
	for _, want := range []string{`SIMCUDA_SM="many"`, `SIMCUDA_SCHED="never"`} {
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("stderr %q does not name %s", p.Stderr(), want)
		}
	}
}
