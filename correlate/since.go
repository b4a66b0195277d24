package correlate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stageprof/recording"
)

// ErrNotSnapshots says that two Recordings are not an earlier and a later
// snapshot of the same recording.
var ErrNotSnapshots = errors.New("not two snapshots of one recording")

// Since returns what happened between two snapshots of one recording, as a
// Recording of its own whose window lies between them. The later one may be the
// final Recording. Neither is changed; the result shares tables with the later
// one.
//
// Counts and sums are exact differences, row by row, so that those of successive
// intervals sum to the final ones:
//
//   - Calls are those that returned in the interval, with all of their time; they
//     may have begun before it. MinNS and MaxNS can't be
//     subtracted: they are exact where the interval set a new extreme, otherwise
//     bounds, the edges of the lowest and highest bucket that has calls of the
//     interval.
//   - A span that was open at the interval's beginning is partial, with the time
//     that lies in the interval. If it has ended and is not among the spans that
//     were kept one by one, it can't be told from complete ones: it counts as one,
//     with its time in the interval.
//   - Seen counts the calls that were entered in the interval or in flight at its
//     beginning, so that seen = reported + lost holds.
//   - The extremes of regions are those of the whole recording.
//   - Of the GPUs, the largest memory and the target's own part are those of the
//     whole recording.
func Since(earlier, later *recording.Recording) (*recording.Recording, error) {
	if err := sameRecording(earlier, later); err != nil {
		return nil, err
	}
	d := &interval{earlier: newIndex(earlier), later: newIndex(later), r: *later}
	d.r.Window = recording.Window{
		Start:    earlier.Window.Start.Add(earlier.Window.Duration),
		StartNS:  earlier.Window.StartNS + uint64(earlier.Window.Duration),
		Duration: later.Window.Duration - earlier.Window.Duration,
		End:      later.Window.End,
		OpenedNS: later.Window.StartNS,
	}
	if err := d.subtractCalls(); err != nil {
		return nil, err
	}
	if err := d.subtractDebts(); err != nil {
		return nil, err
	}
	d.subtractSpans()
	if err := d.subtractStages(); err != nil {
		return nil, err
	}
	if err := d.subtractRegions(); err != nil {
		return nil, err
	}
	d.subtractLosses()
	d.subtractOverhead()
	d.r.GPU = gpuSince(earlier.GPU, later.GPU)
	return &d.r, nil
}

func sameRecording(earlier, later *recording.Recording) error {
	a, b := &earlier.Window, &later.Window
	switch {
	case earlier.Target.PID != later.Target.PID || !earlier.Target.StartTime.Equal(later.Target.StartTime):
		return fmt.Errorf("%w: their targets are different processes", ErrNotSnapshots)
	case a.StartNS != b.StartNS:
		return fmt.Errorf("%w: their windows began at different times", ErrNotSnapshots)
	case a.Duration > b.Duration:
		return fmt.Errorf("%w: the earlier one is %v younger", ErrNotSnapshots, a.Duration-b.Duration)
	}
	return nil
}

// threadID is what a thread is known by in every snapshot.
type threadID struct {
	serial  uint64
	tid     int
	process bool
	folded  bool
}

// stageID is a row of spans, or with a begin a single span.
type stageID struct {
	thread threadID
	path   string
	begin  uint64
}

type callID struct {
	thread      threadID
	path        string
	symbol      string
	address     uint64 // of the symbol
	caller      uint64
	called      bool // the caller is known
	gil         recording.GIL
	attribution recording.Attribution
	region      string
}

// index gives the rows of a Recording the keys that they have in all snapshots.
type index struct {
	*recording.Recording
	threads []threadID
	paths   []string
	stacks  []string // of Python
}

func newIndex(r *recording.Recording) *index {
	x := &index{Recording: r}
	for _, t := range r.Threads {
		id := threadID{serial: t.Serial, tid: t.TID, folded: t.Folded}
		if t.Folded {
			id = foldedID
		}
		x.threads = append(x.threads, id)
	}
	for _, p := range r.Paths {
		x.paths = append(x.paths, strings.Join(p.Names, "\x00"))
	}
	for i := range r.PythonStacks {
		x.stacks = append(x.stacks, stackText(r, &r.PythonStacks[i]))
	}
	return x
}

var foldedID = threadID{folded: true}

