package gil

import (
	"encoding/binary"
	"errors"
	"testing"
)

// fakeMemory holds 8-byte words at their addresses; everything else is unreadable.
type fakeMemory map[uint64]uint64

var errUnmapped = errors.New("unmapped")

func (m fakeMemory) ReadMemory(addr uint64, b []byte) error {
	for i := 0; i < len(b); i += 8 {
		value, ok := m[addr+uint64(i)]
		if !ok || len(b)%8 != 0 {
			return errUnmapped
		}
		binary.LittleEndian.PutUint64(b[i:], value)
	}
	return nil
}

func TestWords(t *testing.T) {
	mem := fakeMemory{0x10: 1, 0x18: 2}
	if got, err := words(mem, 0x10, 2); err != nil || got[0] != 1 || got[1] != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
	if _, err := words(mem, 0x18, 2); !errors.Is(err, errUnmapped) {
		t.Fatalf("got the error %v", err)
	}
}
