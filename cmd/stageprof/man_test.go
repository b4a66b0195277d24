package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every command has a page, with its examples, and the date of the source.
func TestMan(t *testing.T) {
	cmd := command(t, "man", "-o", "man")
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1000000000") // in September 2001
	if r := finish(t, cmd); r != (result{}) {
		t.Fatalf("man: %+v, want silence", r)
	}
	for _, c := range newRootCmd().Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(cmd.Dir, "man", "stageprof-"+c.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{"Sep 2001", "SYNOPSIS"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("no %q in the page of %s", want, c.Name())
			}
		}
		if strings.Contains(string(page), "Auto generated") {
			t.Errorf("the page of %s has a footer with a date of its own", c.Name())
		}
	}
}

func TestManErrors(t *testing.T) {
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"nowhere": {[]string{"man"}, exitUsage, "-o"},
		"no dir":  {[]string{"man", "-o", "/dev/null/man"}, exitError, "/dev/null"},
		"words":   {[]string{"man", "record"}, exitUsage, `"record"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if r := stageprof(t, c.args...); r.code != c.code || !strings.Contains(r.stderr, c.want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, c.code, c.want)
			}
		})
	}
}
