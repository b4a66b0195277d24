package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
	}
}

func textOf(t *testing.T, r *recording.Recording, o TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Text(&b, correlate.Build(r), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The Recordings of the golden files, each with what it is there for.
var recordings = map[string]func() *recording.Recording{
	"pipeline":     recordingtest.Pipeline,
	"no-calls":     func() *recording.Recording { return recordingtest.New().Recording() },
	"no-markers":   noMarkers,
	"no-python":    noPython,
	"many":         manyStages,
	"names":        oddNames,
	"process":      processStages,
	"regions":      recordingtest.Regions,
	"region-parts": recordingtest.RegionParts,
	"troubled":     troubled,
	"debts":        debts,
	"functions":    pythonFunctions,
}

func noMarkers() *recording.Recording {
	b := recordingtest.New()
	for i := range 2 {
		t := b.Thread(4250+i, "python3")
		b.Call(t, "", b.Symbol("cuLaunchKernel"), 120_000, 6*us, 5*us)
		b.Call(t, "", b.Symbol("cuStreamSynchronize"), 400, 9*ms, 0).GIL = recording.GILHeld
	}
	b.Recording().Seen = &recording.Seen{Calls: 240_800}
	b.Recording().GPUNote = "libnvidia-ml.so.1 is not installed"
	return b.Recording()
}

// debts has stages that wait for others' work: more of both than are shown.
func debts() *recording.Recording {
	b := recordingtest.New()
	target, post := b.Thread(4250, "target-0"), b.Thread(4251, "postproc")
	stream, event := b.Symbol("cuStreamSynchronize"), b.Symbol("cuEventSynchronize")
	b.Call(target, "copy_to_cpu", stream, 655, 9*ms, 0)
	b.Debt(target, "copy_to_cpu", stream, "target_forward", 655, 5_554*ms, 42_575)
	b.Debt(target, "copy_to_cpu", stream, "pack_hidden", 655, 256*ms, 1_965)
	b.Debt(target, "copy_to_cpu", stream, "copy_to_cpu", 655, 85*ms, 655)
	b.Call(post, "post_process", event, 12, 4*ms, 0)
	b.Debt(post, "post_process", event, "", 10, 40*ms, 30)
	b.Debt(post, "post_process", event, "", 1, 5*ms, 0).Kind = recording.DebtIdle
	b.Debt(post, "post_process", event, "", 1, 2*ms, 0).Kind = recording.DebtUnseen
	b.Debt(post, "post_process", event, "", 3, 1*ms, 9).Kind = recording.DebtForgotten
	for i := range 10 {
		waits := fmt.Sprintf("stage-%d", i)
		b.Call(target, waits, stream, 1, 10*us, 0)
		for j := range 10 {
			b.Debt(target, waits, stream, fmt.Sprintf("owner-%d", j), 1, us, uint64(j))
		}
	}
	return b.Recording()
}

func noPython() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	r.Target.Python, r.Target.Cmdline, r.Target.WorldSize = nil, []string{"./train"}, 1
	t := b.Thread(4242, "train")
	b.Spans(t, "step", 100, 20*ms, 0)
	b.Call(t, "step", b.Symbol("cuLaunchKernel"), 5000, 6*us, 5*us).GIL = recording.GILNone
	return r
}

// manyStages has 40 stage paths on 64 threads and 14 functions.
func manyStages() *recording.Recording {
	b := recordingtest.New()
	var threads []int
	for i := range 64 {
		threads = append(threads, b.Thread(5000+i, fmt.Sprintf("worker-%d", i)))
	}
	b.Spans(threads[0], "epoch", 1, 29*time.Second, 28*time.Second)
	for i := range 39 {
		path := fmt.Sprintf("epoch/layer_%d", i/3)
		switch i % 3 {
		case 1:
			path += "/forward_with_activation_checkpointing"
		case 2:
			path += "/forward_with_activation_checkpointing/attention"
		}
		for j, th := range threads {
			b.Spans(th, path, uint64(10+i), time.Duration(9-3*(i%3))*ms, time.Duration(6-3*(i%3))*ms)
			if j%8 == i%8 {
				b.Call(th, path, b.Symbol(fmt.Sprintf("cuFunction%d", (i+j/8)%14)), uint64(100*i+j), time.Duration(i+1)*us, us)
			}
		}
	}
	return b.Recording()
}

func oddNames() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	r.Target.Cmdline = []string{"python3", "-c", "print('\x1b[31mred')\nrun()"}
	for i, name := range []string{
		"forward", "größenberechnung", "前向传播", "🚀launch", "e\u0301te\u0301", "\x1b[2Jcleared", "\u202eright", "bad\xffbyte",
		strings.Repeat("long_", 20) + "end", strings.Repeat("長い名前", 12),
	} {
		t := b.Thread(4250+i, name)
		b.Call(t, "", b.Symbol("cuLaunchKernel"), 1000, time.Duration(20-i)*us, us).Path = b.PathOf(name)
		b.Spans(t, "", 10, 10*ms, 0).Path = b.PathOf(name)
	}
	b.Loss("calls", "odd\x07reason", 1, "help\nin two lines")
	r.Warnings = []string{"a \x1b[31mred\x1b[0m warning"}
	return r
}

