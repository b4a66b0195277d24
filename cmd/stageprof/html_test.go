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

func TestHTML(t *testing.T) {
	dir := t.TempDir()
	cmd := command(t, "html", save(t, dir))
	cmd.Dir = dir
	if r := finish(t, cmd); r.code != exitOK || r.stdout+r.stderr != "" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<!DOCTYPE html>", "default-src 'none'", `"command":`, "</html>"} {
		if !bytes.Contains(page, []byte(strings.ReplaceAll(want, "'", "&#39;"))) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestHTMLOfTwo(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	cmd := command(t, "html", save(t, before), save(t, after), "-o", "both.html")
	cmd.Dir = before
	if r := finish(t, cmd); r.code != exitOK || r.stdout+r.stderr != "" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	page, err := os.ReadFile(filepath.Join(before, "both.html"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `"headline":"no stage that ran on both sides takes significantly longer or shorter"`; !bytes.Contains(page, []byte(want)) {
		t.Errorf("the page lacks %q", want)
	}
}

func TestHTMLErrors(t *testing.T) {
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
	empty := filepath.Join(dir, "empty.rec")
	var b bytes.Buffer
	if err := recording.Write(&b, recordingtest.New().Recording()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(empty, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "page.html")
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":         {nil, exitUsage, "which recording"},
		"missing":         {[]string{filepath.Join(dir, "none"), "-o", page}, exitError, "no such file"},
		"cut":             {[]string{cut, "-o", page}, exitError, "not a stageprof recording"},
		"another kind":    {[]string{"/proc/self/status", "-o", page}, exitError, "not a stageprof recording"},
		"three files":     {[]string{saved, saved, saved}, exitUsage, "there are 3"},
		"second cut":      {[]string{saved, cut, "-o", page}, exitError, "not a stageprof recording"},
		"one is empty":    {[]string{saved, empty, "-o", page}, exitError, "no complete span"},
		"alpha":           {[]string{saved, saved, "--alpha=2"}, exitUsage, "--alpha"},
		"skip":            {[]string{saved, "--skip=-1"}, exitUsage, "--skip"},
		"no output":       {[]string{saved, "-o", ""}, exitUsage, "--output"},
		"output a folder": {[]string{saved, "-o", dir}, exitError, "is a directory"},
		"output a dash":   {[]string{saved, "-o", "-"}, exitError, "name a file, or /dev/stdout"},
		"all skipped":     {[]string{saved, saved, "--skip=100000", "-o", page}, exitError, "no iteration left"},
		"onto itself":     {[]string{saved, "-o", saved}, exitUsage, "same file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := stageprof(t, append([]string{"html"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want %d and %q", got.code, got.stderr, got.stdout, c.code, c.want)
			}
		})
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("a page was written all the same")
	}
	if again, err := os.ReadFile(saved); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("the recording has changed (%v)", err)
	}
}
