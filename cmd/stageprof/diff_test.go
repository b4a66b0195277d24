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

// saveAs writes a Recording to a file of the given name.
func saveAs(t *testing.T, path string, r *recording.Recording) string {
	t.Helper()
	var b bytes.Buffer
	if err := recording.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// pipeline is the pipeline with fewer single spans.
func pipeline() *recording.Recording {
	r := recordingtest.Pipeline()
	r.Spans = r.Spans[:len(r.Spans)/16]
	return r
}

// slower is the pipeline with every span of a stage twice as long.
func slower(stage string) *recording.Recording {
	r := pipeline()
	for i := range r.Spans {
		s := &r.Spans[i]
		if names := r.Paths[s.Path].Names; len(names) == 1 && names[0] == stage {
			s.Parts.RunningNS += s.WallNS
			s.WallNS *= 2
		}
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		if names := r.Paths[s.Path].Names; len(names) == 1 && names[0] == stage {
			s.Parts.RunningNS += s.WallNS
			s.WallNS *= 2
		}
	}
	return r
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	base := saveAs(t, filepath.Join(dir, "base.rec"), pipeline())
	slow := saveAs(t, filepath.Join(dir, "slow.rec"), slower("target_forward"))
	const grown = "--fail-if=stage=target_forward wall > 5%"
	cases := map[string]struct {
		args           []string
		code           int
		stdout, stderr string // parts
	}{
		"two files":          {[]string{base, slow}, exitOK, "per iteration (+100.0%, p<0.001), +2", ""},
		"several files":      {[]string{base, base, "--", slow, slow}, exitOK, "+100.0%", ""},
		"one and one, --":    {[]string{base, "--", slow}, exitOK, "+100.0%", ""},
		"the same":           {[]string{base, base}, exitOK, "no stage that ran on both sides", ""},
		"limit kept":         {[]string{slow, base, grown}, exitOK, "ok  stage=target_forward wall > 5%", ""},
		"limit passed":       {[]string{base, slow, grown}, exitMet, "FAILED", "a condition of --fail-if is met: \"stage=target_forward wall > 5%\": target_forward: wall 2"},
		"one of two":         {[]string{base, slow, "--fail-if=wall < -5%", grown}, exitMet, "FAILED", "--fail-if"},
		"too few left":       {[]string{base, slow, grown, "--skip=100000"}, exitError, "", "no iteration left"},
		"nothing left":       {[]string{base, slow, "--skip=100000"}, exitError, "", "no iteration left"},
		"not tested":         {[]string{base, slow, "--fail-if=stage=target_forward calls > 0 p=any"}, exitOK, "ok  stage=target_forward calls > 0 p=any", ""},
		"strict level":       {[]string{base, slow, "--alpha=0.0001"}, exitOK, "+100.0%", ""},
		"JSON":               {[]string{base, slow, "--format=json"}, exitOK, `"headline":"target_forward`, ""},
		"CSV":                {[]string{base, slow, "--format=csv", grown}, exitMet, "stage_path,metric,before", "--fail-if"},
		"Markdown":           {[]string{base, slow, "--format=markdown"}, exitOK, "| target_forward | wall |", ""},
		"warm-up":            {[]string{base, slow, "--skip-warmup"}, exitOK, "Left out: the warm-up", ""},
		"first iterations":   {[]string{base, slow, "--skip=3"}, exitOK, "Left out: the first 3 iterations", ""},
		"in full":            {[]string{base, slow, "--full"}, exitOK, "calls: cuMemsetD8Async", ""},
		"unknown stage":      {[]string{base, slow, "--fail-if=stage=froward wall > 5%"}, exitError, "", `no stage "froward"`},
		"no file":            {nil, exitUsage, "", "which recordings"},
		"one file":           {[]string{base}, exitUsage, "", "which recordings"},
		"three files":        {[]string{base, slow, slow}, exitUsage, "", `put "--" before them`},
		"nothing after --":   {[]string{base, "--"}, exitUsage, "", "both sides"},
		"nothing before --":  {[]string{"--", base}, exitUsage, "", "both sides"},
		"flag after --":      {[]string{base, "--", slow, "--skip-warmup"}, exitUsage, "", "flags go before it"},
		"format":             {[]string{base, slow, "--format=xml"}, exitUsage, "", `"xml"`},
		"level":              {[]string{base, slow, "--alpha=1"}, exitUsage, "", "between 0 and 1"},
		"level is no number": {[]string{base, slow, "--alpha=NaN"}, exitUsage, "", "between 0 and 1"},
		"negative skip":      {[]string{base, slow, "--skip=-1"}, exitUsage, "", "negative"},
		"condition":          {[]string{base, slow, "--fail-if=wal > 5%"}, exitUsage, "", `unknown metric "wal"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := stageprof(t, append([]string{"diff"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stdout, c.stdout) || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("exit code %d, stderr %q, stdout:\n%s\nwant %d, %q and %q", got.code, got.stderr, got.stdout, c.code, c.stderr, c.stdout)
			}
			if (c.stderr == "") != (got.stderr == "") || (c.code == exitError || c.code == exitUsage) != (got.stdout == "") {
				t.Errorf("stderr %q with %d bytes on stdout", got.stderr, len(got.stdout))
			}
		})
	}
}

// Every file that can't be compared is named with the reason.
func TestDiffOfBadFiles(t *testing.T) {
	dir := t.TempDir()
	base := saveAs(t, filepath.Join(dir, "base.rec"), pipeline())
	whole, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compressed := func(value any) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if err := json.NewEncoder(z).Encode(value); err != nil {
			t.Fatal(err)
		}
		z.Close()
		return b.Bytes()
	}
	other := recordingtest.New()
	th := other.Thread(1, "x")
	other.Spans(th, "elsewhere", 5, 1000, 0)
	old := pipeline()
	old.Spans = nil
	eval := pipeline()
	eval.Target.Cmdline = []string{"python3", "eval.py"}
	cases := map[string]struct {
		file   string
		code   int
		stderr string
		stdout string
	}{
		"cut":              {write("cut.rec", whole[:len(whole)/2]), exitError, "cut.rec\": not a stageprof recording: it ends too early", ""},
		"empty file":       {write("empty.rec", nil), exitError, "empty.rec\": not a stageprof recording", ""},
		"missing":          {filepath.Join(dir, "none.rec"), exitError, "no such file", ""},
		"newer":            {write("newer.rec", compressed(map[string]any{"format": 99})), exitError, "it is in format 99, and this one reads format 1", ""},
		"a profile":        {write("x.pb.gz", compressed("x")), exitError, "not a stageprof recording", ""},
		"nothing recorded": {saveAs(t, filepath.Join(dir, "idle.rec"), recordingtest.New().Recording()), exitError, "idle.rec\" has no complete span of any stage", ""},
		"other stages":     {saveAs(t, filepath.Join(dir, "other.rec"), other.Recording()), exitError, "no stage ran on both sides", ""},
		"without spans":    {saveAs(t, filepath.Join(dir, "old.rec"), old), exitOK, "", "old.rec\" has no single spans"},
		"another program":  {saveAs(t, filepath.Join(dir, "eval.rec"), eval), exitOK, "", "different programs"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{base, c.file}, {c.file, base}} {
				got := stageprof(t, append([]string{"diff"}, args...)...)
				if got.code != c.code || !strings.Contains(got.stderr, c.stderr) || !strings.Contains(strings.Join(strings.Fields(got.stdout), " "), c.stdout) {
					t.Errorf("exit code %d, stderr %q, stdout %q; want %d, %q, %q", got.code, got.stderr, got.stdout, c.code, c.stderr, c.stdout)
				}
			}
		})
	}
	// Where the format has no place for warnings, they go beside it.
	got := stageprof(t, "diff", "--format=csv", base, filepath.Join(dir, "eval.rec"))
	if got.code != exitOK || !strings.Contains(got.stderr, "different programs") || strings.Contains(got.stdout, "different") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}
