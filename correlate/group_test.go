package correlate

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/recording"
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
			for name, of := range map[string]Tally{"shown, rest and hidden": sum, "all": g.All} {
				sameHist := g.Sampled || of.Hist == l.All.Hist
				if of.Count != l.All.Count || of.Errors != l.All.Errors || of.Bytes != l.All.Bytes || of.WallNS != l.All.WallNS ||
					of.CPUNS != l.All.CPUNS || of.GILWaitCausedNS != l.All.GILWaitCausedNS || !sameHist {
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
	totals := func(g *Groups, reverse bool) map[string]Tally {
		m := map[string]Tally{}
		for _, group := range g.List {
			key := slices.Clone(group.Key)
			if reverse {
				slices.Reverse(key)
			}
			m[fmt.Sprint(key)] = group.Tally
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

// pythonCalls are calls of a sampled row, which two lines share, of one without a
// sample, and of a thread that runs no Python.
func pythonCalls() *recording.Recording {
	b := recordingtest.New()
	thread := b.Thread(4300, "main")
	r := b.Recording()
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "launch", File: "/venv/lib/python3.11/site-packages/helper.py"}, {ID: 1, Name: "Loop.run", File: "/job/train.py"},
	}
	r.PythonStacks = []recording.PythonStack{
		{ID: 0, Frames: []recording.PythonFrame{{Function: 0, Line: 3}, {Function: 1, Line: 20}}},
		{ID: 1, Frames: []recording.PythonFrame{{Function: 1, Line: 30}}},
		{ID: 2},
	}
	c := b.Call(thread, "forward", b.Symbol("cuLaunchKernel"), 100, 10*time.Microsecond, 0)
	c.Samples = []recording.Sample{{Stack: 0, Count: 6, ForCount: 60}, {Stack: 1, Count: 4, ForCount: 40}}
	b.Call(thread, "forward", b.Symbol("cuStreamSynchronize"), 7, time.Millisecond, 0)
	c = b.Call(thread, "", b.Symbol("cuEventQuery"), 5, time.Microsecond, 0)
	c.Samples = []recording.Sample{{Stack: 2, Count: 5, ForCount: 5}}
	return r
}

// Calls are divided over lines by their samples; each group says how many it has.
func TestGroupsByPython(t *testing.T) {
	dims := by(t, "stage", "python")
	g := GroupCalls([]*Ledger{Build(pythonCalls())}, GroupOptions{By: dims, Sort: sortBy(t, "samples", dims)})
	type row struct{ calls, samples uint64 }
	got := map[string]row{}
	for i := range g.List {
		got[g.KeyText(&g.List[i])] = row{g.List[i].Count, g.List[i].Samples}
	}
	want := map[string]row{
		"stage=forward python=/job/train.py:20 Loop.run": {60, 6},
		"stage=forward python=/job/train.py:30 Loop.run": {40, 4},
		"stage=forward python=" + NotSampled:             {7, 0},
		"stage=none python=" + NoPython:                  {5, 5},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if !g.Sampled || g.Timed || g.All.Samples != 15 || g.List[0].Samples != 6 {
		t.Errorf("sampled %t, timed %t, %d samples in all, %d in the first group", g.Sampled, g.Timed, g.All.Samples, g.List[0].Samples)
	}
}

// Groups by region are of the time that threads spent there, all of it.
func TestGroupsByRegionHaveTime(t *testing.T) {
	l := []*Ledger{Build(recordingtest.RegionParts())}
	dims := by(t, "region", "stage")
	g := GroupCalls(l, GroupOptions{By: dims, Sort: sortBy(t, "wall", dims)})
	got := map[string]uint64{}
	for i := range g.List {
		for _, part := range g.List[i].Time.Parts {
			region, stage := g.List[i].Key[0], g.List[i].Key[1]
			got[stage+" "+region[strings.LastIndex(region, ":")+1:]+" "+string(part.Kind)] += part.NS / 1000
		}
	}
	want := map[string]uint64{
		"forward none cuda cpu": 5000, "forward none running": 77_610, "forward none gil wait": 5000, "forward none blocked: futex": 7390,
		"forward malloc cuda cpu": 150, "forward malloc cuda blocked": 60, "forward malloc running": 1790,
		"forward map_block cuda cpu": 2000, "forward map_block cuda blocked": 400, "forward map_block running": 600,
		"trim none running":                   2000,
		"trim release_cached_blocks cuda cpu": 4200, "trim release_cached_blocks cuda blocked": 600,
		"trim release_cached_blocks running": 1200, "trim release_cached_blocks blocked: futex": 2000,
		"none none running": 500, "none none blocked: sleep": 19_000,
		"none release_cached_blocks cuda cpu": 350, "none release_cached_blocks cuda blocked": 50, "none release_cached_blocks running": 100,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("time in µs (-want +got):\n%s", diff)
	}
	if all := l[0].PartsOutside.WallNS + l[0].Stages[0].Parts.WallNS + l[0].Stages[1].Parts.WallNS; g.All.Time.WallNS != all {
		t.Errorf("the groups sum to %d ns, want %d", g.All.Time.WallNS, all)
	}
	for i := 1; i < len(g.List); i++ {
		if g.List[i].Time.WallNS > g.List[i-1].Time.WallNS {
			t.Errorf("group %d is longer than the one before", i)
		}
	}
	for name, c := range map[string]struct {
		by []string
		of *Ledger
	}{
		"calls have no state of the GIL when there is none": {[]string{"region", "gil"}, l[0]},
		"stages have tables of their own":                   {[]string{"stage", "thread"}, l[0]},
		"the recording does not say":                        {[]string{"region"}, Build(recordingtest.Regions())},
	} {
		if g := GroupCalls([]*Ledger{c.of}, GroupOptions{By: by(t, c.by...)}); g.Timed || g.All.Time != nil {
			t.Errorf("%s, but the groups have time", name)
		}
	}
}

func TestFindGroupColumn(t *testing.T) {
	for column, want := range map[string][]string{
		"p50": {"region", "stage"}, "samples": {"python"}, "wall": {"region"}, "stage": {"stage"}, "cuda": {"region", "stage", "python"}, "nothing": nil,
	} {
		var got []string
		for _, name := range []string{"region", "stage", "python"} {
			if _, ok := FindGroupColumn(column, by(t, name)); ok {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is a column of groups by %q, want %q", column, got, want)
		}
	}
}

// The device of calls is known if the process was on one only.
func TestDevice(t *testing.T) {
	there := &recording.DeviceProcess{}
	for name, c := range map[string]struct {
		gpu  *recording.GPU
		want string
	}{
		"no NVML":     {nil, "unknown"},
		"not seen":    {&recording.GPU{Devices: []recording.Device{{Index: 0}, {Index: 1}}}, "unknown"},
		"on one":      {&recording.GPU{Devices: []recording.Device{{Index: 0}, {Index: 1, Process: there}}}, "1"},
		"on two":      {&recording.GPU{Devices: []recording.Device{{Index: 0, Process: there}, {Index: 1, Process: there}}}, "unknown"},
		"on the only": {&recording.GPU{Devices: []recording.Device{{Index: 0, Process: there}}}, "0"},
	} {
		r := recordingtest.Pipeline()
		r.GPU = c.gpu
		g := GroupCalls([]*Ledger{Build(r)}, GroupOptions{By: by(t, "device")})
		if len(g.List) != 1 || g.List[0].Key[0] != c.want {
			t.Errorf("%s: groups %v, want device %s", name, g.List, c.want)
		}
	}
}
