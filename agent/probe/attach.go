package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Mechanism is the way in which the kernel attaches probes.
type Mechanism string

// The mechanisms. UprobeMulti takes one link for any number of addresses, is
// quicker to attach and remove, and needs fewer privileges; PerfEvent works on
// every kernel that has cookies.
const (
	Auto        Mechanism = "auto"
	UprobeMulti Mechanism = "uprobe-multi"
	PerfEvent   Mechanism = "perf-event"
)

// Mechanisms lists what a person can ask for.
func Mechanisms() []Mechanism { return []Mechanism{Auto, UprobeMulti, PerfEvent} }

// Choose returns the mechanism to use for what was asked, by probing the kernel.
func Choose(asked Mechanism) (Mechanism, error) {
	err := features.HaveBPFLinkUprobeMulti()
	switch {
	case asked == PerfEvent:
		return PerfEvent, nil
	case err == nil:
		return UprobeMulti, nil
	case !errors.Is(err, ebpf.ErrNotSupported):
		return "", fmt.Errorf("probing for multi-uprobe links: %w", err)
	case asked == UprobeMulti:
		return "", fmt.Errorf("this kernel has no multi-uprobe links (Linux 6.6 and newer have them): %w", err)
	}
	return PerfEvent, nil
}

// Prepare makes the uprobe programs of a collection fit the mechanism. It must
// be called before the collection is loaded.
func Prepare(spec *ebpf.CollectionSpec, mechanism Mechanism) {
	if mechanism != PerfEvent {
		return
	}
	for _, program := range spec.Programs {
		if program.AttachType == ebpf.AttachTraceUprobeMulti {
			program.AttachType = ebpf.AttachNone
		}
	}
}

// Point is one probed address.
type Point struct {
	Offset uint64 // in the file
	Cookie uint64 // what the program gets to see
	// Semaphore is the position in the file of the counter of a static probe's
	// tracers, 0: none. The kernel raises it while the probe is on.
	Semaphore uint64
}

// Points returns the points of sites, whose symbols are numbered from first on.
// With syncDebt they also say what the functions mean for streams.
func Points(sites []Site, first int, syncDebt bool) []Point {
	points := make([]Point, len(sites))
	for i, s := range sites {
		points[i] = Point{Offset: s.Offset(), Cookie: cookie(uint16(first+i), sizeOf(s.Symbol))}
		if syncDebt {
			points[i].Cookie |= debtOf(s.Symbol).bits()
		}
	}
	return points
}

// Attacher puts programs on addresses in a file, for one process.
type Attacher struct {
	Mechanism Mechanism
	// PID is the process to probe; 0 means every process, for kernels whose
	// multi-uprobe filter matches threads instead of processes.
	PID int
	// Busy, if there is one, gets the CPU time that attaching and taking off take: no
	// thread of the target is held up for longer by its code being changed. What the
	// kernel's worker takes off counts as much as attaching it took, which is more.
	Busy *atomic.Int64
	// Held makes the kernel take multi-uprobe links off, where this process may ask for
	// that: also if this process is killed meanwhile, and a moment after Close.
	Held bool
	// Name is that of the file which the next link gets to be held, "": any.
	Name string
}

// Entry attaches a program to the points of the file at path. Closing the
// result takes all of them off.
func (a Attacher) Entry(path string, program *ebpf.Program, points []Point) (io.Closer, error) {
	return a.attach(path, program, points, (*link.Executable).UprobeMulti, (*link.Executable).Uprobe)
}

// Return does the same for the returns of the functions that contain the points.
func (a Attacher) Return(path string, program *ebpf.Program, points []Point) (io.Closer, error) {
	return a.attach(path, program, points, (*link.Executable).UretprobeMulti, (*link.Executable).Uretprobe)
}

type (
	attachMulti func(*link.Executable, []string, *ebpf.Program, *link.UprobeMultiOptions) (link.Link, error)
	attachOne   func(*link.Executable, string, *ebpf.Program, *link.UprobeOptions) (link.Link, error)
)

