package agent

import (
	"errors"
	"fmt"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
)

// catchFunction is what every C++ handler calls first, with the stack taken down to the
// function that catches: libstdc++ and libc++abi export it.
const catchFunction = "__cxa_begin_catch"

// attachCatches probes where exceptions are caught, if functions are followed: those that an
// exception has left end there. It costs nothing unless something is thrown.
func (s *Session) attachCatches() error {
	if len(s.functionPatterns) == 0 {
		return nil
	}
	for _, file := range s.names.opened() {
		if file.noCatch {
			continue
		}
		file.noCatch = true // whatever comes of it, once is enough
		points, err := catchPoints(file.elf)
		if err != nil {
			s.warnOnce(fmt.Sprintf("functions that exceptions of %q leave may end late: %v", file.path, err))
			continue
		}
		if len(points) == 0 {
			continue
		}
		if err := s.attachTo(file, s.objects.CatchHit, points); err != nil {
			return err
		}
	}
	return nil
}

// catchPoints returns what to probe in a file, nothing if it is no C++ runtime.
func catchPoints(file *elfsym.File) ([]probe.Point, error) {
	symbol, err := file.Lookup(catchFunction)
	if errors.Is(err, elfsym.ErrNoSymbol) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	placement, err := file.Place(symbol, probe.Kernel())
	if err != nil {
		return nil, err
	}
	return []probe.Point{{Offset: symbol.Offset + placement.Skip}}, nil
}
