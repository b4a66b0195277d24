package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// Whatever a saved Recording holds, it can be shown, on plain lines.
func FuzzReport(f *testing.F) {
	for _, r := range []*recording.Recording{recordingtest.New().Recording(), small(), processStages(), oddNames()} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 100)
	}
	f.Fuzz(func(t *testing.T, text []byte, width int) {
		var file bytes.Buffer
		z := gzip.NewWriter(&file)
		z.Write(text)
		z.Close()
		r, err := recording.Read(&file)
		if err != nil {
			t.Skip()
		}
		l := correlate.Build(r)
		var report bytes.Buffer
		if err := Text(&report, l, TextOptions{Width: width % 1000}); err != nil {
			t.Error(err)
		}
		for _, c := range report.Bytes() {
			if c < ' ' && c != '\n' {
				t.Fatalf("the report contains the control character %q", c)
			}
		}
		if err := JSON(io.Discard, l); err != nil {
			t.Error(err)
		}
		if err := Spans(io.Discard, l); err != nil {
			t.Error(err)
		}
	})
}
