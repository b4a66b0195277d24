package recording

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Joined is one Recording made of several of the same process, one after the
// other: rows with the same key are added up, so that its size does not grow with
// their number. Its zero value is ready to use.
//
// A thread of one Recording is that of the ones before with the same id and name; of
// those that come when there are maxThreads only the sum is kept, as one that is Folded.
// Timelines and open spans are left out: a recording in several windows has none.
type Joined struct {
	r        *Recording
	warnings warnings

	modules   table[Module]
	symbols   table[Symbol]
	frames    table[Frame]
	threads   table[threadKey]
	paths     table[pathKey]
	functions table[PythonFunction]
	stacks    table[string]
	regions   table[Region]
	regionsOf table[string]

	calls       table[callKey]
	stages      table[stageKey]
	debts       table[debtKey]
	times       table[timeKey]
	parts       table[partsKey]
	allocations table[allocationKey]
}

// table numbers what is different, in the order in which it comes.
type table[K comparable] map[K]int

// number returns the number of a key, and whether it is a new one.
func (t *table[K]) number(key K) (int, bool) {
	if *t == nil {
		*t = table[K]{}
	}
	id, known := (*t)[key]
	if !known {
		id = len(*t)
		(*t)[key] = id
	}
	return id, !known
}

type (
	threadKey struct {
		tid, ntid, nth int // nth: of the same Recording's threads with this id and name
		name           string
	}
	pathKey struct {
		names  string
		python bool
	}
	callKey struct {
		thread, path, symbol, caller, region int
		gil                                  GIL
		attribution                          Attribution
	}
	stageKey struct{ thread, path int }
	debtKey  struct {
		thread, path, symbol, owner int
		kind                        DebtKind
	}
	timeKey struct {
		thread, path, region int
		attribution          Attribution
	}
	partsKey      struct{ thread, path, region int }
	allocationKey timeKey
)

// Recording is what has been added so far, nil if nothing has. It changes with the
// next Add.
func (j *Joined) Recording() *Recording { return j.r }

// Add adds a Recording, of which at most keepSpans spans are kept one by one in
// all. The first one is taken as it is; r must not be used afterwards.
func (j *Joined) Add(r *Recording, keepSpans int) {
	if j.r == nil {
		j.r = &Recording{
			Format: r.Format, Tool: r.Tool, Target: r.Target, Window: r.Window,
			Absent: r.Absent, Overhead: r.Overhead, GPU: r.GPU, GPUNote: r.GPUNote,
			Losses: slices.Clone(r.Losses), Budget: r.Budget,
		}
		if r.Seen != nil {
			j.r.Seen = &Seen{r.Seen.Calls}
		}
	} else {
		j.addHead(r)
	}
	j.warnings.add(r.Warnings)
	j.r.Warnings = j.warnings.texts()
	n := j.number(r)
	j.addRows(r, n)
	j.addSpans(r, n, keepSpans)
}

// addHead adds everything that is not in rows.
func (j *Joined) addHead(r *Recording) {
	to := j.r
	to.Window.Duration += r.Window.Duration
	to.Window.End = r.Window.End
	if to.Target.Python == nil {
		to.Target.Python = r.Target.Python
	}
	to.Absent = slices.Compact(slices.Sorted(slices.Values(slices.Concat(to.Absent, r.Absent))))
	for _, l := range r.Losses {
		to.lose(l)
	}
	if r.Seen != nil && to.Seen != nil {
		to.Seen.Calls += r.Seen.Calls
	}
	to.Overhead = to.Overhead.plus(&r.Overhead)
	if to.Budget != nil && r.Budget != nil {
		to.Budget.Windows = append(to.Budget.Windows, r.Budget.Windows...)
		to.Budget.Cost = to.Budget.Cost.Plus(r.Budget.Cost)
	}
}

// lose adds to the loss of the same reason and kind, in the order of reasons.
func (r *Recording) lose(l Loss) {
	i, known := slices.BinarySearchFunc(r.Losses, l, func(a, b Loss) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(a.Kind, b.Kind))
	})
	if known {
		r.Losses[i].Count += l.Count
		return
	}
	r.Losses = slices.Insert(r.Losses, i, l)
}

