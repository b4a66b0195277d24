package pprofout

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// ranksOf are the pipeline's Ledgers as if n ranks had run it, one second apart.
func ranksOf(n int) (ledgers []*correlate.Ledger) {
	for rank := range n {
		r := recordingtest.Pipeline()
		r.Target.Rank, r.Target.PID, r.Target.WorldSize = rank, 5000+rank, n
		r.Window.Start = r.Window.Start.Add(time.Duration(rank) * time.Second)
		ledgers = append(ledgers, correlate.Build(r))
	}
	return ledgers
}

func written(t *testing.T, ledgers []*correlate.Ledger) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSeveral(&b, ledgers, Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSeveralProcessesInOneProfile(t *testing.T) {
	ledgers := ranksOf(3)
	p := written(t, ledgers)
	sums := map[int64]int64{}
	for _, s := range p.Sample {
		rank := s.NumLabel["rank"][0]
		if pid := s.NumLabel["pid"][0]; pid != 5000+rank {
			t.Errorf("rank %d has pid %d", rank, pid)
		}
		sums[rank] += s.Value[wallColumn]
	}
	for rank, l := range ledgers {
		if want := clamp(l.All.WallNS); sums[int64(rank)] != want {
			t.Errorf("rank %d has %d ns, want %d", rank, sums[int64(rank)], want)
		}
	}
	window := ledgers[0].Source.Window
	if want := int64(window.Duration + 2*time.Second); p.DurationNanos != want || p.TimeNanos != window.Start.UnixNano() {
		t.Errorf("the profile is of %d ns from %d, want %d from %d", p.DurationNanos, p.TimeNanos, want, window.Start.UnixNano())
	}
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.HasPrefix(c, "# pid 5002, rank 2: target: ") }) {
		t.Errorf("no comment about rank 2's target: %q", p.Comments)
	}
}

// Of windows under a budget the duration is that of the process that has most.
func TestSeveralUnderBudget(t *testing.T) {
	ledgers := ranksOf(3)
	longest := ledgers[1].Source
	for _, l := range ledgers {
		r := l.Source
		r.Budget = &recording.Budget{Share: 0.01, Elapsed: 10 * r.Window.Duration, Windows: make([]recording.Covered, 2)}
	}
	longest.Window.Duration += time.Second
	p := written(t, ledgers)
	if want := int64(longest.Window.Duration); p.DurationNanos != want || p.TimeNanos != ledgers[0].Source.Window.Start.UnixNano() {
		t.Errorf("the profile is of %d ns from %d, want %d", p.DurationNanos, p.TimeNanos, want)
	}
	for rank := range ledgers {
		start := fmt.Sprintf("pid %d, rank %d: budget: ", 5000+rank, rank)
		if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.HasPrefix(c, start) }) {
			t.Errorf("no comment about the budget of rank %d: %q", rank, p.Comments)
		}
	}
}

func TestOneProcessAmongSeveral(t *testing.T) {
	ledgers := ranksOf(1)
	var one, several bytes.Buffer
	if err := Write(&one, ledgers[0], Options{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteSeveral(&several, ledgers, Options{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), several.Bytes()) {
		t.Error("the profile of one process differs from the one of it alone")
	}
}
