package recording

import (
	"cmp"
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

// Write saves r as gzip-compressed JSON. It refuses a Recording that Read would
// not accept, so that no file is written which nobody can open.
func Write(w io.Writer, r *Recording) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("encoding recording: %w", err)
	}
	z := gzip.NewWriter(w)
	if err := encode(z, r); err != nil {
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
	decoder := json.NewDecoder(&io.LimitedReader{R: z, N: maxFile})
	var r Recording
	var syntax *json.SyntaxError
	switch err := decoder.Decode(&r); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: it ends too early: %w", ErrFormat, err)
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("%w: what record --save wrote is one; a profile, for example, is none: %w", ErrFormat, err)
	case err != nil:
		// Another version may well have other types.
		return nil, refused(cmp.Or(r.checkVersion(), err))
	}
	// Reading on to the end lets gzip check its sum, and finds a second
	// Recording appended to the first one, which would be lost silently.
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("data after the recording")
		}
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := r.check(); err != nil {
		return nil, refused(err)
	}
	return &r, nil
}

// refused says that a file can't be read; one of another version is a recording all
// the same.
func refused(err error) error {
	if version := (versionError)(0); errors.As(err, &version) {
		return version
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// versionError is the format of a Recording that this version can't read.
type versionError int

func (v versionError) Error() string {
	return fmt.Sprintf("another version of stageprof wrote it: it is in format %d, and this one reads format %d", int(v), FormatVersion)
}

func (versionError) Is(target error) bool { return target == ErrFormat }
