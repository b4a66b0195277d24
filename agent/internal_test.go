package agent

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"stageprof/agent/elfsym"
	"stageprof/bpf"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// Every counter of the kernel side is either a number of what was seen or a loss
// with a name of its own.
func TestEveryLossHasAReason(t *testing.T) {
	names := map[string]bool{
		reasonUnaccounted: true, reasonNamesOverflow: true, reasonThreadOverflow: true, reasonCodeGone: true, reasonStacksDropped: true,
	}
	counts := []bpf.ProbeCounter{bpf.ProbeCounterCOUNT_ENTERED, bpf.ProbeCounterCOUNT_SAMPLES, bpf.ProbeCounterCOUNT_SAMPLE_TIME,
		bpf.ProbeCounterCOUNT_LOOKS, bpf.ProbeCounterCOUNT_LOOK_TIME, bpf.ProbeCounterCOUNT_IDLE, bpf.ProbeCounterCOUNT_HITS,
		bpf.ProbeCounterCOUNT_EXITS, bpf.ProbeCounterCOUNT_SWITCH_TIME}
	for which := range bpf.ProbeCounterCOUNTERS {
		loss, ok := reasons[which]
		if slices.Contains(counts, which) {
			if ok {
				t.Errorf("what is only counted is the loss %q", loss.Reason)
			}
			continue
		}
		if !ok || loss.Reason == "" || loss.Help == "" {
			t.Errorf("counter %d has the reason %+v", which, loss)
		}
		if names[loss.Reason] {
			t.Errorf("two counters have the reason %q", loss.Reason)
		}
		names[loss.Reason] = true
		if strings.ToLower(loss.Reason) != loss.Reason || strings.ContainsAny(loss.Reason, " -") {
			t.Errorf("reason %q is not lower case with underscores", loss.Reason)
		}
		switch loss.Kind {
		case "calls", "spans", "names", "samples", "other":
		default:
			t.Errorf("%q is of kind %q", loss.Reason, loss.Kind)
		}
	}
	if len(reasons) != int(bpf.ProbeCounterCOUNTERS)-len(counts) {
		t.Errorf("%d reasons for %d counters", len(reasons), bpf.ProbeCounterCOUNTERS)
	}
}

func TestLossesAccountForEveryCall(t *testing.T) {
	var none, some tally
	none[bpf.ProbeCounterCOUNT_ENTERED] = 10
	some = none
	some[bpf.ProbeCounterLOST_RETURN] = 2
	some[bpf.ProbeCounterLOST_MARKER] = 5 // spans: not calls
	tests := []struct {
		name    string
		tally   tally
		counted uint64
		want    map[string]uint64
	}{
		{"nothing lost", none, 10, map[string]uint64{}},
		{"one still running", none, 9, map[string]uint64{reasonUnaccounted: 1}},
		{"known losses", some, 8, map[string]uint64{"lost_return": 2, "missed_stage_end": 5}},
		{"known losses and one still running", some, 7, map[string]uint64{"lost_return": 2, "missed_stage_end": 5, reasonUnaccounted: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]uint64{}
			last := ""
			for _, l := range test.tally.losses(test.counted) {
				if l.Reason <= last {
					t.Errorf("%q comes after %q", l.Reason, last)
				}
				got[l.Reason], last = l.Count, l.Reason
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
		})
	}
}

// Every state that the kernel side writes has a word in a Recording.
func TestEveryStateHasAWord(t *testing.T) {
	for state := range bpf.ProbeGilStateGIL_DISABLED + 1 {
		if gilStates[state] == "" {
			t.Errorf("GIL state %d has no word", state)
		}
	}
	for a := range bpf.ProbeAttributionATTRIBUTION_PROCESS + 1 {
		if attributions[a] == "" {
			t.Errorf("attribution %d has no word", a)
		}
	}
	for kind := range bpf.ProbeDebtKindDEBT_IDLE + 1 {
		if debtKinds[kind] == "" {
			t.Errorf("kind of debt %d has no word", kind)
		}
	}
	for part := range bpf.ProbePartPARTS {
		onCPU := part == bpf.ProbePartPART_RUNNING || part == bpf.ProbePartPART_CUDA_CPU || part == bpf.ProbePartPART_CUDA_BLOCKED
		if (offStates[part] == "") != onCPU {
			t.Errorf("part %d has the word %q off the CPU", part, offStates[part])
		}
	}
	if gilStates[bpf.ProbeGilStateGIL_HELD] != recording.GILHeld || attributions[bpf.ProbeAttributionATTRIBUTION_OWN] != recording.AttributionOwn {
		t.Error("words are mixed up")
	}
}

