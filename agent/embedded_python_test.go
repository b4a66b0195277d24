package agent_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"stageprof/agent"
	"stageprof/agent/gil"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// libpython is an interpreter that a program can embed.
type libpython struct {
	Library string // "" if there is none that loads here
	Home    string // where its modules are
	Minor   int
	Free    bool // free-threaded
}

const describeLibpython = `
import json, os, sys, sysconfig
var = lambda name: sysconfig.get_config_var(name) or ""
folders = [var("LIBDIR"), os.path.join(sys.prefix, "lib")]  # a relocatable build names the one it was built for
libraries = [p for p in (os.path.join(f, var("INSTSONAME")) for f in folders) if ".so" in p and os.path.exists(p)]
foreign = os.path.basename(os.path.realpath("/proc/self/exe")).startswith("ld-")  # another C library
print(json.dumps({
    "Library": libraries[0] if libraries and not foreign else "",
    "Home": sys.prefix,
    "Minor": sys.version_info[1],
    "Free": bool(var("Py_GIL_DISABLED")),
}))
`

// libpythons returns those of the interpreters on this machine, each once.
func libpythons(t *testing.T) []libpython {
	t.Helper()
	var found []libpython
	for _, path := range interpreters(t) {
		out, err := exec.Command(path, "-c", describeLibpython).Output()
		if err != nil {
			t.Fatalf("%q does not describe itself: %v", path, err)
		}
		var p libpython
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatalf("%q describes itself as %q: %v", path, out, err)
		}
		if p.Library != "" && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	if len(found) < 2 {
		t.Fatalf("%d libpythons are on this machine, want two or more", len(found))
	}
	return found
}

// held and free are the states of a call with the lock and without it.
func (p libpython) held() recording.GIL {
	if p.Free {
		return recording.GILDisabled
	}
	return recording.GILHeld
}

func (p libpython) free() recording.GIL {
	if p.Free {
		return recording.GILDisabled
	}
	return recording.GILFree
}

// embed starts a puppet with threads a and b that embeds an interpreter, which runs.
func (p libpython) embed(t *testing.T) *puppet {
	t.Helper()
	process := startPuppetWithoutMarkers(t)
	process.order("main start a", "main start b", "main "+p.open(), "main initialize")
	return process
}

// open is the order that has a puppet open it.
func (p libpython) open() string { return fmt.Sprintf("libpython %s %s", p.Library, p.Home) }

// states counts calls of one function by GIL state.
type states map[recording.GIL]uint64

// situation is what a program that embeds Python does with it.
type situation struct {
	name   string
	from   int // the first minor version that can
	orders []string
	want   func(p libpython) map[string]states
}

// What is called how often with the lock ("count") and without it ("version") in all situations but the odd ones.
func heldAndFree(count, version uint64) func(libpython) map[string]states {
	return func(p libpython) map[string]states {
		return map[string]states{
			"cuDeviceGetCount": {p.held(): count}, "cuDriverGetVersion": {p.free(): version},
		}
	}
}

var situations = []situation{
	{
		name: "threads of its own", orders: []string{
			"a version 10", "a hold", "b version 200", "a count 300", "a release", "b hold", "a version 30", "b count 7", "b release", "b version 3",
		},
		want: heldAndFree(307, 243),
	},
	{
		name: "signal handlers", orders: []string{
			"a hold", "a interrupt 50", "b interrupt 20", "a release", "a interrupt 3", "b hold", "b interrupt 400", "b release",
		},
		want: func(p libpython) map[string]states {
			if p.Free {
				return map[string]states{"cuStreamQuery": {recording.GILDisabled: 473}}
			}
			return map[string]states{"cuStreamQuery": {recording.GILHeld: 450, recording.GILFree: 23}}
		},
	},
	{
		name: "sub-interpreters", orders: []string{
			"a sub-interpreter", "b sub-interpreter", "a hold", "b version 50", "a count 60", "a release",
			"b hold", "b count 7", "a version 8", "b release", "main hold", "a version 9", "main count 10", "main release",
		},
		want: heldAndFree(77, 67),
	},
	{
		name: "sub-interpreters with locks of their own", from: 12, orders: []string{
			"a own-interpreter", "b own-interpreter", "a hold", "b hold", "main hold",
			"a count 50", "b count 60", "main count 7", "a release", "b count 80", "a version 9", "main count 10", "b release", "main release", "b version 11",
		},
		want: heldAndFree(207, 20),
	},
	{
		name: "ended and started again", orders: []string{
			"main hold", "main count 10", "main release", "main finalize", "main version 20", "a version 30",
			"main initialize", "main version 40", "a hold", "main version 50", "a count 60", "a release", "main hold", "main count 7", "main release",
		},
		want: heldAndFree(77, 140),
	},
	{
		// Up to 3.11 a thread state says which thread made it, not which one runs it.
		name: "a thread state that another thread has made", orders: []string{"a foreign-state", "a hold", "b version 20", "a count 30", "a release", "a version 4"},
		want: func(p libpython) map[string]states {
			state := p.held()
			if p.Minor < 12 {
				state = recording.GILFree
			}
			return map[string]states{"cuDeviceGetCount": {state: 30}, "cuDriverGetVersion": {p.free(): 24}}
		},
	},
}

