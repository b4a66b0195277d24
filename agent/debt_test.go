package agent_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// debtKey says who owes whom, by names. Owner is a stage path, "" outside any
// stage, or a kind of debt that is no stage's, in parentheses.
type debtKey struct{ Thread, Path, API, Owner string }

// debtCount is the part of a debt that does not depend on time.
type debtCount struct{ Waits, Operations uint64 }

func debtsOf(t *testing.T, r *recording.Recording) map[debtKey]debtCount {
	t.Helper()
	debts := map[debtKey]debtCount{}
	for _, d := range r.Debts {
		key := debtKey{
			Thread: r.Threads[d.Thread].Name, Path: strings.Join(r.Paths[d.Path].Names, "/"),
			API: r.Symbols[d.Symbol].API, Owner: strings.Join(r.Paths[d.Owner].Names, "/"),
		}
		if key.Thread == "puppet" { // the kernel's name for its first thread
			key.Thread = "main"
		}
		if d.Kind != recording.DebtStage {
			key.Owner = "(" + string(d.Kind) + ")"
		}
		if _, twice := debts[key]; twice {
			t.Errorf("two rows for %+v", key)
		}
		debts[key] = debtCount{d.Waits, d.Operations}
	}
	return debts
}

// waitingAPIs are those whose time is owed to somebody.
var waitingAPIs = map[string]bool{
	"cuStreamSynchronize": true, "cuEventSynchronize": true, "cuCtxSynchronize": true,
	"cuMemcpy": true, "cuMemcpyHtoD": true, "cuMemcpyDtoH": true, "cuMemcpyHtoA": true, "cuMemcpyAtoH": true,
	"cuMemcpy2D": true, "cuMemcpy2DUnaligned": true, "cuMemcpy3D": true,
}

// expectDebtsCoverWaits fails unless the debts of each thread, stage and
// function sum to what its waits took, to the nanosecond.
func expectDebtsCoverWaits(t *testing.T, r *recording.Recording) {
	t.Helper()
	type key struct{ thread, path, symbol int }
	waited, owed := map[key]uint64{}, map[key]uint64{}
	for _, c := range r.Calls {
		if waitingAPIs[r.Symbols[c.Symbol].API] {
			waited[key{c.Thread, c.Path, c.Symbol}] += c.WallNS
		}
	}
	for _, d := range r.Debts {
		owed[key{d.Thread, d.Path, d.Symbol}] += d.WallNS
	}
	if diff := cmp.Diff(waited, owed); diff != "" {
		t.Errorf("time of waits (-waited +owed):\n%s", diff)
	}
}

// debtTest is a play of a puppet and the debts that it makes. Orders before
// "record" are given before the recording.
type debtTest struct {
	name   string
	orders []string
	want   map[debtKey]debtCount
	beyond uint64 // operations of streams beyond those that one wait is told for
}

const (
	streamSync  = "cuStreamSynchronize"
	eventSync   = "cuEventSynchronize"
	contextSync = "cuCtxSynchronize"
)

// forward has three stages give work to a stream.
var forward = []string{
	"main begin forward", "main enqueue s 5", "main end",
	"main begin pack", "main enqueue s 2", "main end",
}

func play(parts ...[]string) (orders []string) {
	for _, part := range parts {
		orders = append(orders, part...)
	}
	return orders
}

// inStage wraps orders to one thread.
func inStage(thread, stage string, orders ...string) []string {
	all := []string{thread + " begin " + stage}
	for _, o := range orders {
		all = append(all, thread+" "+o)
	}
	return append(all, thread+" end")
}