func (a Attacher) attach(path string, program *ebpf.Program, points []Point, multi attachMulti, one attachOne) (io.Closer, error) {
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return nil, fmt.Errorf("opening %q to attach probes: %w", path, err)
	}
	if a.Mechanism == PerfEvent {
		return a.attachEach(executable, program, points, one)
	}
	options := &link.UprobeMultiOptions{PID: uint32(a.PID)}
	for _, p := range points {
		options.Addresses = append(options.Addresses, p.Offset)
		options.Cookies = append(options.Cookies, p.Cookie)
		options.RefCtrOffsets = append(options.RefCtrOffsets, p.Semaphore)
	}
	if !slices.ContainsFunc(points, func(p Point) bool { return p.Semaphore != 0 }) {
		options.RefCtrOffsets = nil
	}
	var l link.Link
	took := a.Clock(func() { l, err = multi(executable, nil, program, options) })
	if err != nil {
		return nil, fmt.Errorf("attaching %d probes to %q: %w", len(points), path, err)
	}
	if h := ofThisProcess(); a.Held && h != nil {
		if file, err := h.keep(l, a.Name); err == nil {
			return heldLink{l, file, a, took}, nil
		}
	}
	return ownLink{l, a}, nil
}

// ownLink is a link that this process takes off.
type ownLink struct {
	link link.Link
	by   Attacher
}

func (o ownLink) Close() (err error) {
	o.by.Clock(func() { err = o.link.Close() })
	return err
}

// heldLink is a link that has a file in the hold.
type heldLink struct {
	link link.Link
	file string
	by   Attacher
	took time.Duration // attaching it
}

func (h heldLink) Close() error {
	h.by.add(h.took)
	return letGo(h.link, h.file)
}

// IsHeld tells whether the kernel takes off probes which an Attacher has put in.
func IsHeld(probes io.Closer) bool {
	_, ok := probes.(heldLink)
	return ok
}

// Descriptors are those of this process that keep probes in which an Attacher has put in.
func Descriptors(probes io.Closer) (all []int) {
	switch p := probes.(type) {
	case ownLink:
		return Descriptors(p.link)
	case heldLink:
		return Descriptors(p.link)
	case *Links:
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.links {
			all = append(all, Descriptors(l)...)
		}
	case interface{ FD() int }: // links of all kernels since 5.15
		return []int{p.FD()}
	}
	return all
}

// Clock adds the CPU time of f, which runs on one thread, to Busy.
func (a Attacher) Clock(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadCPU()
	f()
	took := threadCPU() - begin
	a.add(took)
	return took
}

func (a Attacher) add(took time.Duration) {
	if a.Busy != nil {
		a.Busy.Add(int64(took))
	}
}

// threadCPU is the calling thread's CPU time up to now: what getrusage says of a thread
// is as old as the scheduler's latest tick.
func threadCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // fails only for what does not exist
	return time.Duration(ts.Nano())
}

// attachEach attaches side by side, since each attachment mostly waits for the
// kernel's readers to pass.
func (a Attacher) attachEach(executable *link.Executable, program *ebpf.Program, points []Point, one attachOne) (io.Closer, error) {
	var links Links
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, p := range points {
		group.Go(func() error {
			l, err := one(executable, "", program, &link.UprobeOptions{
				Address: p.Offset, Cookie: p.Cookie, PID: a.PID, RefCtrOffset: p.Semaphore,
			})
			if errors.Is(err, os.ErrPermission) {
				return fmt.Errorf("attaching a probe as a perf event takes CAP_SYS_ADMIN on this kernel: run as root: %w", err)
			}
			if err != nil {
				return fmt.Errorf("attaching a probe at offset %#x: %w", p.Offset, err)
			}
			links.Add(l)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, links.Close())
	}
	return &links, nil
}

// parallel bounds the attachments and removals that are under way at a time:
// each occupies a thread.
const parallel = 32

// Links is a set of attached probes that are taken off together.
type Links struct {
	mu    sync.Mutex
	links []io.Closer
}

// Add puts a link into the set.
func (l *Links) Add(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links = append(l.links, c)
}

// Close takes off all probes of the set, side by side where the kernel allows:
// it removes perf events one after the other, each in about 0.1 s. Closing again
// does nothing. If no hold has the links it must not be cut short by killing this
// process: then the kernel can leave probes in the target.
func (l *Links) Close() error {
	l.mu.Lock()
	links := l.links
	l.links = nil
	l.mu.Unlock()

	errs := make([]error, len(links))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, c := range links {
		group.Go(func() error {
			errs[i] = c.Close()
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs, all of them
	return errors.Join(errs...)
}
