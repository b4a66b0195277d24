package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"stageprof/sim/simtest"
)

// puppet is a target that does on its threads what it is told, so that a test
// can attach and detach between any two steps (sim/testers/puppet.c).
type puppet struct {
	*simtest.Process
	t      *testing.T
	orders *os.File
	given  int
	name   string // before each of its lines, where several share their output
}

// startPuppet starts a puppet that has called the driver already, but counts
// from here on, with the marker library.
func startPuppet(t *testing.T, args ...string) *puppet {
	t.Helper()
	p := startPuppetWithoutMarkers(t, args...)
	p.order("main markers " + simtest.Markers(t))
	return p
}

func startPuppetWithoutMarkers(t *testing.T, args ...string) *puppet {
	t.Helper()
	process := simtest.Start(t, simtest.Tester(t, "puppet", args...))
	process.Ready()
	process.WaitLine("up")
	// The other end of its standard input, once more.
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", process.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	return &puppet{Process: process, t: t, orders: orders}
}

// order has the puppet do things, one after the other.
func (p *puppet) order(orders ...string) {
	p.t.Helper()
	for _, order := range orders {
		p.tell(order)
		p.obeyed()
	}
}

// obeyed waits until it has done what it was told last.
func (p *puppet) obeyed() {
	p.t.Helper()
	p.WaitLine(fmt.Sprintf("%sok %06d", p.name, p.given))
}

// tell orders something that has no answer.
func (p *puppet) tell(order string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.orders, order); err != nil {
		p.t.Fatal(err)
	}
	p.given++
}

// truthSoFar is what the driver has counted until now.
func (p *puppet) truthSoFar() simtest.Truth {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "truth.json")
	p.order("main truth " + path)
	return simtest.ReadTruth(p.t, path)
}

// end lets the puppet exit and returns everything that the driver counted.
func (p *puppet) end() simtest.Truth {
	p.t.Helper()
	if err := p.orders.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.Release()
	p.Wait()
	return p.Truth()
}

// A loop obeys all of its orders as often as it is told, and tells its times.
func TestPuppetLoops(t *testing.T) {
	p := startPuppetWithoutMarkers(t)
	p.order("main start w", "w loop 200 launch 3; nest 1; launch 1")
	var n, p50, p99, longest int
	if _, err := fmt.Sscanf(p.WaitLine("rounds "), "rounds %d, p50 %d, p99 %d, longest %d", &n, &p50, &p99, &longest); err != nil {
		t.Error(err)
	}
	if n != 200 || p50 <= 0 || p99 < p50 || longest < p99 {
		t.Errorf("%d rounds, %d ns at the median, %d at the 99th percentile, %d at most", n, p50, p99, longest)
	}
	called := p.end().Counts().By(simtest.BySymbol)
	for symbol, want := range map[string]uint64{"cuLaunchKernel": 800, "cuStreamQuery": 200} {
		if got := called[simtest.Key{Symbol: symbol}].Calls; got != want {
			t.Errorf("%d calls of %s, want %d", got, symbol, want)
		}
	}
}