func processStages() *recording.Recording {
	b := recordingtest.New()
	main, helper := b.Thread(4250, "MainThread"), b.Thread(4251, "helper")
	b.Spans(-1, "epoch", 2, 10*time.Second, 4*time.Second)
	b.Spans(-1, "epoch/warmup", 2, 4*time.Second, 0)
	b.Spans(main, "epoch", 200, 10*ms, 0)
	b.Call(main, "epoch", b.Symbol("cuLaunchKernel"), 4000, 20*us, us)
	for _, path := range []string{"epoch", "epoch/warmup"} {
		b.Call(helper, path, b.Symbol("cuMemMap"), 40, ms, 0).Attribution = recording.AttributionProcess
	}
	b.Call(helper, "", b.Symbol("cuMemUnmap"), 1, ms, 0).GIL = recording.GILDisabled
	return b.Recording()
}

// pythonFunctions has calls that belong to Python functions, in a marked stage
// and outside any.
func pythonFunctions() *recording.Recording {
	b := recordingtest.New()
	main := b.Thread(4250, "MainThread")
	launch := b.Symbol("cuLaunchKernel")
	b.Spans(main, "epoch", 20, 10*ms, 0).Parts = recording.Parts{CUDACPUNS: 30 * uint64(ms), RunningNS: 170 * uint64(ms)}
	b.Call(main, "epoch", launch, 100, 50*us, 50*us)
	b.Call(main, "epoch/Model.step()", launch, 500, 50*us, 50*us)
	b.Call(main, "warm_up()", launch, 40, 50*us, 50*us)
	for i := range b.Recording().Paths {
		p := &b.Recording().Paths[i]
		p.PythonFunction = strings.HasSuffix(strings.Join(p.Names, "/"), "()")
	}
	b.Recording().Overhead.Looks, b.Recording().Overhead.LooksNS = 640, 2_000_000
	return b.Recording()
}

func troubled() *recording.Recording {
	r := recordingtest.Pipeline()
	r.Seen.Calls += 12
	r.Symbols[2].BiasNS = 9130
	r.Window.End = recording.EndExit
	r.Overhead.Calibrated, r.Overhead.Calibration = false, "the calibration function could not be probed: permission denied"
	r.GPU, r.GPUNote = nil, "NVML answered: driver/library version mismatch"
	r.Warnings = append(r.Warnings, strings.Repeat("a warning that goes on and on ", 8))
	return r
}