var debtTests = []debtTest{
	{
		name:   "one stream, two stages, then nothing",
		orders: play(forward, inStage("main", "copy", "sync s", "sync s")),
		want: map[debtKey]debtCount{
			{"main", "copy", streamSync, "forward"}: {1, 5},
			{"main", "copy", streamSync, "pack"}:    {1, 2},
			{"main", "copy", streamSync, "(idle)"}:  {1, 0},
		},
	},
	{
		name: "outside any stage, and for itself",
		orders: play([]string{"main enqueue s 3"},
			inStage("main", "step", "enqueue s 4", "sync s"), []string{"main enqueue s 1", "main sync s"}),
		want: map[debtKey]debtCount{
			{"main", "step", streamSync, ""}:     {1, 3},
			{"main", "step", streamSync, "step"}: {1, 4},
			{"main", "", streamSync, ""}:         {1, 1},
		},
	},
	{
		name: "a stage that comes back is one owner",
		orders: play(inStage("main", "a", "enqueue s 1"), inStage("main", "b", "enqueue s 2"),
			inStage("main", "a", "enqueue s 4"), inStage("main", "wait", "sync s")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "a"}: {1, 5},
			{"main", "wait", streamSync, "b"}: {1, 2},
		},
	},
	{
		name: "two streams do not wait for each other",
		orders: play([]string{"main stream u"}, inStage("main", "a", "enqueue s 1"), inStage("main", "b", "enqueue u 2"),
			inStage("main", "wait", "sync s", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "a"}: {1, 1},
			{"main", "wait", streamSync, "b"}: {1, 2},
		},
	},
	{
		name: "an event waits for what was before it",
		orders: play(inStage("main", "before", "enqueue s 3", "record e s"), inStage("main", "after", "enqueue s 9"),
			inStage("main", "wait", "sync-event e", "sync-event e", "sync s")),
		want: map[debtKey]debtCount{
			{"main", "wait", eventSync, "before"}: {1, 3},
			{"main", "wait", eventSync, "(idle)"}: {1, 0},
			{"main", "wait", streamSync, "after"}: {1, 9},
		},
	},
	{
		name: "another thread waits",
		orders: play([]string{"main start post"}, inStage("main", "target", "enqueue s 6", "record e s"),
			inStage("post", "post_process", "sync-event e"), inStage("main", "own", "sync s")),
		want: map[debtKey]debtCount{
			{"post", "post_process", eventSync, "target"}: {1, 6},
			{"main", "own", streamSync, "(idle)"}:         {1, 0},
		},
	},
	{
		name: "streams that follow others",
		orders: play([]string{"main stream u", "main stream v", "main event f"},
			inStage("main", "a", "enqueue s 1", "record e s"), inStage("main", "late", "enqueue s 64"),
			inStage("main", "b", "follow u e", "enqueue u 2", "record f u"),
			inStage("main", "c", "follow v f", "follow v e", "enqueue v 4"),
			inStage("main", "wait", "sync v", "sync u", "sync s")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "a"}:      {1, 1}, // through two others, once
			{"main", "wait", streamSync, "b"}:      {1, 2},
			{"main", "wait", streamSync, "c"}:      {1, 4},
			{"main", "wait", streamSync, "(idle)"}: {1, 0}, // u
			{"main", "wait", streamSync, "late"}:   {1, 64},
		},
	},
	{
		name: "what is over is not followed",
		orders: play([]string{"main stream u"}, inStage("main", "a", "enqueue s 1", "record e s", "sync s"),
			inStage("main", "b", "follow u e", "enqueue u 2", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "a", streamSync, "a"}: {1, 1},
			{"main", "b", streamSync, "b"}: {1, 2},
		},
	},
	{
		name: "the whole context",
		orders: play([]string{"main stream u"}, inStage("main", "a", "enqueue s 1"), inStage("main", "b", "enqueue u 2"),
			inStage("main", "c", "enqueue null 3"), inStage("main", "wait", "sync-context", "sync-context", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "wait", contextSync, "a"}:      {1, 1},
			{"main", "wait", contextSync, "b"}:      {1, 2},
			{"main", "wait", contextSync, "c"}:      {1, 3},
			{"main", "wait", contextSync, "(idle)"}: {1, 0},
			{"main", "wait", streamSync, "(idle)"}:  {1, 0},
		},
	},
	{
		name: "a copy that waits is an operation of its own stage",
		orders: play(inStage("main", "a", "enqueue null 3"), inStage("main", "b", "enqueue s 9"),
			inStage("main", "copy", "copy 2")),
		want: map[debtKey]debtCount{
			{"main", "copy", "cuMemcpyDtoH", "a"}:    {1, 3},
			{"main", "copy", "cuMemcpyDtoH", "copy"}: {2, 2},
		},
	},
	{
		name: "each thread's own default stream",
		orders: play([]string{"main start other"}, inStage("main", "a", "enqueue own 1", "enqueue-own 1"),
			inStage("other", "b", "enqueue own 4"), inStage("main", "null", "enqueue null 8"),
			inStage("main", "wait", "sync-own"), inStage("other", "wait", "sync own"), inStage("main", "wait", "sync null")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "a"}:    {1, 2},
			{"other", "wait", streamSync, "b"}:   {1, 4},
			{"main", "wait", streamSync, "null"}: {1, 8},
		},
	},
	{
		name: "every function that gives work",
		orders: play(inStage("main", "launches", "enqueue s 1"), inStage("main", "every", "enqueue-every s"),
			inStage("main", "wait", "sync s")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "launches"}: {1, 1},
			{"main", "wait", streamSync, "every"}:    {1, 14},
		},
	},
	{
		name: "calls that fail give no work",
		orders: play(inStage("main", "a", "refuse s 5", "enqueue s 1"),
			inStage("main", "wait", "sync s")),
		want: map[debtKey]debtCount{{"main", "wait", streamSync, "a"}: {1, 1}},
	},
	{
		name: "questions tell what is over",
		orders: play([]string{"main stream u"}, inStage("main", "a", "enqueue s 1", "record e s", "follow u e", "enqueue u 1"),
			inStage("main", "ask", "ask u", "ask-event e"), inStage("main", "wait", "sync s", "sync u")),
		want: map[debtKey]debtCount{{"main", "wait", streamSync, "(idle)"}: {2, 0}},
	},
	{
		name: "an event that is over tells of what its stream followed",
		orders: play([]string{"main stream u", "main event f"},
			inStage("main", "a", "enqueue s 1", "record e s", "follow u e", "enqueue u 1", "record f u"),
			inStage("main", "ask", "ask-event f"), inStage("main", "wait", "sync s", "sync u")),
		want: map[debtKey]debtCount{{"main", "wait", streamSync, "(idle)"}: {2, 0}},
	},
	{
		name: "a stream's end",
		orders: play([]string{"main stream u", "main sync u"}, inStage("main", "a", "enqueue u 3", "destroy u"),
			[]string{"main stream-again u"}, inStage("main", "b", "enqueue u 1"), inStage("main", "wait", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "", streamSync, "(unseen)"}: {1, 0},
			{"main", "wait", streamSync, "b"}:    {1, 1},
		},
	},
	{
		name: "what was there before",
		orders: []string{"main begin old", "main enqueue s 7", "main record e s", "main end", "record",
			"main begin wait", "main sync-event e", "main sync s", "main sync s", "main end"},
		want: map[debtKey]debtCount{
			{"main", "wait", eventSync, "(unseen)"}:  {1, 0},
			{"main", "wait", streamSync, "(unseen)"}: {1, 0},
			{"main", "wait", streamSync, "(idle)"}:   {1, 0},
		},
	},
	{
		name: "work that goes into a graph",
		orders: play([]string{"main stream u"}, inStage("main", "a", "enqueue s 1"), inStage("main", "graph", "capture s",
			"enqueue s 10", "record e s", "follow u e", "enqueue u 20", "record e u", "follow s e", "end-capture s"),
			inStage("main", "b", "enqueue s 2", "enqueue u 4"), inStage("main", "wait", "sync s", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "a"}: {1, 1},
			{"main", "wait", streamSync, "b"}: {2, 6},
		},
	},
	{
		name: "two devices",
		orders: play([]string{"main start other", "other device 1", "other stream u"},
			inStage("main", "zero", "enqueue null 1", "enqueue s 2"), inStage("other", "one", "enqueue null 4", "enqueue u 8"),
			inStage("main", "wait", "sync null", "sync-context"), inStage("other", "wait", "sync-context", "sync u"),
			[]string{"main push-device 1"}, inStage("main", "pushed", "enqueue null 16"), []string{"main pop-device"},
			inStage("main", "popped", "sync-context"), inStage("other", "last", "sync null")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "zero"}:      {1, 1},
			{"main", "wait", contextSync, "zero"}:     {1, 2},
			{"other", "wait", contextSync, "one"}:     {1, 12},
			{"other", "wait", streamSync, "(idle)"}:   {1, 0},
			{"main", "popped", contextSync, "(idle)"}: {1, 0},
			{"other", "last", streamSync, "pushed"}:   {1, 16},
		},
	},
	{
		name: "of a thread that has ended",
		orders: play([]string{"main start v"}, inStage("v", "work", "enqueue-own 3"), []string{"v exit"},
			inStage("main", "wait", "sync-context", "sync-context")),
		want: map[debtKey]debtCount{
			{"main", "wait", contextSync, "work"}:   {1, 3},
			{"main", "wait", contextSync, "(idle)"}: {1, 0},
		},
	},
	passing("streams", "main passing-streams 3000"),
	passing("threads", "main passing-threads 1100"),
	manyTurns(),
	manyOwners(),
	manyStreams(),
}

