package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// Attacher is a [probe.Attacher] that a keeper attaches for.
type Attacher struct {
	Keeper *Keeper
	By     probe.Attacher
}

// Entry attaches a program to the points of the file at path. Closing the result takes
// all of them off.
func (a Attacher) Entry(path string, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
	return a.attach(askEntry, path, program, points)
}

// Return does the same for the returns of the functions that contain the points.
func (a Attacher) Return(path string, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
	return a.attach(askReturn, path, program, points)
}

func (a Attacher) attach(kind kind, path string, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %q to attach probes: %w", path, err)
	}
	defer file.Close()
	p := &probes{id: a.Keeper.nextID(), keeper: a.Keeper, by: a.By}
	p.by.Name = fmt.Sprintf("kept-%d-%d", a.Keeper.command.Process.Pid, p.id)
	r := request{ID: p.id, Kind: kind, Mechanism: p.by.Mechanism, PID: p.by.PID, Held: p.by.Held, Name: p.by.Name, Points: points}
	got, err := a.Keeper.ask(r, int(file.Fd()), program.FD())
	p.add(got.Busy)
	if errors.Is(err, ErrEnded) {
		probe.LetGo(p.by.Name) // should it have come to that
	}
	if err != nil {
		return nil, err
	}
	p.files, p.held, p.took = got.files, got.Held, got.Busy
	return p, nil
}

// probes are what the keeper has attached at once. The descriptors keep them in if it is
// gone, and their file in the hold does that beyond the end of this process.
type probes struct {
	id     uint64
	keeper *Keeper
	by     probe.Attacher
	files  []*os.File
	held   bool
	took   time.Duration // to attach them
}

// Close closes the descriptors of this side first: the last ones are the keeper's. If that
// has ended, and there is no hold, this takes the probes off.
func (p *probes) Close() error {
	ended := p.keeper.Ended()
	var err error
	p.by.Clock(func() { err = closeAll(p.files) })
	got, failed := p.keeper.ask(request{ID: p.id, Kind: askOff})
	p.add(got.Busy)
	if !errors.Is(failed, ErrEnded) {
		return errors.Join(err, failed)
	}
	if p.held {
		probe.LetGo(p.by.Name)
		p.add(p.took) // as probe.Attacher has it
		return err
	}
	// It may have ended just before it was asked, and left nothing: who knows.
	if !ended && p.keeper.told.CompareAndSwap(false, true) {
		err = errors.Join(err, fmt.Errorf("%w as it took them off: some may be left in the process, until it is recorded again", failed))
	}
	return err
}

func (p *probes) add(took time.Duration) {
	if p.by.Busy != nil {
		p.by.Busy.Add(int64(took))
	}
}
