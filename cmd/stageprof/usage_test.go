package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"stageprof/agent"
)

// isUsage tells whether an error ends the command with exit code 2.
func isUsage(err error) bool {
	usage := new(usageError)
	return errors.As(err, &usage) || errors.Is(err, agent.ErrUsage)
}

func TestRecordFlags(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string // part of the error, "" for none
	}{
		"all defaults":         {[]string{"--pid=1"}, ""},
		"no pid":               {nil, "--pid"},
		"negative pid":         {[]string{"--pid=-1"}, "-1"},
		"pid is no number":     {[]string{"--pid=python"}, `"python"`},
		"pid is too large":     {[]string{"--pid=99999999999999999999"}, "range"},
		"no end":               {[]string{"--pid=1", "--duration=0"}, ""},
		"long":                 {[]string{"--pid=1", "--duration=48h"}, ""},
		"negative duration":    {[]string{"--pid=1", "--duration=-1s"}, "-1s"},
		"duration no unit":     {[]string{"--pid=1", "--duration=30"}, "missing unit"},
		"duration no number":   {[]string{"--pid=1", "--duration=soon"}, "soon"},
		"duration overflows":   {[]string{"--pid=1", "--duration=9999999h"}, "9999999h"},
		"less than 1 ns":       {[]string{"--pid=1", "--duration=0.5ns"}, "less than a nanosecond"},
		"zero seconds":         {[]string{"--pid=1", "--duration=0.0s"}, ""},
		"duration of years":    {[]string{"--pid=1", "--duration=87600h"}, "87600h"},
		"json":                 {[]string{"--pid=1", "--format=json"}, ""},
		"unknown format":       {[]string{"--pid=1", "--format=xml"}, `"xml"`},
		"groups and names":     {[]string{"--pid=1", "--probes=launch,sync,cuMemAlloc_v2"}, ""},
		"unknown function":     {[]string{"--pid=1", "--probes=cuLaunchKernal"}, `"cuLaunchKernel"`},
		"unknown group":        {[]string{"--pid=1", "--probes=lunch"}, `"launch"`},
		"empty probes item":    {[]string{"--pid=1", "--probes=launch,,sync"}, "unknown probe selection"},
		"perf events":          {[]string{"--pid=1", "--mechanism=perf-event"}, ""},
		"unknown mechanism":    {[]string{"--pid=1", "--mechanism=ptrace"}, `"ptrace"`},
		"no output":            {[]string{"--pid=1", "--output="}, "output"},
		"two outputs, one":     {[]string{"--pid=1", "-o=x", "--save=./x"}, "same file"},
		"stages into output":   {[]string{"--pid=1", "-o=x", "--stages-out=x"}, "same file"},
		"spans into stages":    {[]string{"--pid=1", "--stages-out=x", "--spans=x"}, "same file"},
		"all outputs":          {[]string{"--pid=1", "-o=a", "--stages-out=b", "--spans=c", "--save=d", "--ready-file=e"}, ""},
		"ready file is output": {[]string{"--pid=1", "-o=x", "--ready-file=x"}, "same file"},
		"quiet and verbose":    {[]string{"--pid=1", "-q", "-v"}, "exclude"},
		"pairs of probes":      {[]string{"--pid=1", "--stages-from=markers,usdt:lib.so:prov:begin,end,nvtx"}, ""},
		"half a pair":          {[]string{"--pid=1", "--stages-from=usdt:lib.so:prov:begin"}, "pair of probes"},
		"pair and a source":    {[]string{"--pid=1", "--stages-from=usdt:lib.so:begin,end,nvtx"}, "pair of probes"},
		"Python functions":     {[]string{"--pid=1", "--stages-from=markers,python:^f{1,2}$,nvtx"}, ""},
		"comma in expression":  {[]string{"--pid=1", "--stages-from=python:^f(1,2", "--stages-from=markers"}, `"^f(1,2"`},
		"no Python functions":  {[]string{"--pid=1", "--stages-from=python:"}, "names no"},
		"stages by name":       {[]string{"--pid=1", "--stage-match=^(forward|backward)$"}, ""},
		"no expression":        {[]string{"--pid=1", "--stage-match=("}, "missing closing"},
		"words in expression":  {[]string{"--pid=1", `--stage-match=\bstep`}, "not supported"},
		"large expression":     {[]string{"--pid=1", "--stage-match=(a|b)*a(a|b){12}"}, "too large"},
		"budget":               {[]string{"--pid=1", "--budget=1%"}, ""},
		"small budget":         {[]string{"--pid=1", "--budget", "0.05%"}, ""},
		"a whole CPU":          {[]string{"--pid=1", "--budget=100%"}, ""},
		"no budget":            {[]string{"--pid=1", "--budget=0%"}, "not between"},
		"negative budget":      {[]string{"--pid=1", "--budget=-1%"}, "not between"},
		"budget above a CPU":   {[]string{"--pid=1", "--budget=101%"}, "not between"},
		"budget, no number":    {[]string{"--pid=1", "--budget=NaN%"}, "not between"},
		"budget, no unit":      {[]string{"--pid=1", "--budget=1"}, "no percentage"},
		"budget in words":      {[]string{"--pid=1", "--budget=abc"}, "no percentage"},
		"budget of nothing":    {[]string{"--pid=1", "--budget="}, "no percentage"},
		"budget, timeline":     {[]string{"--pid=1", "--budget=1%", "--timeline", "--save=x"}, "exclude each other"},
		"budget, children":     {[]string{"--pid=1", "--budget=1%", "--children"}, ""},
		"timeline":             {[]string{"--pid=1", "--timeline", "--save=x"}, ""},
		"short timeline":       {[]string{"--pid=1", "--timeline=300ms", "--save=x"}, ""},
		"timeline for nothing": {[]string{"--pid=1", "--timeline"}, "--save"},
		"timeline of nothing":  {[]string{"--pid=1", "--timeline=0s", "--save=x"}, "not positive"},
		"timeline of years":    {[]string{"--pid=1", "--timeline=87600h", "--save=x"}, "87600h"},
		"timeline, no unit":    {[]string{"--pid=1", "--timeline=10", "--save=x"}, "missing unit"},
		"unknown flag":         {[]string{"--pid=1", "--fast"}, "--fast"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var config recordConfig
			flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
			config.addFlags(flags)
			err := flags.Parse(c.args)
			if err == nil {
				if err = config.Validate(); err != nil && !isUsage(err) {
					t.Errorf("error %q is none of usage", err)
				}
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got error %q, want none", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got error %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	cases := map[string]struct {
		args []string
		code int
		want string // on stderr
	}{
		"help":               {nil, 0, ""},
		"help of record":     {[]string{"record", "--help"}, 0, ""},
		"version":            {[]string{"version"}, 0, ""},
		"unknown command":    {[]string{"recrod"}, 2, `did you mean "record"?`},
		"unknown flag":       {[]string{"record", "--pdi", "1"}, 2, "unknown flag: --pdi"},
		"top's budget":       {[]string{"top", "--pid", "1", "--budget", "1%"}, 2, "--budget is for record"},
		"serve's budget":     {[]string{"serve", "--pid", "1", "--budget=1%"}, 2, "--budget is for record"},
		"stray argument":     {[]string{"record", "4242"}, 2, `unexpected argument "4242"`},
		"version argument":   {[]string{"version", "1"}, 2, `unexpected argument "1"`},
		"no pid":             {[]string{"record"}, 2, "--pid"},
		"bad duration":       {[]string{"record", "--pid=1", "--duration=-3s"}, 2, "negative"},
		"nearest probe":      {[]string{"record", "--pid=1", "--probes=cuLaunchKernl"}, 2, `"cuLaunchKernel"`},
		"help of nothing":    {[]string{"help", "nope"}, 2, `there is no command "nope"`},
		"help, misspelled":   {[]string{"help", "recrod"}, 2, `did you mean "record"?`},
		"help of too much":   {[]string{"help", "record", "extra"}, 2, `there is no command "extra"`},
		"help record":        {[]string{"help", "record"}, 0, ""},
		"help of a shell":    {[]string{"help", "completion", "bash"}, 0, ""},
		"another shell":      {[]string{"completion", "tcsh"}, 2, `no completion for "tcsh", only for bash, fish, powershell, zsh`},
		"shells":             {[]string{"completion"}, 0, ""},
		"too much of shells": {[]string{"completion", "bash", "zsh"}, 2, `unexpected argument "zsh"`},
		"far from any probe": {[]string{"record", "--pid=1", "--probes=nope"}, 2, `unknown probe selection "nope"; give default`},
		"timeline, no =":     {[]string{"record", "--pid=1", "--timeline", "2s", "--save=x"}, 2, `unexpected argument "2s"; a value of --timeline is joined to it: --timeline=2s`},
		"pid is a word":      {[]string{"record", "--pid", "abc"}, 2, `--pid: "abc" is not a whole number`},
		"pid is too large":   {[]string{"top", "-p", "99999999999999999999"}, 2, `--pid: "99999999999999999999" is out of range`},
		"not yes or no":      {[]string{"record", "--pid=1", "--children=maybe"}, 2, `--children: "maybe" is neither true nor false`},
		"doctor, bad format": {[]string{"doctor", "--format=yaml"}, 2, `"yaml"`},
		"doctor, bad probe":  {[]string{"doctor", "--pid=1", "--probes=cuLaunchKernl"}, 2, `"cuLaunchKernel"`},
		"doctor, bad pid":    {[]string{"doctor", "--pid=-5"}, 2, "-5"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := stageprof(t, c.args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", r.code, c.code, r.stderr)
			}
			if !strings.Contains(r.stderr, c.want) || c.want == "" && r.stderr != "" {
				t.Errorf("stderr %q, want %q", r.stderr, c.want)
			}
			if (r.stdout != "") != (c.code == 0) {
				t.Errorf("stdout %q with exit code %d", r.stdout, r.code)
			}
			if (r.code == 2) != strings.Contains(r.stderr, "--help") {
				t.Errorf("stderr %q: usage errors, and only they, point to --help", r.stderr)
			}
		})
	}
}

