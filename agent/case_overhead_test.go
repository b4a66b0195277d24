package agent_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/correlate"
	"stageprof/report"
	"stageprof/sim/simtest"
)

// A busy loop of launches that take 8 µs each: what the probes cost is measured,
// said, and taken out of the calls, of none more than was measured.
func TestCaseC12Overhead(t *testing.T) {
	const calls, launchNS = 25_000, 8_000
	command := simtest.Tester(t, "calls", "--calls", "25000", "--rate", "25000", "--launches-only", "1", "--stages", "1",
		"--markers", simtest.Markers(t)).With("SIMCUDA_LAUNCH_NS=8000")
	got, p := runTester(t, agent.Config{}, command)
	expectEqual(t, got, p.Truth().Counts())

	o := got.Overhead
	if !o.Calibrated || o.CallCostNS <= 0 {
		t.Fatalf("the cost of a call was not measured: %+v", o)
	}
	all := float64(counts(got).Total().Calls)
	if diff := math.Abs(float64(o.AddedNS) - all*o.CallCostNS); diff > 1 {
		t.Errorf("%d ns were added, %.0f calls cost %f ns each", o.AddedNS, all, o.CallCostNS)
	}
	var raw, launches uint64
	var bias float64
	for _, c := range got.Calls {
		if s := got.Symbols[c.Symbol]; s.Name == "cuLaunchKernel" {
			raw, launches = raw+c.WallNS, launches+c.Count
			bias = s.BiasNS
		}
	}
	if launches != calls || raw < calls*launchNS {
		t.Errorf("%d launches took %d ns, each took %d at least", launches, raw, launchNS)
	}
	if bias <= 0 || bias > o.CallCostNS {
		t.Errorf("%f ns of each call are the probes', which cost %f ns in all", bias, o.CallCostNS)
	}
	ledger := correlate.Build(got)
	var wall, rawWall uint64
	for _, c := range ledger.All.Symbols {
		if c.Name == "cuLaunchKernel" {
			wall, rawWall = c.WallNS, c.RawWallNS
		}
	}
	if rawWall != raw || float64(wall) > float64(raw) || float64(wall) < float64(raw)-calls*bias-1 {
		t.Errorf("%d ns of calls became %d; at most %.0f are the probes'", raw, wall, calls*bias)
	}

	var text bytes.Buffer
	if err := report.Text(&text, ledger, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, cost, ok := strings.Cut(text.String(), "COST OF STAGEPROF"); !ok || !strings.Contains(cost, "per call") {
		t.Errorf("the table does not say what it cost:\n%s", text.String())
	}
}
