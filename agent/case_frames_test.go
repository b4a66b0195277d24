package agent_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// site is a place that a tester calls from.
type site struct {
	Site       string
	Start, End uint64
}

func sites(t *testing.T, p *simtest.Process) map[string]site {
	t.Helper()
	found := map[string]site{}
	for _, line := range p.Lines() {
		if !strings.HasPrefix(line, `{"site"`) {
			continue
		}
		var s site
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[s.Site] = s
	}
	return found
}

// callersOf returns the frames that calls in a stage came from.
func callersOf(t *testing.T, r *recording.Recording, stage string) []recording.Frame {
	t.Helper()
	var frames []recording.Frame
	for _, c := range r.Calls {
		if strings.Join(r.Paths[c.Path].Names, "/") != stage {
			continue
		}
		if c.Caller < 0 {
			t.Errorf("%d calls in %q have no caller", c.Count, stage)
			continue
		}
		frames = append(frames, r.Frames[c.Caller])
	}
	return frames
}

// onlyCaller returns the one frame that the calls in a stage came from.
func onlyCaller(t *testing.T, r *recording.Recording, stage string) recording.Frame {
	t.Helper()
	frames := callersOf(t, r, stage)
	if len(frames) != 1 {
		t.Fatalf("calls in %q come from %d places: %+v", stage, len(frames), frames)
	}
	return frames[0]
}

// variants is the drivers that differ in their first instructions.
func variants(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]string{"the real shape": simtest.Driver(t)}
	for _, name := range []string{"push-rbp", "endbr64-push", "push-rbx", "nop5"} {
		paths[name] = simtest.Variant(t, name)
	}
	return paths
}

// Whatever the first instructions are, the caller is the one who called.
func TestCaseC19Callers(t *testing.T) {
	for name, driver := range variants(t) {
		t.Run(name, func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Tester(t, "callers", "--calls", "100", "--driver", driver,
				"--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts())
			for _, stage := range []string{"site_one", "site_two"} {
				frame := onlyCaller(t, got, stage)
				place := sites(t, p)[stage]
				if frame.Function != stage || frame.Address != place.Start+frame.Offset {
					t.Errorf("calls from %+v seem to come from %+v", place, frame)
				}
				if module := got.Modules[frame.Module].Path; filepath.Base(module) != "callers" {
					t.Errorf("%s is in %q", stage, module)
				}
			}
		})
	}
}

// Code without symbols: the module and the place in it are kept.
func TestCaseC26FramesWithoutSymbols(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "callers", "--calls", "100", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	for stage, path := range map[string]string{"stripped": "libcallers.so", "anonymous": "//anon"} {
		frame, place := onlyCaller(t, got, stage), sites(t, p)[stage]
		module := got.Modules[frame.Module]
		if filepath.Base(module.Path) != filepath.Base(path) {
			t.Errorf("%q is in %q", stage, module.Path)
		}
		if frame.Function != "" {
			t.Errorf("%q is named %q", stage, frame.Function)
		}
		if frame.Address <= place.Start || frame.Address > place.End {
			t.Errorf("calls from %+v seem to come from %#x", place, frame.Address)
		}
		if frame.Address < module.Start || frame.Address > module.Limit || frame.Offset != frame.Address-module.Start+module.Offset {
			t.Errorf("%q: %+v does not fit %+v", stage, frame, module)
		}
	}
}

// Frames are named although the target has gone and a program of the same name
// has taken its place.
func TestCallersAfterExec(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "execer", "--calls", "100", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	got := r.finish()
	frame := onlyCaller(t, got, "before")
	if frame.Function != "launch" || filepath.Base(got.Modules[frame.Module].Path) != "execer" {
		t.Errorf("calls come from %+v of %+v", frame, got.Modules[frame.Module])
	}
}