// The Go types have the kernel side's layout: sizes and offsets of every field.
func TestLayouts(t *testing.T) {
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]any{
		"call_key": bpf.ProbeCallKey{}, "call_row": bpf.ProbeCallRow{}, "gil_plan": bpf.ProbeGilPlan{},
		"path_key": bpf.ProbePathKey{}, "stage_key": bpf.ProbeStageKey{}, "stage_name": bpf.ProbeStageName{},
		"span_record": bpf.ProbeSpanRecord{}, "stage_row": bpf.ProbeStageRow{}, "thread_info": bpf.ProbeThreadInfo{}, "thread_state": bpf.ProbeThreadState{},
		"allocation_key": bpf.ProbeAllocationKey{}, "allocation_row": bpf.ProbeAllocationRow{}, "function": bpf.ProbeFunction{}, "region_key": bpf.ProbeRegionKey{}, "region_row": bpf.ProbeRegionRow{},
		"stream_key": bpf.ProbeStreamKey{}, "stream_log": bpf.ProbeStreamLog{}, "event_point": bpf.ProbeEventPoint{},
		"call_event": bpf.ProbeCallEvent{}, "off_event": bpf.ProbeOffEvent{}, "wait_event": bpf.ProbeWaitEvent{}, "debt_key": bpf.ProbeDebtKey{}, "debt_row": bpf.ProbeDebtRow{},
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			var want *btf.Struct
			if err := spec.Types.TypeByName(name, &want); err != nil {
				t.Fatal(err)
			}
			got := reflect.TypeOf(value)
			// binary.Size knows no padding: equal sizes mean that none is implied.
			if size := uint32(got.Size()); size != want.Size || binary.Size(value) != int(want.Size) {
				t.Errorf("%d bytes, %d without padding; the kernel side's has %d", size, binary.Size(value), want.Size)
			}
			offsets := map[string]uint32{}
			for _, m := range want.Members {
				offsets[strings.ReplaceAll(m.Name, "_", "")] = m.Offset.Bytes()
			}
			for i := range got.NumField() {
				field := got.Field(i)
				if field.Name == "_" {
					continue
				}
				offset, ok := offsets[strings.ToLower(field.Name)]
				if !ok || offset != uint32(field.Offset) {
					t.Errorf("%s is at %d; the kernel side's at %d (known: %t)", field.Name, field.Offset, offset, ok)
				}
				delete(offsets, strings.ToLower(field.Name))
			}
			if len(offsets) > 0 {
				t.Errorf("fields without a counterpart: %v", offsets)
			}
		})
	}
}

// The constants that C and Go write down twice.
func TestConstantsAgree(t *testing.T) {
	var state bpf.ProbeThreadState
	var name bpf.ProbeStageName
	for what, n := range map[string]int{"a slot": slotDepth, "a path": maxPath} {
		if n < len(state.Open) {
			t.Errorf("%d open stages are kept, %s has %d", len(state.Open), what, n)
		}
	}
	if len(name.Text) != 128 || slotSize != 1032 {
		t.Errorf("names of %d bytes, slots of %d", len(name.Text), slotSize)
	}
	if len(bpf.ProbeCallRow{}.Hist) != recording.HistBuckets || len(bpf.ProbeStageRow{}.Hist) != recording.HistBuckets {
		t.Errorf("histograms of %d and %d buckets, a Recording's have %d",
			len(bpf.ProbeCallRow{}.Hist), len(bpf.ProbeStageRow{}.Hist), recording.HistBuckets)
	}
	if maxPath > recording.MaxDepth {
		t.Errorf("paths of %d names, a Recording takes %d", maxPath, recording.MaxDepth)
	}
}