// passing has more streams than there are numbers for, but not at a time. One
// that was there before keeps its number, and its handle may stand for another one.
func passing(what, order string) debtTest {
	return debtTest{
		name: "passing " + what,
		orders: play(inStage("main", "before", "enqueue s 5"), []string{order, "main stream u", "main destroy u", "main stream-again u"},
			inStage("main", "work", "enqueue s 7", "enqueue u 11"), inStage("main", "wait", "sync s", "sync u", "sync u")),
		want: map[debtKey]debtCount{
			{"main", "wait", streamSync, "before"}: {1, 5},
			{"main", "wait", streamSync, "work"}:   {2, 7 + 11},
			{"main", "wait", streamSync, "(idle)"}: {1, 0},
		},
	}
}

// manyTurns has two stages take turns more often than a stream's log has room.
func manyTurns() debtTest {
	test := debtTest{name: "more turns than are remembered", want: map[debtKey]debtCount{
		{"main", "wait", streamSync, "(forgotten)"}: {1, 8 * 3},
		{"main", "wait", streamSync, "a"}:           {1, 16},
		{"main", "wait", streamSync, "b"}:           {1, 32},
	}}
	for range 8 + 16 {
		test.orders = append(test.orders, inStage("main", "a", "enqueue s 1")...)
		test.orders = append(test.orders, inStage("main", "b", "enqueue s 2")...)
	}
	test.orders = append(test.orders, inStage("main", "wait", "sync s")...)
	return test
}

