package elfsym

import (
	"bytes"
	"cmp"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// exitsX86 finds the exits of a function by decoding its parts from their beginnings, the entry
// first. It refuses code in which a jump goes to where no instruction begins: then the bytes
// are not what they were taken for.
func exitsX86(parts []part) ([]exit, error) {
	var exits []exit
	var inside []uint64 // targets of jumps
	begins := map[uint64]bool{}
	for i, p := range parts {
		err := sweep(p, i == 0, func(in instruction) error {
			begins[p.vaddr+uint64(in.pos)] = true
			if !in.hasTarget {
				if in.exits {
					exits = append(exits, in.exit(p))
				}
				return nil
			}
			if slices.ContainsFunc(parts, func(q part) bool { return q.holds(in.target) }) {
				inside = append(inside, in.target)
			} else {
				exits = append(exits, in.exit(p))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, target := range inside {
		if !begins[target] {
			return nil, noBody("a jump goes to %#x, into the middle of an instruction", target)
		}
		// Each round of such a loop would look like a call.
		if target == parts[0].vaddr {
			return nil, noBody("a jump goes back to its first instruction")
		}
	}
	slices.SortFunc(exits, func(a, b exit) int { return cmp.Compare(a.Offset, b.Offset) })
	return exits, nil
}

// jumpsTo tells whether code in a part jumps into the other.
func jumpsTo(from, to part) bool {
	found := false
	_ = sweep(from, false, func(in instruction) error { // an error comes again when it matters
		found = found || in.hasTarget && to.holds(in.target)
		return nil
	})
	return found
}

// instruction is what matters of one.
type instruction struct {
	pos       int
	exits     bool // it may leave the function
	hasTarget bool // by going to target
	target    uint64
	kind      ExitKind
	number    uint8
	class     Class
	ends      bool // control does not get behind it
	table     bool // it goes by a table at target
	down      bool // it is a jump with the stack as at the entry
}

func (in instruction) exit(p part) exit {
	return exit{
		Exit:   Exit{Offset: p.offset + uint64(in.pos), Kind: in.kind, Number: in.number, Class: in.class},
		target: in.target, table: in.table, down: in.down,
	}
}

// sweep decodes a part from its beginning, which may be the entry, to its end. Control must not run over the end.
func sweep(p part, entry bool, visit func(instruction) error) error {
	var table tableJump
	stack := stackDepth{line: stackLine{known: entry}, behind: map[uint64]stackLine{}}
	ended := false
	for pos := 0; pos < len(p.code); {
		rest := p.code[pos:]
		n, inst, err := decode(rest)
		if err != nil {
			return noBody("%v at %#x", err, p.vaddr+uint64(pos))
		}
		in, err := flow(rest[:n], inst, p.vaddr+uint64(pos+n))
		if err != nil {
			return noBody("%v at %#x", err, p.vaddr+uint64(pos))
		}
		in.pos = pos
		stack.arrive(p.vaddr + uint64(pos))
		// A conditional jump to the part that is split off comes without a frame, too.
		in.down = in.hasTarget && in.kind == Always && stack.line.atEntry()
		if in.kind == ByRegister && table.leads(in.number) {
			in.exits = false
		}
		table.follow(inst)
		stack.follow(inst, in)
		if inst.Op != x86asm.NOP { // which may be padding
			ended = in.ends
		}
		if err := visit(in); err != nil {
			return err
		}
		pos += n
	}
	if !ended {
		return noBody("it runs on into what follows it at %#x", p.vaddr+uint64(len(p.code)))
	}
	return nil
}

// flow tells where an instruction leads; next is the address behind it.
func flow(code []byte, inst x86asm.Inst, next uint64) (instruction, error) {
	class, _ := emulated(code, Kernel{})
	if to, ok := inst.Args[0].(x86asm.Rel); ok && inst.Op != x86asm.CALL {
		in := instruction{exits: true, hasTarget: true, target: next + uint64(int64(to)), class: class}
		if inst.Op == x86asm.JMP {
			in.ends = true
			return in, nil
		}
		in.kind, in.number = If, condition(inst.Opcode)
		return in, nil
	}
	switch inst.Op {
	case x86asm.RET:
		return instruction{exits: true, ends: true}, nil
	case x86asm.JMP:
		return indirect(inst, hasNotrack(code))
	case x86asm.CALL, x86asm.UD1, x86asm.UD2, x86asm.HLT, x86asm.INT:
		return instruction{ends: true}, nil // a call that ends a function does not return
	}
	return instruction{}, nil
}

// condition is the condition code of a conditional jump: 7x, or 0f 8x.
func condition(opcode uint32) uint8 {
	if opcode>>24 == 0x0f {
		opcode <<= 8
	}
	return uint8(opcode>>24) & 0xf
}

// hasNotrack looks for the prefix that compilers put before jumps through tables of the
// function's own where other indirect jumps are checked.
func hasNotrack(code []byte) bool {
	return code[0] == 0x3e || code[0] == 0xf2 && code[1] == 0x3e
}

// indirect judges a jump whose target is not in the code. Through a slot with a fixed place it
// goes to another function. Through one with an index it may stay in its own or go to another:
// a table with a fixed place tells, by what is in it; of others nothing is known.
func indirect(inst x86asm.Inst, notrack bool) (instruction, error) {
	m, inMemory := inst.Args[0].(x86asm.Mem)
	switch {
	case notrack:
	case !inMemory:
		register, _ := inst.Args[0].(x86asm.Reg)
		return instruction{exits: true, kind: ByRegister, number: uint8(register - x86asm.RAX), ends: true}, nil
	case m.Index == 0:
		return instruction{exits: true, ends: true}, nil
	case m.Base != 0 || m.Segment != 0 || m.Scale != 8:
		return instruction{}, errUnknownTable
	default:
		return instruction{exits: true, table: true, target: uint64(m.Disp), ends: true}, nil
	}
	return instruction{ends: true}, nil
}

// stackDepth follows how far the stack pointer is below where it was at the entry.
type stackDepth struct {
	line   stackLine
	behind map[uint64]stackLine // by the targets of jumps
}

// stackLine is how deep the stack is: below the entry's if that is known, else below what it was
// when control last did not run on.
type stackLine struct {
	known bool
	bytes int64
}

// atEntry tells whether the stack frame is not there, or not any more. Where nothing else is
// known, to take down what was there before is enough: compilers then leave.
func (l stackLine) atEntry() bool { return l.known && l.bytes == 0 || !l.known && l.bytes < 0 }

// arrive takes up what a jump to this address has said.
func (d *stackDepth) arrive(vaddr uint64) {
	if line, ok := d.behind[vaddr]; ok && !d.line.known {
		d.line = line
	}
}

func (d *stackDepth) follow(inst x86asm.Inst, in instruction) {
	if in.hasTarget && d.line.known {
		d.behind[in.target] = d.line
	}
	amount, isNumber := inst.Args[1].(x86asm.Imm)
	switch {
	case inst.Op == x86asm.CALL:
	case in.ends:
		d.line = stackLine{}
	case inst.Op == x86asm.PUSH:
		d.line.bytes += 8
	case inst.Op == x86asm.POP:
		d.line.bytes -= 8
	case inst.Op == x86asm.LEAVE:
		d.line = stackLine{known: true}
	case inst.Args[0] != x86asm.RSP || inst.Op == x86asm.CMP || inst.Op == x86asm.TEST:
	case inst.Op == x86asm.SUB && isNumber:
		d.line.bytes += int64(amount)
	case inst.Op == x86asm.ADD && isNumber:
		d.line.bytes -= int64(amount)
	default:
		d.line = stackLine{}
	}
}

// tableJump recognises a switch: a distance is loaded from a table, added to the table's
// address, and jumped to.
type tableJump struct {
	loaded, ready x86asm.Reg
}

// leads tells whether a jump to a register goes through a table.
func (t *tableJump) leads(register uint8) bool {
	return t.ready != 0 && uint8(t.ready-x86asm.RAX) == register
}

func (t *tableJump) follow(inst x86asm.Inst) {
	to, _ := inst.Args[0].(x86asm.Reg)
	switch {
	case inst.Op == x86asm.MOVSXD:
		if m, ok := inst.Args[1].(x86asm.Mem); ok && m.Index != 0 && m.Scale == 4 {
			t.loaded, t.ready = to, 0
		}
	case inst.Op == x86asm.ADD && to != 0 && t.loaded != 0 && (to == t.loaded || inst.Args[1] == t.loaded):
		t.loaded, t.ready = 0, to
	case inst.Op == x86asm.NOP:
	case to != 0 && (to == t.loaded || to == t.ready):
		t.loaded, t.ready = 0, 0
	}
}

// decode returns the length of the instruction at the start of code. Of vector instructions,
// which the decoder does not know, nothing else is told: they lead nowhere.
func decode(code []byte) (int, x86asm.Inst, error) {
	switch {
	case bytes.HasPrefix(code, endbr64):
		return len(endbr64), x86asm.Inst{}, nil
	case code[0] == 0xc5 || code[0] == 0xc4 || code[0] == 0x62:
		n, err := vectorLength(code)
		return n, x86asm.Inst{}, err
	}
	if n := nopLength(code); n > 0 {
		return n, x86asm.Inst{Op: x86asm.NOP}, nil
	}
	inst, err := x86asm.Decode(code, x86Mode)
	if err != nil || inst.Op == 0 || inst.Len == 0 || inst.Len > len(code) {
		return 0, inst, errUnknownInstruction
	}
	_, jumps := inst.Args[0].(x86asm.Rel)
	if leavesOtherwise(inst.Op) || jumps && inst.Op != x86asm.CALL && inst.DataSize == 16 {
		return 0, inst, errUnknownExit
	}
	return inst.Len, inst, nil
}

type decodeError string

func (e decodeError) Error() string { return string(e) }

const (
	errUnknownInstruction = decodeError("an instruction that is not understood")
	errUnknownExit        = decodeError("an instruction that leaves it in an unusual way")
	errUnknownTable       = decodeError("a jump by a table, which may be of other functions,")
)

// leavesOtherwise tells of instructions that are no part of any ordinary function: far
// returns and jumps, returns from interrupts, and short loops, which can leave a function only
// in code written by hand.
func leavesOtherwise(op x86asm.Op) bool {
	switch op {
	case x86asm.LRET, x86asm.LJMP, x86asm.IRET, x86asm.IRETD, x86asm.IRETQ, x86asm.SYSRET, x86asm.SYSEXIT,
		x86asm.LOOP, x86asm.LOOPE, x86asm.LOOPNE, x86asm.JRCXZ, x86asm.JECXZ, x86asm.JCXZ, x86asm.XBEGIN:
		return true
	}
	return false
}

// vectorLength returns the length of an instruction with a VEX or EVEX prefix: prefix, opcode,
// operand byte, displacement, and for some an immediate byte.
func vectorLength(code []byte) (int, error) {
	opcodes, at := byte(1), 2
	switch {
	case len(code) < 4:
		return 0, errUnknownInstruction
	case code[0] == 0xc4:
		opcodes, at = code[1]&0x1f, 3
	case code[0] == 0x62:
		opcodes, at = code[1]&0x07, 4
	}
	if opcodes < 1 || opcodes > 3 || at+1 >= len(code) {
		return 0, errUnknownInstruction
	}
	opcode := code[at]
	if opcodes == 1 && opcode == 0x77 { // vzeroupper has no operands
		return at + 1, nil
	}
	n := at + 1 + operandLength(code[at+1:])
	if opcodes == 3 || opcodes == 1 && hasImmediate(opcode) {
		n++
	}
	if n > len(code) {
		return 0, errUnknownInstruction
	}
	return n, nil
}

// hasImmediate tells of the opcodes behind 0f that take an immediate byte.
func hasImmediate(opcode byte) bool {
	switch opcode {
	case 0x70, 0x71, 0x72, 0x73, 0xc2, 0xc4, 0xc5, 0xc6:
		return true
	}
	return false
}

// operandLength is the length of a ModR/M byte with what belongs to it, in 64-bit code.
func operandLength(b []byte) int {
	mod, rm := b[0]>>6, b[0]&7
	n := 1
	if mod == 3 {
		return n
	}
	if rm == 4 {
		n++
		if mod == 0 && len(b) > 1 && b[1]&7 == 5 {
			n += 4
		}
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, mod == 0 && rm == 5:
		n += 4
	}
	return n
}
