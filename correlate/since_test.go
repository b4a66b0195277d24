package correlate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// history is what a made-up target did; times count from the window's start.
type history struct {
	calls []pastCall
	spans []pastSpan
	ends  []uint64 // of threads
}

type pastCall struct {
	thread, symbol int
	path           string
	end, wall      uint64
}

type pastSpan struct {
	thread     int
	path       string
	begin, end uint64
}

const historyLength = 1 << 20

func randomHistory(rng *rand.Rand) *history {
	h := &history{}
	for thread := range 4 {
		now := 1 + rng.Uint64N(1000) // spans that begin with the window are partial
		for end := historyLength/4 + rng.Uint64N(historyLength); now < end; {
			path := []string{"step", "step/a", "b"}[rng.IntN(3)]
			s := pastSpan{thread, path, now, now + 1 + rng.Uint64N(historyLength/8)}
			for range rng.IntN(4) {
				at := s.begin + rng.Uint64N(s.end-s.begin)
				h.calls = append(h.calls, pastCall{thread, rng.IntN(3), path, at, rng.Uint64N(at + 1)})
			}
			h.spans = append(h.spans, s)
			now = s.end + rng.Uint64N(1000)
		}
		h.ends = append(h.ends, now)
	}
	return h
}

// at is a snapshot at a time, with IDs in any order. Threads that have ended
// before fold are folded.
func (h *history) at(rng *rand.Rand, now, fold uint64) *recording.Recording {
	b := recordingtest.New()
	symbols := [3]int{}
	for _, i := range rng.Perm(3) {
		symbols[i] = b.Symbol(fmt.Sprint("cuFunction", i))
	}
	r := b.Recording()
	for i := range r.Symbols { // the builder's addresses go by ID
		r.Symbols[i].Address = uint64(r.Symbols[i].Name[len(r.Symbols[i].Name)-1])
	}
	r.Window.Duration, r.Window.End = time.Duration(now), recording.EndOpen
	folded, threads := -1, make([]int, len(h.ends))
	for _, i := range rng.Perm(len(h.ends)) {
		switch {
		case h.ends[i] > min(fold, now):
			threads[i] = b.Thread(5000+i, "worker")
			r.Threads[threads[i]].Serial = uint64(i + 1)
		case folded < 0:
			folded = b.Thread(0, "(ended threads)")
			r.Threads[folded].Folded = true
			fallthrough
		default:
			threads[i] = folded
		}
	}
	h.addCalls(r, b, threads, symbols, now)
	h.addSpans(r, b, threads, now)
	return r
}

func (h *history) addCalls(r *recording.Recording, b *recordingtest.Builder, threads []int, symbols [3]int, now uint64) {
	for _, c := range h.calls {
		if c.end > now {
			continue
		}
		i := slices.IndexFunc(r.Calls, func(row recording.Call) bool {
			return row.Thread == threads[c.thread] && row.Path == b.Path(c.path) && row.Symbol == symbols[c.symbol]
		})
		if i < 0 {
			i = len(r.Calls)
			b.Call(threads[c.thread], c.path, symbols[c.symbol], 0, 0, 0).MinNS = c.wall
		}
		row := &r.Calls[i]
		row.Count++
		row.WallNS += c.wall
		row.CPUNS += c.wall / 2
		row.Bytes += c.wall * 3
		row.MinNS, row.MaxNS = min(row.MinNS, c.wall), max(row.MaxNS, c.wall)
		row.Hist[bucketOf(c.wall)]++
	}
}

func (h *history) addSpans(r *recording.Recording, b *recordingtest.Builder, threads []int, now uint64) {
	for _, s := range h.spans {
		if s.begin >= now {
			continue
		}
		i := slices.IndexFunc(r.Stages, func(row recording.Stage) bool {
			return row.Thread == threads[s.thread] && row.Path == b.Path(s.path)
		})
		if i < 0 {
			i = len(r.Stages)
			b.Spans(threads[s.thread], s.path, 0, 0, 0)
		}
		row, wall := &r.Stages[i], min(s.end, now)-s.begin
		span := recording.Span{
			Thread: threads[s.thread], Path: row.Path, BeginNS: r.Window.StartNS + s.begin, WallNS: wall,
			CPUNS: wall, Parts: recording.Parts{RunningNS: wall},
		}
		if s.end > now {
			span.Partial = true
			r.Open = append(r.Open, span)
			addPartial(row, &span)
			continue
		}
		if !r.Threads[span.Thread].Folded {
			r.Spans = append(r.Spans, span)
		}
		if row.Count == 0 {
			row.MinNS = wall
		}
		row.Count++
		row.WallNS += wall
		row.CPUNS += wall
		row.Parts.RunningNS += wall
		row.MinNS, row.MaxNS = min(row.MinNS, wall), max(row.MaxNS, wall)
		row.Hist[bucketOf(wall)]++
	}
}

