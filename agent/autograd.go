package agent

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// engineFunction is a function of PyTorch's autograd engine that is probed:
// torch::autograd::Engine's member, by its mangled name.
type engineFunction struct {
	prefix   string   // of every version's name
	names    []string // as far as known, to spare reading the whole symbol table
	kind     bpf.ProbeAutograd
	argument uint64 // that points to the shared pointer to the GraphTask
}

func engineFunctions() []engineFunction {
	const engine = "_ZN5torch8autograd6Engine"
	const graphTask = "ERKSt10shared_ptrINS0_9GraphTaskEE"
	execute, evaluate := engine+"23execute_with_graph_task"+graphTask, engine+"17evaluate_function"
	// The result of execute_with_graph_task is returned in memory: on x86-64 the
	// first argument register holds its address, on arm64 a register apart.
	executeArgument := uint64(3)
	if runtime.GOARCH == "arm64" {
		executeArgument = 2
	}
	return []engineFunction{
		{execute, []string{
			execute + "S2_INS0_4NodeEEONS0_11InputBufferE", // up to 2.6
			execute + "N3c1013intrusive_ptrINS0_4NodeENS7_6detail34intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE",
		}, bpf.ProbeAutogradAUTOGRAD_EXECUTE, executeArgument},
		{evaluate, []string{
			evaluate + "ERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
		}, bpf.ProbeAutogradAUTOGRAD_EVALUATE, 2},
	}
}

// attachAutograd probes the autograd engines that the target has mapped.
func (s *Session) attachAutograd() error {
	for _, file := range s.names.opened() {
		if file.noEngine {
			continue
		}
		points, err := enginePoints(file.elf)
		file.noEngine = true // whatever comes of it, once is enough
		if err != nil {
			s.warnOnce(fmt.Sprintf("autograd's calls can't be charged to the stage that called backward: %q: %v", file.path, err))
			continue
		}
		if len(points) == 0 {
			continue
		}
		if err := s.attachTo(file, s.objects.AutogradHit, points); err != nil {
			return err
		}
	}
	return nil
}

// enginePoints returns where to probe, nothing if the file has no engine.
func enginePoints(file *elfsym.File) ([]probe.Point, error) {
	functions := engineFunctions()
	if _, err := lookupAny(file, functions[1].names); err != nil {
		return nil, nil // the common case, told by one look into a hash table
	}
	var points []probe.Point
	for _, f := range functions {
		symbol, err := f.find(file)
		if err != nil {
			return nil, err
		}
		placement, err := file.Place(symbol, probe.Kernel())
		if err != nil {
			return nil, err
		}
		points = append(points, probe.Point{Offset: symbol.Offset + placement.Skip, Cookie: uint64(f.kind) | f.argument<<32})
	}
	return points, nil
}

func (f engineFunction) find(file *elfsym.File) (elfsym.Symbol, error) {
	if symbol, err := lookupAny(file, f.names); err == nil {
		return symbol, nil
	}
	symbols, err := file.DynamicSymbols(func(name string) bool { return strings.HasPrefix(name, f.prefix) })
	if err != nil {
		return elfsym.Symbol{}, err
	}
	if len(symbols) != 1 {
		return elfsym.Symbol{}, fmt.Errorf("%d functions are called %s…: %w", len(symbols), f.prefix, elfsym.ErrNoSymbol)
	}
	return symbols[0], nil
}

func lookupAny(file *elfsym.File, names []string) (elfsym.Symbol, error) {
	for _, name := range names {
		symbol, err := file.Lookup(name)
		if !errors.Is(err, elfsym.ErrNoSymbol) {
			return symbol, err
		}
	}
	return elfsym.Symbol{}, elfsym.ErrNoSymbol
}
