package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"stageprof/agent/calibrate"
	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/agent/target"
)

// calibrate measures the probes' cost. Without it durations are reported as
// measured, and the profile says so.
func (s *Session) calibrate(ctx context.Context) error {
	if sites := s.plan.sites(); s.mechanism == probe.PerfEvent && sites > manyPerfEvents {
		s.warnOnce(fmt.Sprintf("the kernel takes %d perf events off one by one, after the profile is written: that can take a minute; --probes with fewer functions is quicker", 2*sites))
	}
	s.only = s.process.PID()
	known, classes := s.config.costs, s.meter.classes(s.plan.classes())
	costs, err := known.run(ctx, s.mechanism, true, classes)
	if errors.Is(err, calibrate.ErrProcessFilter) {
		if err := s.config.checkFilter(); err != nil {
			return err
		}
		s.only = 0
		s.warnOnce(err.Error() + ": probes are attached for every process that maps the driver")
		costs, err = known.run(ctx, s.mechanism, false, classes)
	}
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if err != nil {
		s.warnOnce(fmt.Sprintf("durations include the probes' own time: %v", err))
		s.calibration = err.Error()
		return s.meter.check(s)
	}
	s.costs = costs
	if len(s.functionPatterns) > 0 {
		if s.functionCost, err = calibrate.RunFunctions(ctx, s.mechanism, s.only != 0); err != nil {
			s.warnOnce(fmt.Sprintf("what following functions costs is not known: %v", err))
		}
	}
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	s.calibration = fmt.Sprintf("a child called a function of each class with the same programs on it (%s)", s.mechanism)
	return s.meter.check(s)
}

// attachAll puts the probes in, in the order that loses nothing: a thread's
// state before anything that needs it, markers before the registry is read,
// returns before entries, and the window opens last.
func (s *Session) attachAll(ctx context.Context) error {
	return inOrder(ctx,
		s.attachTracepoints,
		s.initThreads,
		s.attachLoader,
		s.rememberImages,
		s.attachAnnouncements,
		s.attachMarkerLibs,
		s.attachAutograd,
		s.attachSources,
		s.attachCatches,
		s.attachFunctions,
		s.attachPairs,
		s.attachAllocations,
		s.attachDrivers,
		s.lookAgain,
		s.warnOfSources,
		s.warnOfFunctions,
		s.warnOfPairs,
		s.warnOfAllocations,
		s.rememberChildren,
		s.openWindow,
	)
}

func (s *Session) attachTracepoints() error {
	var again []*ebpf.Program
	if o := &s.objects; s.skips {
		again = []*ebpf.Program{
			o.OnNewAgain1, o.OnNewAgain2, o.OnNewAgain3, o.OnNewAgain4,
			o.OnExitAgain1, o.OnExitAgain2, o.OnExitAgain3, o.OnExitAgain4,
		}
	}
	return errors.Join(
		attachTracepoints(&s.kernel, s.objects.OnNew, s.objects.OnRename, s.objects.OnExit, s.objects.OnExec),
		attachTracepoints(&s.kernel, again...),
		attachTracepoints(&s.scheduler, s.objects.OnSwitch, s.objects.OnWakeup),
	)
}

func attachTracepoints(links *probe.Links, programs ...*ebpf.Program) error {
	for _, program := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attaching %v: %w", program, err)
		}
		links.Add(l)
	}
	return nil
}

func (s *Session) initThreads() error {
	// From here on new threads get their state when they start.
	if err := s.objects.Tracking.Set(uint32(1)); err != nil {
		return fmt.Errorf("following the target: %w", err)
	}
	if _, err := runIterator(s.objects.InitThreads); err != nil {
		return fmt.Errorf("listing the target's threads: %w", err)
	}
	for _, i := range []struct {
		to      **link.Iter
		program *ebpf.Program
	}{{&s.iterate, s.objects.DumpThreads}, {&s.peeking, s.objects.PeekThreads}} {
		iterate, err := link.AttachIter(link.IterOptions{Program: i.program})
		if err != nil {
			return fmt.Errorf("preparing to list the target's threads: %w", err)
		}
		*i.to = iterate
	}
	return nil
}

