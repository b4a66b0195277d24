package correlate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"stageprof/recording"
)

// Run is one Recording of a comparison.
type Run struct {
	Name   string // for people: the file's name
	Ledger *Ledger
}

// CompareOptions says how two sides are compared. Its zero value has no
// significance level: nothing would be significant.
type CompareOptions struct {
	Skip  Skip
	Alpha float64 // a change is significant if it is less probable than this by chance
}

// Comparison is what differs, per iteration, between the stages of the runs
// Before and those of the runs After.
type Comparison struct {
	Before, After []Run
	Options       CompareOptions
	Stages        []StageChange // those that moved the wall clock most first
	Warnings      []string      // for people: what makes the two sides unlike
}

// Sides tells on which side of a comparison a stage ran.
type Sides string

// The sides.
const (
	BothSides  Sides = "both"
	BeforeOnly Sides = "before"
	AfterOnly  Sides = "after"
)

// StageChange is what changed in one stage.
type StageChange struct {
	Path       Path
	Process    bool // a stage of the whole process
	Sides      Sides
	Iterations Pair[float64] // complete spans in a run; on average
	Rate       Pair[float64] // complete spans per second
	ImpactNS   float64       // change of the wall time per iteration x iterations of a run after; of a stage that is gone, before

	Changes []Change // of every Metric that occurs: MetricWall first, then by kind and name
}

// Pair is a value before and after.
type Pair[T any] struct{ Before, After T }

// Wall is the change of the stage's wall time.
func (s *StageChange) Wall() *Change { return &s.Changes[0] }

// moved reports whether the wall time changed for all that is known. Where it
// can't be tested, it did.
func (s *StageChange) moved() bool { return s.Wall().Significant || !s.Wall().Tested }

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// Find is the change of a metric. One that does not occur in the stage is 0 on
// the sides of which single iterations are known.
func (s *StageChange) Find(m Metric) Change {
	if i := slices.IndexFunc(s.Changes, func(c Change) bool { return c.Metric == m }); i >= 0 {
		return s.Changes[i]
	}
	zero := Change{Metric: m, P: 1, Tested: s.Wall().Tested}
	if wall := s.Wall().Before; wall != nil && wall.N > 0 {
		zero.Before = &Estimate{N: wall.N}
	}
	if wall := s.Wall().After; wall != nil && wall.N > 0 {
		zero.After = &Estimate{N: wall.N}
	}
	return zero
}

// Change is how one number per iteration changed.
type Change struct {
	Metric
	Before, After *Estimate // nil where the stage did not run, or the Recording does not say
	P             float64   // that it is chance, if Tested
	Tested        bool
	Significant   bool // Tested, and P is below the level
}

// Delta is the change of the mean; what is not there is 0.
func (c *Change) Delta() float64 { return meanOr0(c.After) - meanOr0(c.Before) }

// Ratio is the change relative to the mean before; ok is false where that is 0
// or not known.
func (c *Change) Ratio() (ratio float64, ok bool) {
	before := meanOr0(c.Before)
	if before == 0 || c.After == nil {
		return 0, false
	}
	return c.Delta() / before, true
}

func meanOr0(e *Estimate) float64 {
	if e == nil {
		return 0
	}
	return e.Mean
}

// MetricKind says what a Metric counts.
type MetricKind string

// The kinds of Metric.
const (
	MetricWall    MetricKind = "wall"    // wall time of the stage with the stages inside it
	MetricCUDA    MetricKind = "cuda"    // time in driver calls of the stage itself, or in those of one api
	MetricBlocked MetricKind = "blocked" // the parts of which PartKind.Blocked holds, together
	MetricPart    MetricKind = "part"    // one kind of part of the wall time
	MetricCalls   MetricKind = "calls"   // number of driver calls of the stage itself, or of those of one api
	MetricAdopted MetricKind = "adopted" // time in calls of other threads on behalf of the stage itself
)

var metricOrder = []MetricKind{MetricWall, MetricPart, MetricBlocked, MetricCUDA, MetricCalls, MetricAdopted}

// Metric is a number per iteration.
type Metric struct {
	Kind MetricKind
	Of   string // PartKind, api or Attribution; "" for all
}

// String writes e.g. "wall", "gil wait", "cuda: cuLaunchKernel", "calls" or
// "adopted: autograd".
func (m Metric) String() string {
	switch {
	case m.Of == "":
		return string(m.Kind)
	case m.Kind == MetricPart:
		return m.Of
	default:
		return string(m.Kind) + ": " + m.Of
	}
}

// Count reports whether the metric is a number and no time.
func (m Metric) Count() bool { return m.Kind == MetricCalls }

func compareMetrics(a, b Metric) int {
	return cmp.Or(
		cmp.Compare(slices.Index(metricOrder, a.Kind), slices.Index(metricOrder, b.Kind)),
		cmp.Compare(kindOrder[PartKind(a.Of)], kindOrder[PartKind(b.Of)]), cmp.Compare(a.Of, b.Of))
}

