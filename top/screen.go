package top

import (
	"fmt"
	"time"

	"stageprof/report"
)

// view is what the screen is about.
type view int

const (
	viewTable view = iota
	viewStage
	viewNotes
	viewHelp
)

// screen is everything that a frame depends on.
type screen struct {
	width, height int
	interval      time.Duration
	sample        *sample // nil before the first interval is over

	view   view
	stage  rowKey // of viewStage, and the selected row of the table
	scroll int    // first line shown of a view that is no table, first row of one that is

	unit    unit
	order   order
	filter  string
	typing  bool // the filter is being typed
	paused  bool
	printed bool // the frame is printed once: all of it, and no keys
}

// The smallest terminal that a frame fits in.
const (
	leastWidth  = 60
	leastHeight = 12

	airyHeight = 20 // screens from here on have lines to spare
)

// frame is the screen's lines, at most as many as it has.
func (s *screen) frame() []line {
	if !s.printed && (s.width < leastWidth || s.height < leastHeight) {
		return []line{
			text("The terminal is too small:").cut(s.width),
			text(fmt.Sprintf("%d × %d, needed %d × %d", s.width, s.height, leastWidth, leastHeight)).cut(s.width),
		}
	}
	head := s.head()
	if s.printed || s.height >= airyHeight {
		head = append(head, nil)
	}
	if s.printed {
		return append(head, s.table(0)...)
	}
	foot := s.foot()
	room := s.height - len(head) - len(foot)
	body := s.body(room)
	for len(body) < room {
		body = append(body, nil)
	}
	return append(append(head, body[:room]...), foot...)
}

func (s *screen) body(room int) []line {
	switch {
	case s.view == viewHelp:
		return s.window(helpLines(s.width), room)
	case s.sample == nil:
		return []line{styled(dim, fmt.Sprintf("The first interval ends after %v …", s.interval))}
	case s.view == viewStage:
		return s.window(s.stageLines(), room)
	case s.view == viewNotes:
		return s.window(s.noteLines(), room)
	default:
		return s.table(room)
	}
}

// window is the part of lines that is scrolled to.
func (s *screen) window(lines []line, room int) []line {
	s.scroll = min(s.scroll, max(len(lines)-room, 0))
	lines = lines[s.scroll:]
	if len(lines) > room {
		more := len(lines) - room + 1
		return append(lines[:room-1:room-1], styled(dim, fmt.Sprintf("↓ %s", report.Plural(uint64(more), "more line"))))
	}
	return lines
}

// foot is the last line: what is being typed, or the keys.
func (s *screen) foot() []line {
	if s.typing {
		return []line{line{{"filter: ", bold}, {report.Printable(s.filter), plain}, {"▏", bold},
			{"  enter keep · esc clear", dim}}.cut(s.width)}
	}
	var items []line
	for _, k := range s.keys() {
		items = append(items, line{{k[0], bold}, {" " + k[1], dim}})
	}
	return flow(items, "  ", s.width)[:1]
}

// keys are those that do something now, the most needed ones first: a narrow
// screen shows no more.
func (s *screen) keys() [][2]string {
	keys := [][2]string{{"q", "quit"}, {"?", "help"}}
	over := s.sample != nil && s.sample.ended() != ""
	unit := [2]string{"i", "per " + s.unit.other()}
	switch {
	case s.view != viewTable:
		keys = append(keys, [][2]string{{"esc", "back"}, {"↑↓", "scroll"}, unit}...)
	default:
		keys = append(keys, [][2]string{{"↑↓", "select"}, {"enter", "open"}, unit, {"s", "sort"}, {"/", "filter"}, {"l", "losses"}}...)
	}
	switch {
	case over:
	case s.paused:
		keys = append(keys, [2]string{"p", "go on"})
	default:
		keys = append(keys, [2]string{"p", "pause"})
	}
	if s.view == viewTable && !over {
		keys = append(keys, [2]string{"r", "reset"})
	}
	return keys
}

func (u unit) String() string { return [...]string{"iteration", "second"}[u] }

func (u unit) other() string { return (1 - u).String() }
