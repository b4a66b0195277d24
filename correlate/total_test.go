package correlate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"stageprof/recording"
)

func TestQuantile(t *testing.T) {
	hist := func(durations ...uint64) (h recording.Hist) {
		for _, d := range durations {
			h[bucketOf(d)]++
		}
		return h
	}
	tests := []struct {
		name string
		t    Total
		q    float64
		want uint64
		ok   bool
	}{
		{"nothing", Total{}, 0.5, 0, false},
		{"one call is exact", Total{Count: 1, MinNS: 700, MaxNS: 700, Hist: hist(700)}, 0.5, 700, true},
		{"never above the largest", Total{Count: 2, MinNS: 600, MaxNS: 700, Hist: hist(600, 700)}, 1, 700, true},
		{"never below the smallest", Total{Count: 2, MinNS: 600, MaxNS: 700, Hist: hist(600, 700)}, 0, 600, true},
		{"the last bucket is bounded by the largest",
			Total{Count: 1, MinNS: 1 << 40, MaxNS: 1 << 40, Hist: hist(1 << 40)}, 0.99, 1 << 40, true},
		{"bias is taken out",
			Total{Count: 2, RawWallNS: 1400, WallNS: 200, MinNS: 50, MaxNS: 150, Hist: hist(650, 750)}, 1, 150, true},
		{"out of range is the nearest", Total{Count: 1, MinNS: 5, MaxNS: 5, Hist: hist(5)}, 7, 5, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.t.Quantile(tt.q)
			if got != tt.want || ok != tt.ok {
				t.Errorf("Quantile(%v) = %d, %v; want %d, %v", tt.q, got, ok, tt.want, tt.ok)
			}
		})
	}
}

// The documented error: an estimate is in the bucket of the true quantile.
func TestQuantileError(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		durations := make([]uint64, 1+rng.IntN(500))
		spans := Spans{}
		for i := range durations {
			durations[i] = uint64(rng.ExpFloat64() * 50_000)
			spans.Hist[bucketOf(durations[i])]++
		}
		slices.Sort(durations)
		spans.MinNS, spans.MaxNS = durations[0], durations[len(durations)-1]
		for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			truth := durations[min(int(q*float64(len(durations))), len(durations)-1)]
			got, ok := spans.Quantile(q)
			// The neighbour is as good a quantile where q falls between two.
			below := durations[max(min(int(q*float64(len(durations))), len(durations)-1)-1, 0)]
			if !ok || bucketOf(got) > bucketOf(truth) || bucketOf(got) < bucketOf(below) {
				t.Fatalf("Quantile(%v) = %d, true %d of %d", q, got, truth, len(durations))
			}
		}
	}
}
