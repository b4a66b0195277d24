package correlate_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// debtsRecording has the same debt on two incarnations of a thread and in two
// copies of the driver, which is one row for a reader.
func debtsRecording() *recording.Recording {
	b := recordingtest.New()
	second := b.Module("/other/libcuda.so.1", "dd", 0x7e0000000000)
	thread, again := b.Thread(1, "target"), b.Thread(1, "target")
	stream, copied := b.Symbol("cuStreamSynchronize"), b.SymbolIn(second, "cuStreamSynchronize", 0)
	b.Call(thread, "copy", stream, 3, 10, 0)
	b.Call(again, "copy", copied, 1, 12, 0)
	b.Call(thread, "copy", b.Symbol("cuLaunchKernel"), 50, 1, 1)
	b.Debt(thread, "copy", stream, "forward", 3, 24, 8)
	b.Debt(again, "copy", copied, "forward", 1, 12, 4)
	b.Debt(thread, "copy", stream, "pack", 2, 4, 2)
	b.Debt(thread, "copy", stream, "pack", 1, 2, 0).Kind = recording.DebtIdle
	b.Call(thread, "", stream, 1, 5, 0)
	b.Debt(thread, "", stream, "", 1, 5, 1)
	return b.Recording()
}

func owner(joined string) correlate.Owner {
	return correlate.Owner{Kind: recording.DebtStage, Path: correlate.Path{Joined: joined, Names: []string{joined}}}
}

func TestDebts(t *testing.T) {
	l := correlate.Build(debtsRecording())
	copying := correlate.Path{Joined: "copy", Names: []string{"copy"}}
	outside := correlate.Owner{Kind: recording.DebtStage}
	idle := correlate.Owner{Kind: recording.DebtIdle}
	debt := func(path correlate.Path, o correlate.Owner, waits, wall, operations uint64) correlate.Debt {
		return correlate.Debt{
			Path: path, Symbol: "cuStreamSynchronize", API: "cuStreamSynchronize", Owner: o,
			DebtTotal: correlate.DebtTotal{Waits: waits, WallNS: wall, Operations: operations},
		}
	}
	want := []correlate.Debt{
		debt(correlate.Path{}, outside, 1, 5, 1),
		debt(copying, owner("forward"), 4, 36, 12),
		debt(copying, owner("pack"), 2, 4, 2),
		debt(copying, idle, 1, 2, 0),
	}
	if diff := cmp.Diff(want, l.Debts); diff != "" {
		t.Errorf("debts (-want +got):\n%s", diff)
	}
	matrix := []correlate.WaitingStage{
		{Path: copying, Waits: 4, WallNS: 42, Owners: []correlate.OwnerTotal{
			{owner("forward"), want[1].DebtTotal}, {owner("pack"), want[2].DebtTotal}, {idle, want[3].DebtTotal},
		}},
		{Waits: 1, WallNS: 5, Owners: []correlate.OwnerTotal{{outside, want[0].DebtTotal}}},
	}
	if diff := cmp.Diff(matrix, l.Waiting); diff != "" {
		t.Errorf("matrix (-want +got):\n%s", diff)
	}
}

// A debt that can't be true is left out like the calls that it would belong to.
func TestDebtsLongerThanTheRecording(t *testing.T) {
	b := recordingtest.New()
	thread, stream := b.Thread(1, "target"), b.Symbol("cuStreamSynchronize")
	b.Debt(thread, "copy", stream, "forward", 1, time.Hour, 8)
	if l := correlate.Build(b.Recording()); len(l.Debts) != 0 || len(l.Waiting) != 0 {
		t.Errorf("debts %+v, matrix %+v", l.Debts, l.Waiting)
	}
}

// Whatever the Recording holds, the matrix says the same as the rows.
func TestDebtsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for range 300 {
		l := correlate.Build(recordingtest.Random(rng))
		var rows, owners, stages uint64
		saturated := false // the sum of an owner's rows would have wrapped
		for _, d := range l.Debts {
			rows += d.Operations / 8 // no sum of a few of them wraps
		}
		for _, w := range l.Waiting {
			var wall uint64
			for _, o := range w.Owners {
				owners += o.Operations / 8
				saturated = saturated || o.Operations == math.MaxUint64
				wall = max(wall, o.WallNS)
			}
			if w.WallNS < wall {
				t.Fatalf("%q waited %d ns, and owes one stage %d", w.Path.Joined, w.WallNS, wall)
			}
			stages++
		}
		if len(l.Debts) > 0 && stages == 0 || !saturated && owners < rows && rows-owners > uint64(len(l.Debts)) {
			t.Fatalf("rows of %d operations, owners of %d", rows, owners)
		}
	}
}

// The debts of an interval are the difference of two snapshots', whatever IDs
// these use, also when a thread has ended long ago since the first one.
func TestDebtsSince(t *testing.T) {
	snapshot := func(folded bool, waits uint64, owners ...string) *recording.Recording {
		b := recordingtest.New()
		r := b.Recording()
		r.Window.Duration, r.Window.End = time.Duration(waits)*time.Second, recording.EndOpen
		thread := b.Thread(1, "target")
		r.Threads[thread].Serial, r.Threads[thread].Folded = 7, folded
		for _, owner := range owners {
			b.Debt(thread, "copy", b.Symbol("cuStreamSynchronize"), owner, waits, time.Duration(10*waits), 3*waits)
		}
		return r
	}
	for _, folded := range []bool{false, true} {
		earlier, later := snapshot(false, 2, "forward"), snapshot(folded, 5, "pack", "forward")
		got, err := correlate.Since(earlier, later)
		if err != nil {
			t.Fatal(err)
		}
		owed := map[string]correlate.DebtTotal{}
		for _, d := range correlate.Build(got).Debts {
			owed[d.Owner.Path.Joined] = d.DebtTotal
		}
		want := map[string]correlate.DebtTotal{
			"forward": {Waits: 3, WallNS: 30, Operations: 9},
			"pack":    {Waits: 5, WallNS: 50, Operations: 15},
		}
		if diff := cmp.Diff(want, owed); diff != "" {
			t.Errorf("folded %t (-want +got):\n%s", folded, diff)
		}
		if _, err := correlate.Since(later, snapshot(folded, 9, "pack")); !errors.Is(err, correlate.ErrNotSnapshots) {
			t.Errorf("a debt that is gone: %v", err)
		}
	}
}
