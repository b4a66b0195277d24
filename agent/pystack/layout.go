package pystack

import (
	"encoding/binary"
	"errors"
	"fmt"

	"stageprof/agent/gil"
)

// Memory reads the target's memory: all of b, or an error.
type Memory interface {
	ReadMemory(addr uint64, b []byte) error
}

// Layout holds offsets into CPython's structures, in bytes.
type Layout struct {
	Lists    gil.Lists
	CodeType uint64 // address of the type of code objects, 0 if not known

	Thread ThreadLayout
	Frame  FrameLayout
	Code   CodeLayout
	Text   TextLayout
	Bytes  BytesLayout
	lines  lineTable
}

// ThreadLayout is of thread states.
type ThreadLayout struct {
	Frame       uint64 // pointer to the innermost frame, or to a structure that has it
	ViaCFrame   bool   // the latter
	CFrameFrame uint64 // offset of the pointer in that structure
}

// FrameLayout is of frames: PyFrameObject before 3.11, then _PyInterpreterFrame.
type FrameLayout struct {
	Previous    uint64
	Code        uint64
	Instruction uint64 // a pointer into the bytecode; before 3.11 an index
	Owner       uint64 // a byte; 0: there is none
	Copy        uint64 // number of the copy of the bytecode that Instruction points into; 0: there is one
	Size        uint64 // bytes that hold all of these
}

// CodeLayout is of code objects.
type CodeLayout struct {
	Type      uint64
	FirstLine uint64
	Filename  uint64
	Name      uint64
	Lines     uint64
	Version   uint64 // 0: there is none
	Hashed    uint64 // without a version: the name whose hash is the stamp
	Traceable uint64 // index of the first instruction after the function's set-up; 0: there is none
	Copies    uint64 // pointer to the array of copies of the bytecode; 0: there is none
	Bytecode  uint64 // 0: not part of the code object
}

// TextLayout is of strings in the compact form.
type TextLayout struct {
	Length uint64
	Hash   uint64
	State  uint64
	Kind   uint // position in the state of the size of a character
	ASCII  uint64
	Wide   uint64 // where characters begin that are not ASCII
}

// BytesLayout is of bytes objects.
type BytesLayout struct{ Size, Data uint64 }

// ErrLayout is wrapped by the errors of [Find].
var ErrLayout = errors.New("the frames of Python can't be read")

var (
	text8   = TextLayout{Length: 16, Hash: 24, State: 32, Kind: 2, ASCII: 48, Wide: 72}
	text12  = TextLayout{Length: 16, Hash: 24, State: 32, Kind: 2, ASCII: 40, Wide: 56}
	bytes8  = BytesLayout{Size: 16, Data: 32}
	thread8 = ThreadLayout{Frame: 24}
	code8   = CodeLayout{Type: 8, FirstLine: 40, Filename: 104, Name: 112, Lines: 120, Hashed: 112}
)

// layouts are those of the versions that do not describe themselves, by minor version, read from the
// debug information of release builds. Every micro version has the same.
var layouts = map[int]Layout{
	8: {
		Thread: thread8, Code: code8, Text: text8, Bytes: bytes8, lines: lnotab,
		Frame: FrameLayout{Previous: 24, Code: 32, Instruction: 104, Size: 112},
	},
	9: {
		Thread: thread8, Code: code8, Text: text8, Bytes: bytes8, lines: lnotab,
		Frame: FrameLayout{Previous: 24, Code: 32, Instruction: 104, Size: 112},
	},
	10: {
		Thread: thread8, Code: code8, Text: text8, Bytes: bytes8, lines: ranges,
		Frame: FrameLayout{Previous: 24, Code: 32, Instruction: 96, Size: 104},
	},
	11: {
		Thread: ThreadLayout{Frame: 56, ViaCFrame: true, CFrameFrame: 8},
		Frame:  FrameLayout{Previous: 48, Code: 32, Instruction: 56, Owner: 69, Size: 72},
		Code: CodeLayout{
			Type: 8, FirstLine: 72, Filename: 112, Name: 128, Lines: 136, Hashed: 120, Traceable: 168, Bytecode: 184,
		},
		Text: text8, Bytes: bytes8, lines: locations,
	},
	12: {
		Thread: ThreadLayout{Frame: 56, ViaCFrame: true},
		Frame:  FrameLayout{Previous: 8, Code: 0, Instruction: 56, Owner: 70, Size: 72},
		Code: CodeLayout{
			Type: 8, FirstLine: 68, Filename: 112, Name: 128, Lines: 136, Version: 92, Traceable: 176, Bytecode: 192,
		},
		Text: text12, Bytes: bytes8, lines: locations,
	},
}

// debugPositions are where in the interpreter's table of offsets for debuggers, 3.13 and newer, the
// groups begin that are read here. In a group the order is always the same.
type debugPositions struct{ currentFrame, frame, code, object, bytes, text, copies int }

var debugPositionsOf = map[int]debugPositions{
	13: {currentFrame: 184, frame: 224, code: 272, object: 352, bytes: 512, text: 536},
	14: {currentFrame: 208, frame: 248, code: 312, object: 400, bytes: 592, text: 616, copies: 392},
	15: {currentFrame: 208, frame: 312, code: 376, object: 464, bytes: 688, text: 712, copies: 456},
}

const (
	debugTableSize = 760
	debugVersion   = 8 // position of the version
	debugFree      = 16
	largestField   = 4096 // no offset that is read here is larger
)

