package correlate

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Estimate is what a number per iteration was on one side of a comparison.
type Estimate struct {
	Mean      float64
	Low, High float64 // of the confidence interval of the mean; meaningless unless N > 1
	N         int     // single iterations that it is known from; 0: from sums only
}

// Confidence is the level of the intervals of Estimates.
const Confidence = 0.95

// sample is one number of each single iteration, run by run.
type sample [][]float64

func (s sample) pooled() []float64 { return slices.Concat(s...) }

// runMeans are the means of the runs that had any iteration.
func (s sample) runMeans() []float64 {
	var means []float64
	for _, run := range s {
		if len(run) > 0 {
			means = append(means, floatMean(run))
		}
	}
	return means
}

func floatMean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// estimate needs at least one value.
func (s sample) estimate() Estimate {
	values := s.pooled()
	e := Estimate{Mean: floatMean(values), N: len(values)}
	if len(values) > 1 {
		summary := benchmath.AssumeNormal.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), Confidence)
		e.Low, e.High = summary.Lo, summary.Hi
	}
	return e
}

// fewSpans is how few iterations do not make the mean normal enough for a
// t-test alone.
const fewSpans = 10

// pValue is how probable a difference as large as the one between a and b is
// where there is none; ok is false where it can't be said. The package's doc
// says how it is made.
func pValue(a, b sample) (p float64, ok bool) {
	all := [2][]float64{a.pooled(), b.pooled()}
	if min(len(all[0]), len(all[1])) < 2 {
		return 1, false
	}
	p = meansDiffer(all[0], all[1])
	if min(len(all[0]), len(all[1])) < fewSpans {
		p = max(p, ranksDiffer(all[0], all[1]))
	}
	// Runs of a side that do not differ at all say no more than their spans do.
	runs := [2][]float64{a.runMeans(), b.runMeans()}
	if min(len(runs[0]), len(runs[1])) > 1 && !(constant(runs[0]) && constant(runs[1])) {
		p = max(p, meansDiffer(runs[0], runs[1]))
	}
	return p, true
}

// meansDiffer is the p-value of Welch's t-test. It knows nothing of values that
// are all the same on both sides, so there the ranks decide.
func meansDiffer(a, b []float64) float64 {
	if constant(a) && constant(b) {
		return ranksDiffer(a, b)
	}
	return known01(benchmath.AssumeNormal.Compare(newSample(a), newSample(b)).P)
}

// ranksDiffer is the p-value of the Mann-Whitney U-test.
func ranksDiffer(a, b []float64) float64 {
	return known01(benchmath.AssumeNothing.Compare(newSample(a), newSample(b)).P)
}

// newSample leaves the values in their order.
func newSample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

func constant(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
}

// known01 takes what is no probability as none.
func known01(p float64) float64 {
	if math.IsNaN(p) {
		return 1
	}
	return min(max(p, 0), 1)
}
