package agent

import "testing"

func TestFunctionPatterns(t *testing.T) {
	const mangled = "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator9map_blockEPNS2_12_GLOBAL__N_15BlockEm"
	for _, test := range []struct {
		pattern, symbol string
		want            bool
	}{
		{"plain", "plain", true},
		{"plain", "plainer", false},
		{"plain", "plain.isra.0", true},
		{"plain", "plain.constprop.0.isra.1", true},
		{"plain", "plain.part.0", false}, // called by plain
		{"plain*", "plainer", true},
		{"*in", "plain", true},
		{"p*n", "plain", true},
		{"p*a*n", "plain", true},
		{"p*n*a*n", "plain", false},
		{"pl*lain", "plain", false},
		{"*map_block*", mangled, true},
		{"DeviceCachingAllocator::map_block", mangled, true},
		{"DeviceCachingAllocator::map_block", mangled + ".isra.0", true},
		{"Native::*::map_block", mangled, true},
		{"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::map_block", mangled, true},
		{"CachingAllocator::map_block", mangled, false}, // no whole name
		{"DeviceCachingAllocator::map", mangled, false},
		{"::map_block", "map_block", false},
		{"(anonymous namespace)::f", "_ZN12_GLOBAL__N_11fEv", true},
	} {
		p := functionPattern{library: "l", symbol: test.pattern}
		if got := p.matches(test.symbol); got != test.want {
			t.Errorf("%q matches %q: %t", test.pattern, test.symbol, got)
		}
	}
}

func TestPatternsOfLibraries(t *testing.T) {
	for _, test := range []struct {
		library, file string
		want          bool
	}{
		{"libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"torch/lib/libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"/x/torch/lib/libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"c10_cuda.so", "/x/torch/lib/libc10_cuda.so", false},
		{"libnccl.so", "/x/libnccl.so.2", true},
		{"libnccl.so.2", "/x/libnccl.so", false},
		{"trainer", "/opt/trainer", true},
		{"trainer", "/opt/trainer.old", false},
	} {
		p := functionPattern{library: test.library, symbol: "f"}
		if got := p.in(test.file); got != test.want {
			t.Errorf("%q is %q: %t", test.file, test.library, got)
		}
	}
}
