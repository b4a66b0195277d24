package pprofout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// pythonRecording has calls from two lines of one function.
func pythonRecording() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "Loop.run.<locals>.<lambda>", File: "/job/größe.py", FirstLine: 3},
		{ID: 1, Name: "Loop.run", File: "/job/größe.py", FirstLine: 10},
	}
	r.PythonStacks = []recording.PythonStack{
		{ID: 0, Frames: []recording.PythonFrame{{Function: 0, Line: 4}, {Function: 1, Line: 20}}},
		{ID: 1, Frames: []recording.PythonFrame{{Function: 1, Line: 30}}, Cut: true},
	}
	c := b.Call(b.Thread(4300, "main"), "s", b.Symbol("cuLaunchKernel"), 4, 1000*time.Nanosecond, 500*time.Nanosecond)
	c.Caller = b.Frame(0, 0x1234, "ffi_call")
	c.Bytes = 8
	c.Samples = []recording.Sample{
		{Stack: 0, Count: 3, WallNS: 3000, CPUNS: 1500, ForCount: 3, ForWallNS: 3000, ForCPUNS: 1500},
		{Stack: 1, Count: 1, WallNS: 1000, CPUNS: 500, ForCount: 1, ForWallNS: 1000, ForCPUNS: 500},
	}
	return r
}

func TestPythonFrames(t *testing.T) {
	p := makeProfile(t, pythonRecording(), Options{StageFrames: true})
	type frame struct {
		name, file, mapping string
		line, start         int64
	}
	got := map[string][]int64{}
	var inner []frame
	for _, s := range p.Sample {
		got[stack(s)] = s.Value
		for _, location := range s.Location {
			l := location.Line[0]
			if location.Mapping.File == pythonMapping && l.Line == 4 {
				inner = append(inner, frame{l.Function.Name, l.Function.Filename, location.Mapping.File, l.Line, l.Function.StartLine})
			}
			if l.Function.Name == l.Function.SystemName && location.Mapping.File == pythonMapping {
				t.Errorf("%q would be demangled", l.Function.Name)
			}
		}
	}
	want := map[string][]int64{
		"stage:s;Loop.run;Loop.run.<locals>.<lambda>;ffi_call;cuLaunchKernel": {3, 3000, 1500, 6},
		"stage:s;(more Python frames);Loop.run;ffi_call;cuLaunchKernel":       {1, 1000, 500, 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	if len(inner) != 1 || inner[0] != (frame{"Loop.run.<locals>.<lambda>", "/job/größe.py", pythonMapping, 4, 3}) {
		t.Errorf("innermost frame: %+v", inner)
	}
}

func TestPythonComment(t *testing.T) {
	r := pythonRecording()
	for _, tc := range []struct{ stacks, reason, want string }{
		{"sampled", "", "read of 4 calls (sampled)"},
		{"all", "", "read of 4 calls (all)"},
		{"off", "", "not recorded"},
		{"off", "its version is too new", "not recorded: its version is too new"},
	} {
		r.Target.Python.Stacks, r.Target.Python.StacksReason = tc.stacks, tc.reason
		if got := stacksComment(r); !strings.Contains(got, tc.want) {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
