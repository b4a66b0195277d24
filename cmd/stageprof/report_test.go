package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// save writes a made-up Recording.
func save(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	if err := recording.Write(&b, recordingtest.Pipeline()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run.rec")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// What record printed and wrote comes out of the saved Recording again.
func TestReportRepeatsRecord(t *testing.T) {
	p, ready := caller(t)
	r := startRecord(t, p.PID, "--save", "saved", "--format", "json")
	release(t, ready)
	p.Wait()
	r.wait(t, exitOK)

	cmd := command(t, "report", "saved", "--format", "json", "-o", "again.pb.gz")
	cmd.Dir = r.cmd.Dir
	got := finish(t, cmd)
	if got.code != exitOK || got.stderr != "" {
		t.Fatalf("exit code %d, stderr %q", got.code, got.stderr)
	}
	if got.stdout != r.stdout.String() {
		t.Error("the table differs from the one that record printed")
	}
	first, err := os.ReadFile(r.path("stageprof.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, r.path("again.pb.gz"), string(first))
}

func TestReportErrors(t *testing.T) {
	dir := t.TempDir()
	saved := save(t, dir)
	whole, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.rec")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":           {nil, exitUsage, "which recording"},
		"two files, trend":  {[]string{saved, saved, "--trend"}, exitUsage, "which recording"},
		"two files, CSV":    {[]string{saved, saved, "--format=csv"}, exitUsage, "which recording"},
		"unknown dimension": {[]string{saved, "--by=stge"}, exitUsage, `grouped by "stge", only by stage,`},
		"dimension twice":   {[]string{saved, "--by=gil,stage,gil"}, exitUsage, `"gil" twice`},
		"unknown column":    {[]string{saved, "--by=gil", "--sort=wall"}, exitUsage, `no column "wall"`},
		"bad regexp":        {[]string{saved, "--by=gil", "--match=("}, exitUsage, "missing closing )"},
		"negative top":      {[]string{saved, "--by=gil", "--top=-1"}, exitUsage, "negative"},
		"top of nothing":    {[]string{saved, "--top=3"}, exitUsage, "group by what?"},
		"two views":         {[]string{saved, "--by=gil", "--trend"}, exitUsage, "exclude each other"},
		"negative skip":     {[]string{saved, "--skip=-1"}, exitUsage, "negative"},
		"no such function":  {[]string{saved, "--histogram=cuNothing"}, exitError, `"cuNothing": the recording has no call of it; there are cuEventQuery`},
		"missing":           {[]string{filepath.Join(dir, "none")}, exitError, "no such file"},
		"cut":               {[]string{cut}, exitError, "not a stageprof recording"},
		"another kind":      {[]string{"/proc/self/status"}, exitError, "not a stageprof recording"},
		"format":            {[]string{saved, "--format=xml"}, exitUsage, "xml"},
		"one file twice":    {[]string{saved, "-o=x", "--spans=x"}, exitUsage, "same file"},
		"no such folder":    {[]string{saved, "-o", filepath.Join(dir, "no", "x")}, exitError, "no such file"},
		"output a folder":   {[]string{saved, "-o", dir}, exitError, "is a directory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := stageprof(t, append([]string{"report"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want %d and %q", got.code, got.stderr, got.stdout, c.code, c.want)
			}
		})
	}
}

// Each view is printed in each format, and the files are written beside it.
func TestReportViews(t *testing.T) {
	saved := save(t, t.TempDir())
	views := map[string]struct {
		args []string
		want map[string]string // by format
	}{
		"groups": {[]string{"--by=stage,gil", "--match=gil=held", "--sort=calls", "--top=1"}, map[string]string{
			formatText: "copy_to_cpu  held", formatJSON: `"key":{"gil":"held","stage":"copy_to_cpu"}`,
			formatCSV: "stage,gil,count,wall_ns", formatMarkdown: "| copy_to_cpu | held |",
		}},
		"ranks": {[]string{saved, "--by=rank"}, map[string]string{
			formatText: "1,272,366", formatJSON: `"count":1272366`, formatCSV: "0,1272366,", formatMarkdown: "| 0 | 1,272,366 |",
		}},
		"trend": {[]string{"--trend", "--skip=1", "--skip-warmup"}, map[string]string{
			formatText: "OVER TIME", formatJSON: `"skip_first":1,"skip_warmup":true`, formatCSV: "stage_path,part,spans", formatMarkdown: "| copy_to_cpu | wall |",
		}},
		"histogram": {[]string{"--histogram=cuLaunchKernel"}, map[string]string{
			formatText: "cuLaunchKernel: 593,620 calls", formatJSON: `"function":"cuLaunchKernel"`, formatCSV: "from_ns,below_ns,count", formatMarkdown: "| 8.19 µs |",
		}},
		"stages": {nil, map[string]string{
			formatText: "WALL TIME OF", formatJSON: `"calls_within"`, formatCSV: "stage_path,spans,partial_spans,wall_ns", formatMarkdown: "| copy_to_cpu | 790 |",
		}},
	}
	for name, view := range views {
		for _, format := range tableFormats {
			t.Run(name+"/"+format, func(t *testing.T) {
				args := append([]string{"report", saved, "--format", format}, view.args...)
				if name != "ranks" {
					args = append(args, "-o", "out.pb.gz")
				}
				cmd := command(t, args...)
				got := finish(t, cmd)
				if got.code != exitOK || got.stderr != "" || !strings.Contains(got.stdout, view.want[format]) {
					t.Errorf("exit code %d, stderr %q, stdout lacks %q:\n%s", got.code, got.stderr, view.want[format], got.stdout)
				}
				if _, err := os.Stat(filepath.Join(cmd.Dir, "out.pb.gz")); (err == nil) != (name != "ranks") {
					t.Errorf("the profile: %v", err)
				}
			})
		}
	}
}
