package recording

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrFormat says that a file is not a Recording that this version can read.
var ErrFormat = errors.New("not a stageprof recording")

// maxFile bounds the decompressed size of a Recording, so that a damaged or
// hostile file cannot exhaust memory.
const maxFile = 1 << 30

// Write saves r as gzip-compressed JSON.
func Write(w io.Writer, r *Recording) error {
	z := gzip.NewWriter(w)
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return fmt.Errorf("encoding recording: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("writing recording: %w", err)
	}
	return nil
}

// Read loads what Write saved. A file that is damaged, of another kind or of
// another format version gives an error that wraps ErrFormat.
func Read(rd io.Reader) (*Recording, error) {
	z, err := gzip.NewReader(rd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	limited := &io.LimitedReader{R: z, N: maxFile}
	var r Recording
	if err := json.NewDecoder(limited).Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	// The decoder stops at the end of the object; gzip checks its sum only at
	// the end of the stream.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if r.Format != FormatVersion {
		return nil, fmt.Errorf("%w: its format is version %d, this stageprof reads version %d", ErrFormat, r.Format, FormatVersion)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return &r, nil
}
