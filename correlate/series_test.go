package correlate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"stageprof/recording/recordingtest"
)

// series makes spans of one thread with the given lengths in ms.
func seriesMS(lengths ...float64) []Span {
	var spans []Span
	for i, l := range lengths {
		spans = append(spans, Span{BeginNS: uint64(i), Partition: Partition{WallNS: uint64(l * 1e6)}})
	}
	return spans
}

func TestWarmup(t *testing.T) {
	steady := slices.Repeat([]float64{10, 10.4, 9.8, 10.1}, 10)
	after := func(first ...float64) []float64 { return append(first, steady...) }
	cases := map[string]struct {
		lengths []float64
		want    Warmup
	}{
		"steady":           {steady, Warmup{Settled: true}},
		"slow at first":    {after(80, 40, 20), Warmup{Spans: 3, Settled: true}},
		"one slow":         {after(500), Warmup{Spans: 1, Settled: true}},
		"fast at first":    {after(1, 1, 2, 5), Warmup{Spans: 4, Settled: true}},
		"with one usual":   {after(80, 10, 40), Warmup{Spans: 3, Settled: true}},
		"a stray":          {after(10, 10.2, 300), Warmup{Settled: true}},
		"a stray later":    {append(slices.Clone(steady), 300), Warmup{Settled: true}},
		"too few":          {[]float64{80, 40, 10, 10, 10, 10}, Warmup{}},
		"all the same":     {slices.Repeat([]float64{0}, 20), Warmup{Settled: true}},
		"never settles":    {append(slices.Repeat([]float64{100}, 40), slices.Repeat([]float64{10}, 20)...), Warmup{}},
		"nothing":          {nil, Warmup{}},
		"a quarter longer": {after(12.4, 12.4), Warmup{Settled: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := warmup(seriesMS(c.lengths...)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Each thread warms up by itself, and spans are skipped of each.
func TestSeriesSkipsByThread(t *testing.T) {
	b := recordingtest.New()
	r := b.Recording()
	for i, warm := range []int{2, 5} {
		th := b.Thread(10+i, "worker")
		for n := range 40 {
			d := 10 * time.Millisecond
			if n < warm {
				d *= 9
			}
			spanOf(r, th, b.Path("step"), d)
		}
	}
	r.Spans[0].Partial = true // it is none of the complete ones
	for name, c := range map[string]struct {
		skip Skip
		want int
	}{
		"nothing": {Skip{}, 79}, "first": {Skip{First: 3}, 73}, "warm-up": {Skip{Warmup: true}, 73},
		"more of both": {Skip{First: 2, Warmup: true}, 72}, "all": {Skip{First: 100}, 0},
	} {
		s := Build(r).Series(c.skip)
		if len(s) != 1 || len(s[0].Spans) != c.want || s[0].Skipped != uint64(79-c.want) {
			t.Errorf("%s: %d spans, %d skipped; want %d of 79", name, len(s[0].Spans), s[0].Skipped, c.want)
		}
		it := stage(BuildSkipping(r, c.skip), "step").Iterations
		if it.Count != uint64(c.want) || it.Skipped != s[0].Skipped {
			t.Errorf("%s: iterations %d and %d skipped, want those of the series", name, it.Count, it.Skipped)
		}
	}
}

// A trend's points hold every span once, and so do its parts.
func TestTrendAddsUp(t *testing.T) {
	l := Build(recordingtest.Pipeline())
	for _, s := range l.Series(Skip{}) {
		for _, n := range []int{1, 7, 40, 10_000} {
			trend := s.Trend(n)
			if want := min(n, len(s.Spans)); len(trend.Spans) != want || len(trend.Wall) != want {
				t.Fatalf("%s: %d points, want %d", s.Path.Joined, len(trend.Spans), want)
			}
			spans, wall := 0, 0.0
			for i, n := range trend.Spans {
				spans += n
				wall += float64(n) * float64(trend.Wall[i])
				parts := uint64(0)
				for _, kind := range trend.Parts {
					parts += kind[i]
				}
				// Means are rounded down, of every kind of part.
				if parts > trend.Wall[i] || parts+uint64(len(trend.Parts)) < trend.Wall[i] {
					t.Errorf("%s, point %d: parts sum to %d, wall is %d", s.Path.Joined, i, parts, trend.Wall[i])
				}
			}
			if mean := wall / float64(spans); spans != len(s.Spans) || mean > float64(s.Mean()+1) || mean < float64(s.Mean())-1 {
				t.Errorf("%s: %d spans with mean %v, want %d with %d", s.Path.Joined, spans, mean, len(s.Spans), s.Mean())
			}
		}
	}
}

func TestSeriesOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		r := recordingtest.Random(rng)
		for _, s := range Build(r).Series(Skip{First: rng.IntN(3), Warmup: rng.IntN(2) == 0}) {
			s.Trend(rng.IntN(10))
		}
	}
}
