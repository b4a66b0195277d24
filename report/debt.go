package report

import (
	"cmp"
	"slices"

	"stageprof/correlate"
	"stageprof/recording"
)

// The number of rows that the table of sync debt has at most: the longest waits,
// and their largest owners.
const (
	mostWaiting = 6
	mostOwners  = 4
)

// writeDebts writes whose work stages waited for. Where no wait was for the
// work of a stage there is nothing to say.
func (t *text) writeDebts() {
	l := t.ledger
	if !owesStages(l) {
		return
	}
	debts := &table{titles: []string{"SYNC DEBT (ESTIMATE)", "WAITS", "WAITED", "SHARE", "OPERATIONS"}}
	shown := min(mostWaiting, len(l.Waiting))
	for i := range l.Waiting[:shown] {
		s := &l.Waiting[i]
		debts.rows = append(debts.rows, row{cells: []string{
			printable(cmp.Or(s.Path.Joined, outsideTitle)) + " waited for", count(s.Waits), duration(s.WallNS), "", "",
		}})
		debts.rows = append(debts.rows, ownerRows(s)...)
	}
	t.printf("\n")
	debts.write(&t.Builder, t.width)
	if rest := l.Waiting[shown:]; len(rest) > 0 {
		var wall uint64
		for i := range rest {
			wall += rest[i].WallNS
		}
		t.printf("%s waited: %s\n", plural(uint64(len(rest)), "more stage"), duration(wall))
	}
	writeWords(&t.Builder, "Waits and operations are counted. How a wait's time is divided is an estimate: in proportion to the operations that each stage had given the device before it, long and short ones alike.", "", "", t.width)
}

func owesStages(l *correlate.Ledger) bool {
	return slices.ContainsFunc(l.Debts, func(d correlate.Debt) bool { return d.Kind == recording.DebtStage })
}

func ownerRows(s *correlate.WaitingStage) []row {
	var rows []row
	add := func(name string, o correlate.DebtTotal) {
		r := row{depth: 1, cells: []string{name, count(o.Waits), duration(o.WallNS), missing, count(o.Operations)}}
		if s.WallNS > 0 {
			r.cells[3] = percent(float64(o.WallNS) / float64(s.WallNS))
		}
		rows = append(rows, r)
	}
	shown := min(mostOwners, len(s.Owners))
	if len(s.Owners) == shown+1 {
		shown++
	}
	for _, o := range s.Owners[:shown] {
		add(ownerName(o.Owner), o.DebtTotal)
	}
	if rest := s.Owners[shown:]; len(rest) > 0 {
		var sum correlate.DebtTotal
		for _, o := range rest {
			sum.Waits += o.Waits
			sum.WallNS += o.WallNS
			sum.Operations += o.Operations
		}
		add("("+count(uint64(len(rest)))+" more)", sum)
	}
	return rows
}

func ownerName(o correlate.Owner) string {
	switch o.Kind {
	case recording.DebtIdle:
		return "(nothing)"
	case recording.DebtUnseen:
		return "(not seen)"
	case recording.DebtForgotten:
		return "(not remembered)"
	}
	return printable(cmp.Or(o.Path.Joined, outsideTitle))
}
