package pystack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// RawFrame is a frame as the kernel side saw it.
type RawFrame struct {
	Instruction uint64
	Copy        uint32 // number of the copy of the bytecode, in free-threaded builds
	Identity
}

// Identity tells a code object from others.
type Identity struct {
	Code, Filename, Name, Lines uint64 // addresses
	Stamp                       uint64
	FirstLine                   uint32
}

// Code is a decoded code object.
type Code struct {
	Function  string // qualified from 3.11 on
	File      string
	FirstLine int

	table     []byte
	traceable uint32 // number of instructions of the set-up

	certain   bool   // no other code object can have its identity
	confirmed bool   // it was found again in a later round
	doubtful  bool   // something else was found at its place
	first     uint64 // round in which it was found first
	due       uint64 // … and from which on it is looked at again
}

// Trusted reports whether frames that were said to be of this code object were. It may change with each
// further frame that is decoded, and with [Decoder.Confirm].
func (c *Code) Trusted() bool { return c.certain || c.confirmed && !c.doubtful }

// Frame is a decoded frame.
type Frame struct {
	Code *Code
	Line int // 0: the instruction belongs to none
}

// Errors of [Decoder.Frame].
var (
	// ErrGone: the code object is no longer what it was when the frame was read.
	ErrGone = errors.New("the code object is gone")
	// ErrUnreadable: the memory holds nothing that makes sense.
	ErrUnreadable = errors.New("the code object can't be read")
)

// mostCodes bounds the code objects that are remembered; a training process has some ten thousand, of
// which few call the driver.
const mostCodes = 16384

// mostRounds bounds how long a code object is left alone: as long again as it has stayed the same, but no
// longer than these many rounds.
const mostRounds = 50

// Decoder decodes the frames of one interpreter. It remembers the code objects that it has seen.
type Decoder struct {
	mem    Memory
	layout Layout
	codes  map[Identity]*Code
	places map[uint64]Identity // of code objects that are not certain, by address
	round  uint64
}

// NewDecoder returns a Decoder for an interpreter in a target's memory.
func NewDecoder(mem Memory, layout Layout) *Decoder {
	return &Decoder{mem: mem, layout: layout, codes: map[Identity]*Code{}, places: map[uint64]Identity{}}
}

// NextRound says that time has passed since the last frames were decoded.
func (d *Decoder) NextRound() { d.round++ }

// Confirm looks once more at all code objects that are not certain. It makes sense in a later round than
// that of the last frame.
func (d *Decoder) Confirm() {
	for id, code := range d.codes {
		if !code.certain && !code.doubtful {
			_ = d.compare(id, code) // what could not be read is not confirmed
		}
	}
}

func (d *Decoder) read(addr uint64, b []byte) error {
	if err := d.mem.ReadMemory(addr, b); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return nil
}

// Frame decodes a frame. ok is false for a frame that Python itself does not show: one whose function is
// still being set up.
func (d *Decoder) Frame(raw RawFrame) (frame Frame, ok bool, err error) {
	code, err := d.code(raw.Identity)
	if err != nil {
		return Frame{}, false, err
	}
	address, err := d.address(raw)
	if err != nil {
		return Frame{}, false, err
	}
	if address < uint64(code.traceable)*instructionSize || address == notStarted {
		return Frame{}, false, nil
	}
	return Frame{Code: code, Line: d.layout.lines.line(code.table, code.FirstLine, address)}, true, nil
}

// code returns the code object of an identity.
func (d *Decoder) code(id Identity) (*Code, error) {
	code := d.codes[id]
	switch {
	case code == nil:
		return d.discover(id)
	case code.doubtful:
		return nil, fmt.Errorf("%w: its place is used again and again", ErrGone)
	case code.certain || d.round < code.due:
		return code, nil
	}
	return code, d.compare(id, code)
}

// discover decodes a code object for the first time.
func (d *Decoder) discover(id Identity) (*Code, error) {
	certain := d.layout.Code.Version != 0 && id.Stamp != 0
	if !certain {
		d.occupy(id)
	}
	code, err := d.decode(id)
	if err != nil {
		if !certain && errors.Is(err, ErrGone) {
			d.remember(id, &Code{doubtful: true})
		}
		return nil, err
	}
	code.certain = certain
	code.first, code.due = d.round, d.round+1
	d.remember(id, code)
	return code, nil
}

func (d *Decoder) remember(id Identity, code *Code) {
	if len(d.codes) >= mostCodes {
		for _, forgotten := range d.codes { // frames may go on naming it
			forgotten.table = nil
		}
		clear(d.codes)
		clear(d.places)
	}
	d.codes[id] = code
}

// occupy notes which code object is at an address. Where there have been two, neither can be told from a
// third one.
func (d *Decoder) occupy(id Identity) {
	before, known := d.places[id.Code]
	d.places[id.Code] = id
	if !known || before.same(id) {
		return
	}
	if code := d.codes[before]; code != nil {
		code.doubtful = true
	}
	d.remember(id, &Code{doubtful: true})
}

// same compares identities of which one may have been taken before the name had a hash.
func (id Identity) same(o Identity) bool {
	if id.Stamp == noHash || o.Stamp == noHash {
		id.Stamp, o.Stamp = 0, 0
	}
	return id == o
}

// compare looks at a code object again.
func (d *Decoder) compare(id Identity, code *Code) error {
	now, err := d.decode(id)
	switch {
	case errors.Is(err, ErrGone), err == nil && !code.equal(now):
		code.doubtful = true
		return fmt.Errorf("%w: something else is at its place", ErrGone)
	case err != nil:
		return err
	}
	code.confirmed = code.confirmed || d.round > code.first
	code.due = d.round + min(max(d.round-code.first, 1), mostRounds)
	return nil
}

