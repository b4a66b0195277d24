package report

import (
	"stageprof/correlate"
	"stageprof/recording"
)

// What follows is how the tables write values, for others that show the same
// ones: the same number looks the same everywhere.

// Duration writes nanoseconds with three digits and a unit.
func Duration(ns uint64) string { return duration(ns) }

// Size writes bytes with three digits and a unit.
func Size(bytes uint64) string { return size(bytes) }

// Count writes all digits, in groups of three.
func Count(n uint64) string { return count(n) }

// Percent writes a share of 1.
func Percent(share float64) string { return percent(share) }

// Plural writes a count and what is counted: "1 call", "2 calls".
func Plural(n uint64, what string) string { return plural(n, what) }

// Printable makes one line out of a text that the target chose, in which
// nothing acts on the terminal or on the direction of writing.
func Printable(s string) string { return printable(s) }

// Cells is the number of terminal cells that a printable text takes.
func Cells(s string) int { return cells(s) }

// Shortened cuts the middle out of a printable text that takes more than n
// cells.
func Shortened(s string, n int) string { return shortened(s, n) }

// Missing stands for a value that is not known.
const Missing = missing

// PartColumn is what the tables of parts show as one.
type PartColumn struct{ column partColumn }

// PartColumns hold every kind of part once.
func PartColumns() []PartColumn {
	columns := make([]PartColumn, len(allPartColumns))
	for i, c := range allPartColumns {
		columns[i] = PartColumn{c}
	}
	return columns
}

// Title is the column's title in capital letters.
func (c PartColumn) Title() string { return c.column.title }

// Holds reports whether a kind of part belongs to the column.
func (c PartColumn) Holds(k correlate.PartKind) bool { return c.column.holds(k) }

// Rare reports whether the tables leave the column out where it is 0.
func (c PartColumn) Rare() bool { return c.column.rare }

// BlockedReasons names the reasons for which most of a blocked time was spent:
// "blocked: futex 1.20 s", "poll 3.00 ms".
func BlockedReasons(p *correlate.Partition) []string { return blockedNotes(p) }

// OwesStages reports whether any wait was for the work of a stage; if not, the
// tables say nothing of waits.
func OwesStages(l *correlate.Ledger) bool { return owesStages(l) }

// OwnerName names whom a part of a wait's time is owed to.
func OwnerName(o correlate.Owner) string { return ownerName(o) }

// PythonName names a line of Python code by file, line and function.
func PythonName(r *recording.Recording, f recording.PythonFrame) string { return pythonName(r, f) }

// OuterFrames names what called the line, mostly, innermost first; "" where
// nothing is known.
func OuterFrames(r *recording.Recording, line *correlate.PythonLine) string {
	return outerFrames(r, line)
}

// Placed is a stage in the order of the tables.
type Placed struct {
	Stage  *correlate.Stage
	Depth  int // number of stages around it
	Inside int // number of stages directly inside it
}

// Place puts stages into the order of the tables: the costliest first, and the
// stages inside a stage behind it.
func Place(stages []correlate.Stage) (placed []Placed) {
	var add func(nodes []*node, depth int)
	add = func(nodes []*node, depth int) {
		for _, n := range nodes {
			placed = append(placed, Placed{n.stage, depth, len(n.children)})
			add(n.children, depth+1)
		}
	}
	add(tree(stages), 0)
	return placed
}

// The names of the rows that are no stage.
const (
	OutsideTitle = outsideTitle
	ItselfTitle  = itselfTitle
)
