package agent

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// The sources of stages. They can be mixed: all feed the same stack of a thread.
const (
	SourceMarkers        = "markers"         // the marker library
	SourceNVTX           = "nvtx"            // NVTX push/pop ranges, no tool needed in the target
	SourceRecordFunction = "record-function" // torch.profiler.record_function, no profiler needed
)

// Sources lists what Config.StagesFrom may name.
func Sources() []string { return []string{SourceMarkers, SourceNVTX, SourceRecordFunction} }

// IsSource tells whether Config.StagesFrom may have this, as far as its beginning
// tells.
func IsSource(source string) bool { return slices.Contains(Sources(), source) || isNamed(source) }

// isNamed tells whether a source says itself what it is in the target.
func isNamed(source string) bool {
	return slices.ContainsFunc([]string{functionPrefix, pairPrefix, pythonPrefix}, func(prefix string) bool {
		return strings.HasPrefix(source, prefix)
	})
}

// rangeFunction is a function whose call begins or ends a stage.
type rangeFunction struct {
	source   bpf.ProbeSource
	action   bpf.ProbeRange
	argument uint64 // that holds the name, or the handle, from 1
	distance int32  // of the handle from where the argument points
}

func (f rangeFunction) cookie() uint64 {
	return uint64(f.source) | uint64(f.action)<<8 | f.argument<<16 | uint64(uint32(f.distance))<<32
}

func nvtx(action bpf.ProbeRange, argument uint64) rangeFunction {
	return rangeFunction{source: bpf.ProbeSourceSOURCE_NVTX, action: action, argument: argument}
}

// nvtxFunctions are NVTX's push/pop functions. Version 2 exports them from
// libnvToolsExt; version 3 is compiled into its users, where they are local
// symbols if they are there at all. Ranges of start/end are counted only: they
// belong to no thread, and without a tool their ends can't be told apart.
var nvtxFunctions = map[string]rangeFunction{
	"nvtxRangePushA":         nvtx(bpf.ProbeRangeRANGE_PUSH_TEXT, 1),
	"nvtxRangePushW":         nvtx(bpf.ProbeRangeRANGE_PUSH_WIDE, 1),
	"nvtxRangePushEx":        nvtx(bpf.ProbeRangeRANGE_PUSH_ATTRIBUTES, 1),
	"nvtxDomainRangePushEx":  nvtx(bpf.ProbeRangeRANGE_PUSH_ATTRIBUTES, 2),
	"nvtxRangePop":           nvtx(bpf.ProbeRangeRANGE_POP, 1),
	"nvtxDomainRangePop":     nvtx(bpf.ProbeRangeRANGE_POP, 1),
	"nvtxRangeStartA":        nvtx(bpf.ProbeRangeRANGE_START, 1),
	"nvtxRangeStartW":        nvtx(bpf.ProbeRangeRANGE_START, 1),
	"nvtxRangeStartEx":       nvtx(bpf.ProbeRangeRANGE_START, 1),
	"nvtxDomainRangeStartEx": nvtx(bpf.ProbeRangeRANGE_START, 1),
}

// What tells a file that has some of them: an export, or how a name in .symtab
// ends. Whoever pushes ranges also pops them.
var (
	nvtxExports = []string{"nvtxRangePop", "nvtxDomainRangePop"}
	nvtxEnding  = "RangePop"
)

// record_function's two halves, in libtorch_cpu. The first returns an object,
// hence its name is the second argument; the other one is local.
const (
	recordFunctionEnter = "_ZN5torch8autograd8profiler25record_function_enter_new"
	recordFunctionExit  = "_ZN5torch8autograd8profilerL24record_function_exit_new"
	recordFunctionClass = "_ZN2at14RecordFunction3endEv" // exported beside them, with one name in all versions
	// recordFunctionMade is called by the first one for the object that the second
	// one ends. Few others call it: PyTorch's operators use another constructor.
	recordFunctionMade = "_ZN2at14RecordFunctionC1ENS_11RecordScopeE"
)

