package pprofout

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// write puts the profile of r into a file.
func write(t *testing.T, r *recording.Recording, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stageprof.pb.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(f, correlate.Build(r), o); err != nil {
		t.Fatal(err)
	}
	return path
}

// pprof runs the stock tool and returns what it printed. Its stderr must be
// what is expected.
func pprof(t *testing.T, wantStderr string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "pprof"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	if err := cmd.Run(); err != nil {
		t.Fatalf("pprof %q: %v\n%s", args, err, stderr.String())
	}
	if got := strings.TrimSpace(stderr.String()); got != wantStderr {
		t.Errorf("pprof %q: stderr = %q, want %q", args, got, wantStderr)
	}
	return stdout.String()
}

// contains checks that every pattern matches a part of the output.
func contains(t *testing.T, output string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(output) {
			t.Errorf("output does not match %q:\n%s", p, output)
		}
	}
}

func lacks(t *testing.T, output string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if regexp.MustCompile("(?m)" + p).MatchString(output) {
			t.Errorf("output matches %q:\n%s", p, output)
		}
	}
}

func TestToolTop(t *testing.T) {
	t.Parallel()
	file := write(t, recordingtest.Pipeline(), Options{})
	contains(t, pprof(t, "", "-top", file),
		`^File: python3\.11$`, `^Build ID: aa11$`, `^Type: wall$`, `^Duration: 30s, Total samples = 36\.87s`,
		`^lost: 3 calls, lost_return: `, `^ +23\.72s .* cuStreamSynchronize$`,
		` at::native::launch_kernel$`, ` libfastcopy\.so\+0x1a40$`, ` anon\+0x280$`)
	contains(t, pprof(t, "", "-top", "-nodefraction=0", "-sample_index=calls", file),
		`^ +593620 .* cuLaunchKernel$`, `^ +3 .* stageprof lost: lost_return$`)
	contains(t, pprof(t, "", "-top", "-sample_index=bytes", file), ` cuMemcpyDtoHAsync_v2$`)
}

func TestToolTags(t *testing.T) {
	t.Parallel()
	out := pprof(t, "", "-tags", write(t, recordingtest.Pipeline(), Options{}))
	contains(t, out,
		`^ *attribution: Total 36\.87s of 36\.87s \( +100%\)`, `^ *stage_path: Total 36\.87s of 36\.87s`,
		`^ *gil: Total`, `^ *thread: Total`, `: copy_to_cpu$`, `: drafter_step/optimizer_step$`,
		`^ *rank: Total 36\.87s of 36\.87s \( +100%\)\n +36\.87s \( +100%\): 0$`,
		`^ *device: Total 36\.87s of 36\.87s \( +100%\)\n +36\.87s \( +100%\): 0$`,
		`^ *pid: Total 36\.87s of 36\.87s \( +100%\)\n +36\.87s \( +100%\): 4242$`)
}

func TestToolTagroot(t *testing.T) {
	t.Parallel()
	out := pprof(t, "", "-top", "-cum", "-tagroot=stage,gil", write(t, recordingtest.Pipeline(), Options{}))
	contains(t, out, `^ +0 .* 22\.19s 60\.19%  copy_to_cpu$`, `^ +0 .* held$`, `^ +0 .* free$`)
	lacks(t, out, `<unknown>`)
}

func TestToolTagfocus(t *testing.T) {
	t.Parallel()
	file := write(t, recordingtest.Pipeline(), Options{})
	out := pprof(t, "", "-top", "-tagfocus=gil=free", file)
	contains(t, out, `^Showing nodes accounting for 14\.58s, .* of 36\.87s total$`, `^ +1\.60s .* cuStreamSynchronize$`)
	contains(t, pprof(t, "", "-top", "-tagfocus=stage=copy_to_cpu", "-tagfocus=gil=held", file), `cuStreamSynchronize$`)
}

func TestToolComments(t *testing.T) {
	t.Parallel()
	contains(t, pprof(t, "", "-comments", write(t, recordingtest.Pipeline(), Options{})),
		`^# command: stageprof record --pid 4242`, `^# known but absent: `, `^# window: 30s from `)
}