// manyOwners has more stages give work than a wait is told apart for; the last
// ones are.
func manyOwners() debtTest {
	test := debtTest{name: "more stages than are told apart", want: map[debtKey]debtCount{
		{"main", "wait", streamSync, "(forgotten)"}: {1, 4},
	}}
	for i := range 20 {
		stage := fmt.Sprintf("stage-%02d", i)
		test.orders = append(test.orders, inStage("main", stage, "enqueue s 1")...)
		if i >= 4 {
			test.want[debtKey{"main", "wait", streamSync, stage}] = debtCount{1, 1}
		}
	}
	test.orders = append(test.orders, inStage("main", "wait", "sync s")...)
	return test
}

// manyStreams has more streams at work than one wait can be for.
func manyStreams() debtTest {
	test := debtTest{name: "more streams than are waited for", beyond: 3, want: map[debtKey]debtCount{
		{"main", "wait", contextSync, "work"}:        {1, 64},
		{"main", "wait", contextSync, "(forgotten)"}: {1, 3},
	}}
	test.orders = append(test.orders, "main begin work")
	for i := range 64 + 3 {
		test.orders = append(test.orders, fmt.Sprintf("main stream s%d", i), fmt.Sprintf("main enqueue s%d 1", i))
	}
	test.orders = append(test.orders, "main end")
	test.orders = append(test.orders, inStage("main", "wait", "sync-context")...)
	return test
}

func TestSyncDebt(t *testing.T) {
	for _, test := range debtTests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("SIMCUDA_DEVICES", "2")
			p := startPuppet(t)
			p.order("main stream s", "main event e")
			r, orders := playBefore(t, p, test.orders, agent.Config{PID: p.PID, Probes: "default"})
			p.order(orders...)
			got := r.interrupt()
			p.end()
			if diff := cmp.Diff(test.want, debtsOf(t, got)); diff != "" {
				t.Errorf("debts (-want +got):\n%s", diff)
			}
			expectDebtsCoverWaits(t, got)
			expectNoLosses(t, got)
		})
	}
}

