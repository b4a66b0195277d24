package main

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestVersionCommand(t *testing.T) {
	for _, spelling := range []string{"version", "--version"} {
		r := stageprof(t, spelling)
		if !regexp.MustCompile(`^stageprof \S+ go1\S+ \w+/\w+\n$`).MatchString(r.stdout) || r.code != exitOK {
			t.Errorf("%s: %+v", spelling, r)
		}
	}
}

func TestBuildVersion(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	cases := map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"go install of a version": {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		"checkout": {debug.BuildInfo{Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{revision}}, "devel-0123456789ab"},
		"changed checkout":   {debug.BuildInfo{Settings: []debug.BuildSetting{revision, modified}}, "devel-0123456789ab-dirty"},
		"no version control": {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
	}
	for name, c := range cases {
		if got := buildVersion(&c.info); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