// Find returns the layout of the interpreter that a plan is about. Its errors wrap [ErrLayout].
func Find(mem Memory, plan gil.Plan) (Layout, error) {
	switch {
	case plan.Method == gil.None:
		return Layout{}, fmt.Errorf("%w: there is no Python", ErrLayout)
	case plan.Method == gil.Unknown:
		return Layout{}, fmt.Errorf("%w: %s", ErrLayout, plan.Reason)
	case plan.Runtime == 0:
		return Layout{}, fmt.Errorf("%w: the layout of Python %s is not known", ErrLayout, plan.Version)
	}
	var minor int
	if _, err := fmt.Sscanf(plan.Version, "3.%d", &minor); err != nil {
		return Layout{}, fmt.Errorf("%w: its version is %q", ErrLayout, plan.Version)
	}
	layout, known := layouts[minor]
	var err error
	if at, described := debugPositionsOf[minor]; described {
		layout, err = readDebugLayout(mem, plan.Runtime, minor, at)
	} else if !known {
		err = fmt.Errorf("the layout of Python %s is not known", plan.Version)
	}
	if err != nil {
		return Layout{}, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	layout.Lists, layout.CodeType = plan.Lists, plan.CodeType
	return layout, layout.check()
}

func readDebugLayout(mem Memory, runtime uint64, minor int, at debugPositions) (Layout, error) {
	b := make([]byte, debugTableSize)
	if err := mem.ReadMemory(runtime, b); err != nil {
		return Layout{}, err
	}
	field := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	if got := field(debugVersion) >> 16; got != uint64(3<<8|minor) {
		return Layout{}, fmt.Errorf("its debug offsets are of version %#x", field(debugVersion))
	}
	return debugLayout(field, field(debugFree) != 0, at), nil
}

// versionBehind is how far a code object's version lies behind its first line, and traceableBefore how
// far its first traceable instruction before what precedes the bytecode: the table tells of neither.
const (
	versionBehind   = 24
	traceableBefore = 16
)

func debugLayout(field func(at int) uint64, free bool, at debugPositions) Layout {
	l := Layout{
		Thread: ThreadLayout{Frame: field(at.currentFrame)},
		Frame: FrameLayout{
			Previous: field(at.frame + 8), Code: field(at.frame + 16), Instruction: field(at.frame + 24),
			Owner: field(at.frame + 40),
		},
		Code: CodeLayout{
			Type: field(at.object + 8), FirstLine: field(at.code + 40), Filename: field(at.code + 8),
			Name: field(at.code + 24), Lines: field(at.code + 32), Bytecode: field(at.code + 72),
		},
		Text:  TextLayout{State: field(at.text + 8), Length: field(at.text + 16), Kind: 2, ASCII: field(at.text + 24)},
		Bytes: BytesLayout{Size: field(at.bytes + 8), Data: field(at.bytes + 16)},
		lines: locations,
	}
	l.Code.Version = l.Code.FirstLine + versionBehind
	l.Code.Traceable = l.Code.Bytecode - traceableBefore
	l.Text.Hash, l.Text.Wide = l.Text.Length+8, l.Text.ASCII+16
	if free && at.copies != 0 {
		l.Frame.Copy, l.Code.Copies = field(at.frame+56), field(at.copies)
		l.Code.Traceable -= 8 // the pointer to the copies is in between
		l.Text.Kind = 8       // what precedes it is a byte there
	}
	l.Frame.Size = roundUp(max(l.Frame.Previous+8, l.Frame.Code+8, l.Frame.Instruction+8, l.Frame.Owner+1, l.Frame.Copy+4))
	return l
}

func roundUp(n uint64) uint64 { return (n + 7) &^ 7 }

// kernelRead is how much of a structure the kernel side reads at once.
const kernelRead = 256

func (l *Layout) check() error {
	for _, offset := range []uint64{
		l.Thread.Frame, l.Frame.Previous, l.Frame.Code, l.Frame.Instruction, l.Frame.Owner, l.Frame.Copy,
		l.Code.Type, l.Code.FirstLine, l.Code.Filename, l.Code.Name, l.Code.Lines, l.Code.Version, l.Code.Hashed,
		l.Code.Traceable, l.Code.Copies, l.Code.Bytecode,
		l.Text.Length, l.Text.State, l.Text.ASCII, l.Bytes.Size, l.Bytes.Data,
	} {
		if offset > largestField {
			return fmt.Errorf("%w: its debug offsets hold %#x", ErrLayout, offset)
		}
	}
	if from, to := l.CodeWords(); l.ThreadSize() > kernelRead || l.Frame.Size > kernelRead || to-from > kernelRead {
		return fmt.Errorf("%w: its structures are larger than any that is known", ErrLayout)
	}
	return nil
}

// ThreadSize returns how many bytes of a thread state hold everything that is read of it.
func (l *Layout) ThreadSize() uint64 {
	return roundUp(max(l.Lists.NextThread, l.Lists.ThreadID, l.Thread.Frame) + 8)
}

// CodeWords returns where in a code object the words of its identity begin and end.
func (l *Layout) CodeWords() (from, to uint64) {
	c := &l.Code
	from = min(c.FirstLine, c.Filename, c.Name, c.Lines) &^ 7
	return from, roundUp(max(c.FirstLine+4, c.Filename+8, c.Name+8, c.Lines+8, c.Hashed+8, c.Version+4))
}
