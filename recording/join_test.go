package recording_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
	"stageprof/report"
)

// runs are recordings of one process each, made anew at each call.
func runs() map[string]func() *recording.Recording {
	return map[string]func() *recording.Recording{
		"pipeline": recordingtest.Pipeline,
		"regions":  recordingtest.Regions,
	}
}

func join(t *testing.T, keep int, windows ...*recording.Recording) *recording.Recording {
	t.Helper()
	var j recording.Joined
	for _, w := range windows {
		j.Add(w, keep)
	}
	r := j.Recording()
	if err := recording.Write(&bytes.Buffer{}, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func document(t *testing.T, r *recording.Recording) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.JSON(&b, correlate.Build(r)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const keepAll = 1 << 20

// One Recording joined with nothing says what it said.
func TestJoinOne(t *testing.T) {
	for name, run := range runs() {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(document(t, run()), document(t, join(t, keepAll, run()))); diff != "" {
				t.Errorf("(-alone +joined):\n%s", diff)
			}
		})
	}
}

// The same once more is twice as much, in the same rows, however they are numbered.
func TestJoinTwo(t *testing.T) {
	for name, run := range runs() {
		t.Run(name, func(t *testing.T) {
			one := run()
			both := join(t, keepAll, run(), renumbered(run()))
			if got, want := len(both.Threads), len(one.Threads); got != want {
				t.Errorf("%d threads, there were %d", got, want)
			}
			if got, want := len(both.Paths), len(one.Paths); got != want {
				t.Errorf("%d stage paths, there were %d", got, want)
			}
			if got, want := len(both.Symbols), len(one.Symbols); got != want {
				t.Errorf("%d symbols, there were %d", got, want)
			}
			if got, want := both.Window.Duration, 2*one.Window.Duration; got != want {
				t.Errorf("the window lasts %v, want %v", got, want)
			}
			if got, want := len(both.Spans), 2*len(one.Spans); got != want {
				t.Errorf("%d spans, want %d", got, want)
			}
			expectTwice(t, correlate.Build(one), correlate.Build(both))
		})
	}
}

// What programs took is added up by program.
func TestJoinPrograms(t *testing.T) {
	with := func(programs ...recording.Program) *recording.Recording {
		r := recordingtest.Pipeline()
		r.Overhead.Programs = programs
		return r
	}
	entry, exit := recording.Program{Name: "entry", Runs: 3, WallNS: 50}, recording.Program{Name: "exit", Runs: 1, WallNS: 7}
	got := join(t, keepAll, with(entry), with(exit, entry), with()).Overhead.Programs
	if diff := cmp.Diff([]recording.Program{{Name: "entry", Runs: 6, WallNS: 100}, exit}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func expectTwice(t *testing.T, one, both *correlate.Ledger) {
	t.Helper()
	if len(one.Calls) != len(both.Calls) || len(one.Stages) != len(both.Stages) {
		t.Fatalf("%d rows of calls and %d stages became %d and %d", len(one.Calls), len(one.Stages), len(both.Calls), len(both.Stages))
	}
	for i := range one.Calls {
		a, b := &one.Calls[i], &both.Calls[i]
		if a.Path.Joined != b.Path.Joined || a.Symbol != b.Symbol || a.GIL != b.GIL {
			t.Fatalf("row %d is of %v %s, was of %v %s", i, b.Path, b.Symbol, a.Path, a.Symbol)
		}
		if b.Count != 2*a.Count || b.RawWallNS != 2*a.RawWallNS || b.MinNS != a.MinNS || b.MaxNS != a.MaxNS || b.Bytes != 2*a.Bytes {
			t.Errorf("%s %s: twice %+v is not %+v", a.Path.Joined, a.Symbol, a.Total, b.Total)
		}
	}
	for i := range one.Stages {
		a, b := &one.Stages[i], &both.Stages[i]
		if (a.Spans == nil) != (b.Spans == nil) {
			t.Fatalf("stage %s: the spans are known once only", a.Path.Joined)
		}
		if a.Spans != nil && (b.Spans.Count != 2*a.Spans.Count || b.Spans.WallNS != 2*a.Spans.WallNS || b.Spans.WindowNS() != 2*a.Spans.WindowNS()) {
			t.Errorf("stage %s: twice %+v is not %+v", a.Path.Joined, a.Spans, b.Spans)
		}
	}
	if one.Balance.Holds() != both.Balance.Holds() || both.Balance.Seen != 2*one.Balance.Seen || both.Balance.Lost != 2*one.Balance.Lost {
		t.Errorf("the account %+v became %+v", one.Balance, both.Balance)
	}
}

// renumbered gives the threads, paths and symbols other numbers.
func renumbered(r *recording.Recording) *recording.Recording {
	threads, paths, symbols := len(r.Threads)-1, len(r.Paths)-1, len(r.Symbols)-1
	slices.Reverse(r.Threads)
	for i := range r.Threads {
		r.Threads[i].ID = i
	}
	slices.Reverse(r.Paths)
	for i := range r.Paths {
		r.Paths[i].ID = i
	}
	slices.Reverse(r.Symbols)
	for i := range r.Symbols {
		r.Symbols[i].ID = i
	}
	thread := func(id int) int {
		if id == -1 {
			return id
		}
		return threads - id
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		c.Thread, c.Path, c.Symbol = thread(c.Thread), paths-c.Path, symbols-c.Symbol
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		s.Thread, s.Path = thread(s.Thread), paths-s.Path
	}
	for i := range r.Debts {
		d := &r.Debts[i]
		d.Thread, d.Path, d.Symbol, d.Owner = thread(d.Thread), paths-d.Path, symbols-d.Symbol, paths-d.Owner
	}
	for i := range r.RegionTimes {
		t := &r.RegionTimes[i]
		t.Thread, t.Path = thread(t.Thread), paths-t.Path
	}
	for i := range r.RegionParts {
		p := &r.RegionParts[i]
		p.Thread, p.Path = thread(p.Thread), paths-p.Path
	}
	for i := range r.Allocations {
		a := &r.Allocations[i]
		a.Thread, a.Path = thread(a.Thread), paths-a.Path
	}
	for i := range r.Spans {
		s := &r.Spans[i]
		s.Thread, s.Path = thread(s.Thread), paths-s.Path
		for k := range s.Calls {
			s.Calls[k].Symbol = symbols - s.Calls[k].Symbol
		}
	}
	return r
}

// Two threads of one Recording with one id and name stay two, and each of them is
// that of the same place in the next one.
func TestJoinThreads(t *testing.T) {
	run := func() *recording.Recording {
		b := recordingtest.New()
		launch := b.Symbol("cuLaunchKernel")
		for range 2 {
			b.Call(b.Thread(7, "worker"), "step", launch, 3, time.Millisecond, time.Millisecond)
		}
		return b.Recording()
	}
	r := join(t, keepAll, run(), run())
	if want := len(run().Threads); len(r.Threads) != want {
		t.Errorf("%d threads, want %d: %+v", len(r.Threads), want, r.Threads)
	}
	for _, c := range r.Calls {
		if c.Count != 6 {
			t.Errorf("%d calls of one thread, want 6", c.Count)
		}
	}
}

// Of more threads than are told apart the sum is kept, and nothing is lost.
func TestJoinManyThreads(t *testing.T) {
	const most, windows = 65_536, 3
	var j recording.Joined
	for window := range windows {
		b := recordingtest.New()
		launch := b.Symbol("cuLaunchKernel")
		b.Call(b.Thread(1, "main"), "step", launch, 1, time.Millisecond, time.Millisecond)
		for i := range most/2 + 10 {
			b.Call(b.Thread(2+window*most+i, "worker"), "step", launch, 1, time.Millisecond, time.Millisecond)
		}
		j.Add(b.Recording(), 0)
	}
	r := j.Recording()
	folded, calls := 0, map[string]uint64{}
	for _, thread := range r.Threads {
		if thread.Folded {
			folded++
		}
	}
	for _, c := range r.Calls {
		calls[r.Threads[c.Thread].Name] += c.Count
	}
	const threads = windows*(most/2+10) + 1
	if len(r.Threads) != most+1 || folded != 1 || len(r.Calls) != most+1 {
		t.Errorf("%d threads, %d of them folded, and %d rows of calls, want %d, 1 and as many", len(r.Threads), folded, len(r.Calls), most+1)
	}
	if want := map[string]uint64{"main": windows, "worker": most - 1, "(further threads)": threads - most}; !maps.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

// What is no longer kept of single spans is said.
func TestJoinKeepsTheFirstSpans(t *testing.T) {
	one := recordingtest.Pipeline()
	spans := len(one.Spans)
	if spans < 10 {
		t.Fatalf("%d spans: the test shows nothing", spans)
	}
	r := join(t, spans+5, recordingtest.Pipeline(), recordingtest.Pipeline())
	left := uint64(0)
	for _, l := range r.Losses {
		if l.Reason == recording.LossSpansNotKept {
			left = l.Count
		}
	}
	if len(r.Spans) != spans+5 || left != uint64(spans-5) {
		t.Errorf("%d spans are kept and %d are not, want %d and %d", len(r.Spans), left, spans+5, spans-5)
	}
	if !slices.IsSortedFunc(r.Losses, func(a, b recording.Loss) int { return bytes.Compare([]byte(a.Reason), []byte(b.Reason)) }) {
		t.Errorf("the losses are not in the order of their reasons: %v", r.Losses)
	}
}

// Whatever is in a Recording, the sum can be written and read.
func TestJoinAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var j recording.Joined
		for range 3 {
			r := recordingtest.Random(rng)
			r.Format = recording.FormatVersion
			j.Add(r, 4)
		}
		var b bytes.Buffer
		if err := recording.Write(&b, j.Recording()); err != nil {
			t.Fatal(err)
		}
		if _, err := recording.Read(&b); err != nil {
			t.Fatal(err)
		}
	}
}

// Every number of every row is added up, also those that come to be later.
func TestJoinAddsEveryNumber(t *testing.T) {
	one := recordingtest.Random(rand.New(rand.NewPCG(5, 6)))
	var j recording.Joined
	for range 2 {
		j.Add(recordingtest.Random(rand.New(rand.NewPCG(5, 6))), keepAll)
	}
	both := j.Recording()
	for _, rows := range []struct {
		name      string
		one, both any
	}{
		{"Calls", one.Calls, both.Calls},
		{"Stages", one.Stages, both.Stages},
		{"Debts", one.Debts, both.Debts},
		{"RegionTimes", one.RegionTimes, both.RegionTimes},
		{"RegionParts", one.RegionParts, both.RegionParts},
		{"Allocations", one.Allocations, both.Allocations},
		{"Budget.Cost", one.Budget.Cost, both.Budget.Cost},
	} {
		was, is := map[string]uint64{}, map[string]uint64{}
		addNumbers(was, rows.name, reflect.ValueOf(rows.one))
		addNumbers(is, rows.name, reflect.ValueOf(rows.both))
		for field, n := range was {
			if is[field] != 2*n && !strings.HasSuffix(field, ".MinNS") && !strings.HasSuffix(field, ".MaxNS") {
				t.Errorf("%s: %d twice is %d, not %d", field, n, 2*n, is[field])
			}
		}
	}
}

// addNumbers sums the numbers that are no references, by field, in 64 bits.
func addNumbers(sums map[string]uint64, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			addNumbers(sums, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			addNumbers(sums, name, v.Index(i))
		}
	case reflect.Uint64:
		sums[name] += v.Uint()
	}
}

// Numbers in names of files and devices are not such numbers.
func TestJoinWarningsOfNames(t *testing.T) {
	var joined recording.Joined
	want := []string{
		`"libcudart.so.12" is probed from 1.5s on`,
		`"libcudart.so.13" is probed from 12.5s on`,
		"GPU 0 is lost",
		"GPU 1 is lost",
	}
	for _, warning := range want {
		r := recordingtest.New().Recording()
		r.Warnings = []string{warning}
		joined.Add(r, keepAll)
	}
	if diff := cmp.Diff(want, joined.Recording().Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// Warnings that differ in nothing but numbers are one, but for those of one window.
func TestJoinWarnings(t *testing.T) {
	window := func(warnings ...string) *recording.Recording {
		r := recordingtest.New().Recording()
		r.Warnings = warnings
		return r
	}
	got := join(t, keepAll,
		window("no markers", "following malloc cost 1.2% of thread 17: 812 µs", "GPU 0 is lost", "GPU 1 is lost"),
		window("following malloc cost 3% of thread 18: 1.4 ms", "no markers", "GPU 0 is lost"),
		window("following malloc cost 2.5% of thread 9: 1m2.5s", "following free cost 1% of thread 9: 2 ms")).Warnings
	want := []string{
		"no markers",
		"following malloc cost 2.5% of thread 9: 1m2.5s (the latest of 3 windows with such numbers)",
		"GPU 0 is lost", "GPU 1 is lost", "following free cost 1% of thread 9: 2 ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// Nothing is left out but what a recording in several windows does not have.
func TestJoinKeepsEveryField(t *testing.T) {
	r := recordingtest.Random(rand.New(rand.NewPCG(3, 4)))
	source := reflect.ValueOf(*r)
	var j recording.Joined
	j.Add(r, keepAll)
	joined := reflect.ValueOf(*j.Recording())
	for i := range source.NumField() {
		name := source.Type().Field(i).Name
		left := name == "Timeline" || name == "Open" || source.Field(i).IsZero()
		if joined.Field(i).IsZero() != left {
			t.Errorf("%s is kept: %v", name, !joined.Field(i).IsZero())
		}
	}
}
