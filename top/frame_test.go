package top

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
	"stageprof/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// faster is the pipeline after a fix: copy_to_cpu makes its calls and does
// nothing else, and only one target loop is left.
func faster() *recording.Recording {
	r := recordingtest.Pipeline()
	for i := range r.Stages {
		s := &r.Stages[i]
		if names := r.Paths[s.Path].Names; len(names) == 1 && names[0] == "copy_to_cpu" {
			s.Parts = recording.Parts{CUDACPUNS: s.Parts.CUDACPUNS, CUDABlockedNS: s.Parts.CUDABlockedNS}
			s.WallNS = s.Parts.CUDACPUNS + s.Parts.CUDABlockedNS
		}
	}
	return r
}

// pipeline has been faster in the last interval.
var pipeline = sync.OnceValue(func() *sample {
	s := &sample{total: recordingtest.Pipeline(), now: wholeSpan(faster()), all: wholeSpan(recordingtest.Pipeline())}
	s.calls = s.all.Balance
	s.trend = trend{}.with(s.all).with(s.all).with(s.now)
	return s
})

func testScreen(width, height int) *screen {
	sample := *pipeline()
	return &screen{width: width, height: height, interval: time.Second, sample: &sample}
}

// sampled is the pipeline, some of whose calls were seen with their Python stack.
func sampled() *recording.Recording {
	r := recordingtest.Pipeline()
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "Pipeline.copy", File: "/home/user/train.py", FirstLine: 10}, {ID: 1, Name: "\x1b[2Jevil", File: "evil\x1b.py"},
	}
	r.PythonStacks = []recording.PythonStack{
		{ID: 0, Frames: []recording.PythonFrame{{Function: 0, Line: 17}}},
		{ID: 1, Frames: []recording.PythonFrame{{Function: 1, Line: 3}}},
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		half := recording.Sample{Stack: i % 2, Count: 4, WallNS: c.WallNS / 8, CPUNS: c.CPUNS / 8, ForCount: c.Count, ForWallNS: c.WallNS, ForCPUNS: c.CPUNS}
		c.Samples = []recording.Sample{half}
	}
	return r
}

// indebted is the pipeline, whose copy_to_cpu waits mostly for target_forward.
func indebted() *recording.Recording {
	r := recordingtest.Pipeline()
	path := func(joined string) int {
		return slices.IndexFunc(r.Paths, func(p recording.StagePath) bool { return strings.Join(p.Names, "/") == joined })
	}
	symbol := slices.IndexFunc(r.Symbols, func(s recording.Symbol) bool { return s.Name == "cuStreamSynchronize" })
	debt := recording.Debt{
		Path: path("copy_to_cpu"), Symbol: symbol, Kind: recording.DebtStage, Owner: path("target_forward"),
		Waits: 400, WallNS: 9_000_000_000, Operations: 120_000,
	}
	idle := debt
	idle.Kind, idle.Waits, idle.WallNS, idle.Operations = recording.DebtIdle, 20, 1_000_000_000, 0
	r.Debts = []recording.Debt{debt, idle}
	return r
}

// hostile is a recording whose names try to act on the terminal.
func hostile() *recording.Recording {
	const evil = "\x1b[2J\x1b]0;owned\a\u202e前向"
	b := recordingtest.New()
	t := b.Thread(4250, evil)
	b.Spans(t, evil, 10, time.Millisecond, 0)
	b.Call(t, evil, b.Symbol(evil), 10, 100*time.Microsecond, 0)
	b.Loss("calls", evil, 3, evil)
	b.Loss("calls", recording.LossInFlight, 2, "")
	b.Loss("other", "spans_not_kept", 1000, "")
	r := b.Recording()
	r.Target.Cmdline = []string{evil}
	r.Warnings = []string{evil}
	r.Overhead.Calibration = evil
	r.Window.End = recording.WindowEnd(evil)
	return r
}