func (x *index) thread(id int) threadID {
	if id == -1 {
		return threadID{process: true}
	}
	return x.threads[id]
}

func (x *index) call(c *recording.Call) callID {
	symbol := &x.Symbols[c.Symbol]
	id := callID{
		thread: x.thread(c.Thread), path: x.paths[c.Path], symbol: symbol.Name, address: symbol.Address,
		gil: c.GIL, attribution: c.Attribution, region: x.regionPath(c.Region),
	}
	if c.Caller != -1 {
		id.caller, id.called = x.Frames[c.Caller].Address, true
	}
	return id
}

func (x *index) stage(thread, path int) stageID {
	return stageID{thread: x.thread(thread), path: x.paths[path]}
}

func (x *index) span(s *recording.Span) stageID {
	return stageID{thread: x.thread(s.Thread), path: x.paths[s.Path], begin: s.BeginNS}
}

// interval is a Recording in the making.
type interval struct {
	earlier, later *index
	r              recording.Recording

	ended map[stageID]*recording.Span // single spans of the later one, where they are asked for
}

// locate finds the row that an earlier one has become: a row of the same thread,
// or, if it has ended long ago, of all such threads.
func locate[K comparable](rows map[K]int, id, folded K) (int, error) {
	if i, ok := rows[id]; ok {
		return i, nil
	}
	if i, ok := rows[folded]; ok {
		return i, nil
	}
	return 0, fmt.Errorf("%w: a row of the earlier one is missing in the later one", ErrNotSnapshots)
}

func (d *interval) subtractCalls() error {
	rows, at := []recording.Call{}, map[callID]int{}
	for _, c := range d.later.Calls {
		id := d.later.call(&c)
		if i, ok := at[id]; ok {
			addCalls(&rows[i], &c)
			continue
		}
		at[id] = len(rows)
		rows = append(rows, c)
	}
	for i := range d.earlier.Calls {
		c := &d.earlier.Calls[i]
		id := d.earlier.call(c)
		folded := id
		folded.thread = foldedID
		row, err := locate(at, id, folded)
		if err != nil {
			return err
		}
		if err := subtractCall(&rows[row], c); err != nil {
			return err
		}
		d.subtractSamples(&rows[row], c)
	}
	d.r.Calls = rows[:0]
	for _, c := range rows {
		if c.Count > 0 {
			d.r.Calls = append(d.r.Calls, c)
		}
	}
	return nil
}

func addCalls(to, from *recording.Call) {
	to.MinNS, to.MaxNS = min(to.MinNS, from.MinNS), max(to.MaxNS, from.MaxNS)
	for i := range callSums(to) {
		*callSums(to)[i] += *callSums(from)[i]
	}
	addHist(&to.Hist, &from.Hist)
	to.Samples = slices.Concat(to.Samples, from.Samples)
}

func callSums(c *recording.Call) [6]*uint64 {
	return [6]*uint64{&c.Count, &c.Errors, &c.WallNS, &c.CPUNS, &c.Bytes, &c.GILWaitCausedNS}
}

func subtractCall(to, from *recording.Call) error {
	lower, upper := to.MinNS < from.MinNS, to.MaxNS > from.MaxNS
	for i, sum := range callSums(to) {
		if err := subtract(sum, *callSums(from)[i]); err != nil {
			return err
		}
	}
	if err := subtractHist(&to.Hist, &from.Hist); err != nil {
		return err
	}
	boundExtremes(&to.Hist, &to.MinNS, &to.MaxNS, lower, upper)
	return nil
}

type debtID struct {
	thread  threadID
	path    string
	symbol  string
	address uint64
	kind    recording.DebtKind
	owner   string
}

func (x *index) debt(d *recording.Debt) debtID {
	symbol := &x.Symbols[d.Symbol]
	return debtID{
		thread: x.thread(d.Thread), path: x.paths[d.Path], symbol: symbol.Name, address: symbol.Address,
		kind: d.Kind, owner: x.paths[d.Owner],
	}
}

