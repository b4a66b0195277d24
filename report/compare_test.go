package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// withoutWait is the pipeline after copy_to_cpu has lost its wait, which goes
// from its calls to a stage that did not exist.
func withoutWait() *recording.Recording {
	r := recordingtest.Pipeline()
	for i := range r.Paths {
		if len(r.Paths[i].Names) == 1 && r.Paths[i].Names[0] == "queue_put" {
			r.Paths[i].Names[0] = "post_process"
		}
	}
	in := func(path int) bool { return len(r.Paths[path].Names) == 1 && r.Paths[path].Names[0] == "copy_to_cpu" }
	for i := range r.Stages {
		if s := &r.Stages[i]; in(s.Path) {
			s.WallNS -= s.Parts.CUDABlockedNS
			s.Parts.CUDABlockedNS = 0
		}
	}
	for i := range r.Spans {
		s := &r.Spans[i]
		if !in(s.Path) || s.Partial {
			continue
		}
		s.WallNS -= s.Parts.CUDABlockedNS
		s.Parts.CUDABlockedNS = 0
		for j := range s.Calls {
			s.Calls[j].BlockedNS = 0
			if r.Symbols[s.Calls[j].Symbol].API == "cuStreamSynchronize" {
				s.Calls[j].Count = 0
			}
		}
	}
	r.Target.Cmdline = append(r.Target.Cmdline, "--copy", "async")
	return r
}

