package timeline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
	"stageprof/timeline"
)

const start = 1_800_000_000_000 // of recordingtest's window

// example is two threads that share a stream: the first one gives it work in two
// stages, the second one waits with the GIL held.
func example() *recording.Recording {
	b := recordingtest.New()
	target, post := b.Thread(4250, "target-0"), b.Thread(4251, "post")
	launch, sync, query := b.Symbol("cuLaunchKernel"), b.Symbol("cuStreamSynchronize"), b.Symbol("cuStreamQuery")
	step, forward, wait, epoch := b.Path("step"), b.Path("step/forward"), b.Path("wait"), b.Path("epoch")
	outside := b.Path("")
	r := b.Recording()
	r.Spans = []recording.Span{
		{Thread: target, Path: forward, BeginNS: start + 10, WallNS: 90, CPUNS: 80, Parts: recording.Parts{RunningNS: 30, CUDACPUNS: 50, GILWaitNS: 10}},
		{Thread: target, Path: step, BeginNS: start, WallNS: 100, ChildNS: 90, Parts: recording.Parts{RunningNS: 10}, Partial: true},
		{Thread: post, Path: wait, BeginNS: start + 20, WallNS: 900},
	}
	call := func(thread, path, symbol int, begin, wall uint64) recording.CallEvent {
		return recording.CallEvent{
			Thread: thread, Path: path, Symbol: symbol, GIL: recording.GILFree, Attribution: recording.AttributionOwn,
			BeginNS: start + begin, WallNS: wall, CPUNS: wall,
		}
	}
	gives := func(e recording.CallEvent, operation uint64) recording.CallEvent {
		e.Stream, e.Operation = 3, operation
		return e
	}
	held := call(post, wait, sync, 30, 500)
	held.GIL, held.CPUNS, held.Stream = recording.GILHeld, 20, 3
	failed := call(post, outside, query, 950, 5)
	failed.Result, failed.Attribution, failed.GIL = 600, recording.AttributionNone, recording.GILNone
	cut := call(target, outside, sync, 980, 20)
	cut.Partial, cut.Attribution, cut.GIL = true, recording.AttributionNone, recording.GILUnknown
	r.Timeline = &recording.Timeline{
		StartNS: start,
		Calls: []recording.CallEvent{
			gives(call(target, step, launch, 5, 4), 8), gives(call(target, forward, launch, 12, 6), 9),
			gives(call(target, forward, launch, 20, 6), 10), gives(call(target, forward, launch, 60, 6), 11),
			held, call(post, wait, sync, 600, 5), failed, cut,
		},
		Off: []recording.OffEvent{
			{Thread: target, State: recording.OffGILWait, BeginNS: start + 70, WallNS: 10},
			{Thread: target, State: recording.OffRunnable, BeginNS: start + 80, WallNS: 5},
			{Thread: post, State: recording.OffBlockedFutex, BeginNS: start + 50, WallNS: 470, InCall: true, Partial: true},
		},
		Waits: []recording.WaitEvent{
			{Thread: post, BeginNS: start + 30, Stream: 3, From: 8, Until: 10},
			{Thread: post, BeginNS: start + 600, Stream: 3, From: 8, Until: 10}, // for what is over already
			{Thread: post, BeginNS: start + 600, Stream: 4, From: 0, Until: 9},  // nobody has given it anything
			{Thread: target, BeginNS: start + 980, Stream: 3, From: 8, Until: 11},
		},
		Spans: []recording.Span{{Thread: -1, Path: epoch, BeginNS: start, WallNS: 1000, Partial: true}},
	}
	return r
}

