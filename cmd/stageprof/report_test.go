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
		"no file":         {nil, exitUsage, "which recording"},
		"two files":       {[]string{saved, saved}, exitUsage, "which recording"},
		"missing":         {[]string{filepath.Join(dir, "none")}, exitError, "no such file"},
		"cut":             {[]string{cut}, exitError, "not a stageprof recording"},
		"another kind":    {[]string{"/proc/self/status"}, exitError, "not a stageprof recording"},
		"format":          {[]string{saved, "--format=xml"}, exitUsage, "xml"},
		"one file twice":  {[]string{saved, "-o=x", "--spans=x"}, exitUsage, "same file"},
		"no such folder":  {[]string{saved, "-o", filepath.Join(dir, "no", "x")}, exitError, "no such file"},
		"output a folder": {[]string{saved, "-o", dir}, exitError, "is a directory"},
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
