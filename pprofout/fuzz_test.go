package pprofout

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// Whatever a saved Recording holds, it gives a profile that can be read back
// and merged, with the calls that the Ledger has.
func FuzzProfile(f *testing.F) {
	small := recordingtest.New()
	c := small.Call(small.Thread(1, "t"), "step/forward", small.Symbol("cuLaunchKernel"), 3, 1000, 500)
	c.Caller = small.Frame(1, 0x20, "")
	small.Spans(0, "step", 2, 5000, 10)
	small.Loss("calls", "map_full", 1, "")
	for _, r := range []*recording.Recording{small.Recording(), recordingtest.New().Recording(), everyShape(), nestedStages()} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text []byte, stageFrames bool) {
		var file bytes.Buffer
		z := gzip.NewWriter(&file)
		z.Write(text)
		z.Close()
		r, err := recording.Read(&file)
		if err != nil {
			t.Skip()
		}
		l := correlate.Build(r)
		o := Options{StageFrames: stageFrames}
		checkWritten(t, func(w io.Writer) error { return Write(w, l, o) })
		checkWritten(t, func(w io.Writer) error { return WriteStages(w, l, o) })
	})
}

// checkWritten checks what holds of every profile.
func checkWritten(t *testing.T, write func(io.Writer) error) {
	t.Helper()
	var written bytes.Buffer
	if err := write(&written); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&written)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Merge([]*profile.Profile{p, p.Copy()}); err != nil {
		t.Error(err)
	}
	for _, s := range p.Sample {
		for _, v := range s.Value {
			if v < 0 {
				t.Errorf("%s has values %v", stack(s), s.Value)
			}
		}
		if len(s.Label) != 5 || len(s.NumLabel) != 3 {
			t.Errorf("%s has labels %v, %v", stack(s), s.Label, s.NumLabel)
		}
	}
}
