package report

import (
	"encoding/csv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A name is whatever the target makes it: shown anywhere it is one line that acts
// on nothing, and the same line whenever it is shown.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"step", "", "a/b", "\x1b[31m", "=1+1", "-", "\xff", "\u202e", "日本語", "a|b", "`x`", "e\u0301", "\u2028", "\x00", "👩‍👩‍👧", "_a_",
	} {
		f.Add(name, 10)
	}
	f.Fuzz(func(t *testing.T, name string, width int) {
		shown := Printable(name)
		if !utf8.ValidString(shown) || Printable(shown) != shown {
			t.Errorf("%q is shown as %q", name, shown)
		}
		for _, r := range shown {
			if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
				t.Errorf("%q is shown with %q", name, r)
			}
		}
		width %= 200
		for what, cut := range map[string]string{"shortened": shortened(shown, width), "clipped": clipped(shown, width)} {
			if n := cells(cut); n > max(width, 1) || !utf8.ValidString(cut) {
				t.Errorf("%q, %s to %d cells, is %q of %d", name, what, width, cut, n)
			}
		}
		g := grid{columns: []gridColumn{{key: "name", left: true}}, rows: []gridRow{{cells: []gridCell{textCell(name)}}}}
		lines, err := csv.NewReader(strings.NewReader(written(t, g.writeCSV))).ReadAll()
		if shown != "" && (err != nil || len(lines) != 2 || strings.TrimPrefix(lines[1][0], "'") != strings.TrimPrefix(shown, "'")) {
			t.Errorf("%q is %q in CSV, %v", name, lines, err)
		}
		if table := written(t, g.writeMarkdown); strings.Count(table, "\n") != 3 {
			t.Errorf("%q is %q in Markdown", name, table)
		}
	})
}
