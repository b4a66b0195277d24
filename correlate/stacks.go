package correlate

import (
	"cmp"
	"math/bits"
	"slices"

	"stageprof/recording"
)

// Stack is the part of a Site's totals that was made from one Python stack. How
// the exact totals are divided over stacks is an estimate from samples; the
// parts sum to the totals.
type Stack struct {
	Stack   int    // ID in Source.PythonStacks; -1: no call of the row was sampled
	Samples uint64 // calls that were looked at
	Count   uint64
	Errors  uint64 // as the calls are divided, as bytes are
	Bytes   uint64
	WallNS  uint64
	CPUNS   uint64

	GILWaitCausedNS uint64
}

// Known reports whether the stack is one of the Recording's.
func (s *Stack) Known() bool { return s.Stack != noStack }

// Stacks returns the parts of the call's total by Python stack, over all sites;
// nil when no call was sampled.
func (c *Call) Stacks() []Stack {
	var sum siteSum
	for i := range c.Sites {
		sum.add(&Total{}, c.Sites[i].knownStacks())
	}
	return sum.finish()
}

// total is what is known of the calls of a stack.
func (s *Stack) total() Total {
	return Total{
		Count: s.Count, Errors: s.Errors, Bytes: s.Bytes, WallNS: s.WallNS, CPUNS: s.CPUNS, GILWaitCausedNS: s.GILWaitCausedNS,
	}
}

func (s *Stack) add(o *Stack) {
	s.Samples = add(s.Samples, o.Samples)
	s.Count = add(s.Count, o.Count)
	s.Errors = add(s.Errors, o.Errors)
	s.Bytes = add(s.Bytes, o.Bytes)
	s.WallNS = add(s.WallNS, o.WallNS)
	s.CPUNS = add(s.CPUNS, o.CPUNS)
	s.GILWaitCausedNS = add(s.GILWaitCausedNS, o.GILWaitCausedNS)
}

// noStack is the Stack of rows without samples.
const noStack = -1

// divideTotal divides a row's total over the stacks of its samples. Each stack has
// a call at least.
func divideTotal(t *Total, samples []recording.Sample, biasNS float64) []Stack {
	samples = slices.DeleteFunc(slices.Clone(samples), func(s recording.Sample) bool { return s.Count == 0 })
	if len(samples) == 0 {
		return []Stack{{
			Stack: noStack, Count: t.Count, Errors: t.Errors, Bytes: t.Bytes, WallNS: t.WallNS, CPUNS: t.CPUNS,
			GILWaitCausedNS: t.GILWaitCausedNS,
		}}
	}
	n := len(samples)
	var calls, running, waiting, caused shares
	for i := range samples {
		s := &samples[i]
		calls.add(s.Count, s.ForCount)
		cpu, forCPU := unbiased(s.CPUNS, s.Count, biasNS), unbiased(s.ForCPUNS, s.ForCount, biasNS)
		running.add(cpu, forCPU)
		waiting.add(s.WallNS-min(s.CPUNS, s.WallNS), s.ForWallNS-min(s.ForCPUNS, s.ForWallNS))
		caused.add(s.GILWaitCausedNS, s.ForGILWaitCausedNS)
	}
	count, errors, size := calls.of(t.Count), split(t.Errors, calls.estimated), split(t.Bytes, calls.estimated)
	// On the CPU and off it apart: so no part's CPU time exceeds its wall time.
	cpu, blocked := running.of(t.CPUNS), waiting.of(t.BlockedNS())
	gilWait := caused.of(t.GILWaitCausedNS)
	stacks := make([]Stack, n)
	for i, s := range samples {
		stacks[i] = Stack{
			Stack: s.Stack, Samples: s.Count, Count: count[i], Errors: errors[i], Bytes: size[i],
			WallNS: add(cpu[i], blocked[i]), CPUNS: cpu[i], GILWaitCausedNS: gilWait[i],
		}
	}
	return withoutEmpty(stacks)
}