// Names with brackets and colons come through whole.
func TestToolKeepsNames(t *testing.T) {
	t.Parallel()
	out := pprof(t, "", "-top", "-nodefraction=0", "-sample_index=calls", write(t, everyShape(), Options{StageFrames: true}))
	contains(t, out,
		` stage:f\(x\)<y>\[z\]::w$`, ` stage:größe$`, ` stage:θ$`, ` stage:none$`, ` stage:\(empty\)$`,
		` stageprof lost: odd <reason>\(x\)$`, ` foo$`)
}

func TestToolStageFrames(t *testing.T) {
	t.Parallel()
	out := pprof(t, "", "-peek", "^stage:drafter_step$", write(t, recordingtest.Pipeline(), Options{StageFrames: true}))
	contains(t, out, `\| +stage:optimizer_step$`, `\| stage:drafter_step$`)
}

// With pprof's defaults nothing is looked up on disk, so a changed library
// makes no noise.
func TestToolDoesNotLookForSymbols(t *testing.T) {
	t.Parallel()
	r := recordingtest.Pipeline()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.Modules[0].Path, r.Modules[1].Path = exe, exe
	pprof(t, "", "-top", write(t, r, Options{}))
}

func TestToolReadsAProfileWithoutCalls(t *testing.T) {
	t.Parallel()
	r := recordingtest.New().Recording()
	out := pprof(t, "", "-top", write(t, r, Options{}))
	contains(t, out, `^losses: none$`, `^Showing nodes accounting for 0`)
}

// Profiles of different runs merge, compare and pivot cleanly, and rank 0 is
// visible.
func TestCaseC28(t *testing.T) {
	t.Parallel()
	ranks := []string{}
	for rank := range 2 {
		r := recordingtest.Pipeline()
		r.Target.Rank, r.Target.PID = rank, 4242+rank
		for i := range r.Modules {
			r.Modules[i].Start += uint64(rank) << 32 // address spaces differ
			r.Modules[i].Limit += uint64(rank) << 32
		}
		for i := range r.Symbols {
			r.Symbols[i].Address += uint64(rank) << 32
		}
		for i := range r.Frames {
			r.Frames[i].Address += uint64(rank) << 32
		}
		ranks = append(ranks, write(t, r, Options{}))
	}

	merged := filepath.Join(t.TempDir(), "merged.pb.gz")
	if err := os.WriteFile(merged, []byte(pprof(t, "", "-proto", ranks[0], ranks[1])), 0o644); err != nil {
		t.Fatal(err)
	}
	contains(t, pprof(t, "", "-top", merged), `^Type: wall$`, `^File: python3\.11$`, `^ +47\.44s .* cuStreamSynchronize$`)
	contains(t, pprof(t, "", "-tags", merged), `^ *rank: Total 73\.73s of 73\.73s \( +100%\)\n +36\.87s .*: 0\n +36\.87s .*: 1$`)
	out := pprof(t, "", "-top", "-cum", "-tagroot=stage", merged)
	contains(t, out, `44\.3[78]s 60\.19%  copy_to_cpu$`)
	lacks(t, out, `<unknown>`)

	// pprof says by itself that it takes a number for a range.
	const asRange = "tagfocus:Interpreted '%' as range, not regexp"
	for rank := range ranks {
		digit := string(rune('0' + rank))
		out := pprof(t, strings.ReplaceAll(asRange, "%", digit), "-top", "-tagfocus=rank="+digit, merged)
		contains(t, out, `^ +23\.72s .* cuStreamSynchronize$`)
	}

	// A run against itself differs in nothing, whatever its process was.
	contains(t, pprof(t, "", "-top", "-diff_base", ranks[0], ranks[1]), `^Showing nodes accounting for 0, 0% of 36\.87s total$`)
	contains(t, pprof(t, "", "-top", "-normalize", "-diff_base", ranks[0], ranks[1]), `^Showing nodes accounting for 0, 0% of 36\.87s total$`)
}

func TestCaseC28DiffShowsTheChange(t *testing.T) {
	t.Parallel()
	before := recordingtest.Pipeline()
	after := recordingtest.Pipeline()
	for i := range after.Calls {
		if c := &after.Calls[i]; after.Symbols[c.Symbol].Name == "cuStreamSynchronize" {
			c.WallNS /= 4
		}
	}
	out := pprof(t, "", "-top", "-diff_base", write(t, before, Options{}), write(t, after, Options{}))
	contains(t, out, `^ +-17\.79s .* cuStreamSynchronize$`)
	lacks(t, out, `cuLaunchKernel$`)
}