func perfetto(t *testing.T, r *recording.Recording) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := timeline.Perfetto(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPerfetto(t *testing.T) {
	step, forward, wait := "step", "step/forward", "wait"
	free, own := []string{"cuda", "gil free"}, "own"
	call := func(thread int64, name, stage string, begin, wall uint64, more ...string) shown {
		s := shown{
			Thread: thread, Track: "calls", Name: name, Categories: free, Begin: start + begin, End: start + begin + wall,
			Args: map[string]string{"cpu_ns": fmt.Sprint(wall)},
		}
		if stage != "" {
			s.Args["stage_path"], s.Args["attribution"] = stage, own
		}
		for i := 0; i < len(more); i += 2 {
			s.Args[more[i]] = more[i+1]
		}
		return s
	}
	span := func(thread int64, name, path string, depth int, begin, wall uint64, more ...string) shown {
		s := call(thread, name, "", begin, wall, more...)
		s.Track, s.Categories, s.Depth = "stages", []string{"stage"}, depth
		s.Args["stage_path"] = path
		if s.Args["cpu_ns"] == fmt.Sprint(wall) {
			delete(s.Args, "cpu_ns")
		}
		return s
	}
	off := func(thread int64, name string, begin, wall uint64, categories ...string) shown {
		return shown{
			Thread: thread, Track: "off the CPU", Name: name, Categories: append([]string{"off the CPU"}, categories...),
			Begin: start + begin, End: start + begin + wall, Args: map[string]string{},
		}
	}
	want := []shown{
		span(0, "epoch", "epoch", 0, 0, 1000, "partial", "yes"),
		span(4250, "step", step, 0, 0, 100, "partial", "yes", "running_ns", "10", "children_ns", "90"),
		span(4250, "forward", forward, 1, 10, 90, "cpu_ns", "80", "running_ns", "30", "cuda_cpu_ns", "50", "gil_wait_ns", "10"),
		call(4250, "cuLaunchKernel", step, 5, 4, "stream", "3"),
		call(4250, "cuLaunchKernel", forward, 12, 6, "stream", "3"),
		call(4250, "cuLaunchKernel", forward, 20, 6, "stream", "3"),
		call(4250, "cuLaunchKernel", forward, 60, 6, "stream", "3"),
		call(4250, "cuStreamSynchronize", "", 980, 20, "partial", "yes"),
		off(4250, "gil wait", 70, 10),
		off(4250, "runnable", 80, 5),
		span(4251, "wait", wait, 0, 20, 900),
		call(4251, "cuStreamSynchronize (gil held)", wait, 30, 500, "cpu_ns", "20", "stream", "3"),
		call(4251, "cuStreamSynchronize", wait, 600, 5),
		call(4251, "cuStreamQuery", "", 950, 5, "result", "600"),
		off(4251, "blocked: futex", 50, 470, "in a call"),
	}
	want[4].To, want[5].To = []uint64{2}, []uint64{3} // operation 8 was over, 11 is waited for by a call that is cut
	want[7].Categories = []string{"cuda", "gil unknown"}
	want[11].Categories, want[11].From = []string{"cuda", "gil held"}, []uint64{2, 3}
	want[13].Categories = []string{"cuda"}
	want[14].Args["partial"] = "yes"
	if diff := cmp.Diff(want, view(t, perfetto(t, example())), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

// Chrome's trace says the same as Perfetto's.
func TestChrome(t *testing.T) {
	r := example()
	var b bytes.Buffer
	if err := timeline.Chrome(&b, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		DisplayTimeUnit string
		TraceEvents     []struct {
			Ph, Name, Cat string
			PID, TID      int
			Ts, Dur       json.Number
			ID            uint64
			Cname         string
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	threads, flows := map[int]string{}, map[uint64]string{}
	var lines []string
	for _, e := range got.TraceEvents {
		if e.PID != 4242 {
			t.Errorf("process %d", e.PID)
		}
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				threads[e.TID] = e.Args["name"].(string)
			}
		case "X":
			lines = append(lines, fmt.Sprintf("%s | %s | %s +%s %s", threads[e.TID], e.Name, e.Ts, e.Dur, e.Cname))
		case "s", "f":
			flows[e.ID] += fmt.Sprintf("%s %s at %s; ", e.Ph, threads[e.TID], e.Ts)
		default:
			t.Errorf("phase %q", e.Ph)
		}
	}
	want := []string{
		"process: stages | epoch | 0.000 +1.000 ",
		"target-0 4250: stages | step | 0.000 +0.100 ",
		"target-0 4250: stages | forward | 0.010 +0.090 ",
		"target-0 4250: calls | cuLaunchKernel | 0.005 +0.004 ",
		"target-0 4250: calls | cuLaunchKernel | 0.012 +0.006 ",
		"target-0 4250: calls | cuLaunchKernel | 0.020 +0.006 ",
		"target-0 4250: calls | cuLaunchKernel | 0.060 +0.006 ",
		"target-0 4250: calls | cuStreamSynchronize | 0.980 +0.020 ",
		"target-0 4250: off the CPU | gil wait | 0.070 +0.010 terrible",
		"target-0 4250: off the CPU | runnable | 0.080 +0.005 ",
		"post 4251: stages | wait | 0.020 +0.900 ",
		"post 4251: calls | cuStreamSynchronize (gil held) | 0.030 +0.500 terrible",
		"post 4251: calls | cuStreamSynchronize | 0.600 +0.005 ",
		"post 4251: calls | cuStreamQuery | 0.950 +0.005 ",
		"post 4251: off the CPU | blocked: futex | 0.050 +0.470 ",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	wantFlows := map[uint64]string{
		2: "s target-0 4250: calls at 0.012; f post 4251: calls at 0.030; ",
		3: "s target-0 4250: calls at 0.020; f post 4251: calls at 0.030; ",
	}
	if diff := cmp.Diff(wantFlows, flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
}

// What ended before the timeline begins is left out; what reaches into it is whole.
func TestTimelineBegins(t *testing.T) {
	r := example()
	r.Timeline.StartNS = start + 100
	r.Spans = append(r.Spans, recording.Span{Thread: 0, Path: 0, BeginNS: start + 2, WallNS: 3})
	var names []string
	for _, s := range view(t, perfetto(t, r)) {
		if s.Track == "stages" {
			names = append(names, s.Name)
		}
	}
	if want := []string{"epoch", "step", "forward", "wait"}; !slices.Equal(names, want) {
		t.Errorf("stages %q, want %q", names, want)
	}
}

// Whatever a file holds, viewers can read the trace, and nothing is missing in it.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		r := recordingtest.Random(rng)
		trace := perfetto(t, r)
		want := len(r.Timeline.Calls) + len(r.Timeline.Off)
		for _, s := range slices.Concat(r.Spans, r.Timeline.Spans) {
			if end := s.BeginNS + s.WallNS; end >= r.Timeline.StartNS || end < s.BeginNS {
				want++
			}
		}
		got := view(t, trace)
		if len(got) != want {
			t.Fatalf("%d slices, want %d", len(got), want)
		}
		to, from := map[uint64]int{}, map[uint64]int{}
		for _, s := range got {
			for _, id := range s.To {
				to[id]++
			}
			for _, id := range s.From {
				from[id]++
			}
		}
		if diff := cmp.Diff(to, from); diff != "" {
			t.Fatalf("flows begin and end (-begin +end):\n%s", diff)
		}
		if !bytes.Equal(trace, perfetto(t, r)) {
			t.Fatal("the same recording gives another trace")
		}
		var b bytes.Buffer
		if err := timeline.Chrome(&b, r); err != nil || !json.Valid(b.Bytes()) {
			t.Fatalf("Chrome: %v, valid: %v", err, json.Valid(b.Bytes()))
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("no space left")

func TestErrors(t *testing.T) {
	none := example()
	none.Timeline = nil
	many := example()
	for range 1000 {
		many.Timeline.Calls = append(many.Timeline.Calls, many.Timeline.Calls[0])
	}
	for name, write := range map[string]func(io.Writer, *recording.Recording) error{"Perfetto": timeline.Perfetto, "Chrome": timeline.Chrome} {
		var b bytes.Buffer
		if err := write(&b, none); !errors.Is(err, timeline.ErrNone) || b.Len() > 0 {
			t.Errorf("%s of none: %v, %d bytes", name, err, b.Len())
		}
		for _, r := range []*recording.Recording{example(), many} {
			if err := write(brokenWriter{}, r); !errors.Is(err, errBroken) {
				t.Errorf("%s to a broken writer: %v", name, err)
			}
		}
	}
}
