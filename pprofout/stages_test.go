package pprofout

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
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

const ms = time.Millisecond

// makeStages returns the profile of the stages of r as a reader of the written
// file sees it.
func makeStages(t *testing.T, r *recording.Recording) *profile.Profile {
	t.Helper()
	var file bytes.Buffer
	if err := WriteStages(&file, correlate.Build(r), Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// nestedStages has a stage inside another, on two threads, of which one is an
// autograd thread without stages.
func nestedStages() *recording.Recording {
	b := recordingtest.New()
	main, worker := b.Thread(1, "MainThread"), b.Thread(2, "pt_autograd_0")
	launch, launchPT, wait := b.SymbolIn(1, "cuLaunchKernel", 500), b.Symbol("cuLaunchKernel_ptsz"), b.Symbol("cuStreamSynchronize")
	b.Call(main, "step/copy", launch, 1000, 10_000, 8_000)
	b.Call(main, "step/copy", launchPT, 1000, 10_000, 10_000)
	b.Call(main, "step/copy", launchPT, 10, 10_000, 10_000).GIL = recording.GILHeld
	b.Call(main, "step/copy", wait, 1, 20*ms, 0).GIL = recording.GILHeld
	b.Call(worker, "step", launchPT, 100, 10_000, 10_000).Attribution = recording.AttributionAutograd
	b.Spans(main, "step", 1, 100*ms, 60*ms).Parts = recording.Parts{RunningNS: uint64(30 * ms), GILWaitNS: uint64(10 * ms)}
	b.Spans(main, "step/copy", 3, 20*ms, 0).Parts = recording.Parts{
		CUDACPUNS: 19_100_000, CUDABlockedNS: 23_000_000, BlockedFutexNS: 10_000_000, RunnableNS: 7_900_000,
	}
	b.Recording().Stages = append(b.Recording().Stages, recording.Stage{
		Thread: worker, Path: b.Path(""), WallNS: uint64(time.Second),
		Parts: recording.Parts{CUDACPUNS: 1_000_000, BlockedFutexNS: uint64(time.Second) - 1_000_000},
	})
	b.Loss("spans", "ring_full", 9, "")
	b.Loss("calls", "map_full", 7, "")
	return b.Recording()
}

func TestStages(t *testing.T) {
	p := makeStages(t, nestedStages())
	want := map[string][]int64{
		"stage:step":                                      {1, 0, 0},
		"stage:step;running":                              {0, 30_000_000, 30_000_000},
		"stage:step;gil wait":                             {0, 10_000_000, 0},
		"stage:step;stage:copy":                           {3, 0, 0},
		"stage:step;stage:copy;cuda: cuLaunchKernel":      {0, 20_100_000 - 500_000, 18_100_000 - 500_000},
		"stage:step;stage:copy;cuda: cuStreamSynchronize": {0, 20_000_000, 0},
		"stage:step;stage:copy;cuda: other":               {0, 2_000_000, 1_000_000},
		"stage:step;stage:copy;stageprof":                 {0, 500_000, 500_000},
		"stage:step;stage:copy;blocked: futex":            {0, 10_000_000, 0},
		"stage:step;stage:copy;runnable":                  {0, 7_900_000, 0},
		"stage:none;cuda: cuLaunchKernel":                 {0, 1_000_000, 1_000_000},
		"stage:none;blocked: futex":                       {0, 999_000_000, 0},
		"stageprof lost: ring_full":                       {9, 0, 0},
	}
	if diff := cmp.Diff(want, values(p)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestStagesTypes(t *testing.T) {
	p := makeStages(t, nestedStages())
	var types []string
	for _, ty := range p.SampleType {
		types = append(types, ty.Type+"/"+ty.Unit)
	}
	if want := []string{"spans/count", "wall/nanoseconds", "cpu/nanoseconds"}; !slices.Equal(types, want) {
		t.Errorf("sample types %q, want %q", types, want)
	}
	if p.DefaultSampleType != "wall" || p.PeriodType.Type != "spans" || p.Period != 1 {
		t.Errorf("default %q, period %d of %v", p.DefaultSampleType, p.Period, p.PeriodType)
	}
	if p.Mapping[0].File != "/usr/bin/python3.11" {
		t.Errorf("first mapping %q", p.Mapping[0].File)
	}
}

func TestStagesLabels(t *testing.T) {
	gil := map[string][]string{}
	for _, s := range makeStages(t, nestedStages()).Sample {
		key := stack(s)
		gil[key] = append(gil[key], s.Label["gil"]...)
		if len(s.Label) != 5 || len(s.NumLabel) != 3 {
			t.Errorf("%s has labels %v and %v", key, s.Label, s.NumLabel)
		}
		want := "own"
		if !strings.HasPrefix(key, "stage:step") {
			want = "none"
		}
		if got := s.Label["attribution"][0]; got != want {
			t.Errorf("%s has attribution %s, want %s", key, got, want)
		}
	}
	for key, want := range map[string][]string{
		"stage:step;running":                              {"none"},
		"stage:step;stage:copy;cuda: cuLaunchKernel":      {"free", "held"},
		"stage:step;stage:copy;cuda: cuStreamSynchronize": {"held"},
		"stage:step;stage:copy;cuda: other":               {"unknown"},
	} {
		if got := gil[key]; !slices.Equal(got, want) {
			t.Errorf("%s has gil %q, want %q", key, got, want)
		}
	}
}

// The time below a stage is its whole wall time, with or without parts.
func TestStagesSumToTheWall(t *testing.T) {
	for name, r := range wallTimes() {
		t.Run(name, func(t *testing.T) {
			wall, spans := map[string]int64{}, map[string]int64{}
			for key, v := range values(makeStages(t, r)) {
				if v[stageSpans] > 0 {
					spans[key] += v[stageSpans]
				}
				addToAll(wall, key, v[stageWall])
			}
			for _, s := range correlate.Build(r).Stages {
				if s.Spans == nil {
					continue
				}
				key := "stage:" + strings.Join(s.Path.Names, ";stage:")
				if wall[key] != int64(s.Spans.WindowNS()) || spans[key] != int64(s.Spans.Count) {
					t.Errorf("%s: %d ns of %d spans, the Ledger has %d of %d", key, wall[key], spans[key], s.Spans.WindowNS(), s.Spans.Count)
				}
			}
		})
	}
}

// wallTimes are Recordings whose stages have parts, or none, or stages inside.
func wallTimes() map[string]*recording.Recording {
	bare := recordingtest.Pipeline()
	for i := range bare.Stages {
		bare.Stages[i].Parts, bare.Stages[i].PartialParts = recording.Parts{}, recording.Parts{}
	}
	return map[string]*recording.Recording{"parts": recordingtest.Pipeline(), "no parts": bare, "nested": nestedStages(),
		"regions": recordingtest.RegionParts()}
}

// addToAll adds a value to a stack and to all stacks that it begins with.
func addToAll(sums map[string]int64, stack string, value int64) {
	for {
		sums[stack] += value
		last := strings.LastIndex(stack, ";")
		if last == -1 {
			return
		}
		stack = stack[:last]
	}
}

// The time of a stage of the whole process is that of no thread.
func TestStagesOfTheProcess(t *testing.T) {
	b := recordingtest.New()
	b.Spans(-1, "epoch", 1, time.Second, 0)
	if p := makeStages(t, b.Recording()); len(p.Sample) != 0 {
		t.Errorf("samples %v", values(p))
	}
}

func TestStagesOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		for _, s := range makeStages(t, recordingtest.Random(rng)).Sample {
			if slices.Min(s.Value) < 0 || slices.Max(s.Value) == 0 {
				t.Fatalf("%s has values %v", stack(s), s.Value)
			}
			if s.Value[stageCPU] > s.Value[stageWall] {
				t.Fatalf("%s was running for longer than it lasted: %v", stack(s), s.Value)
			}
		}
	}
}

func TestStagesReportErrors(t *testing.T) {
	err := WriteStages(brokenWriter{}, correlate.Build(recordingtest.Pipeline()), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "writing profile: ") {
		t.Errorf("error = %v", err)
	}
}

// writeStages puts the profile of the stages of r into a file.
func writeStages(t *testing.T, r *recording.Recording) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stages.pb.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteStages(f, correlate.Build(r), Options{}); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestToolStages(t *testing.T) {
	t.Parallel()
	file := writeStages(t, nestedStages())
	contains(t, pprof(t, "", "-top", "-cum", "-nodefraction=0", "-ignore=stage:none", file),
		`^File: python3\.11$`, `^Type: wall$`, `^stageprof 0\.1\.0: wall time of stages and what it consists of$`,
		`^ +0 .* 100ms .*  stage:step$`, `^ +0 .* 60ms .*  stage:copy$`, `^ +20ms .*  cuda: cuStreamSynchronize$`,
		`  gil wait$`, `  blocked: futex$`, `  running$`)
	contains(t, pprof(t, "", "-tree", file), `^ +30ms .*\|   running$`)
	contains(t, pprof(t, "", "-top", "-nodefraction=0", "-sample_index=spans", file),
		`^ +3 .*  stage:copy$`, `^ +9 .*  stageprof lost: ring_full$`)
	out := pprof(t, "", "-top", "-cum", "-nodefraction=0", "-tagroot=thread,gil", file)
	contains(t, out, `  MainThread$`, `  held$`, `  free$`)
	lacks(t, out, `<unknown>`)
	contains(t, pprof(t, "", "-top", "-tagfocus=gil=held", file), `  cuda: cuStreamSynchronize$`)
}

// The stages of two ranks merge, compare and pivot cleanly.
func TestCaseC28Stages(t *testing.T) {
	t.Parallel()
	var ranks []string
	for rank := range 2 {
		r := nestedStages()
		r.Target.Rank, r.Target.PID = rank, 4242+rank
		for i := range r.Modules {
			r.Modules[i].Start += uint64(rank) << 32
			r.Modules[i].Limit += uint64(rank) << 32
		}
		ranks = append(ranks, writeStages(t, r))
	}
	merged := filepath.Join(t.TempDir(), "merged.pb.gz")
	if err := os.WriteFile(merged, []byte(pprof(t, "", "-proto", ranks[0], ranks[1])), 0o644); err != nil {
		t.Fatal(err)
	}
	contains(t, pprof(t, "", "-top", "-cum", "-ignore=stage:none", merged), `^Type: wall$`, `^ +0 .* 200ms .*  stage:step$`)
	contains(t, pprof(t, "", "-tags", merged), `^ *rank: Total .* \( +100%\)\n +1\.10s .*: 0\n +1\.10s .*: 1$`)
	contains(t, pprof(t, "", "-top", "-diff_base", ranks[0], ranks[1]), `^Showing nodes accounting for 0, 0% of `)
}
