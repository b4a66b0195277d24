package serve

import (
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// family is one counter with all its label values.
type family int

// The families; metrics.go describes them.
const (
	driverCalls family = iota
	driverSeconds
	driverCPUSeconds
	driverErrors
	driverBytes
	gilWaitCaused
	stagePartSeconds
	stageSeconds
	stageSpans
	callsSeen
	lost
	probeSeconds
	recordedSeconds
	families
)

// labels are the values of a series, as many as its family has. Those that the
// target chose are printable: metrics are read on terminals, too.
type labels [4]string

// maxSeries bounds the series of a family: what does not fit is counted without
// its stage.
const maxSeries = 20_000

const otherStages = "(other stages)"

// sums are counters over all targets.
type sums struct {
	counters [families]map[labels]*counter
}

// counter is one series. The value of the present target is replaced by newer
// ones, of which none is smaller, until it has ended.
type counter struct{ ended, present float64 }

// add takes up what was seen so far of the present target.
func (s *sums) add(l *correlate.Ledger) {
	for f, now := range totals(l) {
		for key, v := range s.bounded(family(f), now) {
			c := s.counters[f][key]
			c.present = max(c.present, v)
		}
	}
}

// settle is called when the present target has ended.
func (s *sums) settle() {
	for f := range families {
		for _, c := range s.counters[f] {
			*c = counter{ended: c.ended + c.present}
		}
	}
}

// each calls a function for every series.
func (s *sums) each(do func(f family, key labels, value float64)) {
	for f := range families {
		for key, c := range s.counters[f] {
			do(f, key, c.ended+c.present)
		}
	}
}

// bounded moves values for which there is no room to the other stages, and makes
// a series of each key. A key that has a series keeps it, and none has one later:
// so no value is counted under two.
func (s *sums) bounded(f family, now map[labels]float64) map[labels]float64 {
	known := s.counters[f]
	if known == nil {
		known = map[labels]*counter{}
		s.counters[f] = known
	}
	var fresh []labels
	for key := range now {
		if known[key] == nil {
			fresh = append(fresh, key)
		}
	}
	slices.SortFunc(fresh, func(a, b labels) int { return slices.Compare(a[:], b[:]) })
	for _, key := range fresh {
		to := key
		if len(known) >= maxSeries {
			to[0] = otherStages
			v := now[key]
			delete(now, key)
			now[to] += v
		}
		if known[to] == nil {
			known[to] = &counter{}
		}
	}
	return now
}

// totals are the counters of one Recording.
func totals(l *correlate.Ledger) (t [families]map[labels]float64) {
	for f := range families {
		t[f] = map[labels]float64{}
	}
	add := func(f family, key labels, v float64) {
		t[f][key] += v
	}
	for i := range l.Calls {
		c := &l.Calls[i]
		key := labels{stageName(c.Path.Names), report.Printable(c.Symbol), string(c.GIL), string(c.Attribution)}
		add(driverCalls, key, float64(c.Count))
		add(driverSeconds, key, seconds(c.WallNS))
		add(driverCPUSeconds, key, seconds(c.CPUNS))
		add(driverErrors, key, float64(c.Errors))
		add(driverBytes, key, float64(c.Bytes))
		if c.GIL == recording.GILHeld {
			add(gilWaitCaused, labels{key[0], key[1], key[3]}, seconds(c.GILWaitCausedNS))
		}
	}
	addStages(l, add)
	r := l.Source
	if r.Seen != nil {
		add(callsSeen, labels{}, float64(r.Seen.Calls))
	}
	for _, loss := range l.Losses {
		// Calls in flight are not lost before the target has ended.
		if r.Window.End != recording.EndOpen || loss.Reason != recording.LossInFlight {
			add(lost, labels{loss.Kind, loss.Reason}, float64(loss.Count))
		}
	}
	add(probeSeconds, labels{}, seconds(r.Overhead.AddedNS))
	add(recordedSeconds, labels{}, r.Window.Duration.Seconds())
	return t
}

// addStages adds the stages' times, of spans that are open too: these grow while
// they are open.
func addStages(l *correlate.Ledger, add func(f family, key labels, v float64)) {
	r := l.Source
	for i := range r.Stages {
		s := &r.Stages[i]
		names := r.Paths[s.Path].Names
		for part, ns := range parts(s.Parts.Plus(s.PartialParts)) {
			if ns > 0 {
				add(stagePartSeconds, labels{stageName(names), part}, seconds(ns))
			}
		}
		if len(names) > 0 {
			add(stageSeconds, labels{stageName(names)}, seconds(s.WallNS+s.PartialWallNS))
			add(stageSpans, labels{stageName(names)}, float64(s.Count+s.PartialCount))
		}
	}
	for i := range r.Open { // counted when they end
		add(stageSpans, labels{stageName(r.Paths[r.Open[i].Path].Names)}, -1)
	}
}

// noStage is the stage of what is outside any.
const noStage = "none"

func stageName(names []string) string {
	if len(names) == 0 {
		return noStage
	}
	return report.Printable(strings.Join(names, "/"))
}

// parts are what a thread's time goes to, under the names that labels have.
func parts(p recording.Parts) map[string]uint64 {
	return map[string]uint64{
		"running":            p.RunningNS,
		"cuda_cpu":           p.CUDACPUNS,
		"cuda_blocked":       p.CUDABlockedNS,
		"gil_wait":           p.GILWaitNS,
		"runnable":           p.RunnableNS,
		"blocked_futex":      p.BlockedFutexNS,
		"blocked_poll":       p.BlockedPollNS,
		"blocked_read":       p.BlockedReadNS,
		"blocked_sleep":      p.BlockedSleepNS,
		"blocked_page_fault": p.BlockedFaultNS,
		"blocked_other":      p.BlockedOtherNS,
	}
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
