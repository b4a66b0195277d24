package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// keys by the names that a terminal's reader gives them.
var namedKeys = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "backspace": {Code: tea.KeyBackspace},
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"pgdown": {Code: tea.KeyPgDown}, "space": {Code: tea.KeySpace, Text: " "},
	"ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl},
}

func key(name string) tea.KeyPressMsg {
	if k, ok := namedKeys[name]; ok {
		return k
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// tester drives a model as the event loop does.
type tester struct {
	*testing.T
	*model
	quit bool
}

// newTester has a terminal, and shows the pipeline after its first interval.
func newTester(t *testing.T) *tester {
	m := &tester{T: t, model: newModel(Config{Interval: time.Second})}
	m.send(tea.ColorProfileMsg{Profile: colorprofile.NoTTY}, tea.WindowSizeMsg{Width: 120, Height: 30})
	m.send(snapshotMsg{at(time.Second, "")})
	return m
}

// at is the pipeline's recording after a time. It has seen nothing since its
// first snapshot.
func at(d time.Duration, end recording.WindowEnd) *recording.Recording {
	r := recordingtest.Pipeline()
	r.Window.Duration, r.Window.End = d, end
	r.Calls[0].Count += uint64(d.Seconds())
	return r
}

func (m *tester) send(msgs ...tea.Msg) {
	m.Helper()
	for _, msg := range msgs {
		if _, cmd := m.Update(msg); cmd != nil {
			if _, ok := cmd().(tea.QuitMsg); !ok {
				m.Fatalf("%v gave a command that does not quit", msg)
			}
			m.quit = true
		}
	}
}

func (m *tester) press(names ...string) {
	m.Helper()
	for _, name := range names {
		m.send(key(name))
	}
}

func (m *tester) frame() string { return m.View().Content }

func (m *tester) want(texts ...string) {
	m.Helper()
	for _, text := range texts {
		if !strings.Contains(m.frame(), text) {
			m.Fatalf("want %q in\n%s", text, m.frame())
		}
	}
}

func (m *tester) wantNot(text string) {
	m.Helper()
	if strings.Contains(m.frame(), text) {
		m.Fatalf("want no %q in\n%s", text, m.frame())
	}
}

// selected is the name in the row of the mark.
func (m *tester) selected() string {
	m.Helper()
	for _, l := range strings.Split(m.frame(), "\n") {
		if after, ok := strings.CutPrefix(l, "▸"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(after), "  ")
			return name
		}
	}
	m.Fatalf("nothing is selected in\n%s", m.frame())
	return ""
}

func TestQuit(t *testing.T) {
	for _, name := range []string{"q", "ctrl+c"} {
		m := newTester(t)
		m.press(name)
		if !m.quit {
			t.Errorf("%s does not quit", name)
		}
	}
}

// While a filter is typed, q is a letter, and ^C quits all the same.
func TestQuitWhileTyping(t *testing.T) {
	m := newTester(t)
	m.press("/", "q")
	if m.quit || m.screen.filter != "q" {
		t.Errorf("quit %v, filter %q", m.quit, m.screen.filter)
	}
	m.press("ctrl+c")
	if !m.quit {
		t.Error("^C does not quit")
	}
}

func TestSelection(t *testing.T) {
	m := newTester(t)
	for _, step := range []struct{ key, want string }{
		{"up", "copy_to_cpu"}, {"down", "post_copy"}, {"j", "drafter_step"}, {"k", "post_copy"},
		{"end", "(outside any stage)"}, {"down", "(outside any stage)"}, {"home", "copy_to_cpu"},
		{"G", "(outside any stage)"}, {"g", "copy_to_cpu"}, {"pgdown", "(outside any stage)"},
	} {
		m.press(step.key)
		if got := m.selected(); got != step.want {
			t.Errorf("after %s %q is selected, want %q", step.key, got, step.want)
		}
	}
}

// The selection is a stage, not a line: it stays when the order changes.
func TestSelectionFollowsItsStage(t *testing.T) {
	m := newTester(t)
	m.press("j", "j")
	want := m.selected()
	for range orders {
		m.press("s")
		if got := m.selected(); got != want {
			t.Errorf("sorted by %v, %q is selected, want %q", m.screen.order, got, want)
		}
	}
	m.want("sorted by cuda")
}

func TestOpenStage(t *testing.T) {
	m := newTester(t)
	m.press("enter")
	m.want("cuStreamSynchronize", "target-0", "esc back")
	m.wantNot("drafter_step")
	m.press("esc")
	m.want("drafter_step", "▸ copy_to_cpu")
}

func TestUnit(t *testing.T) {
	m := newTester(t)
	m.want("WALL/IT", "i per second")
	m.press("i")
	m.want("WALL/S", "i per iteration")
	m.press("i")
	m.want("WALL/IT")
}

func TestFilter(t *testing.T) {
	m := newTester(t)
	m.press("/", "F", "o", "r", "x", "backspace")
	m.want("filter: For", "target_forward", "attention")
	m.wantNot("copy_to_cpu")
	m.press("enter", "i") // the letters are keys again
	m.want("WALL/S", "filter: For")
	m.press("esc")
	m.want("copy_to_cpu")
	m.wantNot("filter:")
	m.press("/", "z", "esc")
	m.want("copy_to_cpu")
	m.press("/", "z", "ctrl+u")
	m.send(tea.PasteMsg{Content: "wait"})
	m.want("filter: wait", "target_wait")
	m.wantNot("copy_to_cpu")
}

func TestPause(t *testing.T) {
	m := newTester(t)
	m.press("p")
	m.want("paused", "p go on", "recording for 0:01")
	m.send(snapshotMsg{at(5*time.Second, "")})
	m.want("recording for 0:01")
	m.press("space")
	m.want("recording for 0:05")
	m.wantNot("paused")
}

// What a reset begins anew is ALL, from the next interval on.
func TestReset(t *testing.T) {
	m := newTester(t)
	m.want("all: 0:01")
	m.press("r")
	m.want("all: -", "copy_to_cpu")
	m.send(snapshotMsg{at(4*time.Second, "")})
	m.want("all: 0:03", "recording for 0:04")
}

func TestResetWhilePaused(t *testing.T) {
	m := newTester(t)
	m.press("p", "r")
	m.send(snapshotMsg{at(4*time.Second, "")})
	m.press("p")
	m.want("all: 0:03")
}

// The last sample stays, also on a screen that is paused.
func TestTargetExits(t *testing.T) {
	m := newTester(t)
	m.send(snapshotMsg{at(2*time.Second, "")})
	m.press("p")
	m.send(snapshotMsg{at(2*time.Second+time.Millisecond, recording.EndExit)})
	m.want("target exited", "recorded for 0:02", "all: 0:02", "q quit")
	m.wantNot("paused")
	m.press("p", "r")
	m.want("target exited", "all: 0:02")
	m.wantNot("paused")
	m.wantNot("CHANGE")
	m.press("enter")
	m.want("esc back")
	m.press("q")
	if !m.quit {
		t.Error("q does not quit")
	}
}

func TestExitInTheFirstInterval(t *testing.T) {
	m := &tester{T: t, model: newModel(Config{Interval: time.Second})}
	m.send(tea.ColorProfileMsg{Profile: colorprofile.NoTTY}, tea.WindowSizeMsg{Width: 120, Height: 30})
	m.want("The first interval")
	m.press("p", "r", "enter", "l", "i", "s", "j") // nothing to show, and no harm
	m.send(snapshotMsg{at(time.Millisecond, recording.EndExec)})
	m.press("esc")
	m.want("target executed another program", "copy_to_cpu")
}

func TestViews(t *testing.T) {
	m := newTester(t)
	for _, view := range []struct{ key, want string }{{"?", "KEYS"}, {"l", "COST OF STAGEPROF"}} {
		m.press(view.key)
		m.want(view.want)
		m.press(view.key)
		m.wantNot(view.want)
		m.press(view.key, "esc")
		m.wantNot(view.want)
	}
}

func TestScrolling(t *testing.T) {
	m := newTester(t)
	m.send(tea.WindowSizeMsg{Width: 100, Height: 14})
	m.press("?")
	m.want("KEYS", "more lines")
	m.press("end")
	m.want("not known")
	m.wantNot("more lines")
	m.press("up")
	m.want("more line")
	m.press("home")
	m.want("KEYS")
}

func TestResize(t *testing.T) {
	m := newTester(t)
	m.send(tea.WindowSizeMsg{Width: 50, Height: 30})
	m.want("too small", "50 × 30", "60 × 12")
	m.send(tea.WindowSizeMsg{Width: 120, Height: 30})
	m.want("copy_to_cpu")
}

func TestColourProfiles(t *testing.T) {
	m := newTester(t)
	for profile, coloured := range map[colorprofile.Profile]bool{
		colorprofile.NoTTY: false, colorprofile.ASCII: false, colorprofile.ANSI: true, colorprofile.TrueColor: true,
	} {
		m.send(tea.ColorProfileMsg{Profile: profile})
		if got := strings.Contains(m.frame(), "\x1b["); got != coloured {
			t.Errorf("profile %v: coloured %v, want %v", profile, got, coloured)
		}
	}
}

// Snapshots that do not belong together end the program with their error.
func TestOtherRecording(t *testing.T) {
	m := newTester(t)
	r := at(2*time.Second, "")
	r.Target.PID++
	m.send(snapshotMsg{r})
	if !m.quit || !errors.Is(m.err, correlate.ErrNotSnapshots) {
		t.Errorf("quit %v, error %v", m.quit, m.err)
	}
}
