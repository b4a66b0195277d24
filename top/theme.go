package top

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// theme draws looks.
type theme struct {
	coloured bool
	styles   map[look]lipgloss.Style
}

// block fills bars where colours tell the segments apart. It is not quite full:
// rows stay apart.
const block = "▇"

func newTheme(coloured bool) *theme {
	if !coloured {
		return &theme{}
	}
	t := &theme{coloured: true, styles: map[look]lipgloss.Style{
		dim:      lipgloss.NewStyle().Faint(true),
		bold:     lipgloss.NewStyle().Bold(true),
		title:    lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("#3f7fd0")),
		good:     lipgloss.NewStyle().Foreground(lipgloss.Color("#2e9e4f")),
		bad:      lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("#e03131")),
		selected: lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("#d9a400")),
	}}
	for i, s := range segments {
		t.styles[segmentLook+look(i)] = lipgloss.NewStyle().Foreground(s.colour)
	}
	return t
}

// render turns lines into what a terminal takes.
func (t *theme) render(lines []line) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, p := range l {
			b.WriteString(t.piece(p))
		}
	}
	return b.String()
}

func (t *theme) piece(p piece) string {
	style, ok := t.styles[p.look]
	if !ok || p.text == "" {
		return p.text
	}
	text := p.text
	if p.look >= segmentLook {
		text = strings.Repeat(block, len(text)) // letters are ASCII
	}
	return style.Render(text)
}
