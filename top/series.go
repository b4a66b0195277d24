package top

import (
	"maps"

	"stageprof/correlate"
	"stageprof/recording"
)

// Source is a recording in progress.
type Source interface {
	// Snapshot returns a Recording of everything since the source was opened.
	// When the target has ended, its window says so, and so do all that follow.
	Snapshot() (*recording.Recording, error)
}

// sample is what one snapshot adds.
type sample struct {
	total *recording.Recording // since the source was opened
	calls correlate.Balance    // of total
	now   *span                // of the last interval; when the target has ended, all
	all   *span                // since the baseline; nil right after its reset
	trend trend
}

// span is what happened between two snapshots.
type span struct {
	*correlate.Ledger
	iterations map[rowKey]iterations
}

// iterations are the complete spans that ended in an interval, with all of their
// time, also what of it was before: a Ledger of the interval has those that
// began before it as partial.
type iterations struct {
	ended float64
	wall  float64 // of all that ended
	mean  float64 // where none ended, that of the latest ones before
}

// snapshot is one, and the iterations in it.
type snapshot struct {
	recording  *recording.Recording
	iterations map[rowKey]iterations
}

// ended says what closed the window, "" while the target runs.
func (s *sample) ended() recording.WindowEnd {
	switch end := s.total.Window.End; end {
	case recording.EndExit, recording.EndExec:
		return end
	default:
		return ""
	}
}

// series turns snapshots into samples.
type series struct {
	baseline *snapshot // nil: the source's opening
	last     *snapshot
	means    map[rowKey]float64
	trend    trend
}

func (s *series) add(r *recording.Recording) (*sample, error) {
	total := wholeSpan(r)
	next := &snapshot{r, total.iterations}
	out := &sample{total: total.Source, calls: total.Balance}
	var err error
	if out.all, err = next.since(s.baseline, total); err != nil {
		return nil, err
	}
	if out.ended() != "" {
		out.now, out.trend = out.all, s.trend
		return out, nil
	}
	if out.now, err = next.since(s.last, total); err != nil {
		return nil, err
	}
	next.recording = total.Source // the single spans are of no more use
	s.last = next
	s.carry(out.now)
	s.trend = s.trend.with(out.now)
	out.trend = s.trend
	return out, nil
}

// wholeSpan is all of a recording.
func wholeSpan(r *recording.Recording) *span {
	s := &span{correlate.Build(withoutSpans(r)), map[rowKey]iterations{}}
	for i := range s.Stages {
		if st := &s.Stages[i]; st.Spans != nil {
			s.iterations[keyOf(st)] = iterationsOf(float64(st.Spans.Count), float64(st.Spans.WallNS))
		}
	}
	return s
}

// iterationsOf are complete spans and their wall time.
func iterationsOf(ended, wall float64) iterations {
	it := iterations{ended, wall, unknown}
	if ended > 0 {
		it.mean = wall / ended
	}
	return it
}

// carry fills in means: an iteration that takes longer than an interval does not
// end in each of them.
func (s *series) carry(now *span) {
	carried := maps.Clone(now.iterations)
	if s.means == nil {
		s.means = map[rowKey]float64{}
	}
	for key, it := range carried {
		if it.ended > 0 {
			s.means[key] = it.mean
		} else if mean, ok := s.means[key]; ok {
			it.mean = mean
			carried[key] = it
		}
	}
	now.iterations = carried
}

// reset makes the newest snapshot the baseline.
func (s *series) reset() { s.baseline = s.last }

// since is what came after an earlier snapshot, all of it after none.
func (s *snapshot) since(earlier *snapshot, total *span) (*span, error) {
	if earlier == nil {
		return &span{total.Ledger, total.iterations}, nil
	}
	r, err := correlate.Since(earlier.recording, s.recording)
	if err != nil {
		return nil, err
	}
	later := map[rowKey]iterations{}
	for key, it := range s.iterations {
		before := earlier.iterations[key]
		later[key] = iterationsOf(max(it.ended-before.ended, 0), max(it.wall-before.wall, 0))
	}
	return &span{correlate.Build(withoutSpans(r)), later}, nil
}

// withoutSpans is a recording without its single spans: they are not shown, and
// they are most of a long one.
func withoutSpans(r *recording.Recording) *recording.Recording {
	sums := *r
	sums.Spans = nil
	return &sums
}

// trend holds wall times of the latest intervals, the newest one last. It is
// never changed, only replaced.
type trend []map[rowKey][2]float64 // by unit

// trendLength is how many intervals are remembered.
const trendLength = 60

func (t trend) with(s *span) trend {
	point := map[rowKey][2]float64{}
	for key, f := range s.figures() {
		point[key] = [2]float64{perIteration: f.wallIn(perIteration), perSecond: f.wallIn(perSecond)}
	}
	kept := t[max(len(t)+1-trendLength, 0):]
	return append(kept[:len(kept):len(kept)], point)
}

// of is a row's trend. In intervals that do not have the row it was not there.
func (t trend) of(key rowKey, u unit) []float64 {
	values := make([]float64, len(t))
	for i, point := range t {
		values[i] = unknown
		if v, ok := point[key]; ok {
			values[i] = v[u]
		}
	}
	return values
}
