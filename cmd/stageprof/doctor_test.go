package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

func TestDoctorOfTheMachine(t *testing.T) {
	r := stageprof(t, "doctor")
	if r.code != exitOK || r.stderr != "" {
		t.Errorf("exit code %d, stderr %q; this machine can record", r.code, r.stderr)
	}
	for _, want := range []string{"CAP_BPF", "BTF", "NVML", "record can work here"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
}

func TestDoctorOfAProcess(t *testing.T) {
	p, _ := caller(t)
	pid := strconv.Itoa(p.PID)
	r := stageprof(t, "doctor", "--pid", pid, "--format", "json")
	if r.code != exitOK || r.stderr != "" {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	var d diagnosis
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		t.Fatal(err)
	}
	if !d.Works || d.Process.PID != p.PID || d.Process.Python != nil {
		t.Errorf("works %v, pid %d, Python %v", d.Works, d.Process.PID, d.Process.Python)
	}
	if len(d.Process.Drivers) != 1 || d.Process.Drivers[0].Path != simtest.Driver(t) || len(d.Process.Markers) != 1 {
		t.Fatalf("drivers %+v, markers %+v", d.Process.Drivers, d.Process.Markers)
	}
	sites := d.Process.Drivers[0].Sites
	i := slices.IndexFunc(sites, func(s site) bool { return s.Symbol == "cuLaunchKernel" })
	if i < 0 {
		t.Fatal("cuLaunchKernel is not among the sites")
	}
	// The real driver's entry, which the simulated one copies: cmpl, 10 bytes, then je.
	if s := sites[i]; s.Probe != 10 || s.Class != "jump" || s.Group != "launch" || s.CostNS == nil || *s.CostNS <= 0 {
		t.Errorf("site %+v, want a jump at +10 with its cost", s)
	}

	text := stageprof(t, "doctor", "--pid", pid)
	for _, want := range []string{"cuLaunchKernel", "+10", "µs", simtest.Driver(t), "record can work:"} {
		if text.code != exitOK || !strings.Contains(text.stdout, want) {
			t.Errorf("exit code %d, no %q in\n%s", text.code, want, text.stdout)
		}
	}
}

func TestDoctorOfProcessesThatCannotBeRecorded(t *testing.T) {
	cases := map[string]struct {
		pid  func(*testing.T) int
		want string
	}{
		"nobody":    {func(*testing.T) int { return 4194305 }, "no such process"},
		"zombie":    {zombie, "zombie"},
		"no driver": {sleeper, "no CUDA driver"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := stageprof(t, "doctor", "--pid", strconv.Itoa(c.pid(t)))
			if r.code != exitError || !strings.Contains(r.stdout, c.want) || !strings.Contains(r.stderr, c.want) {
				t.Errorf("exit code %d, stderr %q, stdout\n%s", r.code, r.stderr, r.stdout)
			}
		})
	}
}