// between is what Since has to find, by what the rows are about.
type betweenCalls struct{ Count, WallNS, CPUNS, Bytes uint64 }

type betweenSpans struct{ Count, WallNS, PartialCount, PartialWallNS uint64 }

func (h *history) between(from, to, fold uint64) (map[string]betweenCalls, map[string]betweenSpans) {
	name := func(thread int, rest ...any) string {
		if h.ends[thread] <= min(fold, to) {
			return fmt.Sprint(append([]any{"folded "}, rest...)...)
		}
		return fmt.Sprint(append([]any{thread, " "}, rest...)...)
	}
	calls, spans := map[string]betweenCalls{}, map[string]betweenSpans{}
	for _, c := range h.calls {
		if c.end > from && c.end <= to {
			sum := calls[name(c.thread, c.path, " cuFunction", c.symbol)]
			calls[name(c.thread, c.path, " cuFunction", c.symbol)] = betweenCalls{
				sum.Count + 1, sum.WallNS + c.wall, sum.CPUNS + c.wall/2, sum.Bytes + 3*c.wall,
			}
		}
	}
	for _, s := range h.spans {
		sum, inside := spans[name(s.thread, s.path)], min(s.end, to)-min(max(s.begin, from), min(s.end, to))
		switch {
		case s.begin >= to || s.end <= from:
			continue
		case s.begin >= from && s.end <= to:
			sum.Count++
			sum.WallNS += inside
		default:
			sum.PartialCount++
			sum.PartialWallNS += inside
		}
		spans[name(s.thread, s.path)] = sum
	}
	return calls, spans
}

// found reads the same from a Recording.
func found(r *recording.Recording) (map[string]betweenCalls, map[string]betweenSpans) {
	name := func(thread int, rest ...any) string {
		if r.Threads[thread].Folded {
			return fmt.Sprint(append([]any{"folded "}, rest...)...)
		}
		return fmt.Sprint(append([]any{r.Threads[thread].Serial - 1, " "}, rest...)...)
	}
	calls, spans := map[string]betweenCalls{}, map[string]betweenSpans{}
	for _, c := range r.Calls {
		calls[name(c.Thread, strings.Join(r.Paths[c.Path].Names, "/"), " ", r.Symbols[c.Symbol].Name)] =
			betweenCalls{c.Count, c.WallNS, c.CPUNS, c.Bytes}
	}
	for _, s := range r.Stages {
		spans[name(s.Thread, strings.Join(r.Paths[s.Path].Names, "/"))] =
			betweenSpans{s.Count, s.WallNS, s.PartialCount, s.PartialWallNS}
	}
	return calls, spans
}

func TestSinceIsWhatHappenedBetween(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := randomHistory(rng)
		from := rng.Uint64N(historyLength)
		to := from + rng.Uint64N(historyLength-from)
		// Folding a thread takes its spans, and with them what tells its first
		// partial span from complete ones: that is another test.
		fold := uint64(0)
		if seed%2 == 0 {
			fold = from
		}
		got, err := Since(h.at(rng, from, fold), h.at(rng, to, fold))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		calls, spans := found(got)
		wantCalls, wantSpans := h.between(from, to, fold)
		if diff := cmp.Diff(wantCalls, calls); diff != "" {
			t.Errorf("seed %d: calls (-want +got):\n%s", seed, diff)
		}
		if diff := cmp.Diff(wantSpans, spans); diff != "" {
			t.Errorf("seed %d: spans (-want +got):\n%s", seed, diff)
		}
		h.checkExtremes(t, got, from, to)
		Build(got) // has to take it
	}
}

// checkExtremes: no call of the interval lies outside of its row's bounds, which
// are off by less than a factor of two.
func (h *history) checkExtremes(t *testing.T, r *recording.Recording, from, to uint64) {
	t.Helper()
	for _, row := range r.Calls {
		thread := r.Threads[row.Thread]
		if thread.Folded {
			continue
		}
		least, most := ^uint64(0), uint64(0)
		for _, c := range h.calls {
			if uint64(c.thread+1) == thread.Serial && c.end > from && c.end <= to &&
				c.path == strings.Join(r.Paths[row.Path].Names, "/") && fmt.Sprint("cuFunction", c.symbol) == r.Symbols[row.Symbol].Name {
				least, most = min(least, c.wall), max(most, c.wall)
			}
		}
		if row.MinNS > least || row.MaxNS < most || row.MinNS < least/2 || row.MaxNS > 2*most+1 {
			t.Errorf("extremes %d and %d, are %d and %d", row.MinNS, row.MaxNS, least, most)
		}
	}
}

