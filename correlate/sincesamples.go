package correlate

import (
	"fmt"
	"slices"
	"strings"

	"stageprof/recording"
)

// stackText is what a Python stack is known by in every snapshot.
func stackText(r *recording.Recording, s *recording.PythonStack) string {
	var text strings.Builder
	for _, frame := range s.Frames {
		f := &r.PythonFunctions[frame.Function]
		fmt.Fprintf(&text, "%q %q %d %d\n", f.Name, f.File, f.FirstLine, frame.Line)
	}
	fmt.Fprint(&text, s.Cut)
	return text.String()
}

// subtractSamples takes the samples of an earlier row out of a later one. Those
// of code that is no longer trusted are not in the later one.
func (d *interval) subtractSamples(to *recording.Call, from *recording.Call) {
	if len(from.Samples) == 0 {
		return
	}
	samples := slices.Clone(to.Samples) // they are the later Recording's
	for _, before := range from.Samples {
		for i := range samples {
			if d.later.stacks[samples[i].Stack] == d.earlier.stacks[before.Stack] {
				subtractSample(&samples[i], &before)
			}
		}
	}
	to.Samples = slices.DeleteFunc(samples, func(s recording.Sample) bool { return s.Count == 0 })
}

// subtractSample leaves in before what it could not subtract: a stack may have
// been sampled in several rows that became one.
func subtractSample(to, before *recording.Sample) {
	sums := func(s *recording.Sample) [8]*uint64 {
		return [8]*uint64{
			&s.Count, &s.WallNS, &s.CPUNS, &s.GILWaitCausedNS,
			&s.ForCount, &s.ForWallNS, &s.ForCPUNS, &s.ForGILWaitCausedNS,
		}
	}
	for i, sum := range sums(to) {
		n := min(*sum, *sums(before)[i])
		*sum -= n
		*sums(before)[i] -= n
	}
}
