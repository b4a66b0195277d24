package correlate

import (
	"testing"

	"stageprof/recording/recordingtest"
)

// What a single span costs when the Recording is joined.
func BenchmarkSpan(b *testing.B) {
	r := recordingtest.Pipeline()
	for i := 0; b.Loop(); i++ {
		divideSpan(r, &r.Spans[i%len(r.Spans)])
	}
}