func (d *interval) subtractDebts() error {
	var rows []recording.Debt
	at := map[debtID]int{}
	for _, debt := range d.later.Debts {
		id := d.later.debt(&debt)
		if i, ok := at[id]; ok {
			for j, sum := range debtSums(&rows[i]) {
				*sum += *debtSums(&debt)[j]
			}
			continue
		}
		at[id] = len(rows)
		rows = append(rows, debt)
	}
	for i := range d.earlier.Debts {
		debt := &d.earlier.Debts[i]
		id := d.earlier.debt(debt)
		folded := id
		folded.thread = foldedID
		row, err := locate(at, id, folded)
		if err != nil {
			return err
		}
		for j, sum := range debtSums(&rows[row]) {
			if err := subtract(sum, *debtSums(debt)[j]); err != nil {
				return err
			}
		}
	}
	d.r.Debts = slices.DeleteFunc(rows, func(debt recording.Debt) bool { return debt.Waits == 0 })
	return nil
}

func debtSums(d *recording.Debt) [3]*uint64 { return [3]*uint64{&d.Waits, &d.WallNS, &d.Operations} }

// boundExtremes replaces the extremes that are not the interval's own by what
// the histogram says of them.
func boundExtremes(h *recording.Hist, least, most *uint64, lower, upper bool) {
	top, ok := highest(h)
	if !ok {
		*least, *most = 0, 0
		return
	}
	if !upper && top < recording.HistBuckets-1 {
		*most = min(*most, bucketFloor(top)+bucketWidth(top))
	}
	if !lower {
		bottom := 0
		for h[bottom] == 0 {
			bottom++
		}
		*least = max(*least, bucketFloor(bottom))
	}
}

func subtract(to *uint64, n uint64) error {
	if *to < n {
		return fmt.Errorf("%w: a sum of the earlier one is larger", ErrNotSnapshots)
	}
	*to -= n
	return nil
}

// subtractUpTo stops at 0.
func subtractUpTo(to *uint64, n uint64) { *to -= min(*to, n) }

func subtractHist(to, from *recording.Hist) error {
	for i, n := range from {
		if err := subtract(&to[i], n); err != nil {
			return err
		}
	}
	return nil
}

// subtractSpans keeps the single spans that are new, cut at the interval's
// beginning, and those that are asked for later.
func (d *interval) subtractSpans() {
	d.ended = map[stageID]*recording.Span{}
	open := map[stageID]*recording.Span{}
	for i := range d.earlier.Open {
		open[d.earlier.span(&d.earlier.Open[i])] = &d.earlier.Open[i]
	}
	known := map[stageID]bool{}
	for i := range d.earlier.Spans {
		known[d.earlier.span(&d.earlier.Spans[i])] = true
	}
	d.r.Spans = nil
	for i := range d.later.Spans {
		s := &d.later.Spans[i]
		id := d.later.span(s)
		if known[id] {
			continue
		}
		row := *s
		if before, cut := open[id]; cut {
			d.ended[id] = s
			row = d.cutSpan(s, before)
		}
		d.r.Spans = append(d.r.Spans, row)
	}
	d.r.Open = nil
	for i := range d.later.Open {
		s := &d.later.Open[i]
		row := *s
		if before, cut := open[d.later.span(s)]; cut {
			row = d.cutSpan(s, before)
		}
		d.r.Open = append(d.r.Open, row)
	}
}

// cutSpan is the part of a span that lies in the interval.
func (d *interval) cutSpan(s, before *recording.Span) recording.Span {
	cut := *s
	cut.Partial = true
	cut.BeginNS += min(before.WallNS, s.WallNS)
	cut.Parts = partsWithout(s.Parts, before.Parts)
	subtractUpTo(&cut.ChildNS, before.ChildNS)
	subtractUpTo(&cut.CPUNS, before.CPUNS)
	if s.Thread == -1 {
		subtractUpTo(&cut.WallNS, before.WallNS)
	} else {
		cut.WallNS = cut.Parts.Total() + cut.ChildNS
	}
	cut.Calls = d.callsWithout(s.Calls, before.Calls)
	return cut
}

func (d *interval) callsWithout(calls, before []recording.SpanCall) []recording.SpanCall {
	var rest []recording.SpanCall
	for _, c := range calls {
		for _, b := range before {
			same := d.later.Symbols[c.Symbol].Address == d.earlier.Symbols[b.Symbol].Address && c.GIL == b.GIL
			if same {
				subtractUpTo(&c.Count, b.Count)
				subtractUpTo(&c.CPUNS, b.CPUNS)
				subtractUpTo(&c.BlockedNS, b.BlockedNS)
			}
		}
		if c.Count > 0 {
			rest = append(rest, c)
		}
	}
	return rest
}

