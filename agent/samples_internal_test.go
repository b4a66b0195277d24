package agent

import (
	"testing"

	"stageprof/agent/pystack"
	"stageprof/bpf"
	"stageprof/recording"
)

func newTestReader() *sampleReader {
	return &sampleReader{
		rows: map[bpf.ProbeCallKey]map[int]*recording.Sample{}, known: map[string]int{}, frames: map[pystack.Frame]uint32{},
	}
}

// Code that is made and thrown away for ever takes a bounded room.
func TestStacksAreBounded(t *testing.T) {
	r := newTestReader()
	for i := range 2 * maxStacks {
		id := r.intern(pythonStack{frames: []pystack.Frame{{Code: &pystack.Code{}, Line: i}}})
		if want := i; i < maxStacks && id != want || i >= maxStacks && id != -1 {
			t.Fatalf("stack %d has the number %d", i, id)
		}
	}
	if len(r.stacks) != maxStacks || len(r.frames) != maxStacks || len(r.known) != maxStacks {
		t.Errorf("%d stacks, %d frames, %d keys", len(r.stacks), len(r.frames), len(r.known))
	}
	if id := r.intern(r.stacks[7]); id != 7 {
		t.Errorf("a stack that is known has the number %d, want 7", id)
	}
}

// So do deep stacks.
func TestFramesAreBounded(t *testing.T) {
	r := newTestReader()
	for i := range maxStacks {
		frames := make([]pystack.Frame, 32)
		for j := range frames {
			frames[j].Line = i*len(frames) + j
		}
		r.intern(pythonStack{frames: frames})
	}
	if len(r.frames) != maxFrames || len(r.stacks) != maxFrames/32 {
		t.Errorf("%d frames in %d stacks, want %d in %d", len(r.frames), len(r.stacks), maxFrames, maxFrames/32)
	}
}

// So do many rows with many stacks each; what does not fit is lost and counted.
func TestStackSumsAreBounded(t *testing.T) {
	r := newTestReader()
	const rows, beyond = 64, 100
	sample := &bpf.ProbePythonSample{Weight: 1}
	add := func(thread uint32, stack int) { r.add(bpf.ProbeCallKey{Thread: thread}, stack, sample) }
	kept := func() (sums int) {
		for _, row := range r.rows {
			sums += len(row)
		}
		return sums
	}
	for i := range maxSums + beyond {
		add(uint32(i%rows)+1, i/rows)
	}
	if kept() != maxSums || r.dropped != beyond {
		t.Errorf("%d sums are kept and %d samples dropped, want %d and %d", kept(), r.dropped, maxSums, beyond)
	}
	add(1, 0)
	if n := r.rows[bpf.ProbeCallKey{Thread: 1}][0].Count; n != 2 || r.dropped != beyond {
		t.Errorf("%d samples of a sum that is kept, %d dropped", n, r.dropped)
	}
	// The rows of threads that have ended become one, which makes room.
	if err := r.fold(map[uint32]bool{1: true, 2: true}); err != nil {
		t.Fatal(err)
	}
	if r.sums != kept() || r.sums != maxSums-maxSums/rows {
		t.Errorf("%d sums by the reader's count, %d are kept, want %d", r.sums, kept(), maxSums-maxSums/rows)
	}
}
