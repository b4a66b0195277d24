package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// slowRank are the pipeline's Ledgers as if three ranks had run it, of which the
// second took twice as long in target_forward.
func slowRank() (ledgers []*correlate.Ledger) {
	for rank := range 3 {
		r := recordingtest.Pipeline()
		r.Target.Rank, r.Target.PID, r.Target.WorldSize = rank, 5000+rank, 3
		for i := range r.Stages {
			s := &r.Stages[i]
			if names := r.Paths[s.Path].Names; rank == 1 && len(names) == 1 && names[0] == "target_forward" {
				s.Parts.RunningNS += s.WallNS
				s.WallNS *= 2
				s.MaxNS *= 2
			}
		}
		ledgers = append(ledgers, correlate.Build(r))
	}
	return ledgers
}

func TestTextOfSeveral(t *testing.T) {
	var b bytes.Buffer
	if err := TextOfSeveral(&b, slowRank(), []string{"5003 (rank 3, python3): it has exited"}, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "several.txt", b.String())
	_, after, ok := strings.Cut(b.String(), "\ntarget_forward\n")
	if !ok || !strings.HasPrefix(after, "  rank 1, pid 5001") || !strings.Contains(strings.SplitN(after, "\n", 2)[0], "+100%") {
		t.Errorf("rank 1 is not the slowest in target_forward:\n%s", b.String())
	}
}

// Recordings of one process are no processes.
func TestTextOfOneProcessSeveralTimes(t *testing.T) {
	for want, pids := range map[string][]int{
		"3 processes": {1, 2, 3}, "2 recordings of one process": {1, 1}, "3 recordings of 2 processes": {1, 1, 2},
	} {
		var ledgers []*correlate.Ledger
		for _, pid := range pids {
			r := recordingtest.Pipeline()
			r.Target.PID = pid
			ledgers = append(ledgers, correlate.Build(r))
		}
		var b bytes.Buffer
		if err := TextOfSeveral(&b, ledgers, nil, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if head, _, _ := strings.Cut(b.String(), "\n"); !strings.HasSuffix(head, want) {
			t.Errorf("processes %v: %q, want %q", pids, head, want)
		}
		if got := strings.Contains(b.String(), "The tables of each recording:"); got != strings.Contains(want, "recordings") {
			t.Errorf("processes %v: the last line is of other things:\n%s", pids, b.String())
		}
	}
	// The next process can have the same id.
	first, next := recordingtest.Pipeline(), recordingtest.Pipeline()
	next.Target.StartTime = first.Target.StartTime.Add(time.Second)
	var b bytes.Buffer
	if err := TextOfSeveral(&b, []*correlate.Ledger{correlate.Build(first), correlate.Build(next)}, nil, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "2 processes") {
		t.Errorf("two incarnations are one:\n%s", b.String())
	}
}

func TestTextOfSeveralInFull(t *testing.T) {
	ledgers := slowRank()
	var b bytes.Buffer
	if err := TextOfSeveral(&b, ledgers, nil, TextOptions{Full: true}); err != nil {
		t.Fatal(err)
	}
	for _, l := range ledgers {
		var one bytes.Buffer
		if err := Text(&one, l, TextOptions{Full: true}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), one.String()) {
			t.Errorf("the tables of rank %d are missing", l.Source.Target.Rank)
		}
	}
}

func TestJSONOfSeveral(t *testing.T) {
	var b bytes.Buffer
	if err := JSONOfSeveral(&b, slowRank(), nil); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Processes []struct {
			Target recording.Target `json:"target"`
		} `json:"processes"`
		NotRecorded []string `json:"not_recorded"`
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Processes) != 3 || got.Processes[2].Target.Rank != 2 || got.NotRecorded == nil {
		t.Errorf("%+v", got)
	}
}

func TestSpansOfSeveral(t *testing.T) {
	ledgers := slowRank()
	var b, one bytes.Buffer
	if err := SpansOfSeveral(&b, ledgers); err != nil {
		t.Fatal(err)
	}
	if err := Spans(&one, ledgers[0]); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(one.String(), `"rank"`) {
		t.Error("the spans of one process name it")
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if want := 3 * strings.Count(one.String(), "\n"); len(lines) != want || want == 0 {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, `{"pid":5002,"rank":2,`) {
		t.Errorf("the last line is %s", last)
	}
}
