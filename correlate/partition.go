package correlate

import (
	"cmp"
	"math/bits"
	"slices"

	"stageprof/recording"
)

// PartKind is what a thread did with a part of its time.
type PartKind string

// The kinds of part.
const (
	PartCUDACPU      PartKind = "cuda cpu"     // on a CPU inside driver calls, the probes' own time taken out
	PartCUDABlocked  PartKind = "cuda blocked" // off the CPU inside driver calls
	PartProbes       PartKind = "stageprof"    // the probes' own time inside the measured calls
	PartGILWait      PartKind = "gil wait"     // asleep until Python's lock is free
	PartRunnable     PartKind = "runnable"     // ready to run, without a CPU
	PartFutex        PartKind = "blocked: futex"
	PartPoll         PartKind = "blocked: poll"
	PartRead         PartKind = "blocked: read"
	PartSleep        PartKind = "blocked: sleep"
	PartFault        PartKind = "blocked: page fault"
	PartBlockedOther PartKind = "blocked: other"
	PartRunning      PartKind = "running"      // on a CPU, outside driver calls
	PartChildren     PartKind = "child stages" // in the stages inside, of which no more is said here
	PartUnknown      PartKind = "unknown"      // the Recording does not say
)

// PartKinds lists the kinds in the order in which they are shown.
var PartKinds = []PartKind{
	PartCUDACPU, PartCUDABlocked, PartProbes, PartGILWait, PartRunnable,
	PartFutex, PartPoll, PartRead, PartSleep, PartFault, PartBlockedOther,
	PartRunning, PartChildren, PartUnknown,
}

// CUDA reports whether the kind is time in driver calls as the target would
// spend it without stageprof.
func (k PartKind) CUDA() bool { return k == PartCUDACPU || k == PartCUDABlocked }

// Blocked reports whether the kind is time off the CPU, outside driver calls,
// that waited neither for Python's lock nor for a CPU.
func (k PartKind) Blocked() bool {
	return slices.Contains([]PartKind{PartFutex, PartPoll, PartRead, PartSleep, PartFault, PartBlockedOther}, k)
}

// OnCPU reports whether the thread was running.
func (k PartKind) OnCPU() bool {
	return k == PartCUDACPU || k == PartProbes || k == PartRunning
}

// PartName tells the parts of a Partition apart. The kinds of driver time are
// split by api and gil; there, the name without both is the rest that no call
// row accounts for.
type PartName struct {
	Kind PartKind
	API  string
	GIL  recording.GIL
}

// Rest reports whether the part is driver time of no known call.
func (n PartName) Rest() bool { return n.Kind.CUDA() && n.API == "" && n.GIL == "" }

// String writes the name as e.g. "cuda cpu: cuLaunchKernel [gil free]",
// "cuda blocked: other", "blocked: futex" or "running".
func (n PartName) String() string {
	switch {
	case !n.Kind.CUDA():
		return string(n.Kind)
	case n.Rest():
		return string(n.Kind) + ": other"
	default:
		return string(n.Kind) + ": " + n.API + " [gil " + string(n.GIL) + "]"
	}
}

// Part is one part of a Partition.
type Part struct {
	PartName
	NS uint64
}

// Partition divides a wall time into parts that sum to it, to the nanosecond.
type Partition struct {
	WallNS uint64
	Parts  []Part // none of 0; by kind, in each the largest first
}

// Of sums the parts of one kind.
func (p *Partition) Of(kind PartKind) (ns uint64) {
	for i := range p.Parts {
		if p.Parts[i].Kind == kind {
			ns += p.Parts[i].NS
		}
	}
	return ns
}

// divider takes parts out of a wall time until nothing is left of it. There is
// one for every span, so it searches a short list instead of keeping a map.
type divider struct {
	rest  uint64
	parts *[]Part
}

func divide(wall uint64) *divider { return &divider{rest: wall, parts: new([]Part)} }

// take takes a part out of what is left, at most all of it.
func (d *divider) take(name PartName, ns uint64) {
	ns = min(ns, d.rest)
	d.rest -= ns
	if ns == 0 {
		return
	}
	for i := range *d.parts {
		if part := &(*d.parts)[i]; part.PartName == name {
			part.NS += ns
			return
		}
	}
	*d.parts = append(*d.parts, Part{name, ns})
}

func (d *divider) takeKind(kind PartKind, ns uint64) { d.take(PartName{Kind: kind}, ns) }

// split takes out a time that is divided further.
func (d *divider) split(ns uint64) *divider {
	ns = min(ns, d.rest)
	d.rest -= ns
	return &divider{rest: ns, parts: d.parts}
}

// takeRest gives all that is left to one kind.
func (d *divider) takeRest(kind PartKind) { d.takeKind(kind, d.rest) }

