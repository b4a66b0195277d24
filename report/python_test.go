package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// pythonRecording has a slow line, a line with the GIL held that costs least of
// all, and more lines than the short table has room for.
func pythonRecording() *recording.Recording {
	b := recordingtest.New()
	thread := b.Thread(4300, "main")
	r := b.Recording()
	r.Overhead.Samples, r.Overhead.SamplesNS = 40, 120_000
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "launch", File: "/opt/venv/lib/python3.11/site-packages/helper/__init__.py", FirstLine: 3},
		{ID: 1, Name: "Loop.run", File: "/job/pkg/__init__.py", FirstLine: 10},
		{ID: 2, Name: "main", File: "/job/train.py", FirstLine: 50},
	}
	for line := range 10 {
		r.PythonStacks = append(r.PythonStacks, recording.PythonStack{ID: line, Frames: []recording.PythonFrame{
			{Function: 0, Line: 5}, {Function: 1, Line: 20 + line}, {Function: 2, Line: 60},
		}})
		wall := time.Duration(10-line) * time.Millisecond
		c := b.Call(thread, "forward", b.Symbol("cuStreamSynchronize"), 10, wall, 0)
		c.Caller = b.Frame(0, uint64(0x1000+line), "")
		if line == 9 {
			c.GIL = recording.GILHeld
			c.GILWaitCausedNS = 25_000_000
		}
		c.Samples = []recording.Sample{{Stack: line, Count: 4, WallNS: 4 * uint64(wall), ForCount: 10, ForWallNS: 10 * uint64(wall)}}
	}
	b.Spans(thread, "forward", 10, time.Second, 0)
	return r
}

func TestPythonTable(t *testing.T) {
	text := textOf(t, pythonRecording(), TextOptions{})
	got := section(t, text, "PYTHON LINE")
	want := []string{
		"pkg/__init__.py:20 Loop.run   100 ms    100 ms         0     10        4  forward",
		"    cuStreamSynchronize 100 ms ×10 · from main:60",
	}
	if len(got) < 2 {
		t.Fatal(text)
	}
	if diff := cmp.Diff(want, got[:2]); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	joined := strings.Join(got, "\n")
	for _, part := range []string{
		"pkg/__init__.py:29 Loop.run", "10.0 ms         0   10.0 ms",
		"cuStreamSynchronize 10.0 ms ×10 GIL held, others waited 25.0 ms", "3 more lines: 30 calls, 90.0 ms",
	} {
		if !strings.Contains(joined, part) {
			t.Errorf("there is no %q in\n%s", part, joined)
		}
	}
	if !strings.Contains(text, "stacks  120 µs in the target for 40 stacks of Python") {
		t.Errorf("the cost of stacks is missing in\n%s", text)
	}
	if full := textOf(t, pythonRecording(), TextOptions{Full: true}); strings.Contains(full, "more line") {
		t.Errorf("not all lines are in\n%s", full)
	}
}

func TestPythonJSON(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, correlate.Build(pythonRecording())); err != nil {
		t.Fatal(err)
	}
	var document struct {
		Calls []struct {
			GIL    string
			Stacks []jsonStack
		}
	}
	if err := json.Unmarshal(b.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	for _, c := range document.Calls {
		if c.GIL != "held" {
			continue
		}
		want := []jsonStack{{
			Frames: []jsonFrame{
				{"launch", "/opt/venv/lib/python3.11/site-packages/helper/__init__.py", 5},
				{"Loop.run", "/job/pkg/__init__.py", 29}, {"main", "/job/train.py", 60},
			},
			Samples: 4, Count: 10, WallNS: 10_000_000, GILWaitCausedNS: 25_000_000,
		}}
		if diff := cmp.Diff(want, c.Stacks); diff != "" {
			t.Errorf("-want +got: %s", diff)
		}
		return
	}
	t.Error("no call with the GIL held")
}
