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
