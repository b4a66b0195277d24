package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// ErrUnsupported says that there is no calibration for this architecture.
var ErrUnsupported = errors.New("calibration is not available for this architecture")

// ErrProcessFilter says that the kernel's process filter for multi-uprobes
// matches threads instead of processes (Linux 6.6 to 6.9): probes must be
// attached for all processes and filtered by the programs.
var ErrProcessFilter = errors.New("this kernel's probe filter matches only a process's first thread")

// Cost is what a pair of probes costs on code of one class, in nanoseconds per
// call.
type Cost struct {
	Added float64 // to the calling thread
	Bias  float64 // to the measured duration
}

// Result is a calibration's outcome for each measured class.
type Result map[elfsym.Class]Cost

// patience bounds a calibration, whose child may be stopped or starved.
const patience = 10 * time.Second

// The number of calls in a batch, and of batches. The quietest batch counts,
// since whatever else runs on the machine only adds; a batch is short enough to
// pass undisturbed even on a busy machine.
const (
	batches        = 30
	plainCalls     = 5000
	emulatedCalls  = 100
	singleStepping = 30
)

// Run measures the classes that a plan needs with the given attacher's
// mechanism. It takes some tens of milliseconds.
func Run(ctx context.Context, mechanism probe.Mechanism, filter bool, classes []elfsym.Class) (Result, error) {
	if len(stubs) == 0 {
		return nil, ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := start(ctx)
	if err != nil {
		return nil, err
	}
	c.filter(filter)
	result, err := c.measure(mechanism, classes)
	return result, errors.Join(err, c.stop())
}

func (c *child) measure(mechanism probe.Mechanism, classes []elfsym.Class) (Result, error) {
	plain := map[int]float64{}
	wanted := c.wanted(classes)
	for _, i := range wanted {
		var err error
		if plain[i], err = c.quietest(i, plainCalls); err != nil {
			return nil, err
		}
	}
	objects, err := c.load(mechanism, "driver_entry", "driver_return")
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	links, err := c.attach(objects, mechanism, wanted)
	if err != nil {
		return nil, err
	}
	if err := c.open(objects); err != nil {
		return nil, errors.Join(err, links.Close())
	}
	result := Result{}
	for _, i := range wanted {
		cost, err := c.probed(objects, i, plain[i])
		if err != nil {
			return nil, errors.Join(err, links.Close())
		}
		result[stubs[i].class] = cost
	}
	return result, links.Close()
}

// wanted returns the stubs that stand for the classes.
func (c *child) wanted(classes []elfsym.Class) []int {
	var wanted []int
	for i, s := range stubs {
		for _, class := range classes {
			if s.class == class {
				wanted = append(wanted, i)
				break
			}
		}
	}
	return wanted
}

func (c *child) quietest(i, calls int) (float64, error) {
	best := math.Inf(1)
	for range batches {
		perCall, err := c.call(i, calls)
		if err != nil {
			return 0, err
		}
		best = min(best, perCall)
	}
	return best, nil
}

// load loads programs of the recording's own for the child, with small tables.
func (c *child) load(mechanism probe.Mechanism, programs ...string) (*bpf.ProbeObjects, error) {
	spec, err := bpf.LoadProbe()
	if err != nil {
		return nil, fmt.Errorf("reading the programs: %w", err)
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.Hash {
			m.MaxEntries = 64
		}
	}
	probe.Prepare(spec, mechanism)
	if err := spec.Variables["target_tgid"].Set(uint32(c.command.Process.Pid)); err != nil {
		return nil, err
	}
	var objects bpf.ProbeObjects
	if err := bpf.LoadSelected(spec, &objects, programs...); err != nil {
		return nil, fmt.Errorf("loading the programs: %w", err)
	}
	return &objects, nil
}

// open opens the window for programs that read as many words of the child as
// the GIL's method of CPython 3.11 does.
func (c *child) open(objects *bpf.ProbeObjects) error {
	return errors.Join(
		objects.Gil.Set(bpf.ProbeGilPlan{Address: c.data}),
		objects.GilMethod.Set(uint32(bpf.ProbeGilReadingGIL_METHOD_CURRENT_THREAD_STATE)),
		objects.WindowStart.Set(monotonic()),
	)
}

func (c *child) attach(objects *bpf.ProbeObjects, mechanism probe.Mechanism, wanted []int) (*probe.Links, error) {
	attacher := c.attacher(mechanism)
	var points []probe.Point
	for _, i := range wanted {
		points = append(points, probe.Point{Offset: stubAt(i) + stubs[i].skip, Cookie: uint64(i)})
	}
	links := &probe.Links{}
	returns, err := attacher.Return(c.path(), objects.DriverReturn, points)
	if err != nil {
		return nil, err
	}
	links.Add(returns)
	entries, err := attacher.Entry(c.path(), objects.DriverEntry, points)
	if err != nil {
		return nil, errors.Join(err, links.Close())
	}
	links.Add(entries)
	return links, nil
}

// probed measures stub i with probes on it.
func (c *child) probed(objects *bpf.ProbeObjects, i int, plain float64) (Cost, error) {
	calls := emulatedCalls
	if stubs[i].class == elfsym.Stepped {
		calls = singleStepping
	}
	cost := Cost{Added: math.Inf(1), Bias: math.Inf(1)}
	var before bpf.ProbeCallRow
	for range batches {
		perCall, err := c.call(i, calls)
		if err != nil {
			return Cost{}, err
		}
		after, err := total(objects, i)
		if err != nil {
			return Cost{}, err
		}
		seen := after.Count - before.Count
		if seen == 0 {
			return Cost{}, ErrProcessFilter
		}
		if seen != uint64(calls) {
			return Cost{}, fmt.Errorf("calibrating: %d calls made, %d seen", calls, seen)
		}
		cost.Added = min(cost.Added, perCall-plain)
		cost.Bias = min(cost.Bias, float64(after.Wall-before.Wall)/float64(seen)-plain)
		before = after
	}
	cost.Bias = max(cost.Bias, 0)
	return cost, nil
}

// total sums the rows of one stub.
func total(objects *bpf.ProbeObjects, i int) (bpf.ProbeCallRow, error) {
	var key bpf.ProbeCallKey
	var row, sum bpf.ProbeCallRow
	rows := objects.Calls.Iterate()
	for rows.Next(&key, &row) {
		if int(key.Symbol) == i {
			sum.Count += row.Count
			sum.Wall += row.Wall
		}
	}
	return sum, rows.Err()
}

// monotonic is the clock of the kernel side.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 1 // cannot fail; any moment in the past serves
	}
	return uint64(ts.Nano())
}
