package elfsym

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

const (
	blockSize = 4096
	maxBlocks = 512 // 2 MiB of cached file content per File
)

// reader serves small reads of a hostile file of known size from a bounded block cache.
type reader struct {
	r    io.ReaderAt
	size uint64

	mu     sync.Mutex
	blocks map[uint64][]byte
	ring   [maxBlocks]uint64 // block numbers in order of arrival, for eviction
	next   int
}

func newReader(r io.ReaderAt, size uint64) *reader {
	return &reader{r: r, size: size, blocks: make(map[uint64][]byte)}
}

// holds reports whether [off, off+n) lies inside the file.
func (r *reader) holds(off, n uint64) bool {
	return off <= r.size && n <= r.size-off
}

// read fills b from off.
func (r *reader) read(off uint64, b []byte) error {
	if !r.holds(off, uint64(len(b))) {
		return badELF("%d bytes at offset %#x lie outside the file", len(b), off)
	}
	if len(b) > 4*blockSize {
		return r.fetch(off, b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(b) > 0 {
		block, err := r.block(off / blockSize)
		if err != nil {
			return err
		}
		n := copy(b, block[off%blockSize:])
		b, off = b[n:], off+uint64(n)
	}
	return nil
}

// block returns one block of the file, shorter than blockSize only at the end of the file.
func (r *reader) block(n uint64) ([]byte, error) {
	if b, ok := r.blocks[n]; ok {
		return b, nil
	}
	start := n * blockSize
	b := make([]byte, min(blockSize, r.size-start))
	if err := r.fetch(start, b); err != nil {
		return nil, err
	}
	if len(r.blocks) >= maxBlocks {
		delete(r.blocks, r.ring[r.next])
	}
	r.blocks[n] = b
	r.ring[r.next] = n
	r.next = (r.next + 1) % maxBlocks
	return b, nil
}

// drop empties the cache: after a pass over a whole table little of it will be asked for again,
// and an agent holds many files.
func (r *reader) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.blocks)
	r.next = 0
}

func (r *reader) fetch(off uint64, b []byte) error {
	n, err := r.r.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF // the file shrank since it was opened
	}
	return fmt.Errorf("reading %d bytes at offset %#x: %w", len(b), off, err)
}

func (r *reader) u16(off uint64) (uint16, error) {
	var b [2]byte
	err := r.read(off, b[:])
	return binary.LittleEndian.Uint16(b[:]), err
}

func (r *reader) u32(off uint64) (uint32, error) {
	var b [4]byte
	err := r.read(off, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func (r *reader) u64(off uint64) (uint64, error) {
	var b [8]byte
	err := r.read(off, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}
