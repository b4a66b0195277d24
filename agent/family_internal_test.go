package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"stageprof/agent/target"
	"stageprof/sim/simtest"
)

// Who can't look for further descendants goes on with those that are known, and
// says so once.
func TestFamilyGoesOnWithoutLooking(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFamilyOf(Config{PID: p.PID, Log: slog.New(slog.DiscardHandler)}, root)
	defer f.forget()
	ctx, stop := context.WithCancel(t.Context())
	looks := 0
	f.below = func(...int) ([]target.Descendant, error) {
		if looks++; looks == 2 {
			stop()
		}
		return nil, errors.New("too many open files")
	}
	f.watch(ctx)
	if want := []string{"any that came later: too many open files"}; looks < 2 || !slices.Equal(f.result().Missed, want) {
		t.Errorf("missed after %d looks: %q, want %q", looks, f.result().Missed, want)
	}
}

// A pid that was given again is of no relative.
func TestFamilyKnowsIncarnations(t *testing.T) {
	root, other := simtest.Start(t, simtest.Tester(t, "idle")), simtest.Start(t, simtest.Tester(t, "idle"))
	process, err := target.Open(root.PID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFamilyOf(Config{PID: root.PID}, process)
	defer f.forget()
	f.below = func(...int) ([]target.Descendant, error) {
		return []target.Descendant{{PID: other.PID, StartTicks: process.StartTicks() - 1}}, nil
	}
	if err := f.look(t.Context()); err != nil || len(f.kin) != 1 {
		t.Errorf("%d relatives, %v", len(f.kin), err)
	}
	_, err = Open(t.Context(), Config{PID: other.PID, started: process.StartTicks() - 1})
	if !errors.Is(err, target.ErrTargetExited) {
		t.Errorf("recording whoever has the pid: %v", err)
	}
}