func runIterator(program *ebpf.Program) ([]byte, error) {
	iterate, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return nil, err
	}
	b, err := readIterator(iterate)
	return b, errors.Join(err, iterate.Close())
}

func readIterator(iterate *link.Iter) ([]byte, error) {
	r, err := iterate.Open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// manyPerfEvents is the number of sites from which on removing them takes so long
// that it should be said.
const manyPerfEvents = 20

// loaderHook is the function that the dynamic loader calls, for debuggers,
// whenever the list of loaded libraries has changed.
const loaderHook = "_dl_debug_state"

// attachLoader lets the target's dynamic loader tell of new libraries. Without
// it (musl, static executables, a loader that can't be opened) the session looks
// from time to time.
func (s *Session) attachLoader() error {
	mappings, err := s.process.Mappings()
	if err != nil {
		return err
	}
	for _, m := range mappings {
		if !m.Exec || !strings.HasPrefix(path.Base(m.Path), "ld") {
			continue
		}
		attached, err := s.attachLoaderFile(m)
		if err != nil {
			s.warnOnce(fmt.Sprintf("libraries that the process loads are found up to half a second late: %v", err))
		}
		if attached {
			return nil
		}
	}
	return nil
}

func (s *Session) attachLoaderFile(m target.Mapping) (bool, error) {
	file, err := s.process.OpenMapped(m)
	if err != nil {
		return false, err
	}
	defer file.Close()
	elf, err := elfsym.Open(file, file.Size())
	if err != nil {
		return false, nil // not a loader
	}
	symbol, err := elf.Lookup(loaderHook)
	if err != nil {
		return false, nil // another loader, or the hook is gone
	}
	placement, err := elf.Place(symbol, probe.Kernel())
	if err != nil {
		return false, fmt.Errorf("placing the probe on the loader: %w", err)
	}
	l, err := s.attach(attacher.Entry, file, []target.Mapping{m}, s.objects.LoaderHit,
		[]probe.Point{{Offset: symbol.Offset + placement.Skip}})
	if err != nil {
		return false, err
	}
	s.probes.Add(l)
	s.loaderHooked = true
	return true, nil
}

func (s *Session) attachMarkerLibs() error {
	if !slices.Contains(s.config.StagesFrom, SourceMarkers) {
		return nil
	}
	for _, library := range s.plan.Markers {
		if err := s.attachMarkerLib(library); err != nil {
			return err
		}
	}
	return nil
}

// attachMarkerLib probes a marker library, then tells the kernel side where the
// threads that have been using it keep their stages.
func (s *Session) attachMarkerLib(library target.Image) error {
	if s.markers[imageOf(library)] {
		return nil
	}
	s.markers[imageOf(library)] = true
	if err := s.followMarkers(library); err != nil {
		s.warnOnce(fmt.Sprintf("stages of a marker library are not seen: %v", err))
		return nil
	}
	s.markerLibs++
	for _, bias := range library.Biases {
		r, err := readRegistry(s.process, library.ELF, bias)
		if err != nil {
			s.warnOnce(fmt.Sprintf("stages that are open now are found late: %q: %v", library.Path, err))
			continue
		}
		if err := s.seed(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) seed(r *registry) error {
	threads, err := s.process.Threads()
	if err != nil {
		return err
	}
	tids := map[uint32]int{}
	for _, t := range threads {
		tids[uint32(t.NSTID)] = t.TID
	}
	for _, slot := range r.slots {
		tid, alive := tids[slot.tid]
		if !alive || len(s.midStage[uint32(tid)].open) > 0 { // or known by another copy of the library
			continue
		}
		if err := s.objects.Slots.Put(uint32(tid), slot.address); err != nil {
			return fmt.Errorf("passing on a thread's stages: %w", err)
		}
		s.midStage[uint32(tid)] = slot
	}
	s.registries = append(s.registries, r)
	return s.objects.ProcessSlot.Set(r.process.address)
}

// unseeded returns the ids of the threads of midStage that have not ended. It is
// asked before their states are read: a thread that ends in between has its time
// in its row.
func (s *Session) unseeded() (map[uint32]bool, error) {
	tids := map[uint32]bool{}
	err := entries(s.objects.Slots, func(tid uint32, _ uint64) { tids[tid] = true })
	return tids, err
}

func (s *Session) attachDrivers() error {
	for _, d := range s.plan.Drivers {
		if err := s.attachDriver(d); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) attachDriver(d DriverPlan) error {
	if s.drivers[imageOf(d.Image)] {
		return nil
	}
	if len(s.symbols)+len(d.Sites) > probe.MaxSymbols {
		s.drivers[imageOf(d.Image)] = true
		s.warnOnce(fmt.Sprintf("calls of %q are not seen: %d functions of other drivers are probed", d.Path, len(s.symbols)))
		return nil
	}
	if len(d.Sites) > 0 {
		links := new(probe.Links)
		if err := s.attachSites(links, d); err != nil {
			return errors.Join(err, links.Close())
		}
		s.probes.Add(links)
		for _, site := range d.Sites {
			s.symbols = append(s.symbols, probedSymbol{site, d.Image})
		}
	}
	s.drivers[imageOf(d.Image)] = true
	return nil
}

// attachSites probes a driver's functions.
func (s *Session) attachSites(links *probe.Links, d DriverPlan) error {
	points := probe.Points(d.Sites, len(s.symbols), !s.config.NoSyncDebt)
	if err := s.attachNotices(links, d); err != nil {
		return err
	}
	returns, err := s.attach(attacher.Return, d.File, d.Mappings, s.objects.DriverReturn, points)
	if err != nil {
		return err
	}
	links.Add(returns)
	entries, err := s.attach(attacher.Entry, d.File, d.Mappings, s.objects.DriverEntry, points)
	if err != nil {
		return err
	}
	links.Add(entries)
	return nil
}

// attachNotices lets the kernel side follow contexts and the ends of streams,
// which few programs are timed for.
func (s *Session) attachNotices(links *probe.Links, d DriverPlan) error {
	if s.config.NoSyncDebt {
		return nil
	}
	sites, err := probe.Sites(d.ELF, probe.Notices())
	if err != nil {
		return fmt.Errorf("looking for contexts and streams in %q: %w", d.Path, err)
	}
	if len(sites) == 0 {
		return nil
	}
	l, err := s.attach(attacher.Entry, d.File, d.Mappings, s.objects.DriverNotice, probe.NoticePoints(sites))
	if err != nil {
		return err
	}
	links.Add(l)
	return nil
}

// lookAgain finds what came since the plan was made and before the loader's
// hook was in.
func (s *Session) lookAgain() error {
	if err := s.attachNew(); err != nil {
		s.warnOfNew(err)
	}
	return nil
}

// rememberImages opens what the target has mapped, while it is there.
func (s *Session) rememberImages() error {
	if s.names == nil {
		s.names = newImages(s.process)
	}
	err := s.names.refresh()
	if s.names.full {
		s.warnOnce(fmt.Sprintf("the process has mapped more than %d files: further ones are not searched for stages and functions, and callers in them have no names", maxImages))
	}
	return err
}

// attachTo probes a mapped file by its entries' program.
func (s *Session) attachTo(file *openImage, program *ebpf.Program, points []probe.Point) error {
	l, err := s.attach(attacher.Entry, file.file, s.names.mappings(file), program, points)
	if err != nil {
		return err
	}
	s.probes.Add(l)
	file.probed = true
	return nil
}

func (s *Session) openWindow() error {
	// The plan is of the program that was there when it was made.
	before, err := s.process.Execed()
	if err != nil {
		return err
	}
	since, err := s.execed()
	if err != nil {
		return err
	}
	if before || since {
		return fmt.Errorf("process %d: %w", s.process.PID(), ErrExeced)
	}
	s.startCPU = agentCPU()
	s.startWall = time.Now()
	s.startMono = monotonic()
	return s.objects.WindowStart.Set(s.startMono)
}
