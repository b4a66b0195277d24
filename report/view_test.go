package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func groupsBy(t *testing.T, l *correlate.Ledger, match, sort string, top int, by ...string) *View {
	t.Helper()
	o := correlate.GroupOptions{Top: top}
	for _, name := range by {
		d, ok := correlate.FindDimension(name)
		if !ok {
			t.Fatalf("no dimension %q", name)
		}
		o.By = append(o.By, d)
	}
	if match != "" {
		o.Match = regexp.MustCompile(match)
	}
	var ok bool
	if o.Sort, ok = correlate.FindGroupColumn(sort, o.By); !ok {
		t.Fatalf("no column %q", sort)
	}
	return Groups(correlate.GroupCalls([]*correlate.Ledger{l}, o))
}

func histogram(t *testing.T, l *correlate.Ledger, function string) *View {
	t.Helper()
	v, err := Histogram(l, function)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// views are all there are, of one recording.
func views(t *testing.T) map[string]*View {
	l := correlate.Build(recordingtest.Pipeline())
	return map[string]*View{
		"groups":    groupsBy(t, l, "cu(Launch|Stream)", "calls", 5, "stage", "symbol", "tid"),
		"python":    groupsBy(t, correlate.Build(pythonRecording()), "", "samples", 5, "python", "stage"),
		"regions":   groupsBy(t, correlate.Build(recordingtest.RegionParts()), "stage=(forward|none)", "wall", 3, "region", "stage", "device"),
		"trend":     Trend(l, correlate.Skip{First: 2}),
		"histogram": histogram(t, l, "cuStreamSynchronize"),
		"stages":    StageTable(l),
	}
}

func TestViews(t *testing.T) {
	for name, v := range views(t) {
		golden(t, "view-"+name+".txt", written(t, func(w io.Writer) error { return v.Text(w, 0) })+
			"\n"+written(t, v.Markdown)+"\n"+written(t, v.CSV))
	}
}

func TestViewsReportErrors(t *testing.T) {
	for name, v := range views(t) {
		for format, write := range map[string]func(io.Writer) error{
			"text": func(w io.Writer) error { return v.Text(w, 0) }, "CSV": v.CSV, "Markdown": v.Markdown, "JSON": v.JSON,
		} {
			if err := write(brokenWriter{}); !errors.Is(err, errBroken) {
				t.Errorf("%s as %s: %v", name, format, err)
			}
		}
	}
}

func TestGroupsJSON(t *testing.T) {
	l := correlate.Build(recordingtest.Pipeline())
	v := groupsBy(t, l, "", "cuda", 3, "gil", "tid")
	var d jsonGroups
	if err := json.Unmarshal([]byte(written(t, v.JSON)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Groups) != 3 || d.Match != nil || strings.Join(d.By, ",") != "gil,tid" || d.All.Count != l.All.Count {
		t.Errorf("got %+v", d)
	}
	calls := d.Rest.Count + d.Hidden.Count
	for _, g := range d.Groups {
		calls += g.Count
		if _, ok := g.Key["tid"].(float64); !ok {
			t.Errorf("the thread's id is %#v, want a number", g.Key["tid"])
		}
	}
	if calls != d.All.Count {
		t.Errorf("groups sum to %d calls, want %d", calls, d.All.Count)
	}
}

func TestGroupsOfNoCalls(t *testing.T) {
	l := correlate.Build(recordingtest.New().Recording())
	for _, by := range []string{"stage", "python", "region"} {
		text := written(t, func(w io.Writer) error { return groupsBy(t, l, "", "cuda", 0, by).Text(w, 0) })
		if !strings.Contains(text, "\nThe recording has no calls.\n") {
			t.Errorf("by %s: %s", by, text)
		}
	}
}

// What an estimate does not know is null, never 0.
func TestGroupsByPythonJSON(t *testing.T) {
	v := groupsBy(t, correlate.Build(pythonRecording()), "", "cuda", 1, "python")
	var d map[string]any
	if err := json.Unmarshal([]byte(written(t, v.JSON)), &d); err != nil {
		t.Fatal(err)
	}
	first := d["groups"].([]any)[0].(map[string]any)
	if key := first["key"].(map[string]any)["python"]; key != "/job/pkg/__init__.py:20 Loop.run" {
		t.Errorf("the key is %q", key)
	}
	for _, name := range []string{"raw_wall_ns", "raw_cpu_ns", "min_ns", "max_ns", "p50_ns", "p99_ns"} {
		if v, ok := first[name]; !ok || v != nil {
			t.Errorf("%s is %v, want null", name, v)
		}
	}
	if first["samples"] != 4.0 || first["count"] != 10.0 || d["all"].(map[string]any)["samples"] != 40.0 {
		t.Errorf("got %v", first)
	}
}

// A group without a call has time, and its parts by name.
func TestGroupsByRegionJSON(t *testing.T) {
	r := recordingtest.RegionParts()
	r.Calls = nil
	var d jsonGroups
	if err := json.Unmarshal([]byte(written(t, groupsBy(t, correlate.Build(r), "region=none", "wall", 0, "region").JSON)), &d); err != nil {
		t.Fatal(err)
	}
	g := d.Groups[0]
	if len(d.Groups) != 1 || g.Count != 0 || g.MaxNS != nil || g.Time.WallNS+d.Hidden.Time.WallNS != d.All.Time.WallNS || g.Time.Parts["gil wait"] != 5_000_000 {
		t.Errorf("got %+v", d)
	}
}

// A table by region that has no time says why.
func TestGroupsByRegionWithoutTime(t *testing.T) {
	v := groupsBy(t, correlate.Build(recordingtest.Regions()), "", "wall", 0, "region")
	text := written(t, func(w io.Writer) error { return v.Text(w, 0) })
	if !strings.Contains(text, "does not say which regions time was spent in") || strings.Contains(text, " WALL") {
		t.Error(text)
	}
}

// The column is there where calls made others wait for the GIL, and sorts.
func TestGroupsOfCallsThatOthersWaitedFor(t *testing.T) {
	l := correlate.Build(recordingtest.Pipeline())
	text := func(v *View) string {
		return written(t, func(w io.Writer) error { return v.Text(w, 0) })
	}
	lines := strings.Split(text(groupsBy(t, l, "", "caused", 1, "gil")), "\n")
	if !strings.HasSuffix(lines[0], "GIL WAIT CAUSED") || !strings.HasPrefix(lines[1], "held ") || !strings.HasSuffix(lines[1], "16.6 s") {
		t.Errorf("got %q", lines[:2])
	}
	if free := text(groupsBy(t, l, "gil=free", "calls", 0, "gil")); strings.Contains(free, "CAUSED") {
		t.Errorf("nothing was caused in\n%s", free)
	}
}

func TestTrendJSON(t *testing.T) {
	l := correlate.Build(recordingtest.Pipeline())
	var d jsonTrends
	if err := json.Unmarshal([]byte(written(t, Trend(l, correlate.Skip{First: 10, Warmup: true}).JSON)), &d); err != nil {
		t.Fatal(err)
	}
	if d.SkipFirst != 10 || !d.SkipWarmup || len(d.Stages) == 0 {
		t.Errorf("got %d stages, skip %d, %t", len(d.Stages), d.SkipFirst, d.SkipWarmup)
	}
	for _, s := range d.Stages {
		spans := 0
		for _, n := range s.Points {
			spans += n
		}
		if spans != s.Spans || len(s.WallNS) != len(s.Points) || s.Skipped != uint64(10*len(s.Warmup)) {
			t.Errorf("%s: %d spans in points, want %d; %d skipped by %d threads", s.StagePath, spans, s.Spans, s.Skipped, len(s.Warmup))
		}
	}
}

// The buckets hold every call once.
func TestHistogram(t *testing.T) {
	l := correlate.Build(recordingtest.Pipeline())
	for _, n := range l.All.Symbols {
		var d jsonHistogram
		if err := json.Unmarshal([]byte(written(t, histogram(t, l, n.Name).JSON)), &d); err != nil {
			t.Fatal(err)
		}
		var calls uint64
		for i, b := range d.Buckets {
			calls += b.Count
			if b.BelowNS != nil && i+1 < len(d.Buckets) && *b.BelowNS != d.Buckets[i+1].FromNS {
				t.Errorf("%s: a bucket ends at %d, the next begins at %d", n.Name, *b.BelowNS, d.Buckets[i+1].FromNS)
			}
		}
		if calls != n.Count || d.Total.Count != n.Count {
			t.Errorf("%s: %d calls in buckets, want %d", n.Name, calls, n.Count)
		}
	}
	if v := histogram(t, l, "cuMemcpyDtoHAsync"); v == nil {
		t.Error("an api has no histogram")
	}
	for _, l := range []*correlate.Ledger{l, correlate.Build(recordingtest.New().Recording())} {
		if _, err := Histogram(l, "cuNothing"); !errors.Is(err, ErrNoSuchCall) || !strings.Contains(err.Error(), `"cuNothing"`) {
			t.Errorf("got error %v", err)
		}
	}
}

// A call of 0 ns and one that is longer than all bounds have their place.
func TestHistogramEnds(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "x")
	b.Call(th, "", b.Symbol("cuShort"), 1, 0, 0)
	b.Call(th, "", b.Symbol("cuLong"), 1, 20e9, 0)
	l := correlate.Build(b.Recording())
	for function, want := range map[string]string{"cuShort": "0,2,1,1,1", "cuLong": "2147483648,,1,1,1"} {
		if got := written(t, histogram(t, l, function).CSV); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", function, got, want)
		}
	}
}

func TestViewsOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for range 100 {
		r := recordingtest.Random(rng)
		l := correlate.Build(r)
		list := []*View{
			Trend(l, correlate.Skip{First: rng.IntN(3), Warmup: true}), StageTable(l),
			groupsBy(t, l, "", "p99", rng.IntN(3), "thread", "caller", "stage_path"),
		}
		for _, s := range l.All.Symbols {
			list = append(list, histogram(t, l, s.Name))
		}
		for _, v := range list {
			text := written(t, func(w io.Writer) error { return v.Text(w, rng.IntN(200)) })
			table := written(t, v.CSV)
			for _, r := range text + written(t, v.Markdown) + table {
				if r != '\n' && (r < ' ' || r == '\u202e' || r == '\u2028') {
					t.Fatalf("the view contains %q", r)
				}
			}
			if _, err := csv.NewReader(strings.NewReader(table)).ReadAll(); err != nil {
				t.Error(err)
			}
			if err := v.JSON(io.Discard); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSparkline(t *testing.T) {
	for want, values := range map[string][]uint64{
		"": nil, "▁▁": {0, 0}, "▁▅█": {0, 50, 100}, "████": {7, 7, 7, 7}, "█▁": {1 << 62, 1},
	} {
		if got := sparkline(values); got != want {
			t.Errorf("sparkline(%v) = %q, want %q", values, got, want)
		}
	}
}

// What was skipped is said, also when nothing is left.
func TestTextSaysWhatWasSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		skip correlate.Skip
		want string
	}{"some": {correlate.Skip{First: 5}, " of 790 "}, "all": {correlate.Skip{First: 10_000}, "0 of 790 "}} {
		text := written(t, func(w io.Writer) error {
			return Text(w, correlate.BuildSkipping(recordingtest.Pipeline(), c.skip), TextOptions{Full: true})
		})
		if !strings.Contains(text, c.want) || !strings.Contains(text, "the first ones were left out") {
			t.Errorf("%s: the report lacks %q or the note", name, c.want)
		}
	}
	var r *recording.Recording = recordingtest.Pipeline()
	if err := JSON(io.Discard, correlate.BuildSkipping(r, correlate.Skip{First: 10_000})); err != nil {
		t.Error(err)
	}
}

// Spreadsheets compute no name, and numbers stay numbers.
func TestCSVHasNoFormulas(t *testing.T) {
	g := grid{columns: []gridColumn{{key: "name"}, {key: "delta"}}}
	for _, name := range []string{"=1+1", "+1", "-1", "@sum(1)", "plain", "a=b", ""} {
		g.rows = append(g.rows, gridRow{cells: []gridCell{textCell(name), {raw: -2.5}}})
	}
	const want = "name,delta\n'=1+1,-2.5\n'+1,-2.5\n'-1,-2.5\n'@sum(1),-2.5\nplain,-2.5\na=b,-2.5\n,-2.5\n"
	if got := written(t, g.writeCSV); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
