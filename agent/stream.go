package agent

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// stream is a ring buffer through which the kernel side sends records.
type stream struct {
	what   string // they are, for errors
	ring   *ringbuf.Reader
	record ringbuf.Record
}

func openStream(ring *ebpf.Map, what string) (*stream, error) {
	r, err := ringbuf.NewReader(ring)
	if err != nil {
		return nil, fmt.Errorf("opening the ring buffer of %s: %w", what, err)
	}
	return &stream{what: what, ring: r}, nil
}

// each hands on the records that are there, whose bytes are good for that long.
// Nobody is woken when one comes, so it has to be called often enough for the ring
// buffer not to fill.
func (s *stream) each(take func(record []byte) error) error {
	for s.ring.SetDeadline(time.Now()); ; {
		err := s.ring.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", s.what, err)
		}
		if err := take(s.record.RawSample); err != nil {
			return fmt.Errorf("decoding %s: %w", s.what, err)
		}
	}
}

func (s *stream) close() error { return s.ring.Close() }

// decode looks at a record as at a type that has the kernel side's layout, which
// bpf2go gave the Go type too; reflection would take a multiple of the time.
func decode[T any](record []byte) (*T, error) {
	var like T
	if len(record) < int(unsafe.Sizeof(like)) {
		return nil, fmt.Errorf("%d bytes are too few", len(record))
	}
	return (*T)(unsafe.Pointer(&record[0])), nil
}