// playBefore gives the orders before "record", if there are any, starts the
// recording and returns the other orders.
func playBefore(t *testing.T, p *puppet, orders []string, config agent.Config) (*run, []string) {
	t.Helper()
	for i, o := range orders {
		if o == "record" {
			p.order(orders[:i]...)
			orders = orders[i+1:]
			break
		}
	}
	return record(t, config), orders
}

// What finds no room is counted, and the rest is right.
func TestSyncDebtLosses(t *testing.T) {
	tests := []struct {
		name   string
		orders []string
		want   map[string]uint64
	}{
		// … and one for the null stream that is waited for.
		{"streams", []string{"main many-streams 1030"}, map[string]uint64{"debt_streams_full": 6 + 1}},
		{"events", []string{"main many-events 16390"}, map[string]uint64{"debt_events_full": 6}},
		// … and the one that was current before.
		{"contexts", []string{"main many-contexts 260"}, map[string]uint64{"debt_contexts_full": 5 + 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppet(t)
			r := record(t, agent.Config{PID: p.PID, Probes: "default"})
			p.order(test.orders...)
			p.order("main sync null")
			got := r.interrupt()
			p.end()
			if diff := cmp.Diff(test.want, losses(got)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			expectAccounted(t, got)
			expectDebtsCoverWaits(t, got)
		})
	}
}

// The same for tables that a test fills itself.
func TestSyncDebtWithoutRoom(t *testing.T) {
	tests := []struct {
		name string
		fill func(*live) (func() error, error)
		want map[string]uint64
		owed map[debtKey]debtCount
	}{
		{"debts", (*live).FillDebts, map[string]uint64{"debt_rows_full": 2}, map[debtKey]debtCount{}},
		// Whose work a wait was for does not depend on the wait's own row.
		{"calls", (*live).FillCalls, map[string]uint64{"rows_full": 3 + 2}, map[debtKey]debtCount{
			{"main", "wait", streamSync, "work"}:   {1, 3},
			{"main", "wait", streamSync, "(idle)"}: {1, 0},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppet(t)
			l := openLive(t, p.PID)
			empty, err := test.fill(l)
			if err != nil {
				t.Fatal(err)
			}
			p.order(inStage("main", "work", "enqueue null 3")...)
			p.order(inStage("main", "wait", "sync null", "sync null")...)
			if err := empty(); err != nil {
				t.Fatal(err)
			}
			p.end()
			got := l.finish(func(*recording.Recording) {})
			expectAccounted(t, got)
			if diff := cmp.Diff(test.want, losses(got)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.owed, debtsOf(t, got)); diff != "" {
				t.Errorf("debts (-want +got):\n%s", diff)
			}
		})
	}
}

// A wait whose memory is gone when it ends is counted.
func TestSyncDebtWithoutMemory(t *testing.T) {
	p := startPuppet(t)
	l := openLive(t, p.PID)
	file := filepath.Join(t.TempDir(), "go")
	p.tell("main sync-pause " + file)
	p.WaitLine("inside")
	if err := l.ForgetWait(p.PID); err != nil {
		t.Fatal(err)
	}
	touch(t, file)
	p.end()
	got := l.finish(func(*recording.Recording) {})
	expectAccounted(t, got)
	if n := losses(got)["debt_no_thread_state"]; n != 1 || len(got.Debts) != 0 {
		t.Errorf("losses %v, debts %+v", losses(got), got.Debts)
	}
}

func TestWithoutSyncDebt(t *testing.T) {
	p := startPuppet(t)
	r := record(t, agent.Config{PID: p.PID, NoSyncDebt: true})
	p.order("main stream s", "main enqueue s 3", "main sync s")
	got := r.interrupt()
	expectEqual(t, got, p.end().Counts())
	if got.Debts != nil {
		t.Errorf("debts: %+v", got.Debts)
	}
}

// The rule, to the nanosecond, and how far it is from the truth when one stage's
// operations take longer than another's: the simulated driver's kernels take
// what they are told to.
func TestSyncDebtIsAnEstimate(t *testing.T) {
	tests := []struct {
		name         string
		few, fewNS   uint64
		many, manyNS uint64
		wantEven     bool
	}{
		{"kernels alike", 20, 500_000, 60, 500_000, true},
		{"few long, many short", 10, 2_000_000, 100, 100_000, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main stream s")
			r := record(t, agent.Config{PID: p.PID})
			p.order(play(
				inStage("main", "few", fmt.Sprint("kernel-ns ", test.fewNS), fmt.Sprint("enqueue s ", test.few)),
				inStage("main", "many", fmt.Sprint("kernel-ns ", test.manyNS), fmt.Sprint("enqueue s ", test.many)),
				inStage("main", "wait", "sync s"))...)
			got := r.interrupt()
			p.end()
			expectDebtsCoverWaits(t, got)

			owed := map[string]uint64{}
			var wait uint64
			for _, d := range got.Debts {
				owed[got.Paths[d.Owner].Names[0]] += d.WallNS
				wait += d.WallNS
			}
			// Latest first; rounding is for the earlier ones.
			many := wait / (test.few + test.many) * test.many
			many += wait % (test.few + test.many) * test.many / (test.few + test.many)
			if diff := cmp.Diff(map[string]uint64{"few": wait - many, "many": many}, owed); diff != "" {
				t.Errorf("a wait of %d ns (-want +got):\n%s", wait, diff)
			}
			truth := float64(test.few*test.fewNS) / float64(test.few*test.fewNS+test.many*test.manyNS)
			estimate := float64(owed["few"]) / float64(wait)
			t.Logf("owed to \"few\": estimate %.1f %%, truth %.1f %%", 100*estimate, 100*truth)
			rounded := 1 / float64(wait) // of a wait that is short, because the device is done when it begins
			if even := math.Abs(estimate-truth) < 0.001+rounded; even != test.wantEven {
				t.Errorf("the estimate %v is the truth %v: %t, want %t", estimate, truth, even, test.wantEven)
			}
		})
	}
}

