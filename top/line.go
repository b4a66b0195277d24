package top

import (
	"strings"

	"stageprof/report"
)

// look says what a piece of text means, not how it is drawn.
type look int

const (
	plain look = iota
	dim
	bold
	title
	good
	bad
	selected
	segmentLook // and those after it, one for each segment
)

// piece is text that looks alike. It is printable.
type piece struct {
	text string
	look look
}

// line is one line of a frame, without its end.
type line []piece

func text(s string) line { return line{{s, plain}} }

func styled(l look, s string) line { return line{{s, l}} }

func (l line) cells() (n int) {
	for _, p := range l {
		n += report.Cells(p.text)
	}
	return n
}

func (l line) String() string {
	var b strings.Builder
	for _, p := range l {
		b.WriteString(p.text)
	}
	return b.String()
}

// cut keeps what fits into n cells.
func (l line) cut(n int) line {
	for i, p := range l {
		if w := report.Cells(p.text); w > n {
			end := len(l[:i:i])
			return append(l[:end:end], piece{report.Shortened(p.text, n), p.look})
		}
		n -= report.Cells(p.text)
	}
	return l
}

// padded fills the line up to n cells, on its left if it goes to the right.
func (l line) padded(n int, right bool) line {
	space := piece{strings.Repeat(" ", max(n-l.cells(), 0)), plain}
	if right {
		return append(line{space}, l...)
	}
	return append(l[:len(l):len(l)], space)
}

// trimmed has no space at its end.
func (l line) trimmed() line {
	for len(l) > 0 {
		last := l[len(l)-1]
		last.text = strings.TrimRight(last.text, " ")
		if l = l[:len(l)-1]; last.text != "" {
			return append(l[:len(l):len(l)], last)
		}
	}
	return l
}

// flow sets items one after the other, as many on a line as fit.
func flow(items []line, separator string, width int) (lines []line) {
	var current line
	for _, item := range items {
		switch {
		case len(current) == 0:
			current = item
		case current.cells()+report.Cells(separator)+item.cells() <= width:
			current = append(append(current[:len(current):len(current)], piece{separator, dim}), item...)
		default:
			lines, current = append(lines, current.cut(width)), item
		}
	}
	if len(current) > 0 {
		lines = append(lines, current.cut(width))
	}
	return lines
}
