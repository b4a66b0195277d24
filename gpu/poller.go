package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/recording"
)

// Errors of Open. Each message is one line, fit for people.
var (
	ErrNotBuilt     = errors.New("NVML is not built into this stageprof (it was built without cgo)")
	ErrNotAvailable = errors.New("NVML is not available")
)

// Sampling periods.
const (
	DefaultPeriod = 500 * time.Millisecond
	MinPeriod     = 100 * time.Millisecond
)

// NVML can take seconds to wake a driver that no process uses, and a GPU that
// fell off the bus may never answer. Neither may hold up a recording.
const (
	openTimeout = 10 * time.Second
	stopTimeout = 2 * time.Second
)

// Poller reads NVML at a steady pace between Start and Stop. Its methods are
// not for concurrent use, but for Latest.
type Poller struct {
	lib      library
	driver   string
	samplers []*sampler
	period   time.Duration
	clock    func() uint64 // nanoseconds, of which the intervals are

	cancel context.CancelFunc // nil until Start
	done   chan struct{}      // closed when sampling has ended
	stuck  bool               // NVML holds the sampling goroutine
	closed bool
}

// Open loads NVML and lists the devices. A period of 0 means DefaultPeriod; a
// shorter one than MinPeriod is raised to it. The error wraps ErrNotBuilt or
// ErrNotAvailable.
func Open(ctx context.Context, period time.Duration) (*Poller, error) {
	return open(ctx, period, openLibrary)
}

func open(ctx context.Context, period time.Duration, load func() (library, error)) (*Poller, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()

	type opened struct {
		poller *Poller
		err    error
	}
	result := make(chan opened, 1)
	go func() {
		p, err := newPoller(period, load)
		result <- opened{p, err}
	}()
	select {
	case r := <-result:
		return r.poller, r.err
	case <-ctx.Done():
		// A call into NVML can't be cancelled; its late answer is dropped.
		return nil, fmt.Errorf("%w: waiting for its first answer: %w", ErrNotAvailable, ctx.Err())
	}
}

func newPoller(period time.Duration, load func() (library, error)) (*Poller, error) {
	if period == 0 {
		period = DefaultPeriod
	}
	lib, err := load()
	if errors.Is(err, ErrNotBuilt) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	p := &Poller{lib: lib, period: max(period, MinPeriod), clock: monotonic}
	if err := p.list(); err != nil {
		lib.close() // the first error is the one to tell
		return nil, fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	return p, nil
}

// list fills in the driver and the devices.
func (p *Poller) list() error {
	var err error
	if p.driver, err = p.lib.driver(); err != nil {
		return fmt.Errorf("reading the driver's version: %w", err)
	}
	devices, err := p.lib.devices()
	if err != nil {
		return err
	}
	for i, dev := range devices {
		s, err := newSampler(i, dev)
		if err != nil {
			return err
		}
		p.samplers = append(p.samplers, s)
	}
	return nil
}

// Inventory lists the driver and the devices: index, name, uuid and total
// memory. It is for use before Start.
func (p *Poller) Inventory() *recording.GPU {
	g := &recording.GPU{Driver: p.driver, Devices: make([]recording.Device, len(p.samplers))}
	for i, s := range p.samplers {
		g.Devices[i] = s.summary()
	}
	return g
}

// Start begins to sample and returns at once. Sampling ends with Stop, or when
// ctx is done.
func (p *Poller) Start(ctx context.Context) {
	if p.cancel != nil {
		return
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
}

// Latest is what the devices said last, of themselves and of one process: the
// values of the last sample instead of means, and the energy since Start. It may
// be called at any time, by several goroutines.
func (p *Poller) Latest(pid int) *recording.GPU {
	g := &recording.GPU{Driver: p.driver, Devices: make([]recording.Device, len(p.samplers))}
	for i, s := range p.samplers {
		g.Devices[i] = s.now(pid)
	}
	return g
}

// run samples every device each period, and once more at the end, so that a
// window shorter than a period has a sample too.
func (p *Poller) run(ctx context.Context) {
	for _, s := range p.samplers {
		s.begin(p.clock())
	}
	tick := time.NewTicker(p.period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		for _, s := range p.samplers {
			s.sample(p.clock())
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// monotonic is the clock of spans.
func monotonic() uint64 {
	var t unix.Timespec
	// It can't fail: the clock exists and the memory is ours.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// Stop ends the window and returns its summary, with a note about what is
// missing from it; the note is one line, or empty. It waits for NVML's answer
// to the last sample, but not for ever: the summary is nil when NVML hangs.
func (p *Poller) Stop() (*recording.GPU, string) {
	if p.cancel == nil {
		return nil, "NVML was not sampled: the window never began"
	}
	p.cancel()
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.stuck = true
		return nil, fmt.Sprintf("NVML did not answer for %v at the end of the window: no GPU numbers", stopTimeout)
	}
	var notes []string
	for _, s := range p.samplers {
		notes = append(notes, s.notes()...)
	}
	return p.Inventory(), strings.Join(notes, "; ")
}

// Of adds to a summary what the devices said of one process. The summary itself
// is not changed, and may be nil.
func (p *Poller) Of(g *recording.GPU, pid int) *recording.GPU {
	if g == nil {
		return nil
	}
	own := *g
	own.Devices = slices.Clone(g.Devices)
	for i, s := range p.samplers {
		own.Devices[i].Process = s.process(pid)
	}
	return &own
}

// Close ends sampling, if it still goes on, and gives NVML back.
func (p *Poller) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.cancel != nil && !p.stuck {
		p.Stop()
	}
	if p.stuck {
		return nil // nvmlShutdown would hang as well
	}
	if err := p.lib.close(); err != nil {
		return fmt.Errorf("closing NVML: %w", err)
	}
	return nil
}