// attachSources probes the functions that the wanted sources, beside the
// markers, have in the target.
func (s *Session) attachSources() error {
	for _, file := range s.names.opened() {
		if file.noSources {
			continue
		}
		file.noSources = true
		points, err := sourcePoints(file.elf, s.config.StagesFrom)
		if err != nil {
			s.warnOnce(fmt.Sprintf("stages can't be taken from %q: %v", file.path, err))
			continue
		}
		if len(points) == 0 {
			continue
		}
		if err := s.attachTo(file, s.objects.RangeHit, points); err != nil {
			return err
		}
		s.rangePoints += len(points)
	}
	return nil
}

// sourcePoints returns what to probe in a file for the given sources.
func sourcePoints(file *elfsym.File, sources []string) ([]probe.Point, error) {
	var points []probe.Point
	if slices.Contains(sources, SourceNVTX) {
		found, err := nvtxPoints(file)
		if err != nil {
			return nil, err
		}
		points = append(points, found...)
	}
	if slices.Contains(sources, SourceRecordFunction) {
		found, err := recordFunctionPoints(file)
		if err != nil {
			return nil, err
		}
		points = append(points, found...)
	}
	return points, nil
}

func nvtxPoints(file *elfsym.File) ([]probe.Point, error) {
	symbols, err := nvtxSymbols(file)
	if err != nil {
		return nil, err
	}
	var points []probe.Point
	for _, alias := range elfsym.Aliases(symbols) {
		symbol := alias.Symbols[0]
		placement, err := file.Place(symbol, probe.Kernel())
		if err != nil {
			continue // data, or a part of a function that was split off
		}
		f := nvtxFunctions[symbol.Name]
		points = append(points, probe.Point{Offset: symbol.Offset + placement.Skip, Cookie: f.cookie()})
	}
	return points, nil
}

// nvtxSymbols looks into .symtab only where its strings hold the name: most
// files are ruled out by one pass over them.
func nvtxSymbols(file *elfsym.File) ([]elfsym.Symbol, error) {
	isNVTX := func(name string) bool { _, ok := nvtxFunctions[name]; return ok }
	for _, name := range nvtxExports {
		if _, err := file.Lookup(name); err == nil {
			return file.DynamicSymbols(isNVTX)
		}
	}
	named, err := file.HasStaticName(nvtxEnding, maxSourceSymbols)
	if err != nil || !named {
		return nil, ignoreTooLarge(err)
	}
	return file.StaticSymbols(isNVTX, maxSourceSymbols)
}

// maxSourceSymbols bounds the symbol tables that are searched: libtorch_cpu's
// and its strings take some 150 MB.
const maxSourceSymbols = 512 << 20

func ignoreTooLarge(err error) error {
	if errors.Is(err, elfsym.ErrTooLarge) {
		return nil
	}
	return err
}

func recordFunctionPoints(file *elfsym.File) ([]probe.Point, error) {
	if _, err := file.Lookup(recordFunctionClass); err != nil {
		return nil, nil
	}
	enter, err := onePrefixed(file.DynamicSymbols, recordFunctionEnter)
	if err != nil {
		return nil, err
	}
	exit, err := onePrefixed(func(match func(string) bool) ([]elfsym.Symbol, error) {
		return file.StaticSymbols(match, maxSourceSymbols)
	}, recordFunctionExit)
	if err != nil {
		return nil, err
	}
	points, err := placed(file, enter, recordFunctionRange(bpf.ProbeRangeRANGE_PUSH_STRING, 2))
	if err != nil {
		return nil, err
	}
	skip := exitSkip(file, exit)
	ends := recordFunctionRange(bpf.ProbeRangeRANGE_POP, 1)
	// Which object is ended is only of use where it is known which one began.
	if made, err := file.Lookup(recordFunctionMade); err == nil {
		handle, err := placed(file, made, recordFunctionRange(bpf.ProbeRangeRANGE_HANDLE, 1))
		if err != nil {
			return nil, err
		}
		points = append(points, handle...)
		ends = recordFunctionEnd(skip)
	}
	return append(points, probe.Point{Offset: exit.Offset + skip, Cookie: ends.cookie()}), nil
}