func TestText(t *testing.T) {
	for name, make := range recordings {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".txt", textOf(t, make(), TextOptions{Full: true}))
		})
	}
	t.Run("pipeline-short", func(t *testing.T) {
		golden(t, "pipeline-short.txt", textOf(t, recordingtest.Pipeline(), TextOptions{}))
	})
	t.Run("pipeline-72", func(t *testing.T) {
		golden(t, "pipeline-72.txt", textOf(t, recordingtest.Pipeline(), TextOptions{Width: 72, Top: 1, Full: true}))
	})
}

func TestReportsOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 200 {
		r := recordingtest.Random(rng)
		for _, c := range textOf(t, r, TextOptions{Width: rng.IntN(200), Top: rng.IntN(9), Full: rng.IntN(2) == 0}) {
			if c != '\n' && (c < ' ' || c == '\u202e' || c == '\u2028') {
				t.Fatalf("the report contains %q", c)
			}
		}
		if err := JSON(io.Discard, correlate.Build(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// Threads of which only the sum was kept are no thread.
func TestThreadsThatAreSummedUp(t *testing.T) {
	r := recordingtest.Pipeline()
	told := len(correlate.Build(r).Threads)
	if got, want := Head(correlate.Build(r)).Calls, fmt.Sprintf(" on %d threads took", told); !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r.Threads[0].Folded = true
	if got, want := Head(correlate.Build(r)).Calls, fmt.Sprintf(" on more than %d threads took", told-1); !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTextFitsTheWidth(t *testing.T) {
	for name, make := range recordings {
		for _, width := range []int{0, 100, 120, 200} {
			for _, line := range strings.Split(textOf(t, make(), TextOptions{Width: width, Full: true}), "\n") {
				limit := width
				if width == 0 {
					limit = 100
				}
				// A row with every column filled may need a little more.
				if name == "pipeline" || name == "troubled" || name == "process" {
					limit += 6
				}
				if n := cells(line); n > limit {
					t.Errorf("%s at width %d: %d cells in %q", name, width, n, line)
				}
			}
		}
	}
}

// No terminal is driven by names of the target.
func TestTextIsPlain(t *testing.T) {
	text := textOf(t, oddNames(), TextOptions{})
	for _, r := range text {
		if r != '\n' && (r < ' ' || r == 0x7f || r == '\u202e' || r == '\ufffd') {
			t.Errorf("the report contains %q", r)
		}
	}
	for _, want := range []string{`\x1b[2Jcleared`, `\u202eright`, `bad\xffbyte`, "前向传播", "🚀launch"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// Names of any script keep the columns straight.
func TestTextColumnsAreAligned(t *testing.T) {
	lines := strings.Split(textOf(t, oddNames(), TextOptions{}), "\n")
	var edge int // where the column CALLS ends
	rows := 0
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "STAGE"):
			edge = cells(line)
		case line == "":
			if rows > 0 {
				if rows != 11 {
					t.Errorf("%d rows, want 10 stages and their sum", rows)
				}
				return
			}
		case edge > 0 && (strings.HasSuffix(line, " 1,000") || strings.HasSuffix(line, " 10,000")):
			rows++
			if cells(line) != edge {
				t.Errorf("the row ends at cell %d, the title at %d: %q", cells(line), edge, line)
			}
		}
	}
	t.Error("no table of stages found")
}

func TestTextOptionsTop(t *testing.T) {
	for top, want := range map[int]string{
		0: "cuLaunchKernel 151 ms ×20,480 · cuStreamQuery 1.53 ms ×640\n",
		2: "cuStreamSynchronize 1.60 s ×320 · cuLaunchKernel 151 ms ×20,480\n",
	} {
		if text := textOf(t, recordingtest.Pipeline(), TextOptions{Top: top}); !strings.Contains(text, want) {
			t.Errorf("Top %d: the report lacks %q", top, want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("no space left")

func TestWritersReportErrors(t *testing.T) {
	l := correlate.Build(recordingtest.Pipeline())
	if err := Text(brokenWriter{}, l, TextOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("Text: %v", err)
	}
	if err := JSON(brokenWriter{}, l); !errors.Is(err, errBroken) {
		t.Errorf("JSON: %v", err)
	}
}