// partsWithout subtracts part by part. No part shrinks from snapshot to snapshot.
// Should one do it all the same, the largest one makes up for it, so that the sum
// is exact.
func partsWithout(p, q recording.Parts) recording.Parts {
	var missing uint64
	largest := &p.RunningNS
	for i, part := range partSums(&p) {
		n := *partSums(&q)[i]
		missing += n - min(n, *part)
		subtractUpTo(part, n)
		if *part > *largest {
			largest = part
		}
	}
	subtractUpTo(largest, missing)
	return p
}

func partSums(p *recording.Parts) [11]*uint64 {
	return [11]*uint64{
		&p.RunningNS, &p.CUDACPUNS, &p.CUDABlockedNS, &p.GILWaitNS, &p.RunnableNS, &p.BlockedFutexNS,
		&p.BlockedPollNS, &p.BlockedReadNS, &p.BlockedSleepNS, &p.BlockedFaultNS, &p.BlockedOtherNS,
	}
}

// closedStages are the rows of spans without those that are open, and where each
// of them is.
func closedStages(x *index) ([]recording.Stage, map[stageID]int) {
	rows, at := []recording.Stage{}, map[stageID]int{}
	for _, s := range x.Stages {
		id := x.stage(s.Thread, s.Path)
		if i, ok := at[id]; ok {
			addStages(&rows[i], &s)
			continue
		}
		at[id] = len(rows)
		rows = append(rows, s)
	}
	for i := range x.Open {
		if row, ok := at[x.stage(x.Open[i].Thread, x.Open[i].Path)]; ok {
			removePartial(&rows[row], &x.Open[i])
		}
	}
	return rows, at
}

func addStages(to, from *recording.Stage) {
	if to.Count == 0 || (from.Count > 0 && from.MinNS < to.MinNS) {
		to.MinNS = from.MinNS
	}
	to.MaxNS = max(to.MaxNS, from.MaxNS)
	for i, sum := range stageSums(to) {
		*sum += *stageSums(from)[i]
	}
	to.Parts, to.PartialParts = to.Parts.Plus(from.Parts), to.PartialParts.Plus(from.PartialParts)
	addHist(&to.Hist, &from.Hist)
}

func stageSums(s *recording.Stage) [8]*uint64 {
	return [8]*uint64{
		&s.Count, &s.WallNS, &s.ChildNS, &s.CPUNS,
		&s.PartialCount, &s.PartialWallNS, &s.PartialChildNS, &s.PartialCPUNS,
	}
}

func removePartial(row *recording.Stage, s *recording.Span) {
	subtractUpTo(&row.PartialCount, 1)
	subtractUpTo(&row.PartialWallNS, s.WallNS)
	subtractUpTo(&row.PartialChildNS, s.ChildNS)
	subtractUpTo(&row.PartialCPUNS, s.CPUNS)
	row.PartialParts = partsWithout(row.PartialParts, s.Parts)
}

func addPartial(row *recording.Stage, s *recording.Span) {
	row.PartialCount++
	row.PartialWallNS += s.WallNS
	row.PartialChildNS += s.ChildNS
	row.PartialCPUNS += s.CPUNS
	row.PartialParts = row.PartialParts.Plus(s.Parts)
}

func (d *interval) subtractStages() error {
	rows, at := closedStages(d.later)
	before, _ := closedStages(d.earlier)
	for i := range before {
		s := &before[i]
		id := d.earlier.stage(s.Thread, s.Path)
		folded := id
		folded.thread = foldedID
		row, err := locate(at, id, folded)
		if err != nil && isEmpty(s) { // it was open only, and its end was lost
			continue
		}
		if err != nil {
			return err
		}
		if isOutside(&rows[row], d.later) {
			rows[row].Parts = partsWithout(rows[row].Parts, s.Parts)
			rows[row].WallNS = rows[row].Parts.Total()
			continue
		}
		if err := subtractStage(&rows[row], s); err != nil {
			return err
		}
	}
	stillOpen := map[stageID]bool{}
	for i := range d.later.Open {
		stillOpen[d.later.span(&d.later.Open[i])] = true
	}
	for i := range d.earlier.Open {
		s := &d.earlier.Open[i]
		if id := d.earlier.span(s); !stillOpen[id] {
			d.cutEnded(rows, at, id, s)
		}
	}
	for i := range d.r.Open {
		s := &d.r.Open[i]
		addPartial(&rows[at[d.later.stage(s.Thread, s.Path)]], s)
	}
	d.r.Stages = rows[:0]
	for _, s := range rows {
		if !isEmpty(&s) {
			d.r.Stages = append(d.r.Stages, s)
		}
	}
	return nil
}