// takeParts takes out what a Recording says of a thread's own time, driver
// time by the calls that were made in it.
func (d *divider) takeParts(p *recording.Parts, calls []callTime) {
	d.takeCalls(p.CUDACPUNS, p.CUDABlockedNS, calls)
	d.takeKind(PartGILWait, p.GILWaitNS)
	d.takeKind(PartRunnable, p.RunnableNS)
	d.takeKind(PartFutex, p.BlockedFutexNS)
	d.takeKind(PartPoll, p.BlockedPollNS)
	d.takeKind(PartRead, p.BlockedReadNS)
	d.takeKind(PartSleep, p.BlockedSleepNS)
	d.takeKind(PartFault, p.BlockedFaultNS)
	d.takeKind(PartBlockedOther, p.BlockedOtherNS)
	d.takeKind(PartRunning, p.RunningNS)
}

// callTime is the time of calls of one api and gil, in parts.
type callTime struct {
	api                  string
	gil                  recording.GIL
	region               int // RegionPath that was open; 0 unless times are split by region
	cpu, probes, blocked uint64
}

// takeCalls divides driver time by calls. Calls that sum to more than the
// driver time, which only a damaged Recording says, are cut, the largest
// first; what they leave over is the rest.
func (d *divider) takeCalls(cpu, blocked uint64, calls []callTime) {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b callTime) int {
		return cmp.Or(cmp.Compare(add(a.cpu, a.blocked), add(b.cpu, b.blocked)),
			cmp.Compare(a.api, b.api), cmp.Compare(a.gil, b.gil))
	})
	onCPU, offCPU := d.split(cpu), d.split(blocked)
	for _, c := range calls {
		onCPU.take(PartName{PartCUDACPU, c.api, c.gil}, c.cpu)
		onCPU.takeKind(PartProbes, c.probes)
		offCPU.take(PartName{PartCUDABlocked, c.api, c.gil}, c.blocked)
	}
	onCPU.takeRest(PartCUDACPU)
	offCPU.takeRest(PartCUDABlocked)
}

// partition ends the division. What was not taken is unknown.
func (d *divider) partition() Partition {
	d.takeRest(PartUnknown)
	p := Partition{Parts: *d.parts}
	for i := range p.Parts {
		p.WallNS += p.Parts[i].NS
	}
	slices.SortFunc(p.Parts, func(a, b Part) int {
		return cmp.Or(
			cmp.Compare(kindOrder[a.Kind], kindOrder[b.Kind]), cmp.Compare(b.NS, a.NS),
			cmp.Compare(a.API, b.API), cmp.Compare(a.GIL, b.GIL))
	})
	return p
}

// kindOrder holds the places of PartKinds.
var kindOrder = func() map[PartKind]int {
	order := map[PartKind]int{}
	for i, kind := range PartKinds {
		order[kind] = i
	}
	return order
}()

// mix sums partitions.
type mix struct {
	wall  uint64
	parts map[PartName]uint64
}

func (m *mix) add(p *Partition) {
	if m.parts == nil {
		m.parts = map[PartName]uint64{}
	}
	m.wall = add(m.wall, p.WallNS)
	for _, part := range p.Parts {
		m.parts[part.PartName] = add(m.parts[part.PartName], part.NS)
	}
}

func (m *mix) partition() Partition {
	d := divide(m.wall)
	for _, name := range m.names() {
		d.take(name, m.parts[name])
	}
	return d.partition()
}

// names are in a fixed order, which decides who is cut when sums overflow.
func (m *mix) names() []PartName {
	names := make([]PartName, 0, len(m.parts))
	for name := range m.parts {
		names = append(names, name)
	}
	slices.SortFunc(names, comparePartNames)
	return names
}

func comparePartNames(a, b PartName) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.API, b.API), cmp.Compare(a.GIL, b.GIL))
}

// partsOf returns the parts if they can be those of a time of wall: otherwise
// none, and all of it is unknown.
func partsOf(p recording.Parts, wall uint64) recording.Parts {
	if sum, ok := sumParts(&p); !ok || sum > wall {
		return recording.Parts{}
	}
	return p
}

// sumParts is ok unless it overflows.
func sumParts(p *recording.Parts) (sum uint64, ok bool) {
	ok = true
	for _, ns := range partFields(p) {
		var carry uint64
		sum, carry = bits.Add64(sum, *ns, 0)
		ok = ok && carry == 0
	}
	return sum, ok
}

func addParts(to, p *recording.Parts) {
	fields := partFields(p)
	for i, ns := range partFields(to) {
		*ns = add(*ns, *fields[i])
	}
}

func partFields(p *recording.Parts) [11]*uint64 {
	return [...]*uint64{
		&p.RunningNS, &p.CUDACPUNS, &p.CUDABlockedNS, &p.GILWaitNS, &p.RunnableNS, &p.BlockedFutexNS,
		&p.BlockedPollNS, &p.BlockedReadNS, &p.BlockedSleepNS, &p.BlockedFaultNS, &p.BlockedOtherNS,
	}
}
