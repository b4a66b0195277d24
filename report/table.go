package report

import (
	"fmt"
	"strings"
)

// missing stands for a value that is not known.
const missing = "-"

// table is text in columns. The first column is to the left and gives way when
// the lines would be too long; all others are to the right, except those that a
// table names, and the last one of a table that says so, which gives way before
// the first one does.
type table struct {
	titles   []string
	rows     []row
	left     []bool // by column; nil: the first one only
	rigid    []bool // by column: never shortened
	lastLeft bool
}

// row is one line of a table, and the lines of free text below it.
type row struct {
	cells []string
	notes []string // items, as many on a line as fit
	depth int      // of indentation
}

const (
	gap       = "  "
	leastName = 16 // cells that a column of names keeps, however narrow the terminal
	noteDepth = 2  // levels of indentation of the notes below their row
)

func (t *table) write(b *strings.Builder, width int) {
	widths := t.widths(width)
	b.WriteString(strings.TrimRight(t.line(t.titles, 0, widths), " ") + "\n")
	for _, r := range t.rows {
		b.WriteString(strings.TrimRight(t.line(r.cells, r.depth, widths), " ") + "\n")
		writeItems(b, r.notes, strings.Repeat(gap, r.depth+noteDepth), width)
	}
}

// writeFirst writes the first rows, and how many more there are.
func (t *table) writeFirst(b *strings.Builder, width, most int) {
	rest := len(t.rows) - most
	if rest > 1 { // one takes no more room than a line about it
		t.rows = t.rows[:most]
	}
	t.write(b, width)
	if rest > 1 {
		fmt.Fprintf(b, "%s: --format json\n", plural(uint64(rest), "more row"))
	}
}

func (t *table) widths(width int) []int {
	widths := make([]int, len(t.titles))
	for i, title := range t.titles {
		widths[i] = cells(title)
	}
	for _, r := range t.rows {
		for i, c := range r.cells {
			w := cells(c)
			if i == 0 {
				w += r.depth * len(gap)
			}
			widths[i] = max(widths[i], w)
		}
	}
	if last := len(widths) - 1; t.lastLeft {
		squeeze(widths, last, width)
	}
	for i := len(t.left) - 1; i > 0; i-- {
		if t.left[i] && !t.rigid[i] {
			squeeze(widths, i, width)
		}
	}
	squeeze(widths, 0, width)
	return widths
}

// squeeze makes a column as narrow as the line's width asks for.
func squeeze(widths []int, column, width int) {
	excess := -width - len(gap)
	for _, w := range widths {
		excess += len(gap) + w
	}
	if excess > 0 {
		widths[column] = max(widths[column]-excess, min(widths[column], leastName))
	}
}

func (t *table) line(texts []string, depth int, widths []int) string {
	var b strings.Builder
	for i, text := range texts {
		switch {
		case i == 0:
			text = shortened(strings.Repeat(gap, depth)+text, widths[0])
			b.WriteString(text + pad(text, widths[0]))
		case t.lastLeft && i == len(texts)-1:
			b.WriteString(gap + shortened(text, widths[i]))
		case i < len(t.left) && t.left[i]:
			text = shortened(text, widths[i])
			b.WriteString(gap + text + pad(text, widths[i]))
		default:
			b.WriteString(gap + pad(text, widths[i]) + text)
		}
	}
	return b.String()
}

func pad(text string, width int) string { return strings.Repeat(" ", max(width-cells(text), 0)) }

// writeItems writes items separated by " · " and breaks lines between them.
func writeItems(b *strings.Builder, items []string, indent string, width int) {
	const separator = " · "
	line := ""
	for _, item := range items {
		switch {
		case line == "":
			line = indent + item
		case cells(line)+cells(separator)+cells(item) <= width:
			line += separator + item
		default:
			b.WriteString(line + "\n")
			line = indent + item
		}
	}
	if line != "" {
		b.WriteString(line + "\n")
	}
}

// writeWords writes running text and breaks lines between words.
func writeWords(b *strings.Builder, text, first, indent string, width int) {
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && cells(line)+1+cells(word) > width {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