func comparisonOf(t *testing.T, before, after *recording.Recording, conditions ...string) (*correlate.Comparison, CompareOptions) {
	t.Helper()
	c, err := correlate.Compare(
		[]correlate.Run{{Name: "before.rec", Ledger: correlate.Build(before)}},
		[]correlate.Run{{Name: "after.rec", Ledger: correlate.Build(after)}}, correlate.CompareOptions{Alpha: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var o CompareOptions
	for _, text := range conditions {
		condition, err := correlate.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := condition.Check(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Verdicts = append(o.Verdicts, v)
	}
	return c, o
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompareOutputs(t *testing.T) {
	c, o := comparisonOf(t, recordingtest.Pipeline(), withoutWait(), "stage=copy_to_cpu wall > 5%", "wall < -50%")
	c.Warnings = []string{"something is \x1b[31munlike"}
	golden(t, "compare.txt", written(t, func(w io.Writer) error { return CompareText(w, c, o) }))
	golden(t, "compare.md", written(t, func(w io.Writer) error { return CompareMarkdown(w, c, false) }))
	golden(t, "compare.csv", written(t, func(w io.Writer) error { return CompareCSV(w, c) }))
	o.Full = true
	golden(t, "compare-full.txt", written(t, func(w io.Writer) error { return CompareText(w, c, o) }))
}

// One line says what happened.
func TestHeadline(t *testing.T) {
	c, _ := comparisonOf(t, recordingtest.Pipeline(), withoutWait())
	if got, want := Headline(c), "copy_to_cpu: 33.0 ms → 5.99 ms per iteration (-81.8%, p<0.001), -27.0 ms cuStreamSynchronize; 26.3 → 26.3 iterations/s"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c, _ = comparisonOf(t, recordingtest.Pipeline(), recordingtest.Pipeline())
	if got := Headline(c); !strings.Contains(got, "no stage") {
		t.Errorf("of the same recording: %q", got)
	}
}

// Work that other threads do for a stage is shown when it changes.
func TestCompareShowsAdopted(t *testing.T) {
	after := recordingtest.Pipeline()
	for i := range after.Calls {
		if c := &after.Calls[i]; c.Attribution == recording.AttributionAutograd {
			c.WallNS, c.CPUNS = 2*c.WallNS, 2*c.CPUNS
		}
	}
	c, o := comparisonOf(t, recordingtest.Pipeline(), after)
	text := written(t, func(w io.Writer) error { return CompareText(w, c, o) })
	if !strings.Contains(text, "\n  adopted: autograd") {
		t.Errorf("no row of adopted calls in:\n%s", text)
	}
}

// The JSON has what the text has, and is in full whatever is shown.
func TestCompareJSON(t *testing.T) {
	c, o := comparisonOf(t, recordingtest.Pipeline(), withoutWait(), "wall < -50%")
	var d jsonComparison
	if err := json.Unmarshal([]byte(written(t, func(w io.Writer) error { return CompareJSON(w, c, o) })), &d); err != nil {
		t.Fatal(err)
	}
	if d.Format != jsonFormat || d.Headline != Headline(c) || len(d.Stages) != len(c.Stages) || d.Before[0].File != "before.rec" {
		t.Errorf("format %d, headline %q, %d stages, %q", d.Format, d.Headline, len(d.Stages), d.Before[0].File)
	}
	if len(d.Conditions) != 1 || !d.Conditions[0].Failed || len(d.Conditions[0].Met) != 1 {
		t.Errorf("conditions %+v, want one that copy_to_cpu meets", d.Conditions)
	}
	metrics := 0
	for i, s := range d.Stages {
		if s.StagePath != c.Stages[i].Path.Joined || len(s.Metrics) != len(c.Stages[i].Changes) {
			t.Errorf("stage %d is %q with %d metrics", i, s.StagePath, len(s.Metrics))
		}
		metrics += len(s.Metrics)
		for _, m := range s.Metrics {
			if (m.P == nil) != (m.Before == nil || m.After == nil || strings.HasPrefix(m.Metric, "adopted")) {
				t.Errorf("%s %s: p is %v", s.StagePath, m.Metric, m.P)
			}
		}
	}
	lines, err := csv.NewReader(strings.NewReader(written(t, func(w io.Writer) error { return CompareCSV(w, c) }))).ReadAll()
	if err != nil || len(lines) != metrics+1 {
		t.Errorf("the CSV has %d lines (%v), want a title and %d", len(lines), err, metrics)
	}
}

func TestCompareOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 50 {
		runs := []correlate.Run{{Name: "a\x1b", Ledger: correlate.Build(recordingtest.RandomRun(rng))}}
		after := []correlate.Run{{Name: "b\u202e", Ledger: correlate.Build(recordingtest.RandomRun(rng))}}
		c, err := correlate.Compare(runs, after, correlate.CompareOptions{Alpha: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		o := CompareOptions{Width: rng.IntN(200), Full: rng.IntN(2) == 0}
		for _, text := range []string{
			written(t, func(w io.Writer) error { return CompareText(w, c, o) }),
			written(t, func(w io.Writer) error { return CompareMarkdown(w, c, o.Full) }),
			written(t, func(w io.Writer) error { return CompareCSV(w, c) }),
		} {
			for _, r := range text {
				if r != '\n' && (r < ' ' || r == '\u202e' || r == '\u2028') {
					t.Fatalf("the comparison contains %q", r)
				}
			}
		}
		if err := CompareJSON(io.Discard, c, o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompareReportsErrors(t *testing.T) {
	c, o := comparisonOf(t, recordingtest.Pipeline(), withoutWait())
	for name, write := range map[string]func(io.Writer) error{
		"text":     func(w io.Writer) error { return CompareText(w, c, o) },
		"JSON":     func(w io.Writer) error { return CompareJSON(w, c, o) },
		"CSV":      func(w io.Writer) error { return CompareCSV(w, c) },
		"Markdown": func(w io.Writer) error { return CompareMarkdown(w, c, true) },
	} {
		if err := write(brokenWriter{}); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"copy_to_cpu": "copy_to_cpu", "__init__": `\_\_init\_\_`, "_x": `\_x`, "a|b": `a\|b`, "<b>": `\<b\>`, "a*b*": `a\*b\*`, "`x`": "\\`x\\`",
	} {
		if got := markdown(text); got != want {
			t.Errorf("markdown(%q) = %q, want %q", text, got, want)
		}
	}
}
