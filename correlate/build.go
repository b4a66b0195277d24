package correlate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"stageprof/recording"
)

// Build joins the tables of r. Every cross reference in r must name a row that
// exists, as recording.Read makes sure of. The Ledger refers to r, which must
// not change any more.
func Build(r *recording.Recording) *Ledger { return BuildSkipping(r, Skip{}) }

// BuildSkipping is Build with iterations left out of Stage.Iterations. No sum
// is without them.
func BuildSkipping(r *recording.Recording, skip Skip) *Ledger {
	b := &builder{
		source:  r,
		skip:    skip,
		limit:   longest(r),
		debts:   map[debtKey]*Debt{},
		stages:  forest{},
		process: forest{},
		regions: newRegionTable(r),
	}
	b.namePaths()
	b.nameThreads()
	b.addCalls()
	for i := range r.Stages {
		b.addSpans(r.Stages[i])
	}
	for _, row := range r.RegionTimes {
		impossible := b.regions.addTime(row, b.paths[row.Path], b.limit)
		b.impossibleSpans = add(b.impossibleSpans, impossible)
	}
	for i := range r.RegionParts {
		p := &r.RegionParts[i]
		b.times.addRegion(b.threadOf[p.Thread], b.paths[p.Path], p.Region, &p.Parts)
	}
	for i := range r.Debts {
		b.addDebt(r.Debts[i])
	}
	return b.finish()
}

type builder struct {
	source *recording.Recording
	skip   Skip
	limit  uint64 // the longest duration that can be true

	naming   naming
	paths    []Path          // by the Recording's path ID
	python   map[string]bool // paths, joined, whose innermost stage is a Python function
	threadOf []int           // by the Recording's thread ID: index of threads
	threads  []threadSum

	calls   []Call
	debts   map[debtKey]*Debt
	stages  forest // of threads
	process forest // of the whole process
	regions regionTable
	times   times
	all     sums
	outside sums

	impossibleCalls, impossibleSpans uint64
}

type threadSum struct {
	Thread
	sums sums
}

// sums accumulates a Breakdown.
type sums struct {
	sum           Sum
	symbols, apis map[string]*Sum
}

func (s *sums) add(symbol, api string, gil recording.GIL, t *Total) {
	if s.symbols == nil {
		s.symbols, s.apis = map[string]*Sum{}, map[string]*Sum{}
	}
	s.sum.add(gil, t)
	sumOf(s.symbols, symbol).add(gil, t)
	sumOf(s.apis, api).add(gil, t)
}

func sumOf(m map[string]*Sum, name string) *Sum {
	if m[name] == nil {
		m[name] = &Sum{}
	}
	return m[name]
}

func (s *sums) breakdown() Breakdown {
	return Breakdown{Sum: s.sum, Symbols: costliest(s.symbols), APIs: costliest(s.apis)}
}

func costliest(m map[string]*Sum) []Named {
	named := make([]Named, 0, len(m))
	for name, sum := range m {
		named = append(named, Named{Name: name, Sum: *sum})
	}
	slices.SortFunc(named, func(a, b Named) int {
		return cmp.Or(cmp.Compare(b.WallNS, a.WallNS), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return named
}

// naming knows the one stage path among all that are written alike, and their
// parents too: the one with the most names, so that "/" is read as the
// separator where it can be.
type naming map[string][]string

func newNaming(paths []recording.StagePath) naming {
	n := naming{}
	for _, p := range paths {
		names := readable(p.Names)
		for parent := range parents(strings.Join(names, "/"), names) {
			n.offer(parent)
		}
	}
	return n
}

func (n naming) offer(p Path) {
	known, ok := n[p.Joined]
	if !ok || cmp.Or(cmp.Compare(len(p.Names), len(known)), slices.Compare(known, p.Names)) > 0 {
		n[p.Joined] = p.Names
	}
}

func (n naming) path(names []string) Path {
	joined := strings.Join(readable(names), "/")
	return Path{Joined: joined, Names: n[joined]}
}

// readable gives stages without a name one that can be seen.
func readable(names []string) []string {
	if !slices.Contains(names, "") {
		return names
	}
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = cmp.Or(name, "(empty)")
	}
	return names
}

// parents yields the stages on the way to the one of the given names, outermost
// first and that one last.
func parents(joined string, names []string) iter.Seq[Path] {
	return func(yield func(Path) bool) {
		end := -1
		for i, name := range names {
			end += 1 + len(name)
			if !yield(Path{Joined: joined[:end], Names: names[: i+1 : i+1]}) {
				return
			}
		}
	}
}

func (b *builder) namePaths() {
	b.naming = newNaming(b.source.Paths)
	b.paths = make([]Path, len(b.source.Paths))
	b.python = map[string]bool{}
	for i, p := range b.source.Paths {
		b.paths[i] = b.naming.path(p.Names)
		if p.PythonFunction {
			b.python[b.paths[i].Joined] = true
		}
	}
}

// nameThreads merges threads of one name and tid.
func (b *builder) nameThreads() {
	type key struct {
		name string
		tid  int
	}
	sorted := slices.Clone(b.source.Threads)
	slices.SortStableFunc(sorted, func(x, y recording.Thread) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(x.TID, y.TID), cmp.Compare(x.NTID, y.NTID))
	})
	index := map[key]int{}
	b.threadOf = make([]int, len(sorted))
	b.threads = make([]threadSum, 0, len(sorted)) // with many threads to grow it would take much memory
	for _, t := range sorted {
		k := key{t.Name, t.TID}
		i, ok := index[k]
		if !ok {
			i = len(b.threads)
			index[k] = i
			b.threads = append(b.threads, threadSum{Thread: Thread{Name: t.Name, TID: t.TID, NTID: t.NTID}})
		}
		b.threads[i].Incarnations++
		b.threadOf[t.ID] = i
	}
}