func TestUsageErrorNamesItsCommand(t *testing.T) {
	r := stageprof(t, "record", "--format=xml", "--pid=1")
	if want := "Run 'stageprof record --help' for usage.\n"; !strings.HasSuffix(r.stderr, want) {
		t.Errorf("stderr %q, want it to end with %q", r.stderr, want)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := stageprof(t, "completion", shell)
		if r.code != 0 || !strings.Contains(r.stdout, "stageprof") {
			t.Errorf("completion %s: exit code %d, %d bytes, stderr %q", shell, r.code, len(r.stdout), r.stderr)
		}
	}
	for line, want := range map[string]string{
		"rec": "record\t", "record --for": "--format\t", "record --mechanism=p": "perf-event", "report --by=a": "attribution",
		"report --by=stage,g": "\nstage,gil\n", "record --probes=sync,": "sync,launch\n", "diff --format=m": "markdown",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		if r := stageprof(t, args...); !strings.Contains(r.stdout, want) {
			t.Errorf("completing %q gave %q, want %q", line, r.stdout, want)
		}
	}
	if r := stageprof(t, "__complete", "report", "--by=stage,"); strings.Contains(r.stdout, "stage,stage\n") {
		t.Errorf("completing a list offers what is in it: %q", r.stdout)
	}
}

