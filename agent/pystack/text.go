package pystack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// longestText is how many characters are kept of a name; longestString is what is believed to be one.
const (
	longestText   = 1024
	longestString = 1 << 24
)

var errText = errors.New("a string that is none of CPython's")

// text reads a string. One that is longer than longestText loses its end.
func (d *Decoder) text(addr uint64) (string, error) {
	l := &d.layout.Text
	header := make([]byte, max(l.Length+8, l.State+4))
	if err := d.read(addr, header); err != nil {
		return "", err
	}
	length := binary.LittleEndian.Uint64(header[l.Length:])
	state := binary.LittleEndian.Uint32(header[l.State:]) >> l.Kind
	size, compact, ascii := uint64(state&7), state&8 != 0, state&16 != 0
	if length > longestString || !compact || (size != 1 && size != 2 && size != 4) || ascii && size != 1 {
		return "", fmt.Errorf("%w: at %#x", errText, addr)
	}
	data := addr + l.Wide
	if ascii {
		data = addr + l.ASCII
	}
	b := make([]byte, min(length, longestText)*size)
	if err := d.read(data, b); err != nil {
		return "", err
	}
	text := characters(b, int(size))
	if length > longestText {
		text += "…"
	}
	return text, nil
}

// characters turns an array of code points into text.
func characters(b []byte, size int) string {
	var text strings.Builder
	for len(b) >= size {
		var c uint32
		switch size {
		case 1:
			c = uint32(b[0])
		case 2:
			c = uint32(binary.LittleEndian.Uint16(b))
		default:
			c = binary.LittleEndian.Uint32(b)
		}
		writeCharacter(&text, c)
		b = b[size:]
	}
	return text.String()
}

// writeCharacter also writes what is no character: a byte of a file's name that is not UTF-8, which
// Python keeps as a surrogate, and anything else that there may be.
func writeCharacter(text *strings.Builder, c uint32) {
	const firstByte, lastByte = 0xdc80, 0xdcff
	switch {
	case c >= firstByte && c <= lastByte:
		fmt.Fprintf(text, `\x%02x`, c-0xdc00)
	case c > utf8.MaxRune || !utf8.ValidRune(rune(c)):
		fmt.Fprintf(text, `\u%04x`, c)
	default:
		text.WriteRune(rune(c))
	}
}

// largestTable bounds line tables, in bytes.
const largestTable = 1 << 20

var errBytes = errors.New("a line table that is none")

func (d *Decoder) bytes(addr uint64) ([]byte, error) {
	l := &d.layout.Bytes
	var header [8]byte
	if err := d.read(addr+l.Size, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(header[:])
	if size > largestTable {
		return nil, fmt.Errorf("%w: it has %d bytes", errBytes, size)
	}
	b := make([]byte, size)
	return b, d.read(addr+l.Data, b)
}
