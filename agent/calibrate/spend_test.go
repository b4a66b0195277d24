package calibrate

import (
	"errors"
	"testing"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// BenchmarkSpend shows what a probed call's cost is made of. Each step is
// measured in turn on the same child and the same function, one probe pair on
// it, in nanoseconds per call; "traps" is what the kernel takes for two probes
// whose programs return at once, which no program of ours can go below.
func BenchmarkSpend(b *testing.B) {
	c, err := start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.stop(); err != nil {
			b.Error(err)
		}
	}()
	c.filter(true)
	wanted := c.wanted([]elfsym.Class{elfsym.Jump})
	stub := wanted[0]
	objects, err := c.load(probe.UprobeMulti, "driver_entry", "driver_return")
	if err != nil {
		b.Fatal(err)
	}
	defer objects.Close()
	closeWindow := func() error { return objects.WindowStart.Set(uint64(0)) }
	steps := []struct {
		name    string
		prepare func() error
	}{
		{"traps", closeWindow},
		{"count", func() error {
			return errors.Join(c.open(objects), objects.GilMethod.Set(uint32(bpf.ProbeGilReadingGIL_METHOD_NONE)))
		}},
		{"count+gil", func() error { return c.open(objects) }},
	}

	bare, err := c.quietest(stub, plainCalls)
	if err != nil {
		b.Fatal(err)
	}
	links, err := c.attach(objects, probe.UprobeMulti, wanted)
	if err != nil {
		b.Fatal(err)
	}
	defer links.Close()
	for _, step := range steps {
		b.Run(step.name, func(b *testing.B) {
			if err := step.prepare(); err != nil {
				b.Fatal(err)
			}
			added := 0.0
			for b.Loop() {
				perCall, err := c.quietest(stub, emulatedCalls)
				if err != nil {
					b.Fatal(err)
				}
				if added == 0 || perCall-bare < added {
					added = perCall - bare
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(added, "ns/call")
		})
	}
}
