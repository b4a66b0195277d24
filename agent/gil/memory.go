package gil

import "encoding/binary"

// reader reads the target's memory: all of b, or an error.
type reader interface {
	ReadMemory(addr uint64, b []byte) error
}

// words reads n consecutive 8-byte values.
func words(r reader, addr uint64, n int) ([]uint64, error) {
	b := make([]byte, 8*n)
	if err := r.ReadMemory(addr, b); err != nil {
		return nil, err
	}
	values := make([]uint64, n)
	for i := range values {
		values[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return values, nil
}

func word(r reader, addr uint64) (uint64, error) {
	values, err := words(r, addr, 1)
	if err != nil {
		return 0, err
	}
	return values[0], nil
}