// attribute adds a call to everything that it is a part of.
func (b *builder) attribute(key callKey, path Path, t *Total) {
	thread := &b.threads[key.thread]
	thread.sums.add(key.symbol, key.api, key.gil, t)
	b.all.add(key.symbol, key.api, key.gil, t)

	adopted := key.attribution == recording.AttributionAutograd || key.attribution == recording.AttributionProcess
	switch {
	case path.Outside():
		thread.Outside.add(t)
		b.outside.add(key.symbol, key.api, key.gil, t)
	case adopted:
		thread.Adopted.add(t)
		stages := &b.stages
		if key.attribution == recording.AttributionProcess {
			stages = &b.process
		}
		stages.add(path, func(s *stageSum, innermost bool) {
			s.adoptedBy(key.attribution).add(key, t, innermost)
		})
	default:
		b.stages.add(path, func(s *stageSum, innermost bool) {
			s.calls.add(key, t, innermost)
			if innermost {
				s.thread(key.thread).own.add(t)
			}
		})
	}
}

func (b *builder) addSpans(row recording.Stage) {
	if row.Thread != -1 && b.paths[row.Path].Outside() {
		b.addOutside(row)
		return
	}
	spans, impossible := plausibleSpans(row, b.limit)
	b.impossibleSpans = add(b.impossibleSpans, impossible)
	path := b.paths[row.Path]
	if path.Outside() || (spans.Count == 0 && spans.Partial.Count == 0) {
		return
	}
	stages := &b.stages
	if row.Thread == -1 {
		stages = &b.process
	}
	stages.add(path, func(s *stageSum, innermost bool) {
		if !innermost {
			return
		}
		addSpansTo(&s.spans, &spans)
		if row.Thread != -1 {
			addSpansTo(&s.thread(b.threadOf[row.Thread]).spans, &spans)
		}
	})
	if row.Thread == -1 {
		return
	}
	own := spans.ExclusiveWindowNS()
	b.times.add(b.threadOf[row.Thread], path, own, spans.WindowNS()-own, spans.Parts, spans.Partial.Parts)
	if len(path.Names) == 1 {
		t := &b.threads[b.threadOf[row.Thread]]
		t.Staged = true
		t.StagesNS = add(t.StagesNS, spans.WindowNS())
	}
}

// addOutside adds a thread's time outside any stage, which has no spans. Of threads that
// are summed up there is no bound to it.
func (b *builder) addOutside(row recording.Stage) {
	wall := row.WallNS - min(row.ChildNS, row.WallNS)
	if wall > b.limit && !b.source.Threads[row.Thread].Folded {
		b.impossibleSpans = add(b.impossibleSpans, 1)
		return
	}
	b.times.add(b.threadOf[row.Thread], Path{}, wall, 0, partsOf(row.Parts, wall))
}

func addSpansTo(to **Spans, s *Spans) {
	if *to == nil {
		*to = &Spans{}
	}
	(*to).add(s)
}

// knownGIL keeps a state that a damaged file may hold out of the tables.
func knownGIL(g recording.GIL) recording.GIL {
	if slices.Contains(GILStates, g) {
		return g
	}
	return recording.GILUnknown
}

// knownAttribution makes attribution and path agree: own and none say the same
// as the path does.
func knownAttribution(a recording.Attribution, path Path) recording.Attribution {
	switch {
	case a == recording.AttributionAutograd, a == recording.AttributionProcess:
		return a
	case path.Outside():
		return recording.AttributionNone
	default:
		return recording.AttributionOwn
	}
}

func (b *builder) finish() *Ledger {
	l := &Ledger{
		Source:  b.source,
		Calls:   b.calls,
		Debts:   b.finishDebts(),
		Stages:  append(b.stages.finish(b.naming, false), b.process.finish(b.naming, true)...),
		Regions: b.regions.finish(),

		Allocations: b.allocations(),
		Devices:     devicesOfStages(b.source, b.paths),

		Outside: b.outside.breakdown(),
		All:     b.all.breakdown(),
		Losses:  b.losses(),

		Paths:    b.paths,
		ThreadOf: b.threadOf,
	}
	l.Threads = make([]Thread, 0, len(b.threads))
	for i := range b.threads {
		t := b.threads[i].Thread
		t.All = b.threads[i].sums.breakdown()
		b.threads[i].sums = sums{} // with many threads this is much memory
		l.Threads = append(l.Threads, t)
	}
	b.divideTimes(l)
	l.Waiting = waiting(l)
	l.Balance = balance(b.source.Seen, l.All.Count, l.Losses)
	return l
}

