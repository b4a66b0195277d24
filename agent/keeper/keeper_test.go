package keeper

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/sim/simtest"
)

func TestMain(m *testing.M) {
	if Run() {
		return
	}
	os.Exit(m.Run())
}

// use returns the keeper of this process, and what ends it.
func use(t *testing.T) (k *Keeper, done func()) {
	t.Helper()
	release := Use()
	k, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	return k, func() {
		t.Helper()
		if err := release(); err != nil {
			t.Error(err)
		}
	}
}

// kill kills a keeper, and returns when that was noticed.
func kill(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-k.ended
}

// program returns one that does nothing.
func program(t *testing.T, mechanism probe.Mechanism) *ebpf.Program {
	t.Helper()
	spec := &ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", AttachType: ebpf.AttachTraceUprobeMulti,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	if mechanism == probe.PerfEvent {
		spec.AttachType = ebpf.AttachNone
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// target is a process with the driver mapped.
type target struct {
	*simtest.Process
	t      *testing.T
	before string        // its code, without probes
	points []probe.Point // all
}

func startTarget(t *testing.T) *target {
	t.Helper()
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	p.WaitLine("up")
	file, err := os.Open(simtest.Driver(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := elfsym.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	selector, err := probe.ParseSelector("all")
	if err != nil {
		t.Fatal(err)
	}
	sites, err := probe.Sites(elf, selector)
	if err != nil {
		t.Fatal(err)
	}
	target := &target{Process: p, t: t, points: probe.Points(sites, 0, false)}
	target.before = target.code()
	return target
}

func (p *target) code() string {
	p.t.Helper()
	return string(simtest.CodeOf(p.t, p.PID, simtest.Driver(p.t)))
}

func (p *target) probed() bool {
	p.t.Helper()
	return p.code() != p.before
}

func (p *target) expectRestored() {
	p.t.Helper()
	simtest.Eventually(p.t, "the probe is off", func() bool { return !p.probed() })
}

// attach attaches both ways to some points, or to one.
func (p *target) attach(k *Keeper, by probe.Attacher, points ...probe.Point) (*probe.Links, error) {
	p.t.Helper()
	by.PID = p.PID
	if len(points) == 0 {
		points = p.points[:1]
	}
	program := program(p.t, by.Mechanism)
	links := new(probe.Links)
	for _, on := range []func(string, *ebpf.Program, []probe.Point) (io.Closer, error){
		Attacher{k, by}.Return, Attacher{k, by}.Entry,
	} {
		l, err := on(simtest.Driver(p.t), program, points)
		if err != nil {
			return links, err
		}
		links.Add(l)
	}
	return links, nil
}

var mechanisms = []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent}

func TestAttach(t *testing.T) {
	p := startTarget(t)
	for _, mechanism := range mechanisms {
		t.Run(string(mechanism), func(t *testing.T) {
			k, done := use(t)
			defer done()
			var busy atomic.Int64
			links, err := p.attach(k, probe.Attacher{Mechanism: mechanism, Busy: &busy, Held: true})
			if err != nil {
				t.Fatal(err)
			}
			if !p.probed() {
				t.Error("nothing is probed")
			}
			put := busy.Load()
			if err := links.Close(); err != nil {
				t.Error(err)
			}
			p.expectRestored()
			if multi := mechanism == probe.UprobeMulti; multi && (put <= 0 || busy.Load() <= put) {
				t.Errorf("%d ns of CPU time to attach, and with taking off %d", put, busy.Load())
			}
			if CPU() <= 0 || Memory() == 0 {
				t.Errorf("it has used %v, and has %d bytes", CPU(), Memory())
			}
		})
	}
}

// What fails does so with its reason, and keeps nothing else from working.
func TestAttachFails(t *testing.T) {
	p := startTarget(t)
	k, done := use(t)
	defer done()
	by := Attacher{k, probe.Attacher{Mechanism: probe.PerfEvent, PID: p.PID}}
	if _, err := by.Entry("/nowhere/at/all", program(t, probe.PerfEvent), p.points[:1]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := by.Entry("/dev/null", program(t, probe.PerfEvent), p.points[:1]); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no file: %v", err)
	}
	if got, err := k.ask(request{ID: 4711, Kind: askOff}); err == nil || !strings.Contains(err.Error(), "4711") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := k.ask(request{Kind: askEntry}); err == nil || !strings.Contains(err.Error(), "0 files") {
		t.Errorf("a request without files: %v", err)
	}
	links, err := p.attach(k, by.By)
	if err != nil {
		t.Fatal(err)
	}
	if err := links.Close(); err != nil {
		t.Error(err)
	}
	p.expectRestored()
}

// The keeper is killed. The probes stay until they are closed here, and the next one who asks
// gets another keeper.
func TestKilled(t *testing.T) {
	p := startTarget(t)
	for _, by := range []probe.Attacher{
		{Mechanism: probe.UprobeMulti, Held: true}, {Mechanism: probe.UprobeMulti}, {Mechanism: probe.PerfEvent},
	} {
		k, done := use(t)
		links, err := p.attach(k, by)
		if err != nil {
			t.Fatal(err)
		}
		kill(t, k)
		if !p.probed() {
			t.Errorf("%+v: the probes are gone with it", by)
		}
		if _, err := p.attach(k, by); !errors.Is(err, ErrEnded) {
			t.Errorf("attaching: %v", err)
		}
		next, doneAgain := use(t)
		if next == k {
			t.Error("the killed one is given")
		}
		done()
		if next.Ended() {
			t.Error("the next one has ended too early")
		}
		if err := links.Close(); err != nil {
			t.Error(err)
		}
		p.expectRestored()
		doneAgain()
		if !next.Ended() {
			t.Error("the next one is left")
		}
	}
	if CPU() == 0 {
		t.Error("what they used is forgotten")
	}
}

// This process can't take a packet. It goes on with what it has, and the keeper ends without
// waiting for it.
func TestDeaf(t *testing.T) {
	p := startTarget(t)
	k, done := use(t)
	links, err := p.attach(k, probe.Attacher{Mechanism: probe.UprobeMulti})
	if err != nil {
		t.Fatal(err)
	}
	limited := limitDescriptors(t, 10) // some are needed to ask
	_, err = p.attach(k, probe.Attacher{Mechanism: probe.PerfEvent}, p.points[:30]...)
	limited()
	if !errors.Is(err, ErrEnded) || !errors.Is(err, unix.EMFILE) {
		t.Errorf("attaching: %v", err)
	}
	if !p.probed() {
		t.Error("the probes are gone with it")
	}
	done()
	if err := links.Close(); err != nil {
		t.Error(err)
	}
	p.expectRestored()
}

// limitDescriptors leaves this process so many further ones.
func limitDescriptors(t *testing.T, further int) (restore func()) {
	t.Helper()
	next, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(next); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + further), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
}

// A keeper that can't go on leaves the probes to this process.
func TestGivesUp(t *testing.T) {
	p := startTarget(t)
	k, done := use(t)
	links, err := p.attach(k, probe.Attacher{Mechanism: probe.UprobeMulti, Held: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.conn.socket.Write([]byte("no request")); err != nil {
		t.Fatal(err)
	}
	<-k.ended
	if !p.probed() {
		t.Error("the probes are gone with it")
	}
	if err := links.Close(); err != nil {
		t.Error(err)
	}
	done()
	p.expectRestored()
}

// Killed as it takes probes off it may leave some, which is said, and which the next one takes
// off. Those that are held it does not leave.
func TestKilledAsItTakesOff(t *testing.T) {
	p := startTarget(t)
	left := 0
	for _, held := range []bool{false, true} {
		for range 10 {
			k, done := use(t)
			links, err := p.attach(k, probe.Attacher{Mechanism: probe.UprobeMulti, Held: held}, p.points...)
			if err != nil {
				t.Fatal(err)
			}
			probed, closed := p.code(), make(chan error)
			go func() { closed <- links.Close() }()
			for end := time.Now().Add(simtest.Patience); p.code() == probed; {
				if time.Now().After(end) {
					t.Fatal("nothing comes off")
				}
			}
			kill(t, k)
			err = <-closed
			if held {
				if err != nil {
					t.Errorf("held: %v", err)
				}
				p.expectRestored()
			}
			if p.probed() {
				left++
				if !errors.Is(err, ErrEnded) {
					t.Errorf("something is left, and it is said: %v", err)
				}
			}
			next, err := Current()
			if err != nil {
				t.Fatal(err)
			}
			if links, err = p.attach(next, probe.Attacher{Mechanism: probe.UprobeMulti}, p.points...); err != nil {
				t.Fatal(err)
			}
			if err := links.Close(); err != nil {
				t.Error(err)
			}
			p.expectRestored()
			done()
		}
	}
	t.Logf("%d of 10 that were not held have left something", left)
}

// What was not closed comes off when the keeper is released.
func TestReleased(t *testing.T) {
	p := startTarget(t)
	k, done := use(t)
	got, err := p.attach(k, probe.Attacher{Mechanism: probe.UprobeMulti})
	if err != nil {
		t.Fatal(err)
	}
	done()
	if err := got.Close(); err != nil { // the last descriptors
		t.Error(err)
	}
	if p.probed() {
		t.Error("the probe is left")
	}
}

// pair is a keeper's side of a connection, and the agent's.
func pair(t *testing.T) (*conn, *Keeper) {
	t.Helper()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	k := &Keeper{ended: make(chan struct{}), waiting: map[uint64]chan answer{}}
	their, theirErr := newConn(theirs)
	if k.conn, err = newConn(ours); err != nil || theirErr != nil {
		t.Fatal(err, theirErr)
	}
	t.Cleanup(func() {
		k.conn.socket.Close()
		their.socket.Close()
	})
	return their, k
}

// As many descriptors as perf events may need come in several packets.
func TestManyDescriptors(t *testing.T) {
	their, k := pair(t)
	waiting := k.expect(7)
	go k.listen()
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const n = 2*mostFiles + 100
	fds := make([]int, n)
	for i := range fds {
		fds[i] = int(file.Fd())
	}
	if err := (&keeping{agent: their}).tell(reply{ID: 7}, fds); err != nil {
		t.Fatal(err)
	}
	if err := their.send(reply{ID: 8}, fds[:1]...); err != nil { // nobody waits for it
		t.Fatal(err)
	}
	a := <-waiting
	if len(a.files) != n {
		t.Errorf("%d files arrived, want %d", len(a.files), n)
	}
	for _, f := range a.files {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Fatalf("%v, %v", info, err)
		}
	}
	if err := closeAll(a.files); err != nil {
		t.Error(err)
	}
	if err := their.socket.Close(); err != nil {
		t.Error(err)
	}
	<-k.ended
}

// The largest file has more probes than any packet of few bytes has room for.
func TestLargestRequest(t *testing.T) {
	their, k := pair(t)
	points := make([]probe.Point, 8192) // as many as are put into one file
	for i := range points {
		points[i] = probe.Point{Offset: 1<<31 + uint64(i)<<4, Cookie: 1<<63 - uint64(i), Semaphore: 1<<31 + uint64(i)}
	}
	sent := make(chan error)
	go func() { sent <- k.conn.send(request{ID: 1, Points: points}) }()
	var got request
	if _, err := their.receive(&got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if len(got.Points) != len(points) || got.Points[8191] != points[8191] {
		t.Errorf("%d points of %d arrived", len(got.Points), len(points))
	}
}

// Files that find no place are none: what has come is closed.
func TestTooManyDescriptors(t *testing.T) {
	their, k := pair(t)
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	if err := their.send(reply{ID: 1}, fd, fd, fd, fd); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(next); err != nil {
		t.Fatal(err)
	}
	restore := limitDescriptors(t, 2)
	files, received := k.conn.receive(new(reply))
	restore()
	if !errors.Is(received, syscall.EMFILE) {
		t.Errorf("%d files, %v", len(files), received)
	}
	if again, err := unix.Dup(fd); err != nil || again != next {
		t.Errorf("descriptor %d is the next one, it was %d: %v", again, next, err)
	} else {
		unix.Close(again)
	}
}