// isOutside tells whether the row is of the time outside any stage, which has no
// spans.
func isOutside(s *recording.Stage, x *index) bool { return len(x.Paths[s.Path].Names) == 0 }

func isEmpty(s *recording.Stage) bool {
	return s.Count == 0 && s.PartialCount == 0 && s.WallNS == 0 && s.PartialWallNS == 0
}

// cutEnded takes the time before the interval out of the row of a span that was
// open then and has ended since.
func (d *interval) cutEnded(rows []recording.Stage, at map[stageID]int, id stageID, before *recording.Span) {
	id.begin = 0
	folded := id
	folded.thread = foldedID
	i, err := locate(at, id, folded)
	if err != nil {
		return // its row was lost, as the losses say
	}
	row := &rows[i]
	id = d.earlier.span(before)
	s, kept := d.ended[id]
	// The window's beginning has cut it too, or its end was missed.
	partial := before.BeginNS == d.later.Window.StartNS || row.Count == 0
	if kept {
		partial = s.Partial
	}
	switch {
	case partial:
		removePartial(row, before)
		row.PartialCount++
	case kept:
		row.Count--
		subtractUpTo(&row.WallNS, s.WallNS)
		subtractUpTo(&row.ChildNS, s.ChildNS)
		subtractUpTo(&row.CPUNS, s.CPUNS)
		row.Parts = partsWithout(row.Parts, s.Parts)
		subtractUpTo(&row.Hist[bucketOf(s.WallNS)], 1)
		boundExtremes(&row.Hist, &row.MinNS, &row.MaxNS, false, false)
		cut := d.cutSpan(s, before)
		addPartial(row, &cut)
	default:
		subtractUpTo(&row.WallNS, before.WallNS)
		subtractUpTo(&row.ChildNS, before.ChildNS)
		subtractUpTo(&row.CPUNS, before.CPUNS)
		row.Parts = partsWithout(row.Parts, before.Parts)
	}
}

func subtractStage(to, from *recording.Stage) error {
	if from.Count == 0 && from.PartialCount == 0 {
		return nil
	}
	lower, upper := from.Count == 0 || to.MinNS < from.MinNS, to.MaxNS > from.MaxNS
	for i, sum := range stageSums(to) {
		if err := subtract(sum, *stageSums(from)[i]); err != nil {
			return err
		}
	}
	for _, p := range []struct{ to, from *recording.Parts }{{&to.Parts, &from.Parts}, {&to.PartialParts, &from.PartialParts}} {
		for i, sum := range partSums(p.to) {
			if err := subtract(sum, *partSums(p.from)[i]); err != nil {
				return err
			}
		}
	}
	if err := subtractHist(&to.Hist, &from.Hist); err != nil {
		return err
	}
	boundExtremes(&to.Hist, &to.MinNS, &to.MaxNS, lower, upper)
	return nil
}

// subtractLosses subtracts by reason. Calls in flight are a level, not a sum: what
// was in flight at the beginning has been seen before, and ends in the interval.
func (d *interval) subtractLosses() {
	type key struct{ kind, reason string }
	before := map[key]uint64{}
	for _, l := range d.earlier.Losses {
		before[key{l.Kind, l.Reason}] += l.Count
	}
	inFlight := key{LossCalls, recording.LossInFlight}
	d.r.Losses = nil
	for _, l := range d.later.Losses {
		if k := (key{l.Kind, l.Reason}); k != inFlight {
			subtractUpTo(&l.Count, before[k])
		}
		if l.Reason == recording.LossSpansNotKept { // those from before are forgotten meanwhile too
			l.Count = min(l.Count, d.spansMissing())
		}
		if l.Count > 0 {
			d.r.Losses = append(d.r.Losses, l)
		}
	}
	if d.later.Seen != nil && d.earlier.Seen != nil {
		calls := add(d.later.Seen.Calls, before[inFlight])
		subtractUpTo(&calls, d.earlier.Seen.Calls)
		d.r.Seen = &recording.Seen{Calls: calls}
	}
}

