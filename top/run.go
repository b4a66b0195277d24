package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

// DefaultInterval is how often the screen is drawn anew.
const DefaultInterval = time.Second

// Bounds of the interval: a snapshot reads all of the kernel side's tables, and
// nobody waits longer than an hour for a screen.
const (
	LeastInterval = 100 * time.Millisecond
	MostInterval  = time.Hour
)

// looks is how often in a second the program looks whether the screen has changed,
// which also costs when nothing has: enough for keys to be answered at once.
const looks = 20

// ErrNoTerminal says that a screen can't be drawn here.
var ErrNoTerminal = errors.New("no terminal to draw on; --once prints one frame as text")

// Config says what to show.
type Config struct {
	Source   Source
	Interval time.Duration
	// Exited is closed when the target's end should be looked at without
	// waiting for the interval; nil: it is seen with the next snapshot.
	Exited <-chan struct{}
}

// CheckTerminal refuses what no screen can be drawn on.
func CheckTerminal(in, out *os.File, environ func(string) string) error {
	switch kind := environ("TERM"); {
	case !term.IsTerminal(int(out.Fd())):
		return fmt.Errorf("the output is no terminal: %w", ErrNoTerminal)
	case !term.IsTerminal(int(in.Fd())):
		return fmt.Errorf("the input is no terminal: %w", ErrNoTerminal)
	case kind == "" || kind == "dumb":
		return fmt.Errorf("terminal type %q can't move its cursor: %w", kind, ErrNoTerminal)
	}
	return nil
}

// Run shows the source on the terminal until the user quits or the context is
// done. The terminal is as before when it returns, whatever it returns.
func Run(ctx context.Context, c Config, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(c)
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(looks))
	var sampling errgroup.Group
	sampling.Go(func() error {
		err := c.sample(ctx, func(msg snapshotMsg) { program.Send(msg) })
		if err != nil {
			cancel()
		}
		return err
	})
	_, err := program.Run()
	interrupted := ctx.Err() != nil
	cancel()
	if err := errors.Join(m.err, sampling.Wait()); err != nil {
		return err
	}
	if interrupted && errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrProgramPanic) {
		return nil // a signal is another way to quit
	}
	if err != nil {
		return fmt.Errorf("drawing on the terminal: %w", err)
	}
	return nil
}

// sample sends a snapshot after each interval until the target has ended or the
// context is done.
func (c *Config) sample(ctx context.Context, send func(snapshotMsg)) error {
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Exited:
		case <-ticker.C:
		}
		r, err := c.Source.Snapshot()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading what was recorded: %w", err)
		}
		send(snapshotMsg{r})
		if (&sample{total: r}).ended() != "" {
			return nil
		}
	}
}

// ErrInterrupted says that the context was done before the frame was.
var ErrInterrupted = errors.New("interrupted before the interval was over")

// printedWidth is that of a printed frame where there is no terminal.
const printedWidth = 120

// Once prints the frame of one interval as plain text, in lines of at most width
// cells; 0 is no terminal's.
func Once(ctx context.Context, c Config, w io.Writer, width int) error {
	timer := time.NewTimer(c.Interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ErrInterrupted
	case <-c.Exited:
	case <-timer.C:
	}
	r, err := c.Source.Snapshot()
	if err != nil {
		return fmt.Errorf("reading what was recorded: %w", err)
	}
	sample, err := new(series).add(r)
	if err != nil {
		return err
	}
	s := screen{width: max(cmp.Or(width, printedWidth), leastWidth), interval: c.Interval, sample: sample, printed: true}
	if _, err := io.WriteString(w, newTheme(false).render(s.frame())+"\n"); err != nil {
		return fmt.Errorf("printing the frame: %w", err)
	}
	return nil
}
