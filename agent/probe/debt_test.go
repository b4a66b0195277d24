package probe

import (
	"slices"
	"testing"

	"stageprof/bpf"
)

// Every function of the tables exists, and is probed when it is asked for by
// default, so that none is misspelt and none is missed.
func TestDebtsAreOfKnownFunctions(t *testing.T) {
	known := map[string]bool{}
	for _, name := range Known() {
		known[API(name)] = true
	}
	for api := range debts {
		if !known[api] {
			t.Errorf("%q is no known function", api)
		}
		if GroupOf(api) == Other && api != "cuStreamAddCallback" {
			t.Errorf("%q is not timed by default", api)
		}
	}
	for api := range notices {
		if !known[api] {
			t.Errorf("%q is no known function", api)
		}
		if _, both := debts[api]; both {
			t.Errorf("%q is in both tables", api)
		}
	}
}

// Whatever launches or copies is in the table, or is known not to be.
func TestDebtsCoverLaunchesAndCopies(t *testing.T) {
	several := []string{"cuLaunchCooperativeKernelMultiDevice"} // have several streams
	for _, name := range Known() {
		api := API(name)
		if group := GroupOf(api); group != Launch && group != Copy {
			continue
		}
		if _, ok := debts[api]; ok == slices.Contains(several, api) {
			t.Errorf("%q is in the table: %t", name, ok)
		}
	}
}

func TestDebtOf(t *testing.T) {
	const (
		enqueue = bpf.ProbeDebtRoleDEBT_ENQUEUE
		wait    = bpf.ProbeDebtRoleDEBT_WAIT_STREAM
		copied  = bpf.ProbeDebtRoleDEBT_WAIT_COPY
	)
	tests := map[string]debt{
		"cuLaunchKernel":                 {role: enqueue, stream: 9},
		"cuLaunchKernel_ptsz":            {role: enqueue, stream: 9, perThread: true},
		"cuLaunchKernelEx_ptsz":          {role: enqueue, stream: inConfig, perThread: true},
		"cuMemPrefetchAsync":             {role: enqueue, stream: 4},
		"cuMemPrefetchAsync_ptsz":        {role: enqueue, stream: 4, perThread: true},
		"cuMemPrefetchAsync_v2_ptsz":     {role: enqueue, stream: 5, perThread: true},
		"cuMemcpyHtoDAsync_v2":           {role: enqueue, stream: 4},
		"cuMemcpyDtoH_v2":                {role: copied},
		"cuMemcpyDtoH_v2_ptds":           {role: copied, perThread: true},
		"cuStreamSynchronize_ptsz":       {role: wait, stream: 1, perThread: true},
		"cuMemAllocAsync_ptsz":           {},
		"cuStreamIsCapturing_ptsz":       {},
		"cuStreamDestroy_v2":             {},
		"cuLaunchCooperativeKernel_ptsz": {role: enqueue, stream: 9, perThread: true},
	}
	for symbol, want := range tests {
		if got := debtOf(symbol); got != want {
			t.Errorf("%q: %+v, want %+v", symbol, got, want)
		}
	}
}

// What cookies hold of a debt is what it says, and leaves the rest alone.
func TestDebtBits(t *testing.T) {
	for _, name := range Known() {
		d := debtOf(name)
		bits := d.bits()
		got := debt{role: bpf.ProbeDebtRole(bits >> 48 & 31), stream: uint8(bits >> 53 & 15), perThread: bits>>57&1 != 0}
		if got != d || bits<<16 != 0 || bits>>58 != 0 {
			t.Errorf("%q: %+v has the bits %#x, which say %+v", name, d, bits, got)
		}
		if other := cookie(0xffff, sizeOf(name)); other&bits != 0 {
			t.Errorf("%q: bits %#x of the cookie %#x", name, bits, other)
		}
	}
}

func TestNotices(t *testing.T) {
	selector := Notices()
	want := map[string]bpf.ProbeDebtRole{
		"cuCtxSetCurrent": bpf.ProbeDebtRoleDEBT_SET_CONTEXT, "cuCtxPushCurrent_v2": bpf.ProbeDebtRoleDEBT_PUSH_CONTEXT,
		"cuCtxPopCurrent": bpf.ProbeDebtRoleDEBT_POP_CONTEXT, "cuStreamDestroy_v2": bpf.ProbeDebtRoleDEBT_DESTROY_STREAM,
	}
	for symbol, role := range want {
		points := NoticePoints([]Site{{Symbol: symbol, API: API(symbol)}})
		if !selector.Matches(symbol) || bpf.ProbeDebtRole(points[0].Cookie>>48) != role {
			t.Errorf("%q: selected: %t, cookie %#x", symbol, selector.Matches(symbol), points[0].Cookie)
		}
	}
	if selector.Matches("cuStreamSynchronize") {
		t.Error("more is selected than the notices")
	}
}

func TestOfStreams(t *testing.T) {
	type uses struct{ gives, waits bool }
	tests := map[string]uses{
		"cuLaunchKernel_ptsz": {gives: true}, "cuMemcpyDtoHAsync_v2": {gives: true}, "cuMemsetD8_v2": {gives: true},
		"cuStreamSynchronize": {waits: true}, "cuEventSynchronize": {waits: true}, "cuCtxSynchronize": {waits: true},
		"cuMemcpyDtoH_v2": {waits: true}, "cuEventRecord": {}, "cuMemAlloc_v2": {},
	}
	for symbol, want := range tests {
		var got uses
		if got.gives, got.waits = (Site{Symbol: symbol}).OfStreams(); got != want {
			t.Errorf("%q: %+v, want %+v", symbol, got, want)
		}
	}
}
