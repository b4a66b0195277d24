package top

import "strings"

// column is one of a grid. Its cells go to the right, those of a left one to the
// left; a bar's fill what the others leave.
type column struct {
	title string
	left  bool
	bar   bool
	from  int // cells of the screen from which on it is shown
}

// cell is one cell of a grid: a line, or what fills a bar's width.
type cell struct {
	line line
	fill func(width int) line
}

const (
	gap       = 2  // cells between columns
	leastCell = 7  // "99.9 ms": columns do not jump when a number grows
	leastName = 14 // of the first column
	leastBar  = 13 // its title
	mostBar   = 64
)

// grid sets rows in columns. The first column gives way where there is not room
// for all; a screen that is narrower than a column's from goes without it.
func grid(columns []column, rows [][]cell, width int) (head line, lines []line) {
	var shown []int
	for i, c := range columns {
		if width >= c.from {
			shown = append(shown, i)
		}
	}
	widths := gridWidths(columns, shown, rows, width)
	titles := make([]cell, len(columns))
	for i, c := range columns {
		titles[i] = cell{line: styled(title, c.title)}
	}
	head = gridLine(columns, shown, widths, titles)
	for _, r := range rows {
		lines = append(lines, gridLine(columns, shown, widths, r))
	}
	return head, lines
}

func gridWidths(columns []column, shown []int, rows [][]cell, width int) []int {
	widths := make([]int, len(columns))
	rest, fill := width+gap, -1
	for _, i := range shown {
		if columns[i].bar {
			fill = i
			rest -= gap + leastBar
			continue
		}
		widths[i] = max(len(columns[i].title), leastCell)
		for _, r := range rows {
			widths[i] = max(widths[i], r[i].line.cells())
		}
		rest -= gap + widths[i]
	}
	if rest < 0 {
		cut := min(-rest, max(widths[0]-leastName, 0))
		widths[0], rest = widths[0]-cut, rest+cut
	}
	if fill >= 0 {
		widths[fill] = min(leastBar+max(rest, 0), mostBar)
	}
	return widths
}

func gridLine(columns []column, shown, widths []int, cells []cell) (out line) {
	for n, i := range shown {
		if n > 0 {
			out = append(out, piece{strings.Repeat(" ", gap), plain})
		}
		l := cells[i].line
		if cells[i].fill != nil {
			l = cells[i].fill(widths[i])
		}
		out = append(out, l.cut(widths[i]).padded(widths[i], !columns[i].left && !columns[i].bar)...)
	}
	return out.trimmed()
}
