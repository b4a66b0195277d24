package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// symbolNames is the exact spellings that a Recording probed.
func symbolNames(r *recording.Recording) []string {
	var names []string
	for _, s := range r.Symbols {
		names = append(names, s.Name)
	}
	return names
}

// The testers open the driver with dlopen and map no CUDA runtime.
func TestCaseC03DriverAPIOnly(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--calls", "5000", "--stages", "2", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	for file := range mappedFiles(t, p.PID) {
		if strings.Contains(file, "cudart") {
			t.Fatalf("%q is mapped", file)
		}
	}
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	got := r.finish()
	p.Wait()
	expectEqual(t, got, p.Truth().Counts())
}

// Drivers that lack some spellings: those that are there are counted, those
// that are not are listed.
func TestCaseC04Spellings(t *testing.T) {
	tests := []struct {
		variant         string
		present, absent []string
	}{
		{"plain",
			[]string{"cuLaunchKernel", "cuLaunchKernelEx", "cuMemAlloc"},
			[]string{"cuLaunchKernel_ptsz", "cuLaunchKernelEx_ptsz", "cuMemAlloc_v2"}},
		{"ex-ptsz",
			[]string{"cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuMemAlloc_v2"},
			[]string{"cuLaunchKernel", "cuStreamSynchronize"}},
		{"versioned",
			[]string{"cuLaunchKernel", "cuLaunchKernelEx", "cuMemAlloc_v2"},
			[]string{"cuLaunchKernel_ptsz", "cuLaunchKernelEx_ptsz", "cuMemAlloc"}},
	}
	for _, test := range tests {
		t.Run(test.variant, func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Tester(t, "calls", "--calls", "5000", "--stages", "2",
				"--driver", simtest.Variant(t, test.variant), "--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts())
			launches := counts(got).By(simtest.BySymbol)
			probed := symbolNames(got)
			for _, name := range test.present {
				if launches[simtest.Key{Symbol: name}].Calls == 0 {
					t.Errorf("%s has no calls", name)
				}
				if slices.Contains(got.Absent, name) || !slices.Contains(probed, name) {
					t.Errorf("%s is there, but not probed or listed as absent", name)
				}
			}
			for _, name := range test.absent {
				if !slices.Contains(got.Absent, name) || slices.Contains(probed, name) {
					t.Errorf("%s is not there, but probed or not listed as absent", name)
				}
			}
		})
	}
}

