package target

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// writablePage is one that the target has for itself: the top of its stack, where nothing changes.
func writablePage(t *testing.T, p *Process) uint64 {
	t.Helper()
	mappings, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mappings {
		if m.Path == "[stack]" {
			return m.End - 8
		}
	}
	t.Fatal("the target has no stack")
	return 0
}

// What is written lands in the program that was looked at, or nowhere.
func TestMemory(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	mem, err := p.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	addr := writablePage(t, p)
	want, got := []byte("\x01\x02\x03\x04\x05\x06\x07\x00"), make([]byte, 8)
	if err := errors.Join(mem.WriteMemory(addr, want), p.ReadMemory(addr, got)); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("wrote %x, then there is %x (%v)", want, got, err)
	}
	if err := mem.ReadMemory(addr, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("wrote %x, read %x (%v)", want, got, err)
	}
	if err := mem.ReadMemory(8, got); !errors.Is(err, unix.EIO) {
		t.Errorf("reading what is not mapped: %v", err)
	}
	if err := mem.WriteMemory(8, want); !errors.Is(err, unix.EIO) {
		t.Errorf("writing to what is not mapped: %v", err)
	}

	if got := x.ask("exec " + testerProgram(t)); got != "ready" {
		t.Fatalf("exec: %s", got)
	}
	for action, err := range map[string]error{
		"reading": mem.ReadMemory(addr, got), "writing": mem.WriteMemory(addr, want),
	} {
		if !errors.Is(err, ErrTargetExited) {
			t.Errorf("%s after it has executed another program: %v", action, err)
		}
	}
	if err := p.ReadMemory(writablePage(t, p), got); err != nil || bytes.Equal(got, want) {
		t.Errorf("the next program has %x there (%v)", got, err)
	}
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
}
