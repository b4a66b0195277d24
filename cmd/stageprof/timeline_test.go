package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// withTimeline is a Recording with one event of each kind.
func withTimeline() *recording.Recording {
	b := recordingtest.New()
	thread, launch := b.Thread(4250, "target-0"), b.Symbol("cuLaunchKernel")
	r := b.Recording()
	r.Timeline = &recording.Timeline{
		StartNS: r.Window.StartNS,
		Calls: []recording.CallEvent{{
			Thread: thread, Path: b.Path("forward"), Symbol: launch, GIL: recording.GILFree, Attribution: recording.AttributionOwn,
			BeginNS: r.Window.StartNS + 1000, WallNS: 7000, CPUNS: 7000,
		}},
		Off: []recording.OffEvent{{Thread: thread, State: recording.OffGILWait, BeginNS: r.Window.StartNS + 9000, WallNS: 500}},
	}
	return r
}

func TestTimeline(t *testing.T) {
	dir := t.TempDir()
	saved := saveAs(t, filepath.Join(dir, "run.rec"), withTimeline())
	cases := map[string]struct {
		args   []string
		file   string
		chrome bool
	}{
		"default":                {nil, "trace.perfetto-trace", false},
		"Chrome by name":         {[]string{"-o", "trace.json"}, "trace.json", true},
		"Chrome, compressed":     {[]string{"-o", "trace.json.gz"}, "trace.json.gz", true},
		"Chrome by format":       {[]string{"-o", "trace", "--format=chrome"}, "trace", true},
		"Perfetto in spite of":   {[]string{"-o", "trace.json", "--format=perfetto"}, "trace.json", false},
		"Perfetto's, compressed": {[]string{"-o", "trace.pftrace.gz"}, "trace.pftrace.gz", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, append([]string{"timeline", saved}, c.args...)...)
			if r := finish(t, cmd); r.code != exitOK || r.stdout+r.stderr != "" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
			}
			trace := read(t, filepath.Join(cmd.Dir, c.file))
			if json.Valid(trace) != c.chrome || !bytes.Contains(trace, []byte("cuLaunchKernel")) || !bytes.Contains(trace, []byte("gil wait")) {
				t.Errorf("%q", trace)
			}
		})
	}
}

// read returns what a file holds, unpacked if its name says so.
func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, ".gz") {
		return b
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var unpacked bytes.Buffer
	if _, err := unpacked.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	return unpacked.Bytes()
}

// What a trace lacks is said.
func TestTimelineLosses(t *testing.T) {
	r := withTimeline()
	r.Losses = []recording.Loss{
		{Reason: "lost_return", Kind: "calls", Count: 3},
		{Reason: "timeline_calls_full", Kind: "other", Count: 17, Help: "the ring buffer was full"},
	}
	got := stageprof(t, "timeline", saveAs(t, filepath.Join(t.TempDir(), "run.rec"), r))
	if got.code != exitOK || !strings.Contains(got.stderr, "17") || !strings.Contains(got.stderr, "ring buffer") || strings.Contains(got.stderr, "lost_return") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}

func TestTimelineErrors(t *testing.T) {
	dir := t.TempDir()
	saved := saveAs(t, filepath.Join(dir, "run.rec"), withTimeline())
	without := save(t, t.TempDir())
	trace := filepath.Join(dir, "trace")
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":         {nil, exitUsage, "which recording"},
		"two files":       {[]string{saved, without}, exitUsage, "which recording"},
		"missing":         {[]string{filepath.Join(dir, "none"), "-o", trace}, exitError, "no such file"},
		"another kind":    {[]string{"/proc/self/status", "-o", trace}, exitError, "not a stageprof recording"},
		"without":         {[]string{without, "-o", trace}, exitError, `it has no timeline: record again with "stageprof record --timeline --save FILE"`},
		"format":          {[]string{saved, "--format=json"}, exitUsage, "perfetto, chrome"},
		"no output":       {[]string{saved, "-o", ""}, exitUsage, "--output"},
		"onto itself":     {[]string{saved, "-o", saved}, exitUsage, "same file"},
		"output a folder": {[]string{saved, "-o", dir}, exitError, "is a directory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := stageprof(t, append([]string{"timeline"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want %d and %q", got.code, got.stderr, got.stdout, c.code, c.want)
			}
		})
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("a trace was written all the same")
	}
}
