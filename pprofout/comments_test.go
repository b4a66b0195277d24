package pprofout

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
	}
}

func TestComments(t *testing.T) {
	tests := []struct {
		name   string
		change func(*recording.Recording)
	}{
		{"pipeline", func(*recording.Recording) {}},
		{"bare", func(r *recording.Recording) {
			*r = *recordingtest.New().Recording()
			r.Target.Python = nil
			r.GPUNote = "libnvidia-ml.so.1 is not installed"
		}},
		{"budget", func(r *recording.Recording) {
			r.Budget = &recording.Budget{
				Share: 0.01, Elapsed: 10 * r.Window.Duration, Windows: make([]recording.Covered, 3), Cost: recording.Charge{CallsNS: 2e9},
			}
		}},
		{"left-out", func(r *recording.Recording) {
			r.Budget = &recording.Budget{
				Share: 0.01, Elapsed: 10 * r.Window.Duration, Windows: make([]recording.Covered, 1), Cost: recording.Charge{CallsNS: 2e9},
				Trial: &recording.Trial{
					Covered: recording.Covered{Duration: 120 * time.Millisecond, CostNS: 103e6},
					Groups:  []recording.GroupCost{{Group: "event", Calls: 45678, CostNS: 96e6, LeftOut: true}, {Group: "launch", Calls: 100, CostNS: 1e6}},
				},
			}
		}},
		{"debts", func(r *recording.Recording) {
			b := recordingtest.New()
			thread, stream := b.Thread(4250, "target-0"), b.Symbol("cuStreamSynchronize")
			b.Debt(thread, "copy", stream, "forward", 3, 3*time.Second, 60)
			b.Debt(thread, "copy", stream, "", 3, time.Second, 20)
			b.Debt(thread, "", stream, "", 1, time.Millisecond, 0).Kind = recording.DebtIdle
			*r = *b.Recording()
		}},
		{"troubled", func(r *recording.Recording) {
			r.Seen.Calls += 5
			r.Symbols[0].BiasNS = 9130
			r.Symbols[0].Placement = "stepped"
			r.Symbols[0].ProbeOffset = 0
			r.Window.End = recording.EndExit
			r.Target.Python.GILReason = "no symbol table"
			r.Target.Cmdline = []string{"python3", "-c", "import torch\nrun()"}
			r.Warnings = append(r.Warnings, "split\nin two")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recordingtest.Pipeline()
			tt.change(r)
			list := comments(correlate.Build(r), Options{Version: "0.2.0"}, callsShape.title)
			for _, c := range list {
				if strings.ContainsAny(c, "\n\r") {
					t.Errorf("comment %q has more than one line", c)
				}
			}
			golden(t, "comments-"+tt.name+".txt", strings.Join(list, "\n")+"\n")
		})
	}
}
