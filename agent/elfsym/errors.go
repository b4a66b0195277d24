package elfsym

import (
	"errors"
	"fmt"
)

var (
	// ErrNotELF is returned by [Open] for a file that is not a 64-bit little-endian ELF file.
	ErrNotELF = errors.New("not a 64-bit little-endian ELF file")
	// ErrBadELF marks a file that claims to be ELF and contradicts itself.
	ErrBadELF = errors.New("malformed ELF file")
	// ErrNoSymbol is returned when the file does not define the symbol asked for.
	ErrNoSymbol = errors.New("no such symbol")
	// ErrTooLarge is returned when an answer would cost more memory or time than is allowed.
	ErrTooLarge = errors.New("symbol table too large")
	// ErrNoBytes is returned for an address that no part of the file is loaded at, such as
	// one in .bss, or for an offset that is not loaded.
	ErrNoBytes = errors.New("address has no bytes in the file")
	// ErrNotProbeable is wrapped by the reasons that [Symbol.Probeable] gives.
	ErrNotProbeable = errors.New("symbol can not be probed")
)

func badELF(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadELF, fmt.Sprintf(format, args...))
}
