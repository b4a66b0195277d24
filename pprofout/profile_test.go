package pprofout

import (
	"bytes"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// makeProfile returns the profile of r as a reader of the written file sees it.
func makeProfile(t *testing.T, r *recording.Recording, o Options) *profile.Profile {
	t.Helper()
	var file bytes.Buffer
	if err := Write(&file, correlate.Build(r), o); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stack returns the frames of a sample, root first.
func stack(s *profile.Sample) string {
	var names []string
	for _, l := range slices.Backward(s.Location) {
		names = append(names, l.Line[0].Function.Name)
	}
	return strings.Join(names, ";")
}

// values sums the samples of each stack.
func values(p *profile.Profile) map[string][]int64 {
	sums := map[string][]int64{}
	for _, s := range p.Sample {
		key := stack(s)
		if sums[key] == nil {
			sums[key] = make([]int64, len(s.Value))
		}
		for i, v := range s.Value {
			sums[key][i] += v
		}
	}
	return sums
}

// everyShape has calls of every kind that a Recording can hold, and names that
// invite mistakes.
func everyShape() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	copied := b.Module("/opt/lib(1)<2>[3]/libcuda.so.1", "dd44", 0x7f1000000000)
	anon := b.Module("//anon", "", 0x7f2000000000)
	frames := []int{-1, b.Frame(anon, 0x20, ""), b.Frame(copied, 0x30, ""), b.Frame(0, 0x40, "_Z3foov"), b.Frame(0, 0x50, "main")}
	threads := []int{b.Thread(1, "MainThread"), b.Thread(2, ""), b.Thread(3, "a\nb"), b.Thread(4, "MainThread")}
	paths := []string{"", "step", "step/forward", "f(x)<y>[z]::w", "größe/θ"}
	symbols := []int{b.Symbol("cuLaunchKernel"), b.SymbolIn(copied, "cuLaunchKernel", 100), b.Symbol("cuMemcpyDtoH_v2")}
	n := uint64(0)
	for _, gil := range append(slices.Clone(correlate.GILStates), "nonsense", "") {
		for _, attribution := range []recording.Attribution{"own", "autograd", "process", "none", "nonsense", ""} {
			for _, path := range paths {
				n++
				c := b.Call(threads[n%4], path, symbols[n%3], n, time.Duration(n), time.Duration(n/2))
				c.GIL, c.Attribution, c.Caller, c.Bytes = gil, attribution, frames[n%5], n%7
			}
		}
	}
	r.Paths = append(r.Paths, recording.StagePath{ID: len(r.Paths), Names: []string{""}})
	b.Call(0, "", symbols[0], 1, 0, 0).Path = len(r.Paths) - 1
	b.Loss("calls", "map_full", 7, "help")
	b.Loss("calls", "odd <reason>(x)", 8, "")
	b.Loss("spans", "ring_full", 9, "")
	r.Target.Rank = 0
	return r
}

var recordings = map[string]func() *recording.Recording{
	"random":      func() *recording.Recording { return recordingtest.Random(rand.New(rand.NewPCG(9, 11))) },
	"pipeline":    recordingtest.Pipeline,
	"every shape": everyShape,
	"empty":       func() *recording.Recording { return recordingtest.New().Recording() },
	"blank":       func() *recording.Recording { return &recording.Recording{} },
}

var optionsToTest = map[string]Options{"plain": {}, "stage frames": {StageFrames: true}}

// eachProfile runs a test on the profile of every kind of Recording.
func eachProfile(t *testing.T, test func(t *testing.T, p *profile.Profile)) {
	for name, make := range recordings {
		for optionsName, o := range optionsToTest {
			t.Run(name+"/"+optionsName, func(t *testing.T) { test(t, makeProfile(t, make(), o)) })
		}
	}
}

func TestSampleTypes(t *testing.T) {
	eachProfile(t, func(t *testing.T, p *profile.Profile) {
		var types []string
		for _, st := range p.SampleType {
			types = append(types, st.Type+"/"+st.Unit)
		}
		want := []string{"calls/count", "wall/nanoseconds", "cpu/nanoseconds", "bytes/bytes"}
		if !slices.Equal(types, want) {
			t.Errorf("sample types = %q, want %q", types, want)
		}
		if p.DefaultSampleType != "wall" {
			t.Errorf("default = %q, want wall", p.DefaultSampleType)
		}
		if p.PeriodType == nil || p.PeriodType.Type != "calls" || p.PeriodType.Unit != "count" || p.Period != 1 {
			t.Errorf("period = %v x %d, want calls/count x 1", p.PeriodType, p.Period)
		}
		if p.DropFrames != "" || p.KeepFrames != "" {
			t.Errorf("drop %q, keep %q: frames of the target must not be hidden", p.DropFrames, p.KeepFrames)
		}
	})
}

// Every label is on every sample, has one value, and one unit everywhere; 0
// survives; no other label exists.
func TestLabelSchema(t *testing.T) {
	texts := map[string]*regexp.Regexp{
		"stage":       regexp.MustCompile(`^.+$`),
		"stage_path":  regexp.MustCompile(`^.+$`),
		"gil":         regexp.MustCompile(`^(held|free|none|disabled|unknown)$`),
		"thread":      regexp.MustCompile(`^.+$`),
		"attribution": regexp.MustCompile(`^(own|autograd|process|none)$`),
	}
	numbers := []string{"pid", "rank", "device"}
	name := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // Prometheus
	eachProfile(t, func(t *testing.T, p *profile.Profile) {
		for _, s := range p.Sample {
			if len(s.Label) != len(texts) || len(s.NumLabel) != len(numbers) {
				t.Fatalf("%s has labels %v and %v", stack(s), s.Label, s.NumLabel)
			}
			for key, match := range texts {
				if v := s.Label[key]; len(v) != 1 || !match.MatchString(v[0]) || !name.MatchString(key) {
					t.Errorf("%s has label %s=%q", stack(s), key, v)
				}
			}
			for _, key := range numbers {
				v, unit := s.NumLabel[key], s.NumUnit[key]
				if len(v) != 1 || len(unit) != 1 || unit[0] != "count" || !name.MatchString(key) {
					t.Errorf("%s has label %s=%v in %q", stack(s), key, v, unit)
				}
			}
		}
	})
}

func TestLabelValues(t *testing.T) {
	b := recordingtest.New()
	b.Recording().Target.Rank = 3
	b.Recording().GPU = &recording.GPU{Devices: []recording.Device{{Index: 0}, {Index: 1, Process: &recording.DeviceProcess{}}}}
	th := b.Thread(4250, "pt_autograd_0")
	c := b.Call(th, "step/backward", b.Symbol("cuLaunchKernel"), 5, time.Microsecond, 0)
	c.Attribution, c.GIL = recording.AttributionAutograd, recording.GILHeld
	s := makeProfile(t, b.Recording(), Options{}).Sample[0]
	wantText := map[string][]string{
		"stage": {"backward"}, "stage_path": {"step/backward"}, "gil": {"held"},
		"thread": {"pt_autograd_0"}, "attribution": {"autograd"},
	}
	wantNumber := map[string][]int64{"pid": {4242}, "rank": {3}, "device": {1}}
	if diff := cmp.Diff(wantText, s.Label); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantNumber, s.NumLabel); diff != "" {
		t.Errorf("numeric labels (-want +got):\n%s", diff)
	}
}

