//go:build !cgo

package gpu

func openLibrary() (library, error) { return nil, ErrNotBuilt }