// The GIL's state is right whatever a program does with the Python that it embeds.
func TestGILOfEmbeddedPython(t *testing.T) {
	for _, python := range libpythons(t) {
		t.Run(python.Library, func(t *testing.T) {
			for _, s := range situations {
				if python.Minor < s.from {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					p := python.embed(t)
					got := p.recordOrders(s.orders...)
					expectStates(t, got, s.want(python))
				})
			}
		})
	}
}

// recordOrders records the functions that the orders for Python call. Its counts
// are the driver's.
func (p *puppet) recordOrders(orders ...string) *recording.Recording {
	p.t.Helper()
	called := map[string]bool{"cuDeviceGetCount": true, "cuDriverGetVersion": true, "cuStreamQuery": true}
	r := record(p.t, agent.Config{PID: p.PID, Probes: "cuDeviceGetCount,cuDriverGetVersion,cuStreamQuery"})
	p.order(orders...)
	got := r.interrupt()
	expectEqual(p.t, got, p.truthSoFar().Counts().Only(func(k simtest.Key) bool { return called[k.Symbol] }))
	p.end()
	return got
}

// expectStates compares the counts of each function's calls by GIL state.
func expectStates(t *testing.T, got *recording.Recording, want map[string]states) {
	t.Helper()
	table := gilTable(got)
	for name, n := range want {
		if !maps.Equal(table[name], n) {
			t.Errorf("%s: %v, want %v", name, table[name], n)
		}
	}
}

// Of two interpreters that run in one process neither is read: the other one's threads would look free.
func TestGILOfTwoPythons(t *testing.T) {
	pythons := libpythons(t)
	for i, first := range pythons {
		second := pythons[(i+1)%len(pythons)]
		t.Run(first.Library+" and "+second.Library, func(t *testing.T) {
			p := first.embed(t)
			p.order("main hold", "main release")
			p.order("a "+second.open(), "a initialize")
			got := p.recordOrders("a hold", "a count 30", "b version 20", "a release")
			expectStates(t, got, map[string]states{
				"cuDeviceGetCount": {recording.GILUnknown: 30}, "cuDriverGetVersion": {recording.GILUnknown: 20},
			})
		})
	}
}

// An interpreter that comes, and starts, while it is being recorded is read as soon as it is noticed, the words that
// its threads wait on too; a second one ends that.
func TestGILOfPythonThatStartsLate(t *testing.T) {
	pythons := libpythons(t)
	for i, first := range pythons {
		second := pythons[(i+1)%len(pythons)]
		t.Run(first.Library, func(t *testing.T) {
			p := startPuppetWithoutMarkers(t)
			p.order("main start a", "main start b")
			l := openLive(t, p.PID)
			l.awaitPython(func(plan gil.Plan) bool { return plan.Method == gil.None })
			p.order("a version 5", "a "+first.open())
			l.awaitPython(func(plan gil.Plan) bool { return plan.Path == first.Library })
			p.order("a initialize")
			plan := l.awaitPython(func(plan gil.Plan) bool { return !plan.Provisional })
			if plan.LockStart == 0 || plan.Reason != "" {
				t.Errorf("the plan is %+v", plan)
			}
			p.order("a hold", "b version 20", "a count 30", "a release")
			expectStates(t, l.snapshot(), map[string]states{
				"cuDeviceGetCount": {first.held(): 30}, "cuDriverGetVersion": {recording.GILNone: 5, first.free(): 20},
			})
			p.order("b "+second.open(), "b initialize")
			l.awaitPython(func(plan gil.Plan) bool { return plan.Method == gil.Unknown })
			p.order("b hold", "b count 4", "b release")
			p.end()
			got := l.finish(func(*recording.Recording) {})
			expectStates(t, got, map[string]states{"cuDeviceGetCount": {first.held(): 30, recording.GILUnknown: 4}})
			if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "several interpreters") }) {
				t.Errorf("warnings %q", got.Warnings)
			}
		})
	}
}

// awaitPython waits until the session knows of the interpreter what is wanted.
func (l *live) awaitPython(wanted func(gil.Plan) bool) gil.Plan {
	l.t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		plan := l.Python()
		if wanted(plan) {
			return plan
		}
		if time.Since(start) > simtest.Patience {
			l.t.Fatalf("the plan stays %+v", plan)
		}
	}
}