// spansMissing is how many spans of threads ended in the interval and are in sums
// only.
func (d *interval) spansMissing() uint64 {
	var ended uint64
	for i := range d.r.Stages {
		if s := &d.r.Stages[i]; s.Thread != -1 {
			ended += s.Count + s.PartialCount
		}
	}
	listed := uint64(len(d.r.Spans))
	for i := range d.r.Open {
		if d.r.Open[i].Thread != -1 {
			listed++
		}
	}
	return ended - min(listed, ended)
}

func (d *interval) subtractOverhead() {
	o := &d.r.Overhead
	subtractUpTo(&o.AddedNS, d.earlier.Overhead.AddedNS)
	subtractUpTo(&o.Followed, d.earlier.Overhead.Followed)
	subtractUpTo(&o.FollowedNS, d.earlier.Overhead.FollowedNS)
	subtractUpTo(&o.Samples, d.earlier.Overhead.Samples)
	subtractUpTo(&o.SamplesNS, d.earlier.Overhead.SamplesNS)
	subtractUpTo(&o.Looks, d.earlier.Overhead.Looks)
	subtractUpTo(&o.LooksNS, d.earlier.Overhead.LooksNS)
	o.Programs = programsSince(d.earlier.Overhead.Programs, o.Programs)
	o.AgentCPU -= min(o.AgentCPU, d.earlier.Overhead.AgentCPU)
	var calls uint64
	for i := range d.r.Calls {
		calls += d.r.Calls[i].Count
	}
	if calls > 0 {
		o.CallCostNS = float64(o.AddedNS) / float64(calls)
	}
	o.Attach, o.Detach = time.Duration(0), time.Duration(0)
}

func programsSince(earlier, later []recording.Program) (since []recording.Program) {
	before := map[string]recording.Program{}
	for _, p := range earlier {
		before[p.Name] = p
	}
	for _, p := range later {
		subtractUpTo(&p.Runs, before[p.Name].Runs)
		subtractUpTo(&p.WallNS, before[p.Name].WallNS)
		since = append(since, p)
	}
	return since
}

// gpuSince takes apart what is a sum or a mean over samples.
func gpuSince(earlier, later *recording.GPU) *recording.GPU {
	if earlier == nil || later == nil {
		return later
	}
	before := map[string]recording.Device{}
	for _, d := range earlier.Devices {
		before[d.UUID] = d
	}
	g := &recording.GPU{Driver: later.Driver}
	for _, d := range later.Devices {
		b := before[d.UUID]
		d.EnergyJ = max(0, d.EnergyJ-b.EnergyJ)
		if n := d.Samples - b.Samples; n > 0 {
			d.UtilizationPct = meanSince(d.UtilizationPct, b.UtilizationPct, d.Samples, b.Samples)
			for _, mean := range [][2]*float64{
				{&d.PowerW, &b.PowerW}, {&d.GraphicsClockMHz, &b.GraphicsClockMHz}, {&d.SMClockMHz, &b.SMClockMHz},
				{&d.MemoryClockMHz, &b.MemoryClockMHz},
			} {
				*mean[0] = meanSince(*mean[0], *mean[1], d.Samples, b.Samples)
			}
			d.ClockLimits = limitsSince(b.ClockLimits, d.ClockLimits)
			d.Samples = n
		}
		d.Intervals = slices.DeleteFunc(slices.Clone(d.Intervals), func(i recording.DeviceInterval) bool {
			return len(b.Intervals) > 0 && i.BeginNS < b.Intervals[len(b.Intervals)-1].EndNS
		})
		g.Devices = append(g.Devices, d)
	}
	return g
}

func limitsSince(earlier, later []recording.ClockLimit) (since []recording.ClockLimit) {
	for _, l := range later {
		for _, b := range earlier {
			if b.Reason == l.Reason {
				l.Samples -= min(b.Samples, l.Samples)
			}
		}
		if l.Samples > 0 {
			since = append(since, l)
		}
	}
	return since
}

func meanSince(mean, before float64, n, nBefore int) float64 {
	return max(0, (mean*float64(n)-before*float64(nBefore))/float64(n-nBefore))
}
