package top

import (
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"stageprof/recording"
)

// snapshotMsg brings what the source has seen so far.
type snapshotMsg struct{ recording *recording.Recording }

// model is the program of the terminal: it turns messages into changes of a
// screen.
type model struct {
	screen screen
	series series
	newest *sample // which the screen does not show while it is paused
	theme  *theme
	err    error // that ended the program
}

func newModel(c Config) *model {
	return &model{screen: screen{interval: c.Interval}, theme: newTheme(true)}
}

func (m *model) Init() tea.Cmd { return nil }

func (m *model) View() tea.View {
	v := tea.NewView(m.theme.render(m.screen.frame()))
	v.AltScreen = true
	v.WindowTitle = "stageprof top"
	return v
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = msg.Width, msg.Height
	case tea.ColorProfileMsg:
		m.theme = newTheme(msg.Profile > colorprofile.ASCII)
	case snapshotMsg:
		return m, m.add(msg.recording)
	case tea.PasteMsg:
		if m.screen.typing {
			m.screen.setFilter(m.screen.filter + msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

func (m *model) add(r *recording.Recording) tea.Cmd {
	newest, err := m.series.add(r)
	if err != nil {
		m.err = err
		return tea.Quit
	}
	m.newest = newest
	if newest.ended() != "" {
		m.screen.paused = false // it is the last one
	}
	m.show()
	return nil
}

// show brings the newest sample to the screen.
func (m *model) show() {
	if !m.screen.paused {
		m.screen.sample = m.newest
	}
}

func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	s := &m.screen
	switch {
	case key.String() == "ctrl+c":
		return tea.Quit
	case s.typing:
		s.typeFilter(key)
	case key.String() == "q":
		return tea.Quit
	default:
		m.command(key.String())
	}
	return nil
}

func (m *model) command(key string) {
	s := &m.screen
	switch key {
	case "p", "space":
		s.paused = !s.paused && m.newest != nil && m.newest.ended() == ""
		m.show()
	case "r":
		m.series.reset()
		if m.newest != nil && m.newest.ended() == "" {
			reset := *m.newest
			reset.all = nil
			m.newest = &reset
			m.show()
		}
	case "i":
		s.unit = 1 - s.unit
	case "s":
		s.order = (s.order + 1) % orders
	case "?":
		s.toggle(viewHelp)
	case "l":
		s.toggle(viewNotes)
	default:
		s.move(key)
	}
}

// toggle opens a view, or goes back to the table from it.
func (s *screen) toggle(v view) {
	if s.view == v {
		v = viewTable
	}
	s.view, s.scroll = v, 0
}

// move is about keys that go somewhere.
func (s *screen) move(key string) {
	page := max(s.height-8, 1)
	switch key {
	case "up", "k":
		s.step(-1)
	case "down", "j":
		s.step(1)
	case "pgup", "ctrl+b":
		s.step(-page)
	case "pgdown", "ctrl+f":
		s.step(page)
	case "home", "g":
		s.step(-1 << 20)
	case "end", "G":
		s.step(1 << 20)
	case "enter", "right":
		if rows := s.rows(); s.view == viewTable && len(rows) > 0 {
			s.stage = rows[s.selection(rows)].key
			s.toggle(viewStage)
		}
	case "esc", "left", "backspace":
		if s.view != viewTable {
			s.toggle(viewTable)
		} else if key == "esc" {
			s.setFilter("")
		}
	case "/":
		s.view, s.typing = viewTable, true
	}
}

// step selects another row, or scrolls what is no table.
func (s *screen) step(n int) {
	if s.view != viewTable {
		s.scroll = max(s.scroll+n, 0)
		return
	}
	if rows := s.rows(); len(rows) > 0 {
		s.stage = rows[min(max(s.selection(rows)+n, 0), len(rows)-1)].key
	}
}

func (s *screen) typeFilter(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		s.typing = false
	case "esc":
		s.typing = false
		s.setFilter("")
	case "ctrl+u":
		s.setFilter("")
	case "backspace":
		if runes := []rune(s.filter); len(runes) > 0 {
			s.setFilter(string(runes[:len(runes)-1]))
		}
	default:
		s.setFilter(s.filter + key.Text)
	}
}

func (s *screen) setFilter(filter string) { s.filter, s.scroll = filter, 0 }