// Threads that were folded meanwhile are found among all that were, and nothing
// is lost.
func TestSinceOfFoldedThreads(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		h := randomHistory(rng)
		from := rng.Uint64N(historyLength)
		to := from + rng.Uint64N(historyLength-from)
		got, err := Since(h.at(rng, from, 0), h.at(rng, to, to))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		calls, spans := found(got)
		wantCalls, wantSpans := h.between(from, to, to)
		if diff := cmp.Diff(wantCalls, calls); diff != "" {
			t.Errorf("seed %d: calls (-want +got):\n%s", seed, diff)
		}
		for _, sums := range []map[string]betweenSpans{wantSpans, spans} {
			for key, s := range sums { // which of them are partial is not known
				sums[key] = betweenSpans{Count: s.Count + s.PartialCount, WallNS: s.WallNS + s.PartialWallNS}
			}
		}
		if diff := cmp.Diff(wantSpans, spans); diff != "" {
			t.Errorf("seed %d: spans (-want +got):\n%s", seed, diff)
		}
	}
}

// The intervals between many snapshots sum to the last one.
func TestSinceTelescopes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	h := randomHistory(rng)
	sums := map[string]betweenCalls{}
	before := h.at(rng, 0, 0)
	for now := uint64(historyLength / 16); now <= 2*historyLength; now += historyLength / 16 {
		r := h.at(rng, now, 0)
		part, err := Since(before, r)
		if err != nil {
			t.Fatal(err)
		}
		calls, _ := found(part)
		for key, c := range calls {
			sum := sums[key]
			sums[key] = betweenCalls{sum.Count + c.Count, sum.WallNS + c.WallNS, sum.CPUNS + c.CPUNS, sum.Bytes + c.Bytes}
		}
		before = r
	}
	want, _ := found(before)
	if diff := cmp.Diff(want, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}

