package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"stageprof/agent/gil"
	"stageprof/agent/pystack"
	"stageprof/bpf"
	"stageprof/recording"
)

// roomForAll is the size of the ring buffer in bytes when every call is sampled.
const roomForAll = 32 << 20

// maxStacks bounds the distinct Python stacks that are kept, maxFrames the distinct
// frames in them, and maxSums the stacks of all call rows together.
const (
	maxStacks = 65536
	maxFrames = 4 * maxStacks
	maxSums   = 4 * maxStacks
)

// setStacks tells the kernel side where to find the frames of an interpreter, or
// notes why they can't be read.
func (s *Session) setStacks(plan gil.Plan) error {
	if s.config.PythonStacks == PythonStacksOff && s.pythonMatch == nil || plan.Method == gil.None {
		return nil
	}
	layout, err := pystack.Find(s.process, plan)
	if err != nil {
		s.stacksReason = err.Error()
		s.warnOnce(s.stacksReason)
		return errors.Join(s.objects.PythonMode.Set(uint32(bpf.ProbePythonStacksPYTHON_STACKS_OFF)), s.objects.PythonKnown.Set(uint32(0)))
	}
	if of := (interpreter{plan.Runtime, plan.Version}); s.config.PythonStacks != PythonStacksOff && s.samples.of != of {
		s.samples.decoder, s.samples.of = pystack.NewDecoder(s.process, layout), of
	}
	// What makes use of it last: the programs may be running.
	return errors.Join(
		s.objects.Python.Set(kernelLayout(&layout)),
		s.objects.PythonMode.Set(uint32(stackModes[s.config.PythonStacks])), s.objects.PythonKnown.Set(uint32(1)),
	)
}

// interpreter tells one interpreter of the target's from others.
type interpreter struct {
	runtime uint64
	version string
}

var stackModes = map[PythonStacks]bpf.ProbePythonStacks{
	PythonStacksOff:     bpf.ProbePythonStacksPYTHON_STACKS_OFF,
	PythonStacksSampled: bpf.ProbePythonStacksPYTHON_STACKS_SAMPLED,
	PythonStacksAll:     bpf.ProbePythonStacksPYTHON_STACKS_ALL,
}

// stacks says of which calls the Python stack is read after all.
func (s *Session) stacks() PythonStacks {
	if s.samples.decoder == nil {
		return PythonStacksOff
	}
	return s.config.PythonStacks
}

func kernelLayout(l *pystack.Layout) bpf.ProbePythonPlan {
	from, to := l.CodeWords()
	plan := bpf.ProbePythonPlan{
		Interpreters:    l.Lists.First,
		InterpreterNext: uint32(l.Lists.NextInterpreter), InterpreterThreads: uint32(l.Lists.FirstThread),
		ThreadSize: uint32(l.ThreadSize()), ThreadNext: uint32(l.Lists.NextThread),
		ThreadId: uint32(l.Lists.ThreadID), ThreadFrame: uint32(l.Thread.Frame),
		CframeFrame: uint32(l.Thread.CFrameFrame),
		FrameSize:   uint32(l.Frame.Size), FramePrevious: uint32(l.Frame.Previous), FrameCode: uint32(l.Frame.Code),
		FrameInstruction: uint32(l.Frame.Instruction), FrameOwner: uint32(l.Frame.Owner), FrameCopy: uint32(l.Frame.Copy),
		CodeStart: uint32(from), CodeSize: uint32(to - from),
		CodeFirstLine: uint32(l.Code.FirstLine - from), CodeFilename: uint32(l.Code.Filename - from),
		CodeName: uint32(l.Code.Name - from), CodeLines: uint32(l.Code.Lines - from),
		TextHash: uint32(l.Text.Hash), TextSize: uint32(max(l.Text.Length, l.Text.Hash, l.Text.State) + 8),
		TextLength: uint32(l.Text.Length), TextState: uint32(l.Text.State), TextKind: uint32(l.Text.Kind),
		TextAscii: uint32(l.Text.ASCII), TextWide: uint32(l.Text.Wide),
	}
	if l.Thread.ViaCFrame {
		plan.ViaCframe = 1
	}
	if l.Code.Version != 0 {
		plan.CodeVersion = uint32(l.Code.Version - from)
	} else {
		plan.CodeHashed = uint32(l.Code.Hashed - from)
	}
	return plan
}

