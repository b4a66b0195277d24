package top

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"stageprof/recording"
)

// script is a Source that gives prepared snapshots, one after the other, and the
// last one again and again.
type script struct {
	snapshots []*recording.Recording
	err       error
	taken     int
}

func (s *script) Snapshot() (*recording.Recording, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.taken++
	return s.snapshots[min(s.taken, len(s.snapshots))-1], nil
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestOnce(t *testing.T) {
	source := &script{snapshots: []*recording.Recording{at(time.Second, "")}}
	var out bytes.Buffer
	if err := Once(t.Context(), Config{Source: source, Interval: time.Millisecond}, &out, 0); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "copy_to_cpu") || !strings.HasSuffix(got, "\n") || source.taken != 1 {
		t.Errorf("%d snapshots, printed %q", source.taken, got)
	}
}

// The target's end is the interval's too.
func TestOnceUntilTheTargetExits(t *testing.T) {
	source := &script{snapshots: []*recording.Recording{at(time.Second, recording.EndExit)}}
	var out bytes.Buffer
	if err := Once(t.Context(), Config{Source: source, Interval: time.Hour, Exited: closed()}, &out, 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "target exited") {
		t.Errorf("printed %q", out.String())
	}
}

func TestOnceErrors(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	good := &script{snapshots: []*recording.Recording{at(time.Second, "")}}
	if err := Once(interrupted, Config{Source: good, Interval: time.Hour}, full, 0); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v, want %v", err, ErrInterrupted)
	}
	if err := Once(t.Context(), Config{Source: &script{err: broken}, Interval: 1}, full, 0); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if err := Once(t.Context(), Config{Source: good, Interval: 1}, full, 0); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v, want that there is no space", err)
	}
}

// Sampling ends with the target, whose end is not waited for.
func TestSample(t *testing.T) {
	exited := make(chan struct{})
	source := &script{snapshots: []*recording.Recording{at(time.Second, ""), at(time.Second, recording.EndExit)}}
	c := Config{Source: source, Interval: time.Millisecond, Exited: exited}
	var got []recording.WindowEnd
	err := c.sample(t.Context(), func(m snapshotMsg) {
		got = append(got, m.recording.Window.End)
		if len(got) == 1 {
			close(exited)
		}
	})
	if err != nil || len(got) != 2 || got[1] != recording.EndExit {
		t.Errorf("sent %q, error %v", got, err)
	}
	broken := errors.New("broken")
	c.Source = &script{err: broken}
	if err := c.sample(t.Context(), func(snapshotMsg) { t.Error("sent nothing") }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestCheckTerminal(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := CheckTerminal(file, file, func(string) string { return "xterm" }); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("got %v, want %v", err, ErrNoTerminal)
	}
}
