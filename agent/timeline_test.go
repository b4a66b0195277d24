package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// eventCounts sums a timeline's calls that have returned as counts does with the rows.
func eventCounts(r *recording.Recording) simtest.Counts {
	c := simtest.Counts{}
	for _, e := range r.Timeline.Calls {
		if e.Partial {
			continue
		}
		one := simtest.Count{Calls: 1, Bytes: e.Bytes}
		if e.Result != 0 {
			one.Errors, one.Bytes = 1, 0
		}
		c.Add(simtest.Key{
			TID: r.Threads[e.Thread].TID, Tag: strings.Join(r.Paths[e.Path].Names, "/"), Symbol: r.Symbols[e.Symbol].Name,
		}, one)
	}
	return c
}

// expectEventsAccounted fails unless every call in the rows is in the timeline,
// earlier, or lost to it.
func expectEventsAccounted(t *testing.T, r *recording.Recording) {
	t.Helper()
	events := eventCounts(r).Total().Calls
	lost := losses(r)["timeline_calls_full"]
	if calls := counts(r).Total().Calls; events+r.Timeline.Earlier+lost != calls {
		t.Errorf("%d events + %d earlier + %d lost, but %d calls", events, r.Timeline.Earlier, lost, calls)
	}
}

// expectEventsSumToRows fails unless the events of each row add up to it: number,
// errors, bytes and time.
func expectEventsSumToRows(t *testing.T, r *recording.Recording) {
	t.Helper()
	type key struct {
		thread, path, symbol int
		gil                  recording.GIL
		attribution          recording.Attribution
	}
	type sum struct{ count, errors, wall, cpu, bytes uint64 }
	want, got := map[key]sum{}, map[key]sum{}
	for _, c := range r.Calls {
		k := key{c.Thread, c.Path, c.Symbol, c.GIL, c.Attribution}
		s := want[k]
		want[k] = sum{s.count + c.Count, s.errors + c.Errors, s.wall + c.WallNS, s.cpu + c.CPUNS, s.bytes + c.Bytes}
	}
	for _, e := range r.Timeline.Calls {
		if e.Partial {
			continue
		}
		k := key{e.Thread, e.Path, e.Symbol, e.GIL, e.Attribution}
		s := got[k]
		s.count, s.wall, s.cpu = s.count+1, s.wall+e.WallNS, s.cpu+e.CPUNS
		if e.Result == 0 {
			s.bytes += e.Bytes
		} else {
			s.errors++
		}
		got[k] = s
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{}, sum{})); diff != "" {
		t.Errorf("rows and the sums of their events (-rows +events):\n%s", diff)
	}
}

// expectOffSumsToParts fails unless each thread's times off the CPU sum to the
// parts of its stages, to the nanosecond. Which of two parts a thread was in when
// one of our programs was interrupted, only the ledger says.
func expectOffSumsToParts(t *testing.T, r *recording.Recording) {
	t.Helper()
	want, got := map[int]recording.Parts{}, map[int]recording.Parts{}
	for _, s := range r.Stages {
		if s.Thread >= 0 {
			p := s.Parts.Plus(s.PartialParts)
			p.RunningNS, p.CUDACPUNS = 0, 0
			p.RunnableNS, p.CUDABlockedNS = p.RunnableNS+p.CUDABlockedNS, 0
			want[s.Thread] = want[s.Thread].Plus(p)
		}
	}
	for thread, p := range want {
		if p == (recording.Parts{}) {
			delete(want, thread)
		}
	}
	for _, e := range r.Timeline.Off {
		p := got[e.Thread]
		to := map[recording.OffState]*uint64{
			recording.OffGILWait: &p.GILWaitNS, recording.OffRunnable: &p.RunnableNS,
			recording.OffBlockedFutex: &p.BlockedFutexNS, recording.OffBlockedPoll: &p.BlockedPollNS,
			recording.OffBlockedRead: &p.BlockedReadNS, recording.OffBlockedSleep: &p.BlockedSleepNS,
			recording.OffBlockedFault: &p.BlockedFaultNS, recording.OffBlockedOther: &p.BlockedOtherNS,
		}[e.State]
		if e.InCall {
			to = &p.RunnableNS
		}
		*to += e.WallNS
		got[e.Thread] = p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts of the threads' time off the CPU, CUDA BLKD as runnable (-ledger +events):\n%s", diff)
	}
}

// At full speed every call is an event, or a loss that is counted.
func TestTimelineEqualsTruth(t *testing.T) {
	for _, threads := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			got, p := runTester(t, agent.Config{Timeline: time.Hour}, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
				"--calls", "20000", "--stages", "4", "--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts())
			if diff := simtest.Diff(p.Truth().Counts(), eventCounts(got)); diff != "" {
				t.Errorf("the events differ from the driver's truth:\n%s", diff)
			}
			if got.Timeline.Earlier != 0 || got.Timeline.StartNS != got.Window.StartNS {
				t.Errorf("the timeline begins at %d with %d calls before, the window at %d", got.Timeline.StartNS, got.Timeline.Earlier, got.Window.StartNS)
			}
			expectEventsSumToRows(t, got)
			expectOffSumsToParts(t, got)
		})
	}
}

// A ring buffer that is too small loses events and counts them, and nothing else.
func TestTimelineRoomTooSmall(t *testing.T) {
	for _, threads := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			config := agent.Config{Timeline: time.Hour, TimelineRoom: os.Getpagesize()}
			got, p := runTester(t, config, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
				"--calls", "20000", "--stages", "4", "--markers", simtest.Markers(t)))
			if diff := simtest.Diff(p.Truth().Counts(), counts(got)); diff != "" {
				t.Errorf("the recording differs from the driver's truth:\n%s", diff)
			}
			if losses(got)["timeline_calls_full"] == 0 || len(got.Timeline.Calls) == 0 {
				t.Errorf("%d events, losses %v", len(got.Timeline.Calls), losses(got))
			}
			expectEventsAccounted(t, got)
		})
	}
}