func recordFunctionRange(action bpf.ProbeRange, argument uint64) rangeFunction {
	return rangeFunction{source: bpf.ProbeSourceSOURCE_RECORD_FUNCTION, action: action, argument: argument}
}

// recordFunctionEnd says where the exit has the address of the object that it
// ends: it is loaded by the code that is skipped, from behind the head of what the
// argument's shared pointer points to.
func recordFunctionEnd(skip uint64) rangeFunction {
	if skip > 0 {
		return recordFunctionRange(bpf.ProbeRangeRANGE_POP_HANDLE, 1)
	}
	ends := recordFunctionRange(bpf.ProbeRangeRANGE_POP_HANDLE_AT, 1)
	ends.distance = int32(exitCode[6])
	return ends
}

// placed returns the one point to probe in a function.
func placed(file *elfsym.File, symbol elfsym.Symbol, f rangeFunction) ([]probe.Point, error) {
	placement, err := file.Place(symbol, probe.Kernel())
	if err != nil {
		return nil, err
	}
	return []probe.Point{{Offset: symbol.Offset + placement.Skip, Cookie: f.cookie()}}, nil
}

func onePrefixed(symbols func(func(string) bool) ([]elfsym.Symbol, error), prefix string) (elfsym.Symbol, error) {
	found, err := symbols(func(name string) bool {
		return strings.HasPrefix(name, prefix) && !strings.HasSuffix(name, ".cold")
	})
	if err != nil {
		return elfsym.Symbol{}, err
	}
	if len(found) != 1 {
		return elfsym.Symbol{}, fmt.Errorf("%w: %d functions are called %s… (is the file stripped?)", elfsym.ErrNoSymbol, len(found), prefix)
	}
	return found[0], nil
}

// exitCode is record_function_exit_new as compilers make it: it loads the address
// of the object, which is 16 behind what the shared pointer points to, and
// tail-jumps to its end. The jump is emulated by the kernel, what comes before is
// not.
var exitCode = []byte{0x48, 0x8b, 0x3f, 0x48, 0x83, 0xc7, 0x10, 0xe9}

func exitSkip(file *elfsym.File, exit elfsym.Symbol) uint64 {
	code := make([]byte, len(exitCode))
	if err := file.ReadAtVaddr(exit.Value, code); err == nil && bytes.Equal(code, exitCode) {
		return uint64(len(exitCode) - 1)
	}
	return 0
}

// warnOfSources warns of wanted sources that the target does not have yet.
func (s *Session) warnOfSources() error {
	wanted := slices.DeleteFunc(slices.Clone(s.config.StagesFrom), func(name string) bool {
		return name == SourceMarkers || isNamed(name)
	})
	if len(wanted) > 0 && s.rangePoints == 0 {
		s.warnOnce(fmt.Sprintf("the process has mapped no function of the stage sources %s yet", strings.Join(wanted, ", ")))
	}
	return nil
}

// offeredSources lists, for each source beside the markers, the files in which
// a process offers it.
func (im *images) offeredSources() map[string][]string {
	offered := map[string][]string{}
	for _, file := range im.opened() {
		for _, source := range []string{SourceNVTX, SourceRecordFunction} {
			if points, err := sourcePoints(file.elf, []string{source}); err == nil && len(points) > 0 {
				offered[source] = append(offered[source], file.path)
			}
		}
		if pairs := offeredPairs(file); len(pairs) > 0 {
			offered[SourceUSDT] = append(offered[SourceUSDT], pairs...)
		}
	}
	return offered
}