// sampleReader decodes the sampled calls' Python stacks as they come, and sums
// them by call row.
type sampleReader struct {
	*stream
	decoder *pystack.Decoder // nil while there is no interpreter to read
	of      interpreter      // that the decoder reads

	rows    map[bpf.ProbeCallKey]map[int]*recording.Sample // by stack
	sums    int                                            // in all rows
	stacks  []pythonStack
	known   map[string]int // stacks by their frames
	frames  map[pystack.Frame]uint32
	decoded map[string]int // this round's, by their raw frames
	gone    uint64         // samples whose code objects were gone
	dropped uint64         // samples beyond one of the bounds
}

type pythonStack struct {
	frames []pystack.Frame // innermost first
	cut    bool
}

func newSampleReader(ring *ebpf.Map) (*sampleReader, error) {
	stacks, err := openStream(ring, "Python stacks")
	if err != nil {
		return nil, err
	}
	return &sampleReader{
		stream: stacks, rows: map[bpf.ProbeCallKey]map[int]*recording.Sample{},
		known: map[string]int{}, frames: map[pystack.Frame]uint32{}, decoded: map[string]int{},
	}, nil
}

func (r *sampleReader) read() error {
	if r.decoder == nil {
		return nil
	}
	r.decoder.NextRound()
	clear(r.decoded)
	return r.each(r.take)
}

const (
	sampleHeader = int(unsafe.Offsetof(bpf.ProbePythonSample{}.Frames))
	sampleFrame  = int(unsafe.Sizeof(bpf.ProbePythonSample{}.Frames[0]))
)

// take adds one sample. Its frames are as many as the record is long.
func (r *sampleReader) take(b []byte) error {
	var s bpf.ProbePythonSample
	frames := (len(b) - sampleHeader) / sampleFrame
	if len(b) < sampleHeader || frames > len(s.Frames) {
		return fmt.Errorf("%d bytes can't be one", len(b))
	}
	// The layouts are the same, see decode.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s)), int(unsafe.Sizeof(s))), b)
	stack, err := r.stack(&s, b[sampleHeader:], frames)
	if err != nil {
		r.gone++
		return nil
	}
	if stack < 0 {
		r.dropped++
		return nil
	}
	r.add(s.Call, stack, &s)
	return nil
}

func (r *sampleReader) add(row bpf.ProbeCallKey, stack int, s *bpf.ProbePythonSample) {
	sum := r.rows[row][stack]
	if sum == nil {
		if r.sums >= maxSums {
			r.dropped++
			return
		}
		if r.rows[row] == nil {
			r.rows[row] = map[int]*recording.Sample{}
		}
		sum = &recording.Sample{Stack: stack}
		r.rows[row][stack] = sum
		r.sums++
	}
	weight := uint64(s.Weight)
	addSample(sum, &recording.Sample{
		Count: 1, WallNS: s.Wall, CPUNS: s.Cpu, GILWaitCausedNS: s.GilWait,
		ForCount: weight, ForWallNS: weight * s.Wall, ForCPUNS: weight * s.Cpu, ForGILWaitCausedNS: weight * s.GilWait,
	})
}

// fold adds up the samples of threads that ended long ago, as retired.fold does
// with their calls.
func (r *sampleReader) fold(old map[uint32]bool) error {
	err := r.read()
	for row, samples := range r.rows {
		if !old[row.Thread] {
			continue
		}
		delete(r.rows, row)
		row.Thread = foldedThread
		if r.rows[row] == nil {
			r.rows[row] = map[int]*recording.Sample{}
		}
		r.sums -= len(samples) + len(r.rows[row])
		for stack, s := range samples {
			mergeSample(r.rows[row], stack, s)
		}
		r.sums += len(r.rows[row])
	}
	return err
}

// stack returns the number of a sample's stack, -1 if there is no room for it.
// Most samples of a round are of few stacks, each of which is decoded once.
func (r *sampleReader) stack(s *bpf.ProbePythonSample, raw []byte, frames int) (int, error) {
	cut := s.Cut != 0
	key := string(raw)
	if cut {
		key += "…"
	}
	if id, ok := r.decoded[key]; ok {
		return id, nil
	}
	stack := pythonStack{cut: cut}
	for i := range frames {
		f := &s.Frames[i]
		frame, shown, err := r.decoder.Frame(pystack.RawFrame{
			Instruction: f.Instruction, Copy: f.Copy,
			Identity: pystack.Identity{
				Code: f.Code, Filename: f.Filename, Name: f.Name, Lines: f.Lines, Stamp: f.Stamp, FirstLine: f.FirstLine,
			},
		})
		if err != nil {
			return 0, err
		}
		if shown {
			stack.frames = append(stack.frames, frame)
		}
	}
	id := r.intern(stack)
	r.decoded[key] = id
	return id, nil
}

