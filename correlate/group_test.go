package correlate

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/recording/recordingtest"
)

func by(t *testing.T, names ...string) (list []Dimension) {
	t.Helper()
	for _, name := range names {
		d, ok := FindDimension(name)
		if !ok {
			t.Fatalf("no dimension %q", name)
		}
		list = append(list, d)
	}
	return list
}

func sortBy(t *testing.T, name string, by []Dimension) GroupColumn {
	t.Helper()
	c, ok := FindGroupColumn(name, by)
	if !ok {
		t.Fatalf("no column %q", name)
	}
	return c
}

// Whatever calls are grouped by, the groups sum to all of them.
func TestGroupsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	ledgers := []*Ledger{Build(recordingtest.Pipeline())}
	for range 30 {
		ledgers = append(ledgers, Build(recordingtest.Random(rng)))
	}
	for _, l := range ledgers {
		for range 10 {
			dims := slices.Clone(Dimensions)
			rng.Shuffle(len(dims), func(i, j int) { dims[i], dims[j] = dims[j], dims[i] })
			dims = dims[:1+rng.IntN(4)]
			o := GroupOptions{By: dims, Top: rng.IntN(4), Sort: sortBy(t, "calls", dims)}
			if rng.IntN(2) == 0 {
				o.Match = regexp.MustCompile("[eu]")
			}
			g := GroupCalls([]*Ledger{l}, o)
			sum := g.Rest
			sum.add(&g.Shown)
			sum.add(&g.Hidden)
			for name, of := range map[string]Total{"shown, rest and hidden": sum, "all": g.All} {
				if of.Count != l.All.Count || of.Errors != l.All.Errors || of.WallNS != l.All.WallNS || of.Hist != l.All.Hist {
					t.Errorf("%s: %d calls, %d ns; all are %d, %d", name, of.Count, of.WallNS, l.All.Count, l.All.WallNS)
				}
			}
		}
	}
}

// The order in which dimensions are named changes the keys alone.
func TestGroupsInAnyOrder(t *testing.T) {
	l := []*Ledger{Build(recordingtest.Pipeline())}
	there, back := by(t, "stage", "gil", "symbol"), by(t, "symbol", "gil", "stage")
	a := GroupCalls(l, GroupOptions{By: there, Sort: sortBy(t, "cuda", there)})
	b := GroupCalls(l, GroupOptions{By: back, Sort: sortBy(t, "cuda", back)})
	totals := func(g *Groups, reverse bool) map[string]Total {
		m := map[string]Total{}
		for _, group := range g.List {
			key := slices.Clone(group.Key)
			if reverse {
				slices.Reverse(key)
			}
			m[fmt.Sprint(key)] = group.Total
		}
		return m
	}
	if diff := cmp.Diff(totals(a, false), totals(b, true)); diff != "" {
		t.Error(diff)
	}
}

func TestGroupCalls(t *testing.T) {
	l := []*Ledger{Build(recordingtest.Pipeline())}
	keys := func(g *Groups) (keys [][]string) {
		for i := range g.List {
			keys = append(keys, g.List[i].Key)
		}
		return keys
	}
	cases := map[string]struct {
		by    []string
		match string
		sort  string
		top   int
		want  [][]string
	}{
		"most driver time":   {[]string{"gil"}, "", "cuda", 0, [][]string{{"held"}, {"free"}, {"unknown"}}},
		"most calls":         {[]string{"gil"}, "", "calls", 2, [][]string{{"free"}, {"held"}}},
		"by a dimension":     {[]string{"gil"}, "", "gil", 0, [][]string{{"free"}, {"held"}, {"unknown"}}},
		"numbers as numbers": {[]string{"rank", "tid"}, "", "tid", 2, [][]string{{"0", "4250"}, {"0", "4251"}}},
		"matching":           {[]string{"stage", "gil"}, "gil=held", "cuda", 0, [][]string{{"copy_to_cpu", "held"}}},
		"anchored":           {[]string{"stage_path", "api"}, "^stage_path=drafter_step api=", "cuda", 0, [][]string{{"drafter_step", "cuEventQuery"}}},
		"outside":            {[]string{"stage", "thread"}, "^stage=none ", "cuda", 0, [][]string{{"none", "python3"}}},
		"autograd":           {[]string{"attribution", "stage"}, "autograd", "cuda", 0, [][]string{{"autograd", "drafter_backward"}}},
		"no match":           {[]string{"stage"}, "nothing", "cuda", 0, nil},
		"callers":            {[]string{"caller"}, "libfastcopy", "cuda", 0, [][]string{{"libfastcopy.so+0x1a40"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dims := by(t, c.by...)
			g := GroupCalls(l, GroupOptions{By: dims, Match: regexp.MustCompile(c.match), Sort: sortBy(t, c.sort, dims), Top: c.top})
			if diff := cmp.Diff(c.want, keys(g), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

// Several recordings are one table, and rank tells them apart.
func TestGroupsOfRanks(t *testing.T) {
	a, b := recordingtest.Pipeline(), recordingtest.Pipeline()
	b.Target.Rank, b.Target.PID = 1, 4343
	ledgers := []*Ledger{Build(a), Build(b)}
	dims := by(t, "rank", "pid")
	g := GroupCalls(ledgers, GroupOptions{By: dims, Sort: sortBy(t, "rank", dims)})
	if len(g.List) != 2 || g.List[0].WallNS != g.List[1].WallNS || g.List[1].Key[0] != "1" || g.All.Count != 2*ledgers[0].All.Count {
		t.Errorf("groups %v", g.List)
	}
	dims = by(t, "gil")
	if g := GroupCalls(ledgers, GroupOptions{By: dims, Sort: sortBy(t, "cuda", dims)}); len(g.List) != 3 {
		t.Errorf("%d groups, want the ranks' calls together", len(g.List))
	}
}
