package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
)

//go:generate go tool bpf2go -target amd64,arm64 -cflags "-I../../bpf -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -mcpu=v3" way way.bpf.c

// wayPlan is a way to see the calls of a function: the programs on it, and what
// these do with a call.
type wayPlan struct {
	group, name           string // in the table
	mechanism             probe.Mechanism
	entry, leave, session string  // programs; "": none
	runs                  uint64  // of programs, for each call
	held                  wayHeld // where the begin is
	row                   *rowKind
}

// rowKind is a kind of row that calls are added to.
type rowKind struct {
	name   string
	rows   wayRows
	table  string
	perCPU bool
}

var rowKinds = []rowKind{
	{"row of an array", wayRowsROWS_OF_FUNCTION, wayMapFunctionRows, false},
	{"row of an array for each CPU", wayRowsROWS_OF_FUNCTION_CPU, wayMapFunctionCpuRows, true},
	{"row of a hash, the thread's own", wayRowsROWS_OF_THREAD, wayMapThreadRows, false},
	{"row of a hash for each CPU", wayRowsROWS_OF_CPU, wayMapCpuRows, true},
}

// wayPlans begins with what the others are compared with: no probes, and a pair of
// them whose programs are empty.
func wayPlans() []wayPlan {
	const empty = "empty programs"
	plans := []wayPlan{
		{name: "without probes"},
		{group: empty, name: "entry and return probe", entry: wayProgEmpty, leave: wayProgEmpty, runs: 2},
		{group: empty, name: "the same as perf events", mechanism: probe.PerfEvent, entry: wayProgEmpty, leave: wayProgEmpty, runs: 2},
		{group: empty, name: "session", session: wayProgSessionEmpty, runs: 2},
		{group: empty, name: "session whose entry declines the return", session: wayProgSessionDeclined, runs: 1},
		{group: empty, name: "entry probe alone", entry: wayProgEmpty, runs: 1},
	}
	for _, plan := range []wayPlan{
		{group: "entry alone: count, and when last", entry: wayProgEntryAlone, runs: 1},
		{group: "timed, begin in the thread's storage", entry: wayProgEntry, leave: wayProgLeave, runs: 2, held: wayHeldHELD_IN_TASK},
		{group: "timed, begin in a hash by thread id", entry: wayProgEntry, leave: wayProgLeave, runs: 2, held: wayHeldHELD_BY_THREAD_ID},
		{group: "timed, begin in a session's cookie", session: wayProgSession, runs: 2},
	} {
		for i := range rowKinds {
			plan.row = &rowKinds[i]
			plan.name = plan.row.name
			plans = append(plans, plan)
		}
	}
	return plans
}

// load loads the plan's programs, and all maps.
func (p wayPlan) load() (*ebpf.Collection, error) {
	spec, err := loadWay()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if !slices.Contains([]string{p.entry, p.leave, p.session}, name) {
			delete(spec.Programs, name)
		}
	}
	err = spec.Variables[wayVarHeld].Set(p.held)
	if p.row != nil {
		err = errors.Join(err, spec.Variables[wayVarRows].Set(p.row.rows))
	}
	if err != nil {
		return nil, err
	}
	probe.Prepare(spec, p.mechanism)
	return ebpf.NewCollection(spec)
}

// attach puts the programs on a point of the child.
func (p wayPlan) attach(c *child, collection *ebpf.Collection, point probe.Point) (*probe.Links, error) {
	attacher := c.attacher(p.mechanism)
	session := func(path string, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
		return attachSession(path, program, points[0], attacher.PID)
	}
	links := &probe.Links{}
	for _, put := range []struct {
		program string
		on      func(string, *ebpf.Program, []probe.Point) (io.Closer, error)
	}{
		{p.leave, attacher.Return},
		{p.entry, attacher.Entry},
		{p.session, session},
	} {
		if put.program == "" {
			continue
		}
		l, err := put.on(c.path(), collection.Programs[put.program], []probe.Point{point})
		if err != nil {
			return nil, errors.Join(err, links.Close())
		}
		links.Add(l)
	}
	return links, nil
}

// way is a way that is attached, to a function of its own: so all of them are
// measured in turn.
type way struct {
	wayPlan
	stub     int
	programs []*ebpf.Program
	counted  func() (uint64, error) // calls, by its rows; nil: it has none
	calls    uint64                 // made
	quietest float64                // ns per call, of its batches
}

// call lets the child make a batch of n calls.
func (w *way) call(c *child, n int) error {
	perCall, err := c.call(w.stub, n)
	if err != nil {
		return err
	}
	w.calls += uint64(n)
	w.quietest = min(w.quietest, perCall)
	return nil
}

// check returns an error unless its rows have exactly the calls that were made.
func (w *way) check() error {
	if w.counted == nil {
		return nil
	}
	counted, err := w.counted()
	if err == nil && counted != w.calls {
		err = fmt.Errorf("%s, %s: %d calls made, %d counted", w.group, w.name, w.calls, counted)
	}
	return err
}

// ways is every way that this kernel has, on one child.
type ways struct {
	child   *child
	jump    int // the stub with the code that nearly every function of a driver has
	all     []*way
	missing error          // why others are not there
	closers []func() error // undone in reverse
}

