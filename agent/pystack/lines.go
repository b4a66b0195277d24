package pystack

// lineTable is the form of a line table.
type lineTable uint8

const (
	lnotab    lineTable = iota // up to 3.9: increments of address and line
	ranges                     // 3.10: lengths of ranges and increments of line
	locations                  // from 3.11 on: entries with columns
)

// instructionSize is that of a code unit, by which addresses are counted from 3.10 on.
const instructionSize = 2

// noLine is the line of an instruction that belongs to none.
const noLine = 0

// line returns the line of the instruction at an address in the bytecode, noLine if the table says that
// it has none or does not reach that far.
func (t lineTable) line(table []byte, first int, address uint64) int {
	switch t {
	case lnotab:
		return lnotabLine(table, first, address)
	case ranges:
		return rangesLine(table, first, address)
	default:
		return locationsLine(table, first, address)
	}
}

func lnotabLine(table []byte, line int, address uint64) int {
	at := uint64(0)
	for len(table) >= 2 {
		if at += uint64(table[0]); at > address {
			break
		}
		line += int(int8(table[1]))
		table = table[2:]
	}
	return line
}

func rangesLine(table []byte, line int, address uint64) int {
	const none = -128
	end := uint64(0)
	for len(table) >= 2 {
		end += uint64(table[0])
		delta := int(int8(table[1]))
		if delta != none {
			line += delta
		}
		switch {
		case address >= end:
		case delta == none:
			return noLine
		default:
			return line
		}
		table = table[2:]
	}
	return noLine
}

// The kinds of entry that move the line; all others stay on it.
const (
	locationOneLine  = 10 // and the next two: by 0, 1, 2
	locationNoColumn = 13
	locationLong     = 14
	locationNone     = 15
)

func locationsLine(table []byte, line int, address uint64) int {
	end := uint64(0)
	for len(table) > 0 {
		head := table[0]
		kind := int(head >> 3 & 0xf)
		end += (uint64(head&7) + 1) * instructionSize
		body := table[1:]
		length := 0
		for length < len(body) && body[length]&0x80 == 0 { // only an entry's first byte has that bit
			length++
		}
		switch {
		case kind == locationLong || kind == locationNoColumn:
			line += signedVarint(body[:length])
		case kind >= locationOneLine && kind < locationNoColumn:
			line += kind - locationOneLine
		}
		if address < end {
			if kind == locationNone {
				return noLine
			}
			return line
		}
		table = body[length:]
	}
	return noLine
}

// signedVarint reads a number in groups of six bits, lowest first; its lowest bit is the sign.
func signedVarint(b []byte) int {
	var value uint32
	for i, group := range b {
		if i > 5 {
			break
		}
		value |= uint32(group&0x3f) << (6 * i)
		if group&0x40 == 0 {
			break
		}
	}
	if value&1 != 0 {
		return -int(value >> 1)
	}
	return int(value >> 1)
}