// withoutEmpty gives the times of stacks that are left without a call to the one
// with the most.
func withoutEmpty(stacks []Stack) []Stack {
	most := 0
	for i := range stacks {
		if stacks[i].Count > stacks[most].Count {
			most = i
		}
	}
	kept := []Stack{stacks[most]}
	for i := range stacks {
		switch {
		case i == most:
		case stacks[i].Count == 0:
			empty := stacks[i]
			empty.Stack = kept[0].Stack
			kept[0].add(&empty)
		default:
			kept = append(kept, stacks[i])
		}
	}
	return kept
}

func unbiased(ns, count uint64, biasNS float64) uint64 { return ns - min(scaled(count, biasNS), ns) }

// shares is what is known of the parts of a total: what was seen of each, and
// what it is estimated to be.
type shares struct{ seen, estimated []uint64 }

func (s *shares) add(seen, estimated uint64) {
	s.seen = append(s.seen, seen)
	s.estimated = append(s.estimated, max(seen, estimated))
}

// of divides a total. Each part is what was seen of it, which is certain, and
// its share of what was not seen of any.
func (s *shares) of(total uint64) []uint64 {
	var seen uint64
	unseen := make([]uint64, len(s.seen))
	for i, v := range s.seen {
		seen = add(seen, v)
		unseen[i] = s.estimated[i] - v
	}
	if seen > total {
		return split(total, s.estimated)
	}
	parts := split(total-seen, unseen, s.estimated)
	for i, v := range s.seen {
		parts[i] += v
	}
	return parts
}

// split divides a total in proportion to weights, to the unit: what rounding
// leaves over goes to the largest remainders, the first ones of equal ones.
// Weights that are all 0 say nothing; then the next ones count, and in the end
// all parts are alike.
func split(total uint64, weights ...[]uint64) []uint64 {
	for _, w := range weights {
		if parts, ok := splitBy(total, w); ok {
			return parts
		}
	}
	same := make([]uint64, len(weights[0]))
	for i := range same {
		same[i] = 1
	}
	parts, _ := splitBy(total, same)
	return parts
}

func splitBy(total uint64, weights []uint64) (parts []uint64, ok bool) {
	weights, sum := summable(weights)
	if sum == 0 {
		return nil, false
	}
	parts = make([]uint64, len(weights))
	remainders := make([]uint64, len(weights))
	order := make([]int, len(weights))
	left := total
	for i, w := range weights {
		high, low := bits.Mul64(total, w)
		parts[i], remainders[i] = bits.Div64(high, low, sum)
		left -= parts[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for _, i := range order[:left] { // fewer than there are remainders
		parts[i]++
	}
	return parts, true
}

// summable returns weights in the same proportion whose sum is a number.
func summable(weights []uint64) (scaled []uint64, sum uint64) {
	var carry uint64
	for _, w := range weights {
		var c uint64
		sum, c = bits.Add64(sum, w, 0)
		carry += c
	}
	if carry == 0 {
		return weights, sum
	}
	scaled, sum = make([]uint64, len(weights)), 0
	for i, w := range weights {
		scaled[i] = w >> bits.Len(uint(len(weights)))
		sum += scaled[i]
	}
	return scaled, sum
}

// siteSum accumulates a Site.
type siteSum struct {
	total  Total
	stacks []Stack // by ID
}

func (s *siteSum) add(t *Total, stacks []Stack) {
	s.total.add(t)
	for i := range stacks {
		at, ok := slices.BinarySearchFunc(s.stacks, stacks[i].Stack, func(s Stack, id int) int { return cmp.Compare(s.Stack, id) })
		if !ok {
			s.stacks = slices.Insert(s.stacks, at, Stack{Stack: stacks[i].Stack})
		}
		s.stacks[at].add(&stacks[i])
	}
}

// finish returns the stacks by ID, nil if no call was sampled.
func (s *siteSum) finish() []Stack {
	if len(s.stacks) == 1 && s.stacks[0].Stack == noStack {
		return nil
	}
	return s.stacks
}