// plus is what two recordings cost together. What was held at the same time is the
// larger one's.
func (o Overhead) plus(p *Overhead) Overhead {
	if calls := o.calls() + p.calls(); calls > 0 {
		o.CallCostNS = (o.CallCostNS*o.calls() + p.CallCostNS*p.calls()) / calls
	} else {
		o.CallCostNS = max(o.CallCostNS, p.CallCostNS)
	}
	o.AddedNS += p.AddedNS
	o.AgentCPU += p.AgentCPU
	o.AgentRSS = max(o.AgentRSS, p.AgentRSS)
	o.Attach += p.Attach
	o.Detach += p.Detach
	o.ProbedSites = max(o.ProbedSites, p.ProbedSites)
	o.KernelBytes = max(o.KernelBytes, p.KernelBytes)
	o.Followed += p.Followed
	o.FollowedNS += p.FollowedNS
	o.Samples += p.Samples
	o.SamplesNS += p.SamplesNS
	o.Looks += p.Looks
	o.LooksNS += p.LooksNS
	o.Programs = addPrograms(o.Programs, p.Programs)
	return o
}

func addPrograms(to, from []Program) []Program {
	to = slices.Clone(to)
	for _, p := range from {
		i := slices.IndexFunc(to, func(q Program) bool { return q.Name == p.Name })
		if i < 0 {
			to = append(to, p)
			continue
		}
		to[i].Runs += p.Runs
		to[i].WallNS += p.WallNS
	}
	return to
}

// calls is how many calls AddedNS is of.
func (o *Overhead) calls() float64 {
	if o.CallCostNS <= 0 {
		return 0
	}
	return float64(o.AddedNS) / o.CallCostNS
}

// numbers are the joined Recording's for the rows of another one.
type numbers struct {
	modules, symbols, frames, threads, paths, functions, stacks, regions, regionsOf []int
}

func (n *numbers) frame(id int) int {
	if id == -1 {
		return -1
	}
	return n.frames[id]
}

func (n *numbers) thread(id int) int {
	if id == -1 { // the process's stages
		return -1
	}
	return n.threads[id]
}

// regionPath is 0 outside of regions, also in a Recording that has none.
func (n *numbers) regionPath(id int) int {
	if id == 0 {
		return 0
	}
	return n.regionsOf[id]
}

// number adds the rows that others refer to.
func (j *Joined) number(r *Recording) *numbers {
	n := &numbers{}
	to := j.r
	for _, m := range r.Modules {
		m.ID = 0
		n.modules = append(n.modules, intern(&j.modules, m, func(id int) { m.ID = id; to.Modules = append(to.Modules, m) }))
	}
	for _, s := range r.Symbols {
		s.ID, s.Module = 0, n.modules[s.Module]
		n.symbols = append(n.symbols, intern(&j.symbols, s, func(id int) { s.ID = id; to.Symbols = append(to.Symbols, s) }))
	}
	for _, f := range r.Frames {
		f.ID, f.Module = 0, n.modules[f.Module]
		n.frames = append(n.frames, intern(&j.frames, f, func(id int) { f.ID = id; to.Frames = append(to.Frames, f) }))
	}
	j.numberThreads(r, n)
	for _, p := range r.Paths {
		key := pathKey{strings.Join(p.Names, "\x00"), p.PythonFunction}
		n.paths = append(n.paths, intern(&j.paths, key, func(id int) { p.ID = id; to.Paths = append(to.Paths, p) }))
	}
	for _, f := range r.PythonFunctions {
		f.ID = 0
		n.functions = append(n.functions, intern(&j.functions, f, func(id int) { f.ID = id; to.PythonFunctions = append(to.PythonFunctions, f) }))
	}
	for _, s := range r.PythonStacks {
		s.Frames = slices.Clone(s.Frames)
		for i := range s.Frames {
			s.Frames[i].Function = n.functions[s.Frames[i].Function]
		}
		n.stacks = append(n.stacks, intern(&j.stacks, fmt.Sprint(s.Frames, s.Cut), func(id int) { s.ID = id; to.PythonStacks = append(to.PythonStacks, s) }))
	}
	j.numberRegions(r, n)
	return n
}

// maxThreads bounds the threads that are told apart: a target can go through any number
// of them in its windows.
const maxThreads = 65_536

const furtherThreads = "(further threads)"

