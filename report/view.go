package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// View is one table that is written as text, JSON, CSV or Markdown.
type View struct {
	grid  *grid
	notes []string
	json  any
}

// Text writes the table for people; a width of 0 is 100 cells.
func (v *View) Text(w io.Writer, width int) error {
	width = cmp.Or(max(width, 0), defaultWidth)
	var b strings.Builder
	v.grid.writeText(&b, width)
	for _, note := range v.notes {
		writeWords(&b, note, "", "", width)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

// CSV writes values below a line of the columns' keys: times in nanoseconds,
// what is not known empty.
func (v *View) CSV(w io.Writer) error { return v.grid.writeCSV(w) }

// Markdown writes the table that Text shows.
func (v *View) Markdown(w io.Writer) error { return v.grid.writeMarkdown(w) }

// JSON writes one object, which the package's doc describes.
func (v *View) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v.json); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}