// ErrNothingInCommon says that two sides have no stage in common.
var ErrNothingInCommon = errors.New("no stage ran on both sides")

// Compare compares the runs of two sides, of which each needs at least one. A
// run without complete spans is an error, and so are sides that have no stage
// in common.
func Compare(before, after []Run, o CompareOptions) (*Comparison, error) {
	c := &Comparison{Before: before, After: after, Options: o}
	sides := Pair[*side]{}
	var err error
	if sides.Before, err = newSide(before, o.Skip); err != nil {
		return nil, err
	}
	if sides.After, err = newSide(after, o.Skip); err != nil {
		return nil, err
	}
	common := false
	for _, k := range stageKeys(sides.Before, sides.After) {
		s := compareStage(k, Pair[*sideStage]{sides.Before.stages[k], sides.After.stages[k]}, o)
		common = common || s.Sides == BothSides
		c.Stages = append(c.Stages, s)
	}
	if !common {
		return nil, fmt.Errorf("comparing %q with %q: %w", before[0].Name, after[0].Name, ErrNothingInCommon)
	}
	slices.SortStableFunc(c.Stages, func(a, b StageChange) int {
		return cmp.Or(compareBools(b.moved(), a.moved()), cmp.Compare(math.Abs(b.ImpactNS), math.Abs(a.ImpactNS)))
	})
	c.Warnings = warnings(before, after, sides)
	return c, nil
}

// stageKey tells the stages of a side apart.
type stageKey struct {
	process bool
	joined  string
}

// side is what the runs of one side measured.
type side struct {
	runs   int
	window time.Duration // of all runs
	paths  map[stageKey]Path
	stages map[stageKey]*sideStage
	few    []string // runs without single spans
}

// sideStage is one stage on one side.
type sideStage struct {
	side     *side
	spans    Spans // of all runs
	measures []*measures
	skipped  bool                              // single spans, if there are any, were all skipped
	adopted  map[recording.Attribution]float64 // ns of all runs
}

func newSide(runs []Run, skip Skip) (*side, error) {
	s := &side{runs: len(runs), paths: map[stageKey]Path{}, stages: map[stageKey]*sideStage{}}
	for _, run := range runs {
		l := run.Ledger
		if !slices.ContainsFunc(l.Stages, func(s Stage) bool { return s.Spans != nil && s.Spans.Count > 0 }) {
			return nil, fmt.Errorf("%q has no complete span of any stage, so nothing can be compared per iteration", run.Name)
		}
		s.window += max(l.Source.Window.Duration, 0)
		for j := range l.Stages {
			if stage := &l.Stages[j]; stage.Spans != nil && stage.Spans.Count > 0 {
				s.stage(stage).addSums(stage)
			}
		}
		if len(l.Source.Spans) == 0 {
			s.few = append(s.few, run.Name)
		}
		series := l.Series(skip)
		if skip != (Skip{}) && len(l.Source.Spans) > 0 && allSkipped(series) {
			return nil, fmt.Errorf("%q has no iteration left, all of them are skipped", run.Name)
		}
		for _, series := range series {
			if stage := s.stages[stageKey{joined: series.Path.Joined}]; stage != nil {
				stage.addSpans(l, series.Spans)
			}
		}
	}
	return s, nil
}

func allSkipped(series []Series) bool {
	return !slices.ContainsFunc(series, func(s Series) bool { return len(s.Spans) > 0 })
}

func (s *side) stage(of *Stage) *sideStage {
	k := stageKey{of.Process, of.Path.Joined}
	if s.stages[k] == nil {
		s.paths[k] = of.Path
		s.stages[k] = &sideStage{side: s, adopted: map[recording.Attribution]float64{}}
	}
	return s.stages[k]
}

func (s *sideStage) addSums(of *Stage) {
	s.spans.add(of.Spans)
	for i := range of.Adopted {
		s.adopted[of.Adopted[i].Attribution] += float64(of.Adopted[i].Own.WallNS)
	}
}

func (s *sideStage) addSpans(l *Ledger, spans []Span) {
	s.skipped = len(spans) == 0
	if !s.skipped {
		s.measures = append(s.measures, measure(l, spans))
	}
}