// numberThreads takes threads with one id and name for the same one, but those of
// one Recording for several.
func (j *Joined) numberThreads(r *Recording, n *numbers) {
	var met table[threadKey]
	nth := map[threadKey]int{}
	for _, t := range r.Threads {
		key := threadKey{tid: t.TID, ntid: t.NTID, name: t.Name}
		if _, first := met.number(key); !first {
			nth[key]++
		}
		key.nth = nth[key]
		if _, known := j.threads[key]; !known && len(j.threads) >= maxThreads {
			key, t = threadKey{name: furtherThreads}, Thread{Name: furtherThreads, Folded: true}
		}
		n.threads = append(n.threads, intern(&j.threads, key, func(id int) {
			t.ID, t.Serial = id, 0 // a number of one window only
			j.r.Threads = append(j.r.Threads, t)
		}))
	}
}

func (j *Joined) numberRegions(r *Recording, n *numbers) {
	to := j.r
	for _, region := range r.Regions {
		region.ID, region.Module = 0, n.modules[region.Module]
		n.regions = append(n.regions, intern(&j.regions, region, func(id int) { region.ID = id; to.Regions = append(to.Regions, region) }))
	}
	for _, p := range r.RegionPaths {
		p.Regions = slices.Clone(p.Regions)
		for i, region := range p.Regions {
			if region != -1 {
				p.Regions[i] = n.regions[region]
			}
		}
		n.regionsOf = append(n.regionsOf, intern(&j.regionsOf, fmt.Sprint(p.Regions), func(id int) { p.ID = id; to.RegionPaths = append(to.RegionPaths, p) }))
	}
}

// intern returns the number of a key, and adds its row if it is new.
func intern[K comparable](t *table[K], key K, add func(id int)) int {
	id, first := t.number(key)
	if first {
		add(id)
	}
	return id
}

// merge adds a row to the one of the same key, or behind the others if there is none.
// It returns the row's place.
func merge[K comparable, R any](t *table[K], rows *[]R, key K, row R, add func(to, from *R)) int {
	id, first := t.number(key)
	if first {
		*rows = append(*rows, row)
	} else {
		add(&(*rows)[id], &row)
	}
	return id
}

// addRows adds up what was counted.
func (j *Joined) addRows(r *Recording, n *numbers) {
	to := j.r
	for _, c := range r.Calls {
		j.addCall(c, n)
	}
	for _, s := range r.Stages {
		s.Thread, s.Path = n.thread(s.Thread), n.paths[s.Path]
		merge(&j.stages, &to.Stages, stageKey{s.Thread, s.Path}, s, (*Stage).add)
	}
	for _, d := range r.Debts {
		d.Thread, d.Path, d.Symbol, d.Owner = n.threads[d.Thread], n.paths[d.Path], n.symbols[d.Symbol], n.paths[d.Owner]
		merge(&j.debts, &to.Debts, debtKey{d.Thread, d.Path, d.Symbol, d.Owner, d.Kind}, d, (*Debt).add)
	}
	for _, t := range r.RegionTimes {
		t.Thread, t.Path, t.Region = n.threads[t.Thread], n.paths[t.Path], n.regionPath(t.Region)
		merge(&j.times, &to.RegionTimes, timeKey{t.Thread, t.Path, t.Region, t.Attribution}, t, (*RegionTime).add)
	}
	for _, p := range r.RegionParts {
		p.Thread, p.Path, p.Region = n.threads[p.Thread], n.paths[p.Path], n.regionPath(p.Region)
		merge(&j.parts, &to.RegionParts, partsKey{p.Thread, p.Path, p.Region}, p, (*RegionParts).add)
	}
	for _, a := range r.Allocations {
		a.Thread, a.Path, a.Region = n.threads[a.Thread], n.paths[a.Path], n.regionPath(a.Region)
		merge(&j.allocations, &to.Allocations, allocationKey{a.Thread, a.Path, a.Region, a.Attribution}, a, (*Allocation).add)
	}
}

func (j *Joined) addCall(c Call, n *numbers) {
	c.Thread, c.Path, c.Symbol = n.threads[c.Thread], n.paths[c.Path], n.symbols[c.Symbol]
	c.Caller, c.Region = n.frame(c.Caller), n.regionPath(c.Region)
	samples := c.Samples
	c.Samples = nil
	key := callKey{c.Thread, c.Path, c.Symbol, c.Caller, c.Region, c.GIL, c.Attribution}
	to := &j.r.Calls[merge(&j.calls, &j.r.Calls, key, c, (*Call).add)]
	for _, s := range samples {
		s.Stack = n.stacks[s.Stack]
		at := slices.IndexFunc(to.Samples, func(t Sample) bool { return t.Stack == s.Stack })
		if at < 0 {
			to.Samples = append(to.Samples, s)
		} else {
			to.Samples[at].add(&s)
		}
	}
}