// Every error about the files comes before anything is attached, hence before
// the process is looked at: there is none with this id.
func TestOutputIsCheckedFirst(t *testing.T) {
	const nobody = "--pid=4194305" // above the kernel's largest pid
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy")
	if err := os.WriteFile(busy, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"directory missing":   {[]string{"-o", filepath.Join(dir, "missing/x.pb.gz")}, "no such file or directory"},
		"directory itself":    {[]string{"-o", dir}, "is a directory"},
		"below a file":        {[]string{"-o", filepath.Join(busy, "x")}, "not a directory"},
		"save":                {[]string{"--save", filepath.Join(dir, "missing/x")}, "no such file or directory"},
		"stages":              {[]string{"--stages-out", filepath.Join(dir, "missing/x")}, "no such file or directory"},
		"spans":               {[]string{"--spans", filepath.Join(dir, "missing/x")}, "no such file or directory"},
		"ready file":          {[]string{"--ready-file", filepath.Join(dir, "missing/x")}, "no such file or directory"},
		"ready file has text": {[]string{"--ready-file", busy}, "no empty file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := stageprof(t, append([]string{"record", nobody}, c.args...)...)
			if r.code != 1 || !strings.Contains(r.stderr, c.want) {
				t.Errorf("exit code %d, stderr %q; want 1 and %q", r.code, r.stderr, c.want)
			}
		})
	}
	if b, err := os.ReadFile(busy); err != nil || string(b) != "content" {
		t.Errorf("the other file is %q (%v), want it untouched", b, err)
	}
}

// The help of every command shows how it is used.
func TestEveryCommandHasExamples(t *testing.T) {
	for _, c := range newRootCmd().Commands() {
		if c.Name() != "help" && c.Example == "" {
			t.Errorf("%s has no example", c.Name())
		}
	}
}
