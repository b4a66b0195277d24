package agent

import (
	"os"
	"slices"
	"testing"

	"stageprof/bpf"
)

// A list holds at least what is asked for, if there is so much, and not much more;
// what it has dropped for want of room, it remembers the end of.
func TestEventListTrims(t *testing.T) {
	const most = 800
	for _, test := range []struct {
		name           string
		behind         uint64 // how long events are wanted
		keeps, forgets int    // at least, and at most this many
		cut            bool
	}{
		{"little is wanted", 50, 50, most/4 + 50, false},
		{"all that there is room for", 700, 700, most + most/4, false},
		{"more than there is room for", 5000, most, most + most/4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := eventList[uint64]{end: func(e *uint64) uint64 { return *e }}
			for now := uint64(1); now <= 10_000; now++ {
				l.add(now)
				l.trim(now-min(now, test.behind), most)
				if n := len(l.kept); n > test.forgets {
					t.Fatalf("%d events after %d", n, now)
				}
			}
			if len(l.kept) < test.keeps || !slices.IsSorted(l.kept) || l.kept[len(l.kept)-1] != 10_000 {
				t.Errorf("%d events, from %d to %d", len(l.kept), l.kept[0], l.kept[len(l.kept)-1])
			}
			if test.cut != (l.cut != 0) || test.cut && l.cut != l.kept[0]-1 {
				t.Errorf("cut at %d, the first that is kept is %d", l.cut, l.kept[0])
			}
			if got := l.from(9_990); !slices.Equal(got, []uint64{9990, 9991, 9992, 9993, 9994, 9995, 9996, 9997, 9998, 9999, 10000}) {
				t.Errorf("from 9990: %v", got)
			}
		})
	}
}

// A timeline begins where all of its lists are whole.
func TestTimelineStart(t *testing.T) {
	r := timelineReader{window: 100}
	for _, test := range []struct {
		opened, end, calls, off uint64
		want                    uint64
		cut                     bool
	}{
		{opened: 1000, end: 1050, want: 1000},
		{opened: 1000, end: 1500, want: 1400},
		{opened: 1000, end: 1500, calls: 1390, want: 1400},
		{opened: 1000, end: 1500, calls: 1420, off: 1410, want: 1421, cut: true},
		{opened: 10, end: 50, want: 10},
	} {
		r.calls.cut, r.off.cut = test.calls, test.off
		if got, cut := r.start(test.opened, test.end); got != test.want || cut != test.cut {
			t.Errorf("%+v: start %d, cut %v", test, got, cut)
		}
	}
}

// Nothing is forgotten that is wanted, also on a machine that has not run for as
// long as the timeline may be.
func TestTimelineForgets(t *testing.T) {
	r := timelineReader{window: 100, most: 8, calls: eventList[bpf.ProbeCallEvent]{
		end: func(e *bpf.ProbeCallEvent) uint64 { return e.Begin + e.Wall },
	}}
	for begin := range uint64(4) {
		r.calls.add(bpf.ProbeCallEvent{Begin: begin, Wall: 10})
	}
	if r.trim(50); len(r.calls.kept) != 4 {
		t.Errorf("%d of 4 calls are left before the clock has counted so far", len(r.calls.kept))
	}
	if r.trim(150); len(r.calls.kept) != 0 {
		t.Errorf("%d calls are left that nobody wants", len(r.calls.kept))
	}
}

// Many processes have to fit, each with a timeline of its own.
func TestTimelinesOfFamilyShareRoom(t *testing.T) {
	for _, test := range []struct {
		family     *membership
		room, want int
	}{
		{nil, timelineRoom, timelineRoom},
		{&membership{}, timelineRoom, timelineRoom / familyShare},
		{&membership{}, os.Getpagesize(), os.Getpagesize()},
	} {
		spec, err := bpf.LoadProbe()
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{config: Config{Timeline: DefaultTimeline, TimelineRoom: test.room, family: test.family}}
		if err := s.prepareTimeline(spec); err != nil {
			t.Fatal(err)
		}
		if got := int(spec.Maps["timeline_events"].MaxEntries); got != test.want {
			t.Errorf("%+v: a room of %d bytes, want %d", test, got, test.want)
		}
	}
}
