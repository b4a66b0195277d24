package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/term"
)

// console is what people read while a command works: log lines, and one status
// line below them that is rewritten in place. The status is shown on a
// terminal only.
type console struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	status   string
}

func newConsole(out io.Writer) *console {
	f, ok := out.(*os.File)
	return &console{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// terminalWidth is the number of columns of a terminal, 0 for anything else.
func terminalWidth(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// eraseLine goes to the start of a terminal's line and clears it.
const eraseLine = "\r\x1b[K"

// Write prints whole lines above the status.
func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		return c.out.Write(b)
	}
	io.WriteString(c.out, eraseLine)
	n, err := c.out.Write(b)
	io.WriteString(c.out, c.status)
	return n, err
}

// setStatus replaces the status line; an empty one removes it.
func (c *console) setStatus(format string, args ...any) {
	if !c.terminal {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	status := fmt.Sprintf(format, args...)
	if status == c.status {
		return
	}
	io.WriteString(c.out, eraseLine+status)
	c.status = status
}

// logLevel is how much is logged.
func logLevel(quiet, verbose bool) slog.Level {
	switch {
	case quiet:
		return slog.LevelWarn
	case verbose:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// logger gives a log on the console. The time is left out: the lines are read
// as they appear.
func (c *console) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