// addSpans keeps the first spans. Later ones are in the sums only.
func (j *Joined) addSpans(r *Recording, n *numbers, keep int) {
	kept := min(len(r.Spans), max(0, keep-len(j.r.Spans)))
	for _, s := range r.Spans[:kept] {
		s.Thread, s.Path = n.thread(s.Thread), n.paths[s.Path]
		s.Calls = slices.Clone(s.Calls)
		for i := range s.Calls {
			s.Calls[i].Symbol = n.symbols[s.Calls[i].Symbol]
		}
		j.r.Spans = append(j.r.Spans, s)
	}
	if left := len(r.Spans) - kept; left > 0 {
		j.r.lose(Loss{Reason: LossSpansNotKept, Kind: "other", Count: uint64(left),
			Help: fmt.Sprintf("spans beyond the first %d are in the totals, but not kept one by one", keep)})
	}
}

func (c *Call) add(d *Call) {
	c.MinNS, c.MaxNS = extremes(c.Count, c.MinNS, c.MaxNS, d.Count, d.MinNS, d.MaxNS)
	c.Count += d.Count
	c.Errors += d.Errors
	c.WallNS += d.WallNS
	c.CPUNS += d.CPUNS
	c.Bytes += d.Bytes
	c.GILWaitCausedNS += d.GILWaitCausedNS
	c.Hist.add(&d.Hist)
}

func (s *Sample) add(t *Sample) {
	s.Count += t.Count
	s.WallNS += t.WallNS
	s.CPUNS += t.CPUNS
	s.ForCount += t.ForCount
	s.ForWallNS += t.ForWallNS
	s.ForCPUNS += t.ForCPUNS
	s.GILWaitCausedNS += t.GILWaitCausedNS
	s.ForGILWaitCausedNS += t.ForGILWaitCausedNS
}

func (s *Stage) add(t *Stage) {
	s.MinNS, s.MaxNS = extremes(s.Count, s.MinNS, s.MaxNS, t.Count, t.MinNS, t.MaxNS)
	s.Count += t.Count
	s.WallNS += t.WallNS
	s.ChildNS += t.ChildNS
	s.CPUNS += t.CPUNS
	s.Hist.add(&t.Hist)
	s.PartialCount += t.PartialCount
	s.PartialWallNS += t.PartialWallNS
	s.PartialChildNS += t.PartialChildNS
	s.PartialCPUNS += t.PartialCPUNS
	s.Parts = s.Parts.Plus(t.Parts)
	s.PartialParts = s.PartialParts.Plus(t.PartialParts)
}

func (d *Debt) add(e *Debt) {
	d.Waits += e.Waits
	d.WallNS += e.WallNS
	d.Operations += e.Operations
}

func (t *RegionTime) add(u *RegionTime) {
	t.MinNS, t.MaxNS = extremes(t.Count, t.MinNS, t.MaxNS, u.Count, u.MinNS, u.MaxNS)
	t.Count += u.Count
	t.WallNS += u.WallNS
	t.ChildNS += u.ChildNS
	t.PartialCount += u.PartialCount
	t.PartialWallNS += u.PartialWallNS
	t.PartialChildNS += u.PartialChildNS
}

func (p *RegionParts) add(q *RegionParts) { p.Parts = p.Parts.Plus(q.Parts) }

func (a *Allocation) add(b *Allocation) {
	a.Count += b.Count
	a.Bytes += b.Bytes
	a.Freed += b.Freed
	a.FreedBytes += b.FreedBytes
	a.FreedUnknown += b.FreedUnknown
}

// extremes leaves out the side that has none: its smallest one would be 0.
func extremes(n, low, high, m, otherLow, otherHigh uint64) (uint64, uint64) {
	switch {
	case n == 0:
		return otherLow, otherHigh
	case m == 0:
		return low, high
	}
	return min(low, otherLow), max(high, otherHigh)
}

func (h *Hist) add(g *Hist) {
	for i := range h {
		h[i] += g[i]
	}
}