func TestParseStatesRefusesParts(t *testing.T) {
	size := binary.Size(bpf.ProbeThreadState{})
	for _, n := range []int{0, size, 3 * size} {
		states, err := parseStates(make([]byte, n))
		if err != nil || len(states) != n/size {
			t.Errorf("%d bytes: %d states, %v", n, len(states), err)
		}
	}
	for _, n := range []int{1, size - 1, size + 1} {
		if _, err := parseStates(make([]byte, n)); !errors.Is(err, errStates) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// fakeMemory is a target's memory: pieces at addresses.
type fakeMemory map[uint64][]byte

var errFault = errors.New("bad address")

func (m fakeMemory) ReadMemory(address uint64, b []byte) error {
	for start, piece := range m {
		if address >= start && address-start <= uint64(len(piece)) && uint64(len(piece))-(address-start) >= uint64(len(b)) {
			copy(b, piece[address-start:])
			return nil
		}
	}
	return errFault
}

// markerLibrary is the real library's file and where its registry would be.
func markerLibrary(t testing.TB, bias uint64) (*elfsym.File, uint64) {
	t.Helper()
	file, err := os.Open(simtest.Markers(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := elfsym.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	symbol, err := elf.Lookup(registrySymbol)
	if err != nil {
		t.Fatal(err)
	}
	return elf, symbol.Value + bias
}

// Where the fake target keeps things.
const (
	fakeBias  = 0x7f0000000000
	fakeSlots = 0x5000_0000
	fakeNames = 0x6000_0000
)

// fakeRegistry is a registry's header with the process's slot.
func fakeRegistry(count, used uint32, slots uint64) []byte {
	b := make([]byte, registryHeader+slotSize)
	copy(b, registryMagic)
	for i, v := range []uint32{registryABI, slotSize, count, used} {
		binary.NativeEndian.PutUint32(b[8+4*i:], v)
	}
	binary.NativeEndian.PutUint64(b[24:], 11)
	binary.NativeEndian.PutUint64(b[32:], 22)
	binary.NativeEndian.PutUint64(b[40:], slots)
	return b
}

// fakeSlot is a thread's slot with stages of these names, by their addresses.
func fakeSlot(tid, depth uint32, names ...uint64) []byte {
	b := make([]byte, slotSize)
	binary.NativeEndian.PutUint32(b, tid)
	binary.NativeEndian.PutUint32(b[4:], depth)
	for i, name := range names {
		binary.NativeEndian.PutUint64(b[slotHeader+16*i:], name)
		binary.NativeEndian.PutUint64(b[slotHeader+16*i+8:], uint64(1000+i))
	}
	return b
}

func fakeName(text string) []byte {
	b := make([]byte, len(bpf.ProbeStageName{}.Text))
	copy(b, text)
	return b
}

func TestReadRegistry(t *testing.T) {
	elf, address := markerLibrary(t, fakeBias)
	slots := append(fakeSlot(7, 2, fakeNames, fakeNames+128), append(fakeSlot(0, 0), fakeSlot(9, 0)...)...)
	registry := fakeRegistry(4096, 3, fakeSlots)
	copy(registry[registryHeader:], fakeSlot(0, 1, fakeNames+128))
	m := fakeMemory{
		address:   registry,
		fakeSlots: slots,
		fakeNames: append(fakeName("step"), fakeName("Schritt/é")...),
	}
	got, err := readRegistry(m, elf, fakeBias)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.slots) != 2 || got.slots[0].tid != 7 || got.slots[1].tid != 9 || got.slots[1].address != fakeSlots+2*slotSize {
		t.Errorf("slots: %+v", got.slots)
	}
	want := []openStage{{"step", 1000}, {"Schritt/é", 1001}}
	if diff := cmp.Diff(want, got.slots[0].open, cmp.AllowUnexported(openStage{})); diff != "" {
		t.Errorf("open stages (-want +got):\n%s", diff)
	}
	if len(got.process.open) != 1 || got.process.open[0].name != "Schritt/é" || got.process.address != address+registryHeader {
		t.Errorf("process: %+v", got.process)
	}
	if got.namesOverflow != 11 || got.threadsOverflow != 22 {
		t.Errorf("overflows: %d names, %d threads", got.namesOverflow, got.threadsOverflow)
	}
}

// What the target's memory holds is the target's business: strange content is
// an error or is cut, and never costs much.
func TestReadRegistryRefuses(t *testing.T) {
	elf, address := markerLibrary(t, fakeBias)
	change := func(at int, v uint32) fakeMemory {
		b := fakeRegistry(4096, 1, fakeSlots)
		binary.NativeEndian.PutUint32(b[at:], v)
		return fakeMemory{address: b, fakeSlots: fakeSlot(1, 0)}
	}
	tests := map[string]fakeMemory{
		"no memory":                {},
		"part of the header":       {address: fakeRegistry(1, 1, fakeSlots)[:20]},
		"no slots":                 {address: fakeRegistry(1, 1, 0xdead0000)},
		"fewer slots than it says": {address: fakeRegistry(4096, 2, fakeSlots), fakeSlots: fakeSlot(1, 0)},
		"another magic":            change(0, 0x12345678),
		"another version":          change(8, 2),
		"another size of slots":    change(12, 1024),
		"too many slots":           {address: fakeRegistry(1<<31, 1<<31, fakeSlots)},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			if r, err := readRegistry(m, elf, fakeBias); err == nil {
				t.Errorf("read %+v", r)
			}
		})
	}
}

func FuzzReadRegistry(f *testing.F) {
	elf, address := markerLibrary(f, fakeBias)
	f.Add(fakeRegistry(4096, 2, fakeSlots), append(fakeSlot(7, 2, fakeNames, fakeNames+128), fakeSlot(9, 0)...), fakeName("step"))
	f.Add(fakeRegistry(2, 1000, fakeSlots), fakeSlot(7, 1<<31, fakeNames, 1, fakeNames), []byte("no end"))
	f.Add(fakeRegistry(1<<31, 1<<31, fakeSlots), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, registry, slots, names []byte) {
		m := fakeMemory{address: registry, fakeSlots: slots, fakeNames: names}
		r, err := readRegistry(m, elf, fakeBias)
		if err != nil {
			return
		}
		if len(r.slots)*slotSize > len(slots)+len(registry) {
			t.Fatalf("%d slots in %d bytes", len(r.slots), len(slots))
		}
		for _, s := range append(r.slots, r.process) {
			if len(s.open) > slotDepth {
				t.Errorf("%d open stages", len(s.open))
			}
			for _, stage := range s.open {
				if len(stage.name) > len(bpf.ProbeStageName{}.Text) || strings.ContainsRune(stage.name, 0) {
					t.Errorf("name %q", stage.name)
				}
			}
		}
	})
}