func TestFrames(t *testing.T) {
	show := func(r *recording.Recording) func(*screen) {
		return func(s *screen) { s.sample = &sample{total: r, now: wholeSpan(r), all: wholeSpan(r)} }
	}
	open := func(key rowKey) func(*screen) {
		return func(s *screen) { s.view, s.stage = viewStage, key }
	}
	exited := recordingtest.Pipeline()
	exited.Window.End = recording.EndExit
	cases := map[string]struct {
		width, height int
		set           func(*screen)
	}{
		"table":        {120, 26, func(*screen) {}},
		"table-wide":   {200, 26, func(*screen) {}},
		"table-narrow": {80, 24, func(*screen) {}},
		"table-least":  {leastWidth, leastHeight, func(*screen) {}},
		"second":       {120, 26, func(s *screen) { s.unit = perSecond }},
		"scrolled":     {100, 14, func(s *screen) { s.stage = rowKey{path: "target_wait"} }},
		"filter":       {100, 18, func(s *screen) { s.filter = "FORW" }},
		"filter-typed": {100, 18, func(s *screen) { s.filter, s.typing = "nothing\x1b", true }},
		"by-name":      {100, 26, func(s *screen) { s.order = byName }},
		"paused":       {100, 18, func(s *screen) { s.paused = true }},
		"reset":        {100, 18, func(s *screen) { s.sample.all = nil }},
		"exited":       {100, 18, show(exited)},
		"empty":        {100, 18, show(recordingtest.New().Recording())},
		"first":        {100, 18, func(s *screen) { s.sample = nil }},
		"small":        {leastWidth - 1, leastHeight, func(*screen) {}},
		"stage":        {110, 30, open(rowKey{path: "copy_to_cpu"})},
		"stage-python": {110, 30, func(s *screen) {
			show(sampled())(s)
			open(rowKey{path: "copy_to_cpu"})(s)
		}},
		"stage-debt": {110, 30, func(s *screen) {
			show(indebted())(s)
			open(rowKey{path: "copy_to_cpu"})(s)
		}},
		"stage-inside":  {100, 30, open(rowKey{path: "drafter_step"})},
		"stage-adopted": {100, 30, open(rowKey{path: "drafter_step/drafter_backward", adopted: recording.AttributionAutograd})},
		"stage-outside": {100, 30, open(outsideKey)},
		"stage-gone":    {100, 18, open(rowKey{path: "never"})},
		"notes":         {100, 26, func(s *screen) { s.view = viewNotes }},
		"help":          {100, 34, func(s *screen) { s.view = viewHelp }},
		"help-scrolled": {70, 14, func(s *screen) { s.view, s.scroll = viewHelp, 5 }},
		"once":          {100, 0, func(s *screen) { s.printed = true }},
		"hostile":       {100, 18, show(hostile())},
		"hostile-stage": {100, 24, func(s *screen) {
			show(hostile())(s)
			s.view, s.stage = viewStage, s.rows()[0].key
		}},
		"hostile-notes": {100, 24, func(s *screen) {
			show(hostile())(s)
			s.view = viewNotes
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := testScreen(c.width, c.height)
			c.set(s)
			frame := s.frame()
			if !s.printed && len(frame) > s.height {
				t.Errorf("%d lines on a screen of %d", len(frame), s.height)
			}
			for _, l := range frame {
				if l.cells() > s.width {
					t.Errorf("%d cells on a screen of %d: %q", l.cells(), s.width, l)
				}
				if l.String() != report.Printable(l.String()) {
					t.Errorf("%q is not printable", l)
				}
			}
			golden(t, name+".txt", newTheme(false).render(frame)+"\n")
		})
	}
}

// Every size gives a frame that fits, whatever is shown.
func TestFramesFit(t *testing.T) {
	for _, v := range []view{viewTable, viewStage, viewNotes, viewHelp} {
		for width := 1; width < 140; width += 7 {
			for height := 1; height < 40; height += 3 {
				s := testScreen(width, height)
				s.view, s.stage, s.scroll = v, rowKey{path: "target_wait"}, 3
				frame := s.frame()
				if len(frame) > max(height, 2) {
					t.Errorf("view %d, %d × %d: %d lines", v, width, height, len(frame))
				}
				for _, l := range frame {
					if l.cells() > width {
						t.Errorf("view %d, %d × %d: %d cells: %q", v, width, height, l.cells(), l)
					}
				}
			}
		}
	}
}

// Colours change nothing but the bars' letters.
func TestColours(t *testing.T) {
	s := testScreen(120, 26)
	golden(t, "coloured.ansi", newTheme(true).render(s.frame())+"\n")
}

// Without colours, letters tell the segments apart.
func TestSegments(t *testing.T) {
	letters := map[string]string{}
	for _, s := range segments {
		if other, ok := letters[s.letter]; ok || len(s.letter) != 1 {
			t.Errorf("segments %q and %q have the letter %q", s.title, other, s.letter)
		}
		letters[s.letter] = s.title
	}
	for _, c := range report.PartColumns() {
		if _, ok := inks[c.Title()]; !ok {
			t.Errorf("column %q has no ink", c.Title())
		}
	}
}

func TestApportion(t *testing.T) {
	cases := map[string]struct {
		shares []uint64
		n      int
		want   []int
	}{
		"nothing":   {[]uint64{0, 0}, 10, []int{0, 0}},
		"even":      {[]uint64{1, 1}, 10, []int{5, 5}},
		"thirds":    {[]uint64{1, 1, 1}, 10, []int{4, 3, 3}},
		"small":     {[]uint64{1, 1000}, 10, []int{0, 10}},
		"one cell":  {[]uint64{3, 2}, 1, []int{1, 0}},
		"overflows": {[]uint64{1 << 63, 1 << 63, 1 << 63}, 3, []int{1, 1, 1}},
	}
	for name, c := range cases {
		if got := apportion(c.shares, c.n); !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestSpark(t *testing.T) {
	cases := map[string]struct {
		values []float64
		want   string
	}{
		"none":    {nil, ""},
		"zeros":   {[]float64{0, 0}, "▁▁"},
		"rising":  {[]float64{0, 1, 2, 3, 4, 5, 6, 7}, "▁▂▃▄▅▆▇█"},
		"gap":     {[]float64{1, unknown, 1}, "█ █"},
		"unknown": {[]float64{unknown}, " "},
		"longer":  {[]float64{9, 1, 1, 1, 1, 1, 1, 1, 1}, "████████"},
	}
	for name, c := range cases {
		if got := spark(c.values, 8); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0:00", 1499 * time.Millisecond: "0:01", 61 * time.Second: "1:01", time.Hour + 62*time.Second: "1:01:02",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.5: "0.50", 9.996: "10.0", 99.96: "100", 1234.4: "1,234",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
	if got := number(unknown); got != report.Missing {
		t.Errorf("unknown: got %q", got)
	}
}

func TestPrintedFrameHasNoKeys(t *testing.T) {
	s := testScreen(100, 0)
	s.printed = true
	if text := newTheme(false).render(s.frame()); strings.Contains(text, "quit") || strings.Contains(text, "▸") {
		t.Errorf("keys in a frame that is printed:\n%s", text)
	}
}
