package gil

import (
	"errors"
	"testing"
)

const bias = 0x7f0000000000

func TestLocate(t *testing.T) {
	minus := func(n int64) uint64 { return uint64(-n) }
	mem := fakeMemory{
		bias + 0x100: minus(64), // initial exec

		bias + 0x200: 3, // module 3, offset 0x10
		bias + 0x208: 0x10,

		bias + 0x300: 0x1234, // a descriptor with an offset
		bias + 0x308: minus(128),

		bias + 0x400: 0x5678, // a descriptor that leads to module 17, offset 0x20
		bias + 0x408: 0x9000,
		0x9000:       17,
		0x9008:       0x20,

		bias + 0x500: 0, // not relocated yet
		bias + 0x508: 0,

		bias + 0x600: 0xffffffff00000000, // no module
		bias + 0x608: 0,
	}
	for _, tc := range []struct {
		access access
		want   place
	}{
		{access{disp: -24}, place{offset: -24}},
		{access{anchor: fromGOT, slot: 0x100, disp: 8}, place{offset: -56}},
		{access{anchor: fromModule, slot: 0x200, disp: 8}, place{module: 3, offset: 0x18}},
		{access{anchor: fromDescriptor, slot: 0x300, disp: 8}, place{offset: -120}},
		{access{anchor: fromDescriptor, slot: 0x400}, place{module: 17, offset: 0x20}},
	} {
		if got, err := onX86.locate(mem, bias, tc.access); err != nil || got != tc.want {
			t.Errorf("%v is at %v (%v), want %v", tc.access, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		access access
		want   error
	}{
		{access{anchor: fromGOT, slot: 0x500}, errSlot},
		{access{anchor: fromGOT, slot: 0x100, disp: 64}, errSlot},
		{access{anchor: fromGOT, slot: 0x9000}, errUnmapped},
		{access{anchor: fromModule, slot: 0x500}, errSlot},
		{access{anchor: fromModule, slot: 0x600}, errSlot},
		{access{anchor: fromModule, slot: 0x200, disp: -0x20}, errSlot},
		{access{anchor: fromModule, slot: 0x100}, errUnmapped},
		{access{anchor: fromDescriptor, slot: 0x500}, errUnmapped},
		{access{anchor: fromDescriptor, slot: 0x100}, errUnmapped},
	} {
		if got, err := onX86.locate(mem, bias, tc.access); !errors.Is(err, tc.want) {
			t.Errorf("%v is at %v (%v), want the error %v", tc.access, got, err, tc.want)
		}
	}
}

func TestLocateOnARM(t *testing.T) {
	mem := fakeMemory{
		bias + 0x100: 64,       // initial exec
		bias + 0x200: 3,        // module 3, offset 0x10
		bias + 0x208: 0x10,     //
		bias + 0x300: 0x1234,   // a descriptor with an offset
		bias + 0x308: 128,      //
		bias + 0x400: 0x5678,   // a descriptor that leads to module 17, offset 0x20
		bias + 0x408: 0x900000, //
		0x900000:     17,
		0x900008:     0x20,
		bias + 0x500: 0, // not relocated yet
		bias + 0x508: 0,
	}
	for _, tc := range []struct {
		access access
		want   place
	}{
		{access{disp: 24}, place{offset: 24}},
		{access{anchor: fromGOT, slot: 0x100, disp: 8}, place{offset: 72}},
		{access{anchor: fromModule, slot: 0x200, disp: 8}, place{module: 3, offset: 0x18}},
		{access{anchor: fromDescriptor, slot: 0x300, disp: 8}, place{offset: 136}},
		{access{anchor: fromDescriptor, slot: 0x400}, place{module: 17, offset: 0x20}},
	} {
		if got, err := onARM.locate(mem, bias, tc.access); err != nil || got != tc.want {
			t.Errorf("%v is at %v (%v), want %v", tc.access, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		access access
		want   error
	}{
		{access{anchor: fromGOT, slot: 0x500}, errSlot},
		{access{anchor: fromGOT, slot: 0x100, disp: -64}, errSlot},
		{access{anchor: fromModule, slot: 0x500}, errSlot},
		{access{anchor: fromDescriptor, slot: 0x500, disp: 24}, errUnmapped},
	} {
		if got, err := onARM.locate(mem, bias, tc.access); !errors.Is(err, tc.want) {
			t.Errorf("%v is at %v (%v), want the error %v", tc.access, got, err, tc.want)
		}
	}
}

// vector makes a thread whose vector has n entries, each with a block on the machine's side of its
// thread pointer.
func (m *machine) vector(mem fakeMemory, tp, dtv, n, distance uint64) {
	mem[tp] = tp
	mem[tp+m.vectorAt] = dtv
	mem[dtv-16], mem[dtv-8], mem[dtv] = n, 0, 1
	if !m.above {
		distance = -distance
	}
	for module := uint64(1); module <= n; module++ {
		mem[dtv+16*module], mem[dtv+16*module+8] = tp+distance*module, 0
	}
}

func TestFold(t *testing.T) {
	const tp1, tp2, dtv1, dtv2 = 0x7f1000000000, 0x7f2000000000, 0x10000, 0x20000
	was := place{module: 2, offset: 8}
	for _, tc := range []struct {
		name   string
		change func(fakeMemory)
		tps    []uint64
		want   place
	}{
		{"static", func(fakeMemory) {}, []uint64{tp1, tp2}, place{offset: 8 - 2*0x80}},
		{"one thread", func(fakeMemory) {}, []uint64{tp1}, place{offset: 8 - 2*0x80}},
		{"no thread", func(fakeMemory) {}, nil, was},
		{"different distances", func(m fakeMemory) { onX86.vector(m, tp2, dtv2, 2, 0x100) }, []uint64{tp1, tp2}, was},
		{"allocated", func(m fakeMemory) { m[dtv2+40] = 0x5550000 }, []uint64{tp1, tp2}, was},
		{"not allocated yet", func(m fakeMemory) { m[dtv2+32] = ^uint64(0) }, []uint64{tp1, tp2}, was},
		{"far away", func(m fakeMemory) { m[dtv1+32] = 0x5550000 }, []uint64{tp1}, was},
		{"above", func(m fakeMemory) { m[dtv1+32] = tp1 + 0x80 }, []uint64{tp1}, was},
		{"short vector", func(m fakeMemory) { m[dtv2-16] = 1 }, []uint64{tp1, tp2}, was},
		{"no vector", func(m fakeMemory) { m[tp2+8] = 0 }, []uint64{tp1, tp2}, was},
		{"no thread there", func(m fakeMemory) { delete(m, tp2+8) }, []uint64{tp1, tp2}, was},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem := fakeMemory{}
			onX86.vector(mem, tp1, dtv1, 2, 0x80)
			onX86.vector(mem, tp2, dtv2, 2, 0x80)
			tc.change(mem)
			if got := onX86.fold(mem, was, tc.tps); got != tc.want {
				t.Fatalf("got %v, want %v", got, tc.want)
			}
		})
	}
	if got := onX86.fold(fakeMemory{}, place{offset: -8}, []uint64{tp1}); got != (place{offset: -8}) {
		t.Fatalf("what needs no module became %v", got)
	}
}

func TestFoldOnARM(t *testing.T) {
	const tp, dtv = 0x7f1000000000, 0x10000
	mem := fakeMemory{}
	onARM.vector(mem, tp, dtv, 2, 0x80)
	if got, want := onARM.fold(mem, place{module: 2, offset: 8}, []uint64{tp}), (place{offset: 2*0x80 + 8}); got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
	for name, block := range map[string]uint64{"below": tp - 0x80, "the thread pointer": tp, "far away": tp + 1<<30} {
		mem[dtv+32] = block
		if got, was := onARM.fold(mem, place{module: 2, offset: 8}, []uint64{tp}), (place{module: 2, offset: 8}); got != was {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