func TestCaseC05GraphLaunches(t *testing.T) {
	got, p := runTester(t, agent.Config{Probes: "default"}, simtest.Tester(t, "graphs", "--calls", "500", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	want := simtest.Counts{
		{Tag: "replay", Symbol: "cuGraphLaunch"}:       {Calls: 500},
		{Tag: "replay", Symbol: "cuStreamSynchronize"}: {Calls: 1},
	}
	if diff := simtest.Diff(want, counts(got).By(simtest.ByTagAndSymbol)); diff != "" {
		t.Error(diff)
	}
	for _, c := range got.Calls {
		if s := got.Symbols[c.Symbol]; s.Name == "cuGraphLaunch" && (s.API != "cuGraphLaunch" || s.Group != string(probe.Graph)) {
			t.Errorf("cuGraphLaunch is %q of group %q", s.API, s.Group)
		}
	}
}

// Arguments that all differ: none is taken for another.
func TestCaseC06Arguments(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "args", "--calls", "100", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	expectEqual(t, got, p.Expected())
	bytes := counts(got).By(simtest.BySymbol)
	if n := bytes[simtest.Key{Symbol: "cuMemAlloc_v2"}].Bytes; n != 100*0x123456 {
		t.Errorf("cuMemAlloc_v2: %d bytes", n)
	}
	if n := bytes[simtest.Key{Symbol: "cuLaunchKernel"}].Bytes; n != 0 {
		t.Errorf("cuLaunchKernel: %d bytes", n)
	}
}

// Every function with a size, in every spelling, each with a size of its own.
func TestCaseC06Sizes(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "sizes", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	expectEqual(t, got, p.Expected())
	var sized []string
	for _, c := range got.Calls {
		if c.Bytes > 0 {
			sized = append(sized, got.Symbols[c.Symbol].API)
		}
	}
	slices.Sort(sized)
	want := []string{
		"cuMemAddressFree", "cuMemAddressReserve", "cuMemAlloc", "cuMemAllocAsync", "cuMemAllocHost", "cuMemAllocManaged",
		"cuMemCreate", "cuMemHostAlloc", "cuMemHostRegister", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
		"cuMemcpy", "cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DAsync", "cuMemcpyAsync",
		"cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyHtoD", "cuMemcpyHtoDAsync",
		"cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemsetD16", "cuMemsetD16Async", "cuMemsetD32", "cuMemsetD32Async",
		"cuMemsetD8", "cuMemsetD8Async",
	}
	if diff := cmp.Diff(want, slices.Compact(sized)); diff != "" {
		t.Errorf("functions with bytes (-want +got):\n%s", diff)
	}
}

// Refused calls are counted as errors and asked for no bytes.
func TestRefusedCalls(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "calls", "--calls", "3000", "--bad-every", "3", "--stages", "1",
		"--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	if n := counts(got).Total().Errors; n < 1000 {
		t.Errorf("%d errors", n)
	}
}

// A function that is not selected is not touched, whatever else is probed.
func TestCaseC20UnprobedFunction(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "unprobed", "--calls", "100000", "--rounds", "2"))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID, Probes: "default"})
	if probed(t, p.PID, simtest.Driver(t), "cuDriverGetVersion") {
		t.Error("cuDriverGetVersion has a probe")
	}
	for _, name := range []string{"cuLaunchKernel", "cuMemAlloc_v2", "cuMemcpyHtoD_v2"} {
		if !probed(t, p.PID, simtest.Driver(t), name) {
			t.Errorf("%s has no probe", name)
		}
	}
	p.Ready()
	got := r.finish()
	p.Wait()
	if slices.Contains(symbolNames(got), "cuDriverGetVersion") {
		t.Error("cuDriverGetVersion is listed as probed")
	}
	if len(got.Calls) != 0 || got.Seen.Calls != 0 {
		t.Errorf("%d calls seen: %+v", got.Seen.Calls, got.Calls)
	}
	if n := p.Truth().Counts().By(simtest.BySymbol)[simtest.Key{Symbol: "cuDriverGetVersion"}].Calls; n != 200000 {
		t.Errorf("the target made %d calls", n)
	}
}

// What one asks for is what is counted: groups, functions, exact spellings.
func TestSelections(t *testing.T) {
	tests := []struct {
		probes string
		keep   func(symbol string) bool
	}{
		{"launch", func(s string) bool { return probe.GroupOf(probe.API(s)) == probe.Launch }},
		{"sync,event", func(s string) bool {
			g := probe.GroupOf(probe.API(s))
			return g == probe.Sync || g == probe.Event
		}},
		{"cuLaunchKernel", func(s string) bool { return s == "cuLaunchKernel" || s == "cuLaunchKernel_ptsz" }},
		{"cuLaunchKernel_ptsz,cuMemAlloc_v2", func(s string) bool { return s == "cuLaunchKernel_ptsz" || s == "cuMemAlloc_v2" }},
		{"default", func(s string) bool { return probe.GroupOf(probe.API(s)) != probe.Other }},
	}
	for _, test := range tests {
		t.Run(test.probes, func(t *testing.T) {
			got, p := runTester(t, agent.Config{Probes: test.probes}, simtest.Tester(t, "calls", "--calls", "3000",
				"--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts().Only(func(k simtest.Key) bool { return test.keep(k.Symbol) }))
		})
	}
}
