package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// grid is a table of values that is written as text, CSV or Markdown.
type grid struct {
	columns []gridColumn
	rows    []gridRow
}

// gridColumn has a title for people and a key for programs.
type gridColumn struct {
	title, key string
	left       bool // texts, not numbers
	rigid      bool // such that none of it may be left out
	raw        bool // in CSV only
	noText     bool // in CSV and Markdown only
	noRaw      bool // not in CSV
}

type gridRow struct {
	cells []gridCell
	depth int      // of indentation in text
	notes []string // below the row in text
}

// gridCell is one value. Its raw form is what CSV holds: text, or a number in
// the unit that the column's key names; nil where it is not known.
type gridCell struct {
	text string
	raw  any
}

// textCell is a text that the target may have chosen.
func textCell(s string) gridCell { return gridCell{printable(s), printable(s)} }

func countCell(n uint64) gridCell { return gridCell{count(n), n} }

func durationCell(ns uint64) gridCell { return gridCell{duration(ns), ns} }

// writeText writes the rows in columns.
func (g *grid) writeText(b *strings.Builder, width int) {
	t := &table{}
	shown := g.textColumns()
	for _, i := range shown {
		t.titles = append(t.titles, g.columns[i].title)
		t.left, t.rigid = append(t.left, g.columns[i].left), append(t.rigid, g.columns[i].rigid)
	}
	for _, r := range g.rows {
		t.rows = append(t.rows, row{cells: r.texts(shown), depth: r.depth, notes: r.notes})
	}
	t.write(b, width)
}

// textColumns are the indices of the columns that the text shows.
func (g *grid) textColumns() (shown []int) {
	for i, c := range g.columns {
		if !c.raw && !c.noText {
			shown = append(shown, i)
		}
	}
	return shown
}

func (r *gridRow) texts(columns []int) (texts []string) {
	for _, i := range columns {
		texts = append(texts, r.cells[i].text)
	}
	return texts
}

// writeCSV writes the raw values below a line of keys.
func (g *grid) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	var line []string
	for _, c := range g.columns {
		if !c.noRaw {
			line = append(line, c.key)
		}
	}
	out.Write(line)
	for _, r := range g.rows {
		line = line[:0]
		for i, c := range r.cells {
			if !g.columns[i].noRaw {
				line = append(line, csvText(c.raw))
			}
		}
		out.Write(line)
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

// csvText is a raw value for programs, among which are spreadsheets: they take a
// text that begins like a formula for one, unless there is an apostrophe before it.
func csvText(raw any) string {
	if text, ok := raw.(string); ok && text != "" && strings.ContainsRune("=+-@", rune(text[0])) {
		return "'" + text
	}
	return rawText(raw)
}

func rawText(raw any) string {
	switch v := raw.(type) {
	case nil:
		return ""
	case float64:
		if math.Abs(v) < 1 {
			return strconv.FormatFloat(v, 'g', 6, 64)
		}
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', 3, 64), "0"), ".")
	default:
		return fmt.Sprint(v)
	}
}

// writeMarkdown writes a table of GitHub's Markdown.
func (g *grid) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	line := func(cell func(i int) string) {
		for i, c := range g.columns {
			if !c.raw {
				b.WriteString("| " + cell(i) + " ")
			}
		}
		b.WriteString("|\n")
	}
	line(func(i int) string { return markdown(g.columns[i].title) })
	line(func(i int) string {
		if g.columns[i].left {
			return "---"
		}
		return "---:"
	})
	for _, r := range g.rows {
		line(func(i int) string {
			if c := g.columns[i]; c.left && !c.noRaw {
				return markdown(rawText(r.cells[i].raw))
			}
			return markdown(r.cells[i].text)
		})
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

var (
	markdownMarks = strings.NewReplacer(
		`\`, `\\`, "`", "\\`", "*", `\*`, "|", `\|`, "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "~", `\~`, "&", `\&`, "#", `\#`)
	// Inside a word an underscore is only that.
	edgeUnderscore = regexp.MustCompile(`(^|[^\pL\pN])_|_([^\pL\pN]|$)`)
)

// markdown makes a printable text mean nothing but itself.
func markdown(s string) string {
	s = markdownMarks.Replace(s)
	if edgeUnderscore.MatchString(s) {
		s = strings.ReplaceAll(s, "_", `\_`)
	}
	return s
}
