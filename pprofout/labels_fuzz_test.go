package pprofout

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording/recordingtest"
)

// Whatever stages, threads and symbols are called, the labels are text that can be
// read back, and the calls are all there.
func FuzzLabels(f *testing.F) {
	for _, name := range []string{"step", "a/b", "", "\x00", "\xff\xfe", "none", "stage:", "日本語", "=", "\n", "a=b,c"} {
		f.Add(name, name, "cuLaunchKernel")
		f.Add("step", "main", "cu"+name)
	}
	f.Fuzz(func(t *testing.T, stage, thread, symbol string) {
		build := recordingtest.New()
		id := build.Thread(1, thread)
		build.Call(id, stage, build.Symbol(symbol), 3, 1000, 500)
		build.Call(id, "", build.Symbol("cuInit"), 4, 1000, 500)
		ledger := correlate.Build(build.Recording())
		var written bytes.Buffer
		if err := Write(&written, ledger, Options{}); err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(&written)
		if err != nil {
			t.Fatal(err)
		}
		calls := int64(0)
		for _, s := range p.Sample {
			calls += s.Value[0]
			for key, values := range s.Label {
				if len(values) != 1 || values[0] == "" || !utf8.ValidString(values[0]) {
					t.Errorf("label %s is %q", key, values)
				}
			}
		}
		if calls != 7 {
			t.Errorf("%d of 7 calls", calls)
		}
	})
}