func startWays(ctx context.Context) (*ways, error) {
	c, err := start(ctx)
	if err != nil {
		return nil, err
	}
	c.filter(true)
	s := &ways{child: c, jump: c.wanted([]elfsym.Class{elfsym.Jump})[0]}
	s.closers = append(s.closers, c.stop)
	if err := s.attach(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *ways) close() error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (s *ways) attach() error {
	if s.missing = haveSessions(); s.missing != nil && !errors.Is(s.missing, errNoSessions) {
		return s.missing
	}
	plans := wayPlans()
	if s.missing != nil {
		plans = slices.DeleteFunc(plans, func(p wayPlan) bool { return p.session != "" })
	}
	if err := s.copyStub(len(plans)); err != nil {
		return err
	}
	for _, plan := range plans {
		if err := s.add(plan); err != nil {
			return fmt.Errorf("%s, %s: %w", plan.group, plan.name, err)
		}
	}
	return s.addOurs()
}

// copyStub writes n copies of the stub behind all others. It comes before the first
// probe, which gives the child a page of its own.
func (s *ways) copyStub(n int) error {
	for i := range n {
		if _, err := s.child.code.WriteAt(stubs[s.jump].code, int64(stubAt(len(stubCode())+i))); err != nil {
			return err
		}
	}
	return nil
}

// add attaches a plan's programs to the next copy.
func (s *ways) add(plan wayPlan) error {
	w := &way{wayPlan: plan, stub: len(stubCode()) + len(s.all), quietest: math.Inf(1)}
	collection, err := plan.load()
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { collection.Close(); return nil })
	for _, p := range collection.Programs {
		w.programs = append(w.programs, p)
	}
	if plan.row != nil {
		w.counted = func() (uint64, error) { return countRows(collection.Maps[plan.row.table], plan.row.perCPU) }
	}
	links, err := plan.attach(s.child, collection, probe.Point{Offset: stubAt(w.stub) + stubs[s.jump].skip, Cookie: uint64(w.stub)})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, links.Close)
	s.all = append(s.all, w)
	return nil
}

// addOurs attaches the recording's own programs, to the stub itself.
func (s *ways) addOurs() error {
	objects, err := s.child.load(probe.UprobeMulti, "driver_entry", "driver_return")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, objects.Close)
	links, err := s.child.attach(objects, probe.UprobeMulti, []int{s.jump})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, links.Close)
	s.all = append(s.all, &way{
		wayPlan:  wayPlan{group: "stageprof's own programs", name: "everything on", runs: 2},
		stub:     s.jump,
		programs: []*ebpf.Program{objects.DriverEntry, objects.DriverReturn},
		counted: func() (uint64, error) {
			row, err := total(objects, s.jump)
			return row.Count, err
		},
		quietest: math.Inf(1),
	})
	return s.child.open(objects)
}

// countRows sums the calls in a table's rows, of which each CPU may have its own.
func countRows(table *ebpf.Map, perCPU bool) (uint64, error) {
	var key []byte
	var one wayRow
	var each []wayRow
	var value any = &one
	if perCPU {
		value = &each
	}
	var count uint64
	rows := table.Iterate()
	for rows.Next(&key, value) {
		count += one.Count
		for _, row := range each {
			count += row.Count
		}
	}
	return count, rows.Err()
}

// TestWays holds the ways to the calls that are made: programs run as often as they
// should, and each call is in the rows once.
func TestWays(t *testing.T) {
	s, err := startWays(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	account, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	for _, w := range s.all {
		t.Run(w.group+"/"+w.name, func(t *testing.T) {
			if err := w.call(s.child, singleStepping); err != nil {
				t.Fatal(err)
			}
			var runs uint64
			for _, p := range w.programs {
				stats, err := p.Stats()
				if err != nil {
					t.Fatal(err)
				}
				runs += stats.RunCount
			}
			if want := w.runs * w.calls; runs != want {
				t.Errorf("programs ran %d times, want %d", runs, want)
			}
			if err := w.check(); err != nil {
				t.Error(err)
			}
		})
	}
	if s.missing != nil {
		t.Skip(s.missing)
	}
}

// BenchmarkWays compares ways to time a call by what they cost it, and prints the
// table of docs/overhead.md. A longer -benchtime finds a quieter moment.
func BenchmarkWays(b *testing.B) {
	s, err := startWays(context.WithoutCancel(b.Context()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			b.Error(err)
		}
	}()
	for b.Loop() {
		for _, w := range s.all {
			if err := w.call(s.child, emulatedCalls); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, w := range s.all {
		if err := w.check(); err != nil {
			b.Fatal(err)
		}
	}
	s.table(b.N)
}

func (s *ways) table(batches int) {
	fmt.Printf("a call of an empty function, quietest of %d batches; Linux %s, %d CPUs\n", batches, kernelVersion(), runtime.NumCPU())
	fmt.Printf("%-44s%10s%10s%12s%13s\n", "", "ns", "added", "to without", "to the pair")
	bare, pair := s.all[0].quietest, s.all[1].quietest
	group := ""
	for _, w := range s.all {
		if w.group != group {
			group = w.group
			fmt.Println(group)
		}
		fmt.Printf("%-44s%10.1f%10.1f%11.0fx%12.2fx\n", "  "+w.name, w.quietest, w.quietest-bare, w.quietest/bare, w.quietest/pair)
	}
	if s.missing != nil {
		fmt.Println("left out:", s.missing)
	}
}

// kernelVersion is the running kernel's, without what its distribution adds.
func kernelVersion() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // fails only for a bad address
	version, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), "-")
	return version
}