func TestLabelsOutsideAnyStage(t *testing.T) {
	b := recordingtest.New()
	b.Call(b.Thread(1, ""), "", b.Symbol("cuInit"), 1, time.Microsecond, 0).GIL = recording.GILNone
	got := makeProfile(t, b.Recording(), Options{}).Sample[0].Label
	want := map[string][]string{
		"stage": {"none"}, "stage_path": {"none"}, "gil": {"none"}, "thread": {"unknown"}, "attribution": {"none"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "t")
	launch := b.SymbolIn(1, "cuLaunchKernel", 500)
	b.Call(th, "s", launch, 10, 1500*time.Nanosecond, 1200*time.Nanosecond).Bytes = 99
	b.Loss("calls", "map_full", 7, "")
	b.Loss("spans", "ring_full", 1000, "")
	got := values(makeProfile(t, b.Recording(), Options{}))
	want := map[string][]int64{
		"cuLaunchKernel":           {10, 10_000, 7_000, 99},
		"stageprof lost: map_full": {7, 0, 0, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// The profile says what the Ledger says, column by column.
func TestValuesSumToTheLedger(t *testing.T) {
	for name, make := range recordings {
		for optionsName, o := range optionsToTest {
			t.Run(name+"/"+optionsName, func(t *testing.T) {
				l := correlate.Build(make())
				p, err := Profile(l, o)
				if err != nil {
					t.Fatal(err)
				}
				var got [4]int64
				for _, s := range p.Sample {
					for i, v := range s.Value {
						got[i] += v
					}
				}
				want := [4]int64{
					int64(l.All.Count + l.Balance.Lost), int64(l.All.WallNS), int64(l.All.CPUNS), int64(l.All.Bytes),
				}
				if got != want {
					t.Errorf("columns = %v, the Ledger has %v", got, want)
				}
			})
		}
	}
}

func TestValuesAreNeverNegativeOrAllZero(t *testing.T) {
	eachProfile(t, func(t *testing.T, p *profile.Profile) {
		for _, s := range p.Sample {
			if slices.Min(s.Value) < 0 || slices.Max(s.Value) == 0 || s.Value[callsColumn] == 0 {
				t.Errorf("%s has values %v", stack(s), s.Value)
			}
		}
	})
}

func TestValuesDoNotWrap(t *testing.T) {
	b := recordingtest.New()
	b.Recording().Window.Duration = 0
	for range 2 { // two threads of one name give one sample
		c := b.Call(b.Thread(len(b.Recording().Threads), "t"), "s", b.Symbol("cuLaunchKernel"), 1, 0, 0)
		c.Count, c.WallNS = math.MaxUint64, math.MaxUint64
	}
	p := makeProfile(t, b.Recording(), Options{})
	if len(p.Sample) != 1 || p.Sample[0].Value[callsColumn] != math.MaxInt64 || p.Sample[0].Value[wallColumn] != math.MaxInt64 {
		t.Errorf("values = %v, want the largest number", p.Sample[0].Value)
	}
}

func TestStacks(t *testing.T) {
	b := recordingtest.New()
	torch := b.Module("/opt/torch/libtorch_cuda.so", "dd44", 0x7f2000000000)
	anon := b.Module("//anon", "", 0x7f3000000000)
	th := b.Thread(1, "t")
	launch := b.Symbol("cuLaunchKernel")
	for _, caller := range []int{-1, b.Frame(torch, 0x1234, "_Z6launchv"), b.Frame(torch, 0x5678, ""), b.Frame(anon, 0x9a, "")} {
		b.Call(th, "step/forward", launch, 1, time.Microsecond, 0).Caller = caller
	}
	b.Call(th, "", launch, 1, time.Microsecond, 0)

	stacks := func(o Options) (list []string) {
		for s := range values(makeProfile(t, b.Recording(), o)) {
			list = append(list, s)
		}
		slices.Sort(list)
		return list
	}
	want := []string{
		"_Z6launchv;cuLaunchKernel",
		"anon+0x9a;cuLaunchKernel",
		"cuLaunchKernel",
		"libtorch_cuda.so+0x5678;cuLaunchKernel",
	}
	if diff := cmp.Diff(want, stacks(Options{})); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
	want = []string{
		"stage:none;cuLaunchKernel",
		"stage:step;stage:forward;_Z6launchv;cuLaunchKernel",
		"stage:step;stage:forward;anon+0x9a;cuLaunchKernel",
		"stage:step;stage:forward;cuLaunchKernel",
		"stage:step;stage:forward;libtorch_cuda.so+0x5678;cuLaunchKernel",
	}
	if diff := cmp.Diff(want, stacks(Options{StageFrames: true})); diff != "" {
		t.Errorf("stacks with stage frames (-want +got):\n%s", diff)
	}
}

func TestLocations(t *testing.T) {
	b := recordingtest.New()
	torch := b.Module("/opt/torch/libtorch_cuda.so", "dd44", 0x7f2000000000)
	c := b.Call(b.Thread(1, "t"), "s", b.Symbol("cuLaunchKernel"), 1, time.Microsecond, 0)
	c.Caller = b.Frame(torch, 0x1234, "launch")
	s := makeProfile(t, b.Recording(), Options{}).Sample[0]

	leaf, caller := s.Location[0], s.Location[1]
	symbol := b.Recording().Symbols[0]
	if leaf.Address != symbol.Address || leaf.Mapping.File != recordingtest.Driver || leaf.Mapping.BuildID != "bb22cc33" {
		t.Errorf("leaf at %#x in %+v, want %#x in the driver", leaf.Address, leaf.Mapping, symbol.Address)
	}
	if caller.Address != 0x7f2000001233 || caller.Mapping.BuildID != "dd44" {
		t.Errorf("caller at %#x in %+v, want inside the call instruction, at 0x7f2000001233", caller.Address, caller.Mapping)
	}
}

func TestSameFunctionInTwoDrivers(t *testing.T) {
	b := recordingtest.New()
	copied := b.Module("/opt/lib/libcuda.so.1", "dd44", 0x7f1000000000)
	th := b.Thread(1, "t")
	b.Call(th, "s", b.Symbol("cuLaunchKernel"), 1, time.Microsecond, 0)
	b.Call(th, "s", b.SymbolIn(copied, "cuLaunchKernel", 0), 2, time.Microsecond, 0)
	p := makeProfile(t, b.Recording(), Options{})
	got := map[string]int64{}
	for _, s := range p.Sample {
		got[s.Location[0].Mapping.BuildID] = s.Value[callsColumn]
	}
	if diff := cmp.Diff(map[string]int64{"bb22cc33": 1, "dd44": 2}, got); diff != "" {
		t.Errorf("calls by build id of the driver (-want +got):\n%s", diff)
	}
	if len(p.Function) != 1 {
		t.Errorf("%d functions, want cuLaunchKernel once", len(p.Function))
	}
}

func TestMappings(t *testing.T) {
	eachProfile(t, func(t *testing.T, p *profile.Profile) {
		for i, m := range p.Mapping {
			if m.ID != uint64(i+1) {
				t.Errorf("mapping %d has id %d", i, m.ID)
			}
			if !m.HasFunctions || !m.HasFilenames || !m.HasLineNumbers || !m.HasInlineFrames {
				t.Errorf("mapping %q invites pprof to look for symbols", m.File)
			}
			if own := m.File == ownMapping; own && i != len(p.Mapping)-1 {
				t.Errorf("our own mapping is number %d of %d", i, len(p.Mapping))
			}
		}
		if p.Mapping[0].File == "" || p.Mapping[0].File == ownMapping {
			t.Errorf("first mapping = %q, want the executable", p.Mapping[0].File)
		}
		for i, l := range p.Location {
			if l.ID != uint64(i+1) || l.Mapping == nil || len(l.Line) != 1 {
				t.Errorf("location %d = %+v", i, l)
			}
		}
		for i, f := range p.Function {
			if f.ID != uint64(i+1) || f.Name == "" || f.SystemName == "" {
				t.Errorf("function %d = %+v", i, f)
			}
		}
	})
}

func TestFirstMapping(t *testing.T) {
	tests := []struct {
		name   string
		change func(*recording.Recording)
		want   string
	}{
		{"executable", func(*recording.Recording) {}, "/usr/bin/python3.11"},
		{"named like a library", func(r *recording.Recording) { r.Modules[0].Path = "/opt/app/libtrain.so" }, "/opt/app/libtrain.so"},
		{"without a path", func(r *recording.Recording) { r.Modules[0].Path = "" }, "/usr/bin/python3.11"},
		{"nothing but a name", func(r *recording.Recording) { r.Modules[0].Path, r.Target.Exe = "", "" }, "python3"},
		{"nothing", func(r *recording.Recording) { r.Modules[0].Path, r.Target = "", recording.Target{} }, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recordingtest.Pipeline()
			tt.change(r)
			if got := makeProfile(t, r, Options{}).Mapping[0].File; got != tt.want {
				t.Errorf("first mapping = %q, want %q", got, tt.want)
			}
		})
	}
}

// Names that are no code's keep the demangler away.
func TestSyntheticFunctions(t *testing.T) {
	p := makeProfile(t, everyShape(), Options{StageFrames: true})
	n := 0
	for _, l := range p.Location {
		f := l.Line[0].Function
		synthetic := l.Mapping.File == ownMapping || strings.Contains(f.Name, "+0x")
		if synthetic {
			n++
		}
		if synthetic != (f.Name != f.SystemName) {
			t.Errorf("function %q has system name %q", f.Name, f.SystemName)
		}
	}
	if n < 8 {
		t.Errorf("only %d synthetic frames in a profile of all kinds of them", n)
	}
}

func TestTimes(t *testing.T) {
	p := makeProfile(t, recordingtest.Pipeline(), Options{})
	if want := time.Date(2025, 3, 4, 9, 30, 0, 0, time.UTC).UnixNano(); p.TimeNanos != want {
		t.Errorf("time = %d, want %d", p.TimeNanos, want)
	}
	if p.DurationNanos != int64(30*time.Second) {
		t.Errorf("duration = %d, want 30 s", p.DurationNanos)
	}
}

func TestProfileOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 200 {
		var file bytes.Buffer
		o := Options{StageFrames: rng.IntN(2) == 0}
		if err := Write(&file, correlate.Build(recordingtest.Random(rng)), o); err != nil {
			t.Fatal(err)
		}
		if _, err := profile.Parse(&file); err != nil {
			t.Fatal(err)
		}
	}
}

// What the period is of never depends on how the run was set up, or profiles
// could not be compared.
func TestMergeOfDifferentRuns(t *testing.T) {
	var all []*profile.Profile
	var want int64
	for name, make := range recordings {
		if name == "blank" || name == "random" {
			continue // of no program in particular
		}
		for _, o := range optionsToTest {
			p := makeProfile(t, make(), o)
			for _, s := range p.Sample {
				want += s.Value[wallColumn]
			}
			all = append(all, p)
		}
	}
	merged, err := profile.Merge(all)
	if err != nil {
		t.Fatal(err)
	}
	var got int64
	for _, s := range merged.Sample {
		got += s.Value[wallColumn]
	}
	if got != want || merged.DefaultSampleType != "wall" {
		t.Errorf("merged: %d ns by default of %q, want %d of wall", got, merged.DefaultSampleType, want)
	}
	if first := merged.Mapping[0].File; first != "/usr/bin/python3.11" {
		t.Errorf("merged: first mapping %q", first)
	}
}

// Merging a profile with itself doubles every sample and adds none.
func TestMergeWithItself(t *testing.T) {
	eachProfile(t, func(t *testing.T, p *profile.Profile) {
		merged, err := profile.Merge([]*profile.Profile{p, p.Copy()})
		if err != nil {
			t.Fatal(err)
		}
		want := values(p)
		for _, v := range want {
			for i := range v {
				v[i] *= 2
			}
		}
		if diff := cmp.Diff(want, values(merged)); diff != "" {
			t.Errorf("merged (-want +got):\n%s", diff)
		}
		if len(merged.Sample) != len(p.Sample) {
			t.Errorf("%d samples became %d", len(p.Sample), len(merged.Sample))
		}
	})
}

func TestSameRecordingSameBytes(t *testing.T) {
	for name, make := range recordings {
		for optionsName, o := range optionsToTest {
			t.Run(name+"/"+optionsName, func(t *testing.T) {
				var first bytes.Buffer
				if err := Write(&first, correlate.Build(make()), o); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					var again bytes.Buffer
					r := make()
					slices.Reverse(r.Calls)
					slices.Reverse(r.Losses)
					slices.Reverse(r.Stages)
					if err := Write(&again, correlate.Build(r), o); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(first.Bytes(), again.Bytes()) {
						t.Fatal("the same Recording gave other bytes")
					}
				}
			})
		}
	}
}

// A Recording that was saved and read back gives the same profile.
func TestSavedRecordingSameBytes(t *testing.T) {
	for name, make := range recordings {
		if name == "blank" {
			continue // not a valid file
		}
		t.Run(name, func(t *testing.T) {
			var direct, saved, replayed bytes.Buffer
			if err := Write(&direct, correlate.Build(make()), Options{}); err != nil {
				t.Fatal(err)
			}
			if err := recording.Write(&saved, make()); err != nil {
				t.Fatal(err)
			}
			r, err := recording.Read(&saved)
			if err != nil {
				t.Fatal(err)
			}
			if err := Write(&replayed, correlate.Build(r), Options{}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(direct.Bytes(), replayed.Bytes()) {
				t.Error("replaying the saved Recording gave other bytes")
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = bytes.ErrTooLarge

func TestWriteReportsErrors(t *testing.T) {
	err := Write(brokenWriter{}, correlate.Build(recordingtest.Pipeline()), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "writing profile: ") {
		t.Errorf("error = %v", err)
	}
}
