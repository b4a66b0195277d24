package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func spansOfFile(t *testing.T, r *recording.Recording) string {
	t.Helper()
	var b bytes.Buffer
	if err := Spans(&b, correlate.Build(r)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSpans(t *testing.T) {
	golden(t, "small.jsonl", spansOfFile(t, small()))
}

func TestSpansOfNothing(t *testing.T) {
	if got := spansOfFile(t, recordingtest.New().Recording()); got != "" {
		t.Errorf("no spans give %q", got)
	}
}

// The parts of every line sum to its wall time, to the nanosecond, whatever
// the Recording holds.
func TestSpansSumToTheirWall(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	checkSpans(t, recordingtest.Pipeline())
	for range 100 {
		checkSpans(t, recordingtest.Random(rng))
	}
}

func checkSpans(t *testing.T, r *recording.Recording) {
	t.Helper()
	lines := strings.SplitAfter(spansOfFile(t, r), "\n")
	lines = lines[:len(lines)-1]
	if len(lines) != len(r.Spans) {
		t.Fatalf("%d lines of %d spans", len(lines), len(r.Spans))
	}
	for i, line := range lines {
		var s struct {
			TID     int               `json:"tid"`
			BeginNS uint64            `json:"begin_ns"`
			WallNS  uint64            `json:"wall_ns"`
			Partial bool              `json:"partial"`
			Parts   map[string]uint64 `json:"parts"`
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		var sum uint64
		for name, ns := range s.Parts {
			sum += ns
			if ns == 0 {
				t.Errorf("part %q of 0 in %q", name, line)
			}
		}
		of := &r.Spans[i]
		if sum != s.WallNS || s.WallNS != of.WallNS {
			t.Errorf("the parts sum to %d, the span took %d: %q", sum, of.WallNS, line)
		}
		if s.TID != r.Threads[of.Thread].TID || s.BeginNS != of.BeginNS || s.Partial != of.Partial {
			t.Errorf("line %d is %q, the span %+v", i, line, of)
		}
	}
}

func TestSpansReportErrors(t *testing.T) {
	if err := Spans(brokenWriter{}, correlate.Build(recordingtest.Pipeline())); !errors.Is(err, errBroken) {
		t.Errorf("Spans: %v", err)
	}
}

// A line has the documented keys, in their order, and no others.
func TestSpansKeys(t *testing.T) {
	line, _, _ := strings.Cut(spansOfFile(t, small()), "\n")
	at := 0
	for _, key := range []string{"tid", "thread", "stage_path", "begin_ns", "wall_ns", "partial", "parts"} {
		next := strings.Index(line, `"`+key+`":`)
		if next < at {
			t.Errorf("%q is missing or out of order in %q", key, line)
		}
		at = next
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(line), &keys); err != nil || len(keys) != 7 {
		t.Errorf("%d keys in %q (%v)", len(keys), line, err)
	}
}
