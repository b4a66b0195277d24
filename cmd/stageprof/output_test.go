package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// names lists what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func mustOutput(t *testing.T, o *outputs, path, content string) {
	t.Helper()
	w, err := o.open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s is %q (%v), want %q", path, b, err, want)
	}
}

func TestOutputsAppearTogether(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if err := os.WriteFile(one, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	var o outputs
	mustOutput(t, &o, one, "new")
	mustOutput(t, &o, two, "new")
	wantContent(t, one, "old")
	if _, err := os.Stat(two); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s exists before the commit (%v)", two, err)
	}
	if err := o.commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, one, "new")
	wantContent(t, two, "new")
	if o.discard() {
		t.Error("discard after commit claims to have removed everything")
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("directory holds %q, want the two files", got)
	}
}

func TestOutputsDiscarded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "one")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	var o outputs
	mustOutput(t, &o, path, "half of the n")
	if !o.discard() {
		t.Error("discard says that something was committed")
	}
	if err := o.commit(); !errors.Is(err, errAborted) {
		t.Errorf("commit after discard: %v, want %v", err, errAborted)
	}
	wantContent(t, path, "old")
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("directory holds %q, want the old file alone", got)
	}
}

func TestOutputFollowsSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	var o outputs
	mustOutput(t, &o, link, "new")
	if err := o.commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, file, "new")
	if target, err := os.Readlink(link); err != nil || target != "file" {
		t.Errorf("link points to %q (%v), want it kept", target, err)
	}
}

// A pipe or a device must not be replaced by a file.
func TestOutputIntoSpecialFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var o outputs
	mustOutput(t, &o, path, "new")
	if err := o.commit(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 3)
	if _, err := reader.Read(b); err != nil || string(b) != "new" {
		t.Errorf("read %q (%v) from the pipe, want %q", b, err, "new")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the pipe became a file (%v)", err)
	}
}

// The rename fails because the path has meanwhile become a directory.
func TestOutputsThatCannotBeCommitted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "one")
	var o outputs
	mustOutput(t, &o, path, "new")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := o.commit(); err == nil {
		t.Error("commit worked")
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("directory holds %q, want no rest of the output", got)
	}
}

// One file by two ways is one file, also one that does not exist yet.
// Errors name the file that was asked for, not the one in the making.
func TestOutputErrorsNameTheFile(t *testing.T) {
	var o outputs
	_, opened := o.open("/nowhere/profile")
	full, err := o.open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	_, written := full.Write([]byte("x"))
	path := filepath.Join(t.TempDir(), "profile")
	mustOutput(t, &o, path, "x")
	if err := os.Remove(o.files[1].temp); err != nil {
		t.Fatal(err)
	}
	committed := o.commit()
	for want, err := range map[string]error{
		`creating the output "/nowhere/profile": no such file or directory`: opened,
		"no space left on device": written,
		fmt.Sprintf(`writing %q: no such file or directory`, o.files[1].path): committed,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestDifferentFilesSeesThroughLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(real, "there"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": "real", "one": "real/there", "two": "link/there"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		a, b string
		same bool
	}{
		"two links":           {filepath.Join(dir, "one"), filepath.Join(dir, "two"), true},
		"link and file":       {filepath.Join(dir, "one"), filepath.Join(real, "there"), true},
		"linked folder":       {filepath.Join(link, "new"), filepath.Join(real, "new"), true},
		"two files":           {filepath.Join(link, "new"), filepath.Join(real, "newer"), false},
		"no such folder":      {filepath.Join(dir, "no", "x"), filepath.Join(dir, "no", "y"), false},
		"no folder, the same": {filepath.Join(dir, "no", "x"), filepath.Join(dir, "no", ".", "x"), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := differentFiles([]namedFile{{"--output", c.a}, {"--save", c.b}})
			if (err != nil) != c.same {
				t.Errorf("differentFiles(%q, %q) = %v, want an error: %t", c.a, c.b, err, c.same)
			}
		})
	}
}

// Waiting for a reader could take for ever.
func TestOutputIntoPipeThatNobodyReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var o outputs
	if _, err := o.open(path); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("opening it: %v, want an error that says that nobody reads it", err)
	}
}
