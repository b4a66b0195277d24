package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stageprof/agent/probe"
	"stageprof/recording"
)

// trialAdvance is how much of the future the first window may spend in advance, if
// groups of functions may be left out: it is over within this time only if the target
// would pay more than twice the budget. Such a window is a trial.
const trialAdvance = 3 * time.Second

// trial is a window that has shown which groups to leave out.
type trial struct {
	window *recording.Recording // the Recording, should there be no other
	groups []recording.GroupCost
}

func (t *trial) leftOut() (groups []probe.Group) {
	if t == nil {
		return nil
	}
	for _, g := range t.groups {
		if g.LeftOut {
			groups = append(groups, probe.Group(g.Group))
		}
	}
	return groups
}

// callsNS is what the calls of all groups cost.
func (t *trial) callsNS() (ns uint64) {
	for _, g := range t.groups {
		ns += g.CostNS
	}
	return ns
}

// leftOutNS is what the groups that were left out cost.
func (t *trial) leftOutNS() (ns uint64) {
	for _, g := range t.groups {
		if g.LeftOut {
			ns += g.CostNS
		}
	}
	return ns
}

// groupCosts is what the calls of each group in a window cost.
func (s *Session) groupCosts(r *recording.Recording) (costs []recording.GroupCost) {
	for _, c := range r.Calls {
		group := r.Symbols[c.Symbol].Group
		i := slices.IndexFunc(costs, func(g recording.GroupCost) bool { return g.Group == group })
		if i < 0 {
			i = len(costs)
			costs = append(costs, recording.GroupCost{Group: group})
		}
		costs[i].Calls += c.Count
		costs[i].CostNS += uint64(float64(c.Count) * s.costs[s.symbols[c.Symbol].Placement.Class].Added)
	}
	return costs
}

// judge takes the first window for a trial, if without some groups the rest would fit
// into the budget. It returns nil if it is a window like any other.
func (w *windows) judge(s *Session, r *recording.Recording) *trial {
	over := r.Window.End == recording.EndBudget && r.Window.Duration <= w.account.advance
	if !w.config.LeaveOut || w.joined.Recording() != nil || !over {
		return nil
	}
	cost := r.Budget.Cost
	t := &trial{window: r, groups: s.groupCosts(r)}
	// Putting the probes in and taking them off, and the calls meanwhile, come once. Of
	// calls that were lost nobody knows the group.
	other := cost.StagesNS + cost.SchedulerNS + cost.PythonNS + cost.CallsNS - min(cost.CallsNS, t.callsNS())
	if !leaveOut(t.groups, other, uint64(w.account.of(r.Window.Duration))) {
		return nil
	}
	return t
}

// leaveOut marks the groups without which the costs of the others, and what is no
// call's, are not above a limit; it reports whether there are some. They are then first,
// in the order in which they were left out.
//
// Queries and events say least, so they go first; then, the dearer one first, what
// copies and gives memory. What launches, synchronises and maps memory is what a
// recording is for: it stays. In the end a group that need not have been left out is
// taken back.
func leaveOut(groups []recording.GroupCost, other, limit uint64) bool {
	slices.SortFunc(groups, func(a, b recording.GroupCost) int {
		return cmp.Or(cmp.Compare(worth(a.Group), worth(b.Group)), cmp.Compare(b.CostNS, a.CostNS), strings.Compare(a.Group, b.Group))
	})
	total := other
	for _, g := range groups {
		total += g.CostNS
	}
	for i := range groups {
		if total <= limit || worth(groups[i].Group) == worthKeeping {
			break
		}
		total -= groups[i].CostNS
		groups[i].LeftOut = true
	}
	if total > limit {
		return false
	}
	for i := range slices.Backward(groups) {
		if g := &groups[i]; g.LeftOut && total+g.CostNS <= limit {
			total += g.CostNS
			g.LeftOut = false
		}
	}
	slices.SortStableFunc(groups, func(a, b recording.GroupCost) int { return compareBool(b.LeftOut, a.LeftOut) })
	return len(groups) > 0 && groups[0].LeftOut
}

const worthKeeping = 3

// worth orders groups by how much they say.
func worth(group string) int {
	switch probe.Group(group) {
	case probe.Other:
		return 0
	case probe.Event:
		return 1
	case probe.Copy, probe.Memory:
		return 2
	}
	return worthKeeping
}

// without corrects what the trial cost by what is left out: the next windows will
// cost less.
func (t *trial) without(b recording.Budget) recording.Budget {
	out := min(t.leftOutNS(), b.Cost.CallsNS)
	b.Cost.CallsNS -= out
	b.Windows = []recording.Covered{b.Windows[0]}
	b.Windows[0].CostNS -= out
	return b
}

// tell says in a Recording of the other windows what was left out of it.
func (t *trial) tell(r *recording.Recording) {
	b := r.Budget
	b.Trial = &recording.Trial{Covered: t.window.Budget.Windows[0], Groups: t.groups}
	b.Cost = b.Cost.Plus(t.window.Budget.Cost)
	var names []string
	for _, g := range t.leftOut() {
		names = append(names, string(g))
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("left out, to keep the budget: functions of the group %s are not probed since %v after the start, and are in no number",
		strings.Join(names, ", "), t.window.Window.Duration.Round(time.Millisecond)))
}
