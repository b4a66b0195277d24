package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// underBudget is the pipeline, recorded in two windows of a tenth of the time.
func underBudget() *recording.Recording {
	r := recordingtest.Pipeline()
	half := r.Window.Duration / 2
	r.Budget = &recording.Budget{
		Share: 0.01, Elapsed: 10 * r.Window.Duration,
		Windows: []recording.Covered{
			{StartNS: r.Window.StartNS, Duration: half, CostNS: 200e6},
			{StartNS: r.Window.StartNS + uint64(9*half), Duration: r.Window.Duration - half, CostNS: 100e6},
		},
		Cost: recording.Charge{CallsNS: 250e6, StagesNS: 30e6, SwitchingNS: 20e6},
	}
	return r
}

func TestBudget(t *testing.T) {
	text := textOf(t, underBudget(), TextOptions{})
	head, _, _ := strings.Cut(text, "\n\n")
	_, section, _ := strings.Cut(text, "\nBUDGET\n")
	section, _, _ = strings.Cut(section, "\n\n")
	golden(t, "budget.txt", head+"\n\nBUDGET\n"+section+"\n")
}

func withTrial() *recording.Recording {
	r := underBudget()
	r.Budget.Trial = &recording.Trial{
		Covered: recording.Covered{StartNS: r.Window.StartNS - 200e6, Duration: 120 * time.Millisecond, CostNS: 103e6},
		Groups: []recording.GroupCost{
			{Group: "event", Calls: 45678, CostNS: 96e6, LeftOut: true}, {Group: "copy", Calls: 120, CostNS: 4e6, LeftOut: true},
			{Group: "launch", Calls: 100, CostNS: 1e6},
		},
	}
	return r
}

func TestBudgetTrial(t *testing.T) {
	l := correlate.Build(withTrial())
	notes := map[string]string{}
	for _, note := range Budget(l) {
		notes[note[0]] = note[1]
	}
	if got, want := notes["left out"], "event (381,000 calls/s, 80% of one CPU), copy (1,000 calls/s, 3.33% of one CPU): not probed since 120 ms after the start, and in no number above"; got != want {
		t.Errorf("left out: %q, want %q", got, want)
	}
	if !strings.Contains(notes["trial"], "the first 120 ms") {
		t.Errorf("trial: %q", notes["trial"])
	}
	if !strings.Contains(notes["estimate"], " driver calls of the functions that are not left out, which took ") {
		t.Errorf("estimate: %q", notes["estimate"])
	}
	j := budgetOf(l).Trial
	if j == nil || j.CostNS != 103e6 || len(j.Groups) != 3 || !j.Groups[0].LeftOut || j.Groups[2].LeftOut {
		t.Errorf("in JSON: %+v", j)
	}
}

func TestBudgetNotes(t *testing.T) {
	whole := underBudget()
	whole.Budget.Elapsed = whole.Window.Duration
	whole.Budget.Windows = whole.Budget.Windows[:1]
	empty := recordingtest.Pipeline()
	empty.Budget = &recording.Budget{Elapsed: -time.Second}
	empty.Window.Duration = 0
	tests := []struct {
		name      string
		recording *recording.Recording
		want, not string
	}{
		{"none", recordingtest.Pipeline(), "", "budget"},
		{"gaps", underBudget(), "estimate", "left out"},
		{"no gaps", whole, "all of the time", "estimate"},
		{"nothing", empty, "0% of one CPU", "estimate"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			for _, note := range Budget(correlate.Build(test.recording)) {
				lines = append(lines, strings.Join(note, " "))
			}
			text := strings.Join(lines, "\n")
			if !strings.Contains(text, test.want) || test.not != "" && strings.Contains(text, test.not) {
				t.Errorf("%q is missing, or %q there:\n%s", test.want, test.not, text)
			}
		})
	}
}

func TestRounded(t *testing.T) {
	for v, want := range map[float64]uint64{0: 0, -1: 0, 0.6: 1, 999: 999, 1004: 1000, 123456: 123000, 999999: 1000000} {
		if got := rounded(v); got != want {
			t.Errorf("rounded(%g) is %d, want %d", v, got, want)
		}
	}
}

// Ranks that paid for windows of their own: the first one's are a tenth of its time, the
// second one's too, and without functions that say little, the third one's are all of it.
func ranksUnderBudget() (ledgers []*correlate.Ledger) {
	all := underBudget()
	all.Budget.Elapsed, all.Budget.Windows = all.Window.Duration, all.Budget.Windows[:1]
	for rank, r := range []*recording.Recording{underBudget(), withTrial(), all} {
		r.Target.Rank, r.Target.PID, r.Target.WorldSize = rank, 5000+rank, 3
		ledgers = append(ledgers, correlate.Build(r))
	}
	return ledgers
}

func TestBudgetOfSeveral(t *testing.T) {
	var b bytes.Buffer
	if err := TextOfSeveral(&b, ranksUnderBudget(), nil, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	head, _, _ := strings.Cut(text, "\nSTAGE BY PROCESS")
	_, after, _ := strings.Cut(text, "\nBUDGET ")
	section, _, _ := strings.Cut(after, "\nWARNINGS\n")
	golden(t, "several-budget.txt", head+"\nBUDGET "+section)
	if strings.Count(text, ", which took") != 2 { // one for each process with gaps, and no sum
		t.Errorf("there are other estimates than one for each process:\n%s", text)
	}
}

// Where the same functions are left out of all, they can be compared.
func TestBudgetOfSeveralLeavesOutTheSame(t *testing.T) {
	const differ = "Not the same functions"
	for want, ledgers := range map[bool][]*correlate.Ledger{
		true: ranksUnderBudget(), false: {correlate.Build(withTrial()), correlate.Build(withTrial())},
	} {
		var b bytes.Buffer
		if err := TextOfSeveral(&b, ledgers, nil, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), differ) != want {
			t.Errorf("%q is there: %v, want %v", differ, !want, want)
		}
	}
}

// Without a budget nothing is said of one.
func TestNoBudgetOfSeveral(t *testing.T) {
	var b bytes.Buffer
	if err := TextOfSeveral(&b, slowRank(), nil, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "BUDGET") || strings.Contains(b.String(), "windows") {
		t.Errorf("it says something of a budget:\n%s", b.String())
	}
}