// stageKeys are the stages of both sides in order.
func stageKeys(sides ...*side) []stageKey {
	var keys []stageKey
	for i, s := range sides {
		for k := range s.stages {
			if i == 0 || sides[0].stages[k] == nil {
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, func(a, b stageKey) int {
		return cmp.Or(cmp.Compare(a.joined, b.joined), compareBools(a.process, b.process))
	})
	return keys
}

// measures are numbers of the single spans of one run.
type measures struct {
	n      int
	values map[Metric][]float64 // those that are not 0
}

func measure(l *Ledger, spans []Span) *measures {
	m := &measures{n: len(spans), values: map[Metric][]float64{}}
	for i := range spans {
		m.addSpan(l, &spans[i])
	}
	return m
}

func (m *measures) addSpan(l *Ledger, s *Span) {
	one := map[Metric]float64{{Kind: MetricWall}: float64(s.WallNS)}
	for _, part := range s.Parts {
		ns := float64(part.NS)
		one[Metric{MetricPart, string(part.Kind)}] += ns
		if part.Kind.Blocked() {
			one[Metric{Kind: MetricBlocked}] += ns
		}
		if part.Kind.CUDA() {
			one[Metric{Kind: MetricCUDA}] += ns
			one[Metric{MetricCUDA, cmp.Or(part.API, otherCalls)}] += ns
		}
	}
	for _, c := range s.Record.Calls {
		n := float64(c.Count)
		one[Metric{Kind: MetricCalls}] += n
		one[Metric{MetricCalls, l.Source.Symbols[c.Symbol].API}] += n
	}
	for metric, v := range one {
		if v != 0 {
			m.values[metric] = append(m.values[metric], v)
		}
	}
}

// otherCalls stands for driver time of no known call.
const otherCalls = "other"

// sample is one metric of all runs of the stage.
func (s *sideStage) sample(m Metric) sample {
	var all sample
	for _, run := range s.measures {
		values := slices.Clone(run.values[m])
		all = append(all, append(values, make([]float64, run.n-len(values))...))
	}
	return all
}

// metrics are those that occur on a side.
func (s *sideStage) metrics(into map[Metric]bool) {
	if s == nil {
		return
	}
	into[Metric{Kind: MetricWall}] = true
	for _, run := range s.measures {
		for m := range run.values {
			into[m] = true
		}
	}
	for a := range s.adopted {
		into[Metric{MetricAdopted, string(a)}] = true
	}
}

// estimate is nil when nothing is known of the metric.
func (s *sideStage) estimate(m Metric) *Estimate {
	switch {
	case s == nil:
		return nil
	case m.Kind == MetricAdopted:
		return &Estimate{Mean: s.perIteration(s.adopted[recording.Attribution(m.Of)])}
	case len(s.measures) > 0:
		e := s.sample(m).estimate()
		return &e
	case m.Kind == MetricWall && !s.skipped:
		return &Estimate{Mean: float64(s.spans.WallNS) / float64(s.spans.Count)}
	default:
		return nil
	}
}

// perIteration is the part of a sum over complete and partial spans that falls
// to a complete one: their calls can't be told apart, their wall time can.
func (s *sideStage) perIteration(sum float64) float64 {
	window := s.spans.WindowNS()
	if window == 0 {
		return 0
	}
	return sum / float64(window) * float64(s.spans.WallNS) / float64(s.spans.Count)
}

func (s *sideStage) iterations() float64 {
	if s == nil {
		return 0
	}
	return float64(s.spans.Count) / float64(s.side.runs)
}

func (s *sideStage) rate() float64 {
	if s == nil || s.side.window <= 0 {
		return 0
	}
	return float64(s.spans.Count) / s.side.window.Seconds()
}

func compareStage(k stageKey, of Pair[*sideStage], o CompareOptions) StageChange {
	s := StageChange{
		Process:    k.process,
		Sides:      BothSides,
		Iterations: Pair[float64]{of.Before.iterations(), of.After.iterations()},
		Rate:       Pair[float64]{of.Before.rate(), of.After.rate()},
	}
	switch {
	case of.After == nil:
		s.Sides, s.Path = BeforeOnly, of.Before.side.paths[k]
	case of.Before == nil:
		s.Sides, s.Path = AfterOnly, of.After.side.paths[k]
	default:
		s.Path = of.After.side.paths[k]
	}
	occurring := map[Metric]bool{}
	of.Before.metrics(occurring)
	of.After.metrics(occurring)
	for m := range occurring {
		s.Changes = append(s.Changes, compareMetric(m, of, o))
	}
	slices.SortFunc(s.Changes, func(a, b Change) int { return compareMetrics(a.Metric, b.Metric) })
	times := s.Iterations.After
	if s.Sides == BeforeOnly {
		times = s.Iterations.Before
	}
	s.ImpactNS = s.Wall().Delta() * times
	return s
}

func compareMetric(m Metric, of Pair[*sideStage], o CompareOptions) Change {
	c := Change{Metric: m, P: 1, Before: of.Before.estimate(m), After: of.After.estimate(m)}
	if of.Before == nil || of.After == nil || m.Kind == MetricAdopted {
		return c
	}
	c.P, c.Tested = pValue(of.Before.sample(m), of.After.sample(m))
	c.Significant = c.Tested && c.P < o.Alpha
	return c
}
