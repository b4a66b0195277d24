package probe

import (
	"strings"
	"testing"

	"stageprof/bpf"
)

// Every function with a size exists, so that none is misspelt.
func TestSizesAreOfKnownFunctions(t *testing.T) {
	known := map[string]bool{}
	for _, name := range Known() {
		known[API(name)] = true
	}
	for api, s := range sizes {
		if !known[api] {
			t.Errorf("%q is no known function", api)
		}
		if s.kind == bpf.ProbeSizeKindSIZE_ARGUMENT && (s.argument < 1 || s.argument > 5) {
			t.Errorf("%q has its size in argument %d", api, s.argument)
		}
	}
	for api := range narrowFirst {
		if _, ok := sizes[api]; !ok {
			t.Errorf("%q has no size that could be narrow", api)
		}
	}
}

// The first versions have sizes of 32 bits, and exist beside a second one.
func TestNarrowSizes(t *testing.T) {
	known := map[string]bool{}
	for _, name := range Known() {
		known[name] = true
	}
	for api := range narrowFirst {
		if !known[api+"_v2"] {
			t.Errorf("%q has no second version", api)
		}
	}
	for _, name := range Known() {
		api := API(name)
		hasSecond := known[api+"_v2"]
		if s := sizeOf(name); s.narrow != (narrowFirst[api] && !strings.Contains(name, "_v") && s.kind != bpf.ProbeSizeKindSIZE_NONE) {
			t.Errorf("%q: %+v", name, s)
		}
		if _, sized := sizes[api]; sized && hasSecond && !narrowFirst[api] && api != "cuMemHostRegister" && api != "cuMemPrefetchAsync" {
			t.Errorf("%q has a second version, is its first one not narrow?", api)
		}
	}
}

func TestSizeOf(t *testing.T) {
	argument := bpf.ProbeSizeKindSIZE_ARGUMENT
	tests := map[string]size{
		"cuLaunchKernel":            {},
		"cuMemAlloc_v2":             {kind: argument, argument: 2},
		"cuMemAlloc":                {kind: argument, argument: 2, narrow: true},
		"cuMemcpyHtoDAsync_v2_ptsz": {kind: argument, argument: 3},
		"cuMemcpyHtoDAsync":         {kind: argument, argument: 3, narrow: true},
		"cuMemcpy_ptds":             {kind: argument, argument: 3},
		"cuMemcpyPeerAsync":         {kind: argument, argument: 5},
		"cuMemsetD16_v2":            {kind: argument, argument: 3, shift: 1},
		"cuMemsetD32":               {kind: argument, argument: 3, shift: 2, narrow: true},
		"cuMemsetD32Async":          {kind: argument, argument: 3, shift: 2},
		"cuMemcpy2D_v2":             {kind: bpf.ProbeSizeKindSIZE_COPY_2D},
		"cuMemcpy3DAsync_v2_ptsz":   {kind: bpf.ProbeSizeKindSIZE_COPY_3D},
		// Their structure was another one.
		"cuMemcpy2D":      {},
		"cuMemcpy3DAsync": {},
	}
	for symbol, want := range tests {
		if got := sizeOf(symbol); got != want {
			t.Errorf("sizeOf(%q) = %+v, want %+v", symbol, got, want)
		}
	}
}

// The cookie is what the COOKIE_ macros of bpf/types.h take apart.
func TestCookie(t *testing.T) {
	for _, symbol := range []uint16{0, 1, 0x1234, 0xffff} {
		for _, s := range []size{{}, inArgument(5), elements(3, 2), {kind: bpf.ProbeSizeKindSIZE_COPY_3D}, {kind: bpf.ProbeSizeKindSIZE_ARGUMENT, argument: 2, narrow: true}} {
			c := cookie(symbol, s)
			got := size{
				kind: bpf.ProbeSizeKind(uint8(c >> 16)), argument: uint8(c >> 24), shift: uint8(c>>32) & 7, narrow: c>>40&1 == 1,
			}
			if uint16(c) != symbol || got != s {
				t.Errorf("cookie(%d, %+v) = %#x, which says %d, %+v", symbol, s, c, uint16(c), got)
			}
		}
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		release      string
		major, minor int
		want         bool
	}{
		{"6.18.44-amd64", 6, 18, true},
		{"6.18.44-amd64", 6, 19, false},
		{"6.18.44-amd64", 5, 99, true},
		{"6.18.44-amd64", 7, 0, false},
		{"6.9", 6, 11, false},
		{"6.11", 6, 11, true},
		{"10.0.1", 6, 11, true},
		{"6.11-rc1", 6, 11, true},
		{"5.15.0-1062-azure", 5, 15, true},
		{"", 0, 1, false},
		{"unknown", 1, 0, false},
	}
	for _, test := range tests {
		if got := atLeast(test.release, test.major, test.minor); got != test.want {
			t.Errorf("atLeast(%q, %d, %d) = %t", test.release, test.major, test.minor, got)
		}
	}
}
