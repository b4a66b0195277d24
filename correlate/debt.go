package correlate

import (
	"cmp"
	"slices"
	"strings"

	"stageprof/recording"
)

// Debt is the share of one owner in what a thread waited for in one stage and
// function. The shares of one thread, stage and function sum to the raw wall
// time of the calls of that key.
type Debt struct {
	Thread int  // index of Ledger.Threads
	Path   Path // of the waiting stage
	Symbol string
	API    string
	Owner
	DebtTotal
}

// Owner is who a wait is owed to.
type Owner struct {
	Kind recording.DebtKind
	Path Path // of a stage; the zero Path for the other kinds
}

// DebtTotal sums debts. Only the waits and the operations are counts; how a
// wait's time is divided is an estimate.
type DebtTotal struct {
	Waits      uint64 // in which the owner had a share
	WallNS     uint64 // as measured, the probes' bias included
	Operations uint64 // of the owner that were before these waits
}

func (t *DebtTotal) add(o DebtTotal) {
	t.Waits = add(t.Waits, o.Waits)
	t.WallNS = add(t.WallNS, o.WallNS)
	t.Operations = add(t.Operations, o.Operations)
}

// WaitingStage is one row of the matrix of debts: what a stage waited for, over
// all threads and functions.
type WaitingStage struct {
	Path   Path
	Waits  uint64 // its calls that wait for the device
	WallNS uint64 // of these, as measured: the sum of the owners'
	Owners []OwnerTotal
}

// OwnerTotal is one cell of the matrix.
type OwnerTotal struct {
	Owner
	DebtTotal
}

// debtKinds lists the kinds in the order in which they are shown.
var debtKinds = []recording.DebtKind{
	recording.DebtStage, recording.DebtForgotten, recording.DebtUnseen, recording.DebtIdle,
}

// debtKey is the visible key of a debt.
type debtKey struct {
	thread      int
	path        string
	symbol, api string
	kind        recording.DebtKind
	owner       string
}

// addDebt leaves out what can't be true, as it is left out of the calls.
func (b *builder) addDebt(row recording.Debt) {
	if row.Waits == 0 || row.WallNS/row.Waits > b.limit {
		return
	}
	symbol := &b.source.Symbols[row.Symbol]
	d := Debt{
		Thread: b.threadOf[row.Thread], Path: b.paths[row.Path], Symbol: symbol.Name, API: symbol.API,
		Owner: b.owner(row),
	}
	key := debtKey{d.Thread, d.Path.Joined, d.Symbol, d.API, d.Kind, d.Owner.Path.Joined}
	if b.debts[key] == nil {
		b.debts[key] = &d
	}
	b.debts[key].add(DebtTotal{row.Waits, row.WallNS, row.Operations})
}

func (b *builder) owner(row recording.Debt) Owner {
	switch {
	case row.Kind == recording.DebtStage:
		return Owner{row.Kind, b.paths[row.Owner]}
	case slices.Contains(debtKinds, row.Kind):
		return Owner{Kind: row.Kind}
	default: // of a damaged file
		return Owner{Kind: recording.DebtUnseen}
	}
}

func (b *builder) finishDebts() []Debt {
	debts := make([]Debt, 0, len(b.debts))
	for _, d := range b.debts {
		debts = append(debts, *d)
	}
	slices.SortFunc(debts, func(x, y Debt) int {
		return cmp.Or(
			comparePaths(x.Path, y.Path), cmp.Compare(x.Thread, y.Thread),
			strings.Compare(x.Symbol, y.Symbol), strings.Compare(x.API, y.API), compareOwners(x.Owner, y.Owner))
	})
	return debts
}

func compareOwners(a, b Owner) int {
	return cmp.Or(
		cmp.Compare(slices.Index(debtKinds, a.Kind), slices.Index(debtKinds, b.Kind)), comparePaths(a.Path, b.Path))
}

// waiting makes the matrix: stages that waited longest first, and for each its
// owners, those that are owed most first.
func waiting(l *Ledger) []WaitingStage {
	stages := map[string]*WaitingStage{}
	owners := map[string]map[string]*OwnerTotal{}
	waits := map[callKey]bool{} // what of the calls are waits
	for _, d := range l.Debts {
		at := d.Path.Joined
		if stages[at] == nil {
			stages[at], owners[at] = &WaitingStage{Path: d.Path}, map[string]*OwnerTotal{}
		}
		stages[at].WallNS = add(stages[at].WallNS, d.WallNS)
		owner := string(d.Kind) + "\x00" + d.Owner.Path.Joined
		if owners[at][owner] == nil {
			owners[at][owner] = &OwnerTotal{Owner: d.Owner}
		}
		owners[at][owner].add(d.DebtTotal)
		waits[callKey{thread: d.Thread, path: at, symbol: d.Symbol, api: d.API}] = true
	}
	for i := range l.Calls {
		c := &l.Calls[i]
		if waits[callKey{thread: c.Thread, path: c.Path.Joined, symbol: c.Symbol, api: c.API}] {
			s := stages[c.Path.Joined]
			s.Waits = add(s.Waits, c.Count)
		}
	}
	matrix := make([]WaitingStage, 0, len(stages))
	for at, s := range stages {
		for _, o := range owners[at] {
			s.Owners = append(s.Owners, *o)
		}
		slices.SortFunc(s.Owners, func(x, y OwnerTotal) int {
			return cmp.Or(cmp.Compare(y.WallNS, x.WallNS), compareOwners(x.Owner, y.Owner))
		})
		matrix = append(matrix, *s)
	}
	slices.SortFunc(matrix, func(x, y WaitingStage) int {
		return cmp.Or(cmp.Compare(y.WallNS, x.WallNS), comparePaths(x.Path, y.Path))
	})
	return matrix
}