// Calls in flight at the beginning are seen again, losses are subtracted.
func TestSinceBalances(t *testing.T) {
	snapshot := func(calls, returned, inFlight, lost uint64) *recording.Recording {
		b := recordingtest.New()
		r := b.Recording()
		b.Call(b.Thread(1, "t"), "step", b.Symbol("cuLaunchKernel"), returned, us, us)
		b.Loss(LossCalls, recording.LossInFlight, inFlight, "running")
		b.Loss(LossCalls, "lost_return", lost, "lost")
		b.Loss(LossSpans, "missed_stage_end", 2*lost, "missed")
		r.Seen = &recording.Seen{Calls: calls}
		return r
	}
	got, err := Since(snapshot(10, 6, 3, 1), snapshot(20, 17, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	l := Build(got)
	if l.Balance.Reported != 11 || l.Balance.Lost != 2 || l.Balance.Seen != 13 {
		t.Errorf("balance: %+v", l.Balance)
	}
	if diff := cmp.Diff([]recording.Loss{
		{Kind: LossCalls, Reason: recording.LossInFlight, Count: 1, Help: "running"},
		{Kind: LossCalls, Reason: "lost_return", Count: 1, Help: "lost"},
		{Kind: LossSpans, Reason: "missed_stage_end", Count: 2, Help: "missed"},
	}, got.Losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// A call that returns in the interval may be older than the interval.
func TestSinceKeepsOldCalls(t *testing.T) {
	snapshot := func(now time.Duration, count uint64) *recording.Recording {
		b := recordingtest.New()
		b.Recording().Window.Duration = now
		if count > 0 {
			b.Call(b.Thread(1, "t"), "step", b.Symbol("cuStreamSynchronize"), count, 9*sec, us)
		}
		return b.Recording()
	}
	got, err := Since(snapshot(9*sec, 0), snapshot(10*sec, 1))
	if err != nil {
		t.Fatal(err)
	}
	if l := Build(got); l.All.Count != 1 || len(l.Losses) != 0 {
		t.Errorf("%d calls, losses %+v", l.All.Count, l.Losses)
	}
}

// Spans that were forgotten in the interval are missing in it only if they ended
// in it.
func TestSinceOfForgottenSpans(t *testing.T) {
	snapshot := func(spans, kept, forgotten uint64) *recording.Recording {
		b := recordingtest.New()
		thread := b.Thread(1, "t")
		r := b.Recording()
		b.Spans(thread, "step", spans, ms, 0)
		for i := spans - kept; i < spans; i++ {
			r.Spans = append(r.Spans, recording.Span{Thread: thread, BeginNS: i, WallNS: uint64(ms)})
		}
		b.Loss("other", recording.LossSpansNotKept, forgotten, "forgotten")
		return r
	}
	for _, test := range []struct{ later, want uint64 }{{12, 0}, {25, 5}} {
		got, err := Since(snapshot(10, 10, 0), snapshot(test.later, 10, test.later-10))
		if err != nil {
			t.Fatal(err)
		}
		missing := uint64(0)
		for _, l := range got.Losses {
			missing += l.Count
		}
		if missing != test.want || uint64(len(got.Spans)) != test.later-10-test.want {
			t.Errorf("%d spans: %d of the interval's are kept, losses %+v", test.later, len(got.Spans), got.Losses)
		}
	}
}

func TestSinceOfGPUs(t *testing.T) {
	snapshot := func(samples int, percent, watts, joules float64) *recording.Recording {
		r := recordingtest.New().Recording()
		r.GPU = &recording.GPU{Devices: []recording.Device{{UUID: "a", Samples: samples, UtilizationPct: percent, PowerW: watts, EnergyJ: joules,
			SMClockMHz: 10 * watts, ClockLimits: []recording.ClockLimit{{Reason: "gpu_idle", Samples: 3}, {Reason: "sw_power_cap", Samples: samples / 2}}}}}
		return r
	}
	got, err := Since(snapshot(10, 50, 100, 1000), snapshot(20, 75, 200, 5000))
	if err != nil {
		t.Fatal(err)
	}
	want := []recording.Device{{UUID: "a", Samples: 10, UtilizationPct: 100, PowerW: 300, EnergyJ: 4000,
		SMClockMHz: 3000, ClockLimits: []recording.ClockLimit{{Reason: "sw_power_cap", Samples: 5}}}}
	if diff := cmp.Diff(want, got.GPU.Devices); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestSinceRefuses(t *testing.T) {
	change := func(f func(r *recording.Recording)) *recording.Recording {
		b := recordingtest.New()
		b.Call(b.Thread(1, "t"), "step", b.Symbol("cuLaunchKernel"), 5, us, us)
		b.Spans(0, "step", 5, ms, 0)
		f(b.Recording())
		return b.Recording()
	}
	same := func(*recording.Recording) {}
	tests := map[string][2]func(*recording.Recording){
		"another process":     {same, func(r *recording.Recording) { r.Target.PID++ }},
		"another incarnation": {same, func(r *recording.Recording) { r.Target.StartTime = r.Target.StartTime.Add(1) }},
		"another window":      {same, func(r *recording.Recording) { r.Window.StartNS++ }},
		"the wrong order":     {same, func(r *recording.Recording) { r.Window.Duration-- }},
		"fewer calls":         {same, func(r *recording.Recording) { r.Calls[0].Count-- }},
		"less time":           {same, func(r *recording.Recording) { r.Calls[0].WallNS-- }},
		"another histogram":   {same, func(r *recording.Recording) { r.Calls[0].Hist = recording.Hist{} }},
		"a missing row":       {same, func(r *recording.Recording) { r.Calls = nil }},
		"fewer spans":         {same, func(r *recording.Recording) { r.Stages[0].Count-- }},
		"missing spans":       {same, func(r *recording.Recording) { r.Stages = nil }},
		"another thread":      {same, func(r *recording.Recording) { r.Threads[0].Serial = 7 }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if r, err := Since(change(test[0]), change(test[1])); !errors.Is(err, ErrNotSnapshots) || r != nil {
				t.Errorf("Since = %v, %v", r, err)
			}
		})
	}
	if _, err := Since(change(same), change(same)); err != nil {
		t.Errorf("equal snapshots: %v", err)
	}
}

// Whatever the Recordings hold, Since gives an error or something that can be
// built.
func TestSinceOfAnything(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		r := recordingtest.Random(rng)
		later := recordingtest.Random(rng)
		later.Target, later.Window = r.Target, r.Window
		for _, pair := range [][2]*recording.Recording{{r, r}, {r, later}} {
			if got, err := Since(pair[0], pair[1]); err == nil {
				Build(got)
			} else if !errors.Is(err, ErrNotSnapshots) {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}