func (r *sampleReader) intern(stack pythonStack) int {
	full := len(r.stacks) >= maxStacks // then its frames are not kept either
	key := []byte{0}
	if stack.cut {
		key[0] = 1
	}
	for _, f := range stack.frames {
		id, ok := r.frames[f]
		if !ok {
			if full || len(r.frames) >= maxFrames {
				return -1
			}
			id = uint32(len(r.frames))
			r.frames[f] = id
		}
		key = binary.NativeEndian.AppendUint32(key, id)
	}
	id, ok := r.known[string(key)]
	if ok {
		return id
	}
	if full {
		return -1
	}
	id = len(r.stacks)
	r.known[string(key)] = id
	r.stacks = append(r.stacks, stack)
	return id
}

// trusted reports whether all of a stack's frames are certainly what they look
// like.
func (s *pythonStack) trusted() bool {
	return !slices.ContainsFunc(s.frames, func(f pystack.Frame) bool { return !f.Code.Trusted() })
}

// addSamples puts the stacks and functions into the Recording, and prepares what
// belongs to each call row.
func (d *drain) addSamples() error {
	r := d.samples
	if err := r.read(); err != nil {
		return err
	}
	if r.decoder != nil && !d.live { // while it is, time passes and confirms them
		r.decoder.NextRound()
		r.decoder.Confirm()
	}
	p := pythonTable{recording: d.r, stacks: map[int]int{}, functions: map[recording.PythonFunction]int{}, known: map[string]int{}}
	d.rowSamples = map[bpf.ProbeCallKey][]recording.Sample{}
	for row, byStack := range r.rows {
		merged := map[int]*recording.Sample{}
		for id, s := range byStack {
			if !r.stacks[id].trusted() {
				if !d.live { // else it may yet be
					d.untrusted += s.Count
				}
				continue
			}
			mergeSample(merged, p.stack(id, &r.stacks[id]), s)
		}
		for _, s := range merged {
			d.rowSamples[row] = append(d.rowSamples[row], *s)
		}
	}
	return nil
}

// mergeSample adds up what has the same stack to the eye: code objects of the
// same name at several places.
func mergeSample(merged map[int]*recording.Sample, stack int, s *recording.Sample) {
	sum := merged[stack]
	if sum == nil {
		sum = &recording.Sample{Stack: stack}
		merged[stack] = sum
	}
	addSample(sum, s)
}

func addSample(sum, s *recording.Sample) {
	sum.Count += s.Count
	sum.WallNS += s.WallNS
	sum.CPUNS += s.CPUNS
	sum.ForCount += s.ForCount
	sum.ForWallNS += s.ForWallNS
	sum.ForCPUNS += s.ForCPUNS
	sum.GILWaitCausedNS += s.GILWaitCausedNS
	sum.ForGILWaitCausedNS += s.ForGILWaitCausedNS
}

// pythonTable collects the Python functions and stacks of a Recording.
type pythonTable struct {
	recording *recording.Recording
	stacks    map[int]int                      // by the reader's number
	functions map[recording.PythonFunction]int // ID left out
	known     map[string]int                   // stacks by content
}

func (p *pythonTable) stack(number int, s *pythonStack) int {
	if id, ok := p.stacks[number]; ok {
		return id
	}
	row := recording.PythonStack{ID: len(p.recording.PythonStacks), Frames: []recording.PythonFrame{}, Cut: s.cut}
	for _, f := range s.frames {
		row.Frames = append(row.Frames, recording.PythonFrame{Function: p.function(f.Code), Line: f.Line})
	}
	key := fmt.Sprint(row.Frames, row.Cut)
	id, ok := p.known[key]
	if !ok {
		id = row.ID
		p.known[key] = id
		p.recording.PythonStacks = append(p.recording.PythonStacks, row)
	}
	p.stacks[number] = id
	return id
}

func (p *pythonTable) function(c *pystack.Code) int {
	row := recording.PythonFunction{Name: c.Function, File: c.File, FirstLine: c.FirstLine}
	id, ok := p.functions[row]
	if !ok {
		id = len(p.recording.PythonFunctions)
		p.functions[row] = id
		row.ID = id
		p.recording.PythonFunctions = append(p.recording.PythonFunctions, row)
	}
	return id
}

func (d *drain) addSampleLosses() {
	r := d.samples
	d.addLoss(reasonCodeGone, "samples", r.gone+d.untrusted,
		"the Python code was gone before its name was read: made and thrown away, or the process ended")
	d.addLoss(reasonStacksDropped, "samples", r.dropped,
		fmt.Sprintf("Python stacks after the first %d distinct ones, %d frames or %d stacks of all rows are not kept", maxStacks, maxFrames, maxSums))
}