// In the training pipeline, every operation of a target's stages is waited for
// once: by its own wait for the copy, or by the post-process thread's.
func TestPipelineSyncDebt(t *testing.T) {
	waits := map[string]string{"sync": "copy_to_cpu", "async": "post_process"}
	for copies, waiting := range waits {
		t.Run(copies, func(t *testing.T) {
			truth, ready := filepath.Join(t.TempDir(), "truth.json"), filepath.Join(t.TempDir(), "ready")
			p := simtest.Start(t, simtest.Command{Path: "python3", Dir: simtest.Root(t), Args: []string{
				"sim/pipeline.py", "--copy", copies, "--iterations", "50", "--truth-json", truth, "--ready-file", ready,
			}})
			p.WaitLine("ready")
			r := record(t, agent.Config{PID: p.PID, Probes: "default"})
			if err := os.WriteFile(ready, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			got := r.finish()
			p.Wait()
			expectNoLosses(t, got)
			expectDebtsCoverWaits(t, got)

			owed, given := operationsOwed(got, waiting), operationsGiven(simtest.ReadTruth(t, truth))
			given["pack_hidden"] -= operationsOwed(got, "pack_hidden")["pack_hidden"] // the side stream's
			for _, owner := range []string{"target_forward", "pack_hidden", "copy_to_cpu"} {
				if owed[owner] != given[owner] || given[owner] == 0 {
					t.Errorf("%s owes %d operations to %s, and has given the driver %d", owner, owed[owner], waiting, given[owner])
				}
			}
		})
	}
}

// operationsOwed sums, by owner, the operations that a stage waited for.
func operationsOwed(r *recording.Recording, waiting string) map[string]uint64 {
	owed := map[string]uint64{}
	for _, d := range r.Debts {
		if d.Kind == recording.DebtStage && strings.Join(r.Paths[d.Path].Names, "/") == waiting {
			owed[strings.Join(r.Paths[d.Owner].Names, "/")] += d.Operations
		}
	}
	return owed
}

// enqueuing matches the spellings with which the pipelines give work to streams.
var enqueuing = regexp.MustCompile(`^cu(Launch|Memcpy.*Async|Memset.*Async)`)

// operationsGiven sums, by stage, the operations that the driver was given.
func operationsGiven(truth simtest.Truth) map[string]uint64 {
	given := map[string]uint64{}
	for _, row := range truth.Rows {
		if enqueuing.MatchString(row.Symbol) {
			given[row.Tag] += row.Calls - row.Errors
		}
	}
	return given
}
