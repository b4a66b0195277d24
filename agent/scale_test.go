package agent_test

import (
	"fmt"
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// With many threads every call is in its thread's row and its stage, exactly as with one.
func TestScaleThreads(t *testing.T) {
	for _, threads := range []int{1, 64, 512} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads), "--calls", fmt.Sprint(51200/threads),
				"--stages", "3", "--per-stage", "5", "--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts())
			expectPartition(t, got)
			called := map[int]bool{}
			for key := range counts(got) {
				called[key.TID] = true
			}
			if len(called) < threads {
				t.Errorf("%d threads have rows, want %d", len(called), threads)
			}
		})
	}
}

// With many stage paths every call and every span is in its own.
func TestScaleStagePaths(t *testing.T) {
	for _, n := range []int{1, 20, 63} {
		t.Run(fmt.Sprintf("%d paths", n*n+n), func(t *testing.T) {
			got, p := flood(t, "--outer", fmt.Sprint(n), "--inner", fmt.Sprint(n))
			launched := p.Truth().Counts().Only(launches)
			if diff := simtest.Diff(launched, counts(got).Only(launches)); diff != "" || len(launched) != n*n {
				t.Errorf("%d paths with launches, want %d; the recording differs from the driver's truth:\n%s", len(launched), n*n, diff)
			}
			expectNoLosses(t, got)
			expectPartition(t, got)
			if held, lost := spans(got); held != uint64(n*n+n) || lost != 0 {
				t.Errorf("%d spans, %d lost, want %d", held, lost, n*n+n)
			}
		})
	}
}