// divideTimes says what the wall times of stages and threads consist of.
func (b *builder) divideTimes(l *Ledger) {
	all := b.times.divide(b.callTimes(), b.compareRegions)
	var outside mix
	outsideRegions := regionMix{}
	for i := range l.Threads {
		d := all[threadPath{i, ""}]
		if d == nil {
			continue
		}
		l.Threads[i].Parts = b.times.known(d.within)
		if d.seen {
			l.Threads[i].PartsOutside, l.Threads[i].OutsideByRegion = b.knownOwn(d)
			outside.add(&d.own)
			outsideRegions.add(d.byRegion)
		}
	}
	if outside.parts != nil {
		l.PartsOutside = b.times.known(outside.partition())
		l.OutsideByRegion = b.regionPartitions(l.PartsOutside, outsideRegions)
	}
	series := l.Series(b.skip)
	for i := range l.Stages {
		s := &l.Stages[i]
		s.Python = b.python[s.Path.Joined]
		if s.Process {
			continue
		}
		b.divideStage(s, all)
		if one, ok := seriesOf(series, s.Path); ok && s.Spans != nil {
			s.Iterations = one.describe(s.Spans)
		}
	}
}

func (b *builder) divideStage(s *Stage, all map[threadPath]*divided) {
	var own, within mix
	regions := regionMix{}
	for i := range s.Threads {
		t := &s.Threads[i]
		d := all[threadPath{t.Thread, s.Path.Joined}]
		if d == nil || !d.seen {
			continue
		}
		t.Parts, t.ByRegion = b.knownOwn(d)
		t.PartsWithin = b.times.known(d.within)
		own.add(&d.own)
		regions.add(d.byRegion)
		within.add(&d.within)
	}
	if s.Spans != nil {
		s.Parts, s.PartsWithin = b.times.known(own.partition()), b.times.known(within.partition())
		s.ByRegion = b.regionPartitions(s.Parts, regions)
	}
}

// knownOwn returns a stage's own partition and the parts of it by region, if
// anything is known of them.
func (b *builder) knownOwn(d *divided) (*Partition, []RegionPartition) {
	own := b.times.known(d.own)
	if own == nil {
		return nil, nil
	}
	return own, d.byRegion
}

// compareRegions orders region paths by what they hold, and only then by their IDs,
// which depend on the order in which the agent met them.
func (b *builder) compareRegions(x, y int) int {
	if x == y {
		return 0
	}
	path := func(id int) []int {
		if id == 0 {
			return nil
		}
		return b.source.RegionPaths[id].Regions
	}
	return cmp.Or(slices.CompareFunc(path(x), path(y), func(r, s int) int {
		return cmp.Compare(b.regionAddress(r), b.regionAddress(s))
	}), cmp.Compare(x, y))
}

func (b *builder) regionAddress(region int) uint64 {
	if region == -1 {
		return 0
	}
	return b.source.Regions[region].Address
}

func (b *builder) losses() []recording.Loss {
	type key struct{ kind, reason string }
	merged := map[key]recording.Loss{}
	note := func(l recording.Loss) {
		if l.Count == 0 {
			return
		}
		k := key{l.Kind, l.Reason}
		if before, ok := merged[k]; ok {
			before.Count = add(before.Count, l.Count)
			l = before
		}
		merged[k] = l
	}
	for _, l := range b.source.Losses {
		note(l)
	}
	const help = "lasted longer than the recording: a begin or an end was missed"
	note(recording.Loss{Reason: ImpossibleDuration, Kind: LossCalls, Count: b.impossibleCalls, Help: help})
	note(recording.Loss{Reason: ImpossibleDuration, Kind: LossSpans, Count: b.impossibleSpans, Help: help})

	losses := make([]recording.Loss, 0, len(merged))
	for _, l := range merged {
		losses = append(losses, l)
	}
	slices.SortFunc(losses, func(x, y recording.Loss) int {
		return cmp.Or(
			cmp.Compare(lossOrder(x.Kind), lossOrder(y.Kind)), strings.Compare(x.Kind, y.Kind),
			cmp.Compare(y.Count, x.Count), strings.Compare(x.Reason, y.Reason))
	})
	return losses
}

// lossOrder puts first what the sums lack, then what is only known less well.
func lossOrder(kind string) int {
	kinds := []string{LossCalls, LossSpans, "other", "samples", "names"}
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	return len(kinds)
}

func balance(seen *recording.Seen, reported uint64, losses []recording.Loss) Balance {
	b := Balance{Reported: reported}
	for _, l := range losses {
		if l.Kind == LossCalls {
			b.Lost = add(b.Lost, l.Count)
		}
	}
	if seen != nil {
		b.Counted, b.Seen = true, seen.Calls
	}
	return b
}
