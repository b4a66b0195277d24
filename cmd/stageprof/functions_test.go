package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// doctor says what following functions would cost, and which it can't follow.
func TestDoctorOfFunctions(t *testing.T) {
	p, _ := caller(t)
	args := []string{"doctor", "--pid", strconv.Itoa(p.PID), "--region", "libcuda.so:cuLaunchKernel", "--region", "libstageprof.so:stageprof_mark_*"}
	r := stageprof(t, append(args, "--format", "json")...)
	var d diagnosis
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != exitOK {
		t.Fatalf("exit code %d, %v", r.code, err)
	}
	offers := map[string]functionOffer{}
	for _, f := range d.Process.Functions {
		offers[f.Name] = f
	}
	launch := offers["cuLaunchKernel"]
	if launch.Exits == 0 || launch.Refused != "" || launch.CostNS == nil || *launch.CostNS <= 0 || launch.Set != "libcuda.so:cuLaunchKernel" {
		t.Errorf("cuLaunchKernel: %+v", launch)
	}
	// Points of the marker library return at once, or after a system call.
	if mark := offers["stageprof_mark_begin"]; mark.Exits == 0 || mark.CostNS == nil {
		t.Errorf("a marker's point: %+v", mark)
	}
	text := stageprof(t, args...)
	for _, want := range []string{"Functions that can be followed", "cuLaunchKernel", "stageprof_mark_end"} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("no %q in\n%s", want, text.stdout)
		}
	}
}

func TestDoctorRefusesRegions(t *testing.T) {
	p, _ := caller(t)
	for _, args := range [][]string{
		{"doctor", "--region", "libcuda.so:cuInit"},
		{"doctor", "--pid", strconv.Itoa(p.PID), "--region", "cuInit"},
	} {
		if r := stageprof(t, args...); r.code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.stderr)
		}
	}
}