func (c *Code) equal(o *Code) bool {
	return c.Function == o.Function && c.File == o.File && c.FirstLine == o.FirstLine && bytes.Equal(c.table, o.table)
}

// decode reads a code object, and makes sure that it was the same one until all of it was read.
func (d *Decoder) decode(id Identity) (*Code, error) {
	traceable, err := d.verify(id)
	if err != nil {
		return nil, err
	}
	code := &Code{FirstLine: int(int32(id.FirstLine)), traceable: traceable}
	if code.Function, err = d.text(id.Name); err != nil {
		return nil, err
	}
	if code.File, err = d.text(id.Filename); err != nil {
		return nil, err
	}
	if code.table, err = d.bytes(id.Lines); err != nil {
		return nil, err
	}
	if _, err := d.verify(id); err != nil {
		return nil, err
	}
	return code, nil
}

// verify compares a code object in memory with its identity, and returns how many of its instructions
// set the function up.
func (d *Decoder) verify(id Identity) (traceable uint32, err error) {
	l := &d.layout.Code
	_, end := d.layout.CodeWords()
	b := make([]byte, max(end, l.Traceable+4))
	if err := d.read(id.Code, b); err != nil {
		return 0, err
	}
	word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	half := func(at uint64) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	if !alive(b, l.Type) || d.layout.CodeType != 0 && word(l.Type) != d.layout.CodeType {
		return 0, fmt.Errorf("%w: it was freed", ErrGone)
	}
	stamp, err := d.stamp(half(l.Version), word(l.Hashed))
	if err != nil {
		return 0, err
	}
	now := Identity{
		Code: id.Code, Filename: word(l.Filename), Name: word(l.Name), Lines: word(l.Lines),
		Stamp: stamp, FirstLine: half(l.FirstLine),
	}
	if d.layout.Code.Version == 0 && id.Stamp == noHash {
		now.Stamp = noHash // the name was never looked up until then: "<module>" is none that has to be
	}
	if now != id {
		return 0, ErrGone
	}
	if l.Traceable == 0 {
		return 0, nil
	}
	return half(l.Traceable), nil
}

// alive looks at an object's count of references, which comes before its type. Freed objects keep most of
// their words; but their count is 0, or a pointer to another free piece of memory, which is larger than
// any count. Free-threaded builds have two counts behind the owner; the second one has two flags below.
func alive(object []byte, typeOffset uint64) bool {
	const (
		plainHeader          = 8
		ownCount, otherCount = 12, 16
		flags                = 2
	)
	if typeOffset == plainHeader {
		count := binary.LittleEndian.Uint64(object)
		return uint32(count) != 0 && uint16(count>>32) == 0
	}
	return binary.LittleEndian.Uint32(object[ownCount:]) != 0 || binary.LittleEndian.Uint64(object[otherCount:])>>flags != 0
}

// noHash stands where a string's hash was not needed yet.
const noHash = ^uint64(0)

// stamp returns what tells the code object from an earlier one at its place.
func (d *Decoder) stamp(version uint32, name uint64) (uint64, error) {
	if d.layout.Code.Version != 0 {
		return uint64(version), nil
	}
	var hash [8]byte
	err := d.read(name+d.layout.Text.Hash, hash[:])
	return binary.LittleEndian.Uint64(hash[:]), err
}

// largestCode bounds bytecode, in bytes, and mostCopies the copies of it.
const (
	largestCode = 64 << 20
	mostCopies  = 1 << 16
)

// notStarted is the address of a frame that has run no instruction.
const notStarted = ^uint64(0)

// address returns where in the bytecode a frame stood, in bytes.
func (d *Decoder) address(raw RawFrame) (uint64, error) {
	start := raw.Code + d.layout.Code.Bytecode
	index := int32(raw.Instruction)
	switch {
	case d.layout.Code.Bytecode == 0 && index < 0:
		return notStarted, nil
	case d.layout.lines == lnotab:
		return uint64(index), nil
	case d.layout.lines == ranges:
		return uint64(index) * instructionSize, nil
	case d.layout.Code.Copies != 0 && raw.Copy != 0:
		var err error
		if start, err = d.copy(raw); err != nil {
			return 0, err
		}
	}
	if raw.Instruction < start || raw.Instruction-start > largestCode {
		return 0, fmt.Errorf("%w: it stood at %#x", ErrUnreadable, raw.Instruction)
	}
	return raw.Instruction - start, nil
}

// copy returns where the copy of the bytecode begins that a frame runs. The copies are an array of
// pointers behind their number; the first one is the code object's own.
func (d *Decoder) copy(raw RawFrame) (uint64, error) {
	var word [8]byte
	if err := d.read(raw.Code+d.layout.Code.Copies, word[:]); err != nil {
		return 0, err
	}
	array := binary.LittleEndian.Uint64(word[:])
	if err := d.read(array, word[:]); err != nil {
		return 0, err
	}
	if n := binary.LittleEndian.Uint64(word[:]); n > mostCopies || uint64(raw.Copy) >= n {
		return 0, fmt.Errorf("%w: there are %d copies of the bytecode and it runs number %d", ErrGone, n, raw.Copy)
	}
	err := d.read(array+8*(1+uint64(raw.Copy)), word[:])
	return binary.LittleEndian.Uint64(word[:]), err
}
