package agent

import (
	"slices"
	"testing"
	"time"

	"stageprof/agent/target"
	"stageprof/sim/simtest"
)

// What is awaited is what was there before the first probe of a session. Where it does not
// come back, the wait ends all the same.
func TestChangeUndone(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	p.WaitLine("up")
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	memory, err := process.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	mappings, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mappings, func(m target.Mapping) bool { return m.Exec && m.Path == simtest.Driver(t) })
	if i < 0 {
		t.Fatal("no driver")
	}
	address := mappings[i].End - 64 // behind the last function
	before := make([]byte, instruction)
	if err := memory.ReadMemory(address, before); err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := memory.WriteMemory(address, b); err != nil {
			t.Fatal(err)
		}
	}
	probed := append([]byte{before[0] ^ 0xff}, before[1:]...)

	s := &Session{process: process, changes: map[uint64]*change{}}
	c := s.note(address, before)
	if c == nil {
		t.Fatal("nothing is awaited")
	}
	write(probed)
	if s.note(address, probed) != c {
		t.Error("the session's own probe is awaited")
	}
	if c.awaitUndone(20 * time.Millisecond) {
		t.Error("it is said to be undone")
	}
	undone := make(chan bool)
	go func() { undone <- c.awaitUndone(simtest.Patience) }()
	write(before)
	if !<-undone {
		t.Error("it is not said to be undone")
	}

	write(probed)
	other := &Session{process: process, changes: map[uint64]*change{}}
	if other.note(address, before) != nil {
		t.Error("the end of somebody else's probe is awaited")
	}
	p.Kill()
	if !c.awaitUndone(simtest.Patience) {
		t.Error("a process that is gone is waited for")
	}
}
