package agent

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// SourceFunction begins a source that names a native function: "function:LIB:SYMBOL".
const SourceFunction = "function"

const functionPrefix = SourceFunction + ":"

// The roles that a function can be followed in.
const (
	roleStage  = uint8(bpf.ProbeRoleROLE_STAGE)
	roleRegion = uint8(bpf.ProbeRoleROLE_REGION)
)

const (
	maxFunctions = 1024 // bpf/types.h's MAX_FUNCTIONS
	maxMatches   = 256  // functions that one pattern may name
)

// followed is a function that is followed; its index is its number in the
// kernel side's tables.
type followed struct {
	name    string // for people
	symbol  string
	file    *openImage
	address uint64 // vaddr
	role    uint8
	body    elfsym.Body
}

// functionPatterns lists the functions that the configuration asks for.
func (c *Config) functionPatterns() ([]functionPattern, error) {
	patterns, err := c.regionPatterns()
	if err != nil {
		return nil, err
	}
	for _, source := range c.StagesFrom {
		text, ok := strings.CutPrefix(source, functionPrefix)
		if !ok {
			continue
		}
		p, err := parseFunctionPattern(text, roleStage)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// attachFunctions probes the wanted functions of files that have not been looked
// at yet. A pattern that names nothing in its library, and a function whose code
// is not understood, are errors.
func (s *Session) attachFunctions() error {
	var errs []error
	for _, file := range s.names.opened() {
		if file.noFunctions || len(s.functionPatterns) == 0 {
			continue
		}
		file.noFunctions = true // whatever comes of it, once is enough
		errs = append(errs, s.attachFunctionsOf(file))
	}
	return errors.Join(append(errs, s.unmatched())...)
}

func (s *Session) attachFunctionsOf(file *openImage) error {
	wanted := patternsFor(file, s.functionPatterns)
	if len(wanted) == 0 {
		return nil
	}
	found, err := s.findFunctions(file, wanted)
	if err != nil || len(found) == 0 {
		return err
	}
	if len(s.functions)+len(found) > maxFunctions {
		return fmt.Errorf("%d functions are wanted, %d can be followed", len(s.functions)+len(found), maxFunctions)
	}
	entries, exits, err := s.announce(found)
	if err != nil {
		return err
	}
	// Exits first: a function whose exits were not probed would stay open.
	if len(exits) > 0 {
		if err := s.attachTo(file, s.objects.FunctionExit, exits); err != nil {
			return err
		}
	}
	return s.attachTo(file, s.objects.FunctionEntry, entries)
}

// patternsFor returns the patterns whose library a file is.
func patternsFor(file *openImage, patterns []functionPattern) []functionPattern {
	return slices.DeleteFunc(slices.Clone(patterns), func(p functionPattern) bool { return !p.in(file.path) })
}

// announce gives functions their numbers, tells the kernel side of them, and
// returns where to probe them.
func (s *Session) announce(found []followed) (entries, exits []probe.Point, err error) {
	for _, f := range found {
		number := uint64(len(s.functions))
		s.functions = append(s.functions, f)
		var name bpf.ProbeStageName
		copy(name.Text[:len(name.Text)-1], f.name)
		if err := errors.Join(
			s.objects.Names.Put(functionName|number, name),
			s.objects.Functions.Put(uint32(number), bpf.ProbeFunction{
				Size: f.body.Size, ColdStart: f.body.ColdStart, ColdSize: f.body.ColdSize, Skip: uint32(f.body.Entry.Skip),
			}),
		); err != nil {
			return nil, nil, fmt.Errorf("passing on the function %q: %w", f.symbol, err)
		}
		cookie := number | uint64(f.role)<<16
		entries = append(entries, probe.Point{Offset: f.offset() + f.body.Entry.Skip, Cookie: cookie})
		for _, e := range f.body.Exits {
			exits = append(exits, probe.Point{Offset: e.Offset, Cookie: cookie | uint64(e.Kind)<<24 | uint64(e.Number)<<32})
		}
	}
	return entries, exits, nil
}

// functionName is bpf/function.h's FUNCTION_NAME.
const functionName = 3 << 62

// offset is the entry's position in the file; findFunctions has made sure that
// there is one.
func (f *followed) offset() uint64 {
	offset, _ := f.file.elf.FileOffset(f.address)
	return offset
}

// findFunctions finds the functions that patterns name in a file; one that
// several name has all their roles.
func (s *Session) findFunctions(file *openImage, patterns []functionPattern) ([]followed, error) {
	symbols, err := functionSymbols(file.elf, patterns)
	if err != nil {
		return nil, fmt.Errorf("looking for functions in %q: %w", file.path, err)
	}
	wanted := s.visibleFunctions(wantedFunctions(symbols.whole, patterns))
	if len(wanted) > maxMatches { // before any is decoded
		return nil, fmt.Errorf("%d functions of %q are wanted, more than %d: name fewer", len(wanted), file.path, maxMatches)
	}
	var found []followed
	for _, w := range wanted {
		f, err := w.follow(file, symbols.cold[w.symbol.Name])
		switch {
		case err == nil:
			found = append(found, f)
		case w.by.exact():
			return nil, fmt.Errorf("following a function of %q: %w", file.path, err)
		default:
			s.warnOnce(fmt.Sprintf("%q: one of the functions of %q is not followed: %v", w.by, file.path, err))
		}
	}
	for _, p := range patterns {
		if slices.ContainsFunc(symbols.whole, func(f elfsym.Symbol) bool { return p.matches(f.Name) }) {
			s.settled[p] = true
		}
	}
	return found, nil
}

// wantedFunction is a function that patterns name.
type wantedFunction struct {
	symbol elfsym.Symbol   // the longest of its names'
	role   uint8           // of all the patterns
	by     functionPattern // one of them, an exact one if there is one
}

// wantedFunctions lists the functions among the symbols that patterns name.
func wantedFunctions(symbols []elfsym.Symbol, patterns []functionPattern) []wantedFunction {
	var wanted []wantedFunction
	for _, alias := range elfsym.Aliases(symbols) {
		w := wantedFunction{
			symbol: slices.MaxFunc(alias.Symbols, func(a, b elfsym.Symbol) int { return cmp.Compare(a.Size, b.Size) }),
		}
		for _, p := range patterns {
			if slices.ContainsFunc(alias.Symbols, func(s elfsym.Symbol) bool { return p.matches(s.Name) }) {
				w.role |= p.role
				if w.by.symbol == "" || p.exact() {
					w.by = p
				}
			}
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// visibleFunctions leaves out the functions without any role that is visible.
func (s *Session) visibleFunctions(wanted []wantedFunction) []wantedFunction {
	var visible []wantedFunction
	for _, w := range wanted {
		if w.role = s.visible(displayName(w.symbol.Name), w.role); w.role != 0 {
			visible = append(visible, w)
		}
	}
	return visible
}

// visible takes the role of a stage from a function whose name does not match
// Config.StageMatch.
func (s *Session) visible(name string, role uint8) uint8 {
	if matches, err := regexp.MatchString(s.config.StageMatch, name); err == nil && !matches {
		return role &^ roleStage
	}
	return role
}

// follow finds out how to follow the function; cold are the parts that may be split off from it.
func (w wantedFunction) follow(file *openImage, cold []elfsym.Symbol) (followed, error) {
	body, err := file.elf.Body(w.symbol, cold, probe.Kernel())
	return followed{
		name: displayName(w.symbol.Name), symbol: w.symbol.Name, file: file, address: w.symbol.Value, role: w.role, body: body,
	}, err
}

// endsWithJump tells whether no return ends the function.
func (f *followed) endsWithJump() bool {
	return !slices.ContainsFunc(f.body.Exits, func(e elfsym.Exit) bool { return e.Class == elfsym.Stepped })
}

// namedSymbols are functions, and by their names the parts split off from them.
type namedSymbols struct {
	whole []elfsym.Symbol
	cold  map[string][]elfsym.Symbol
}

// functionSymbols reads the symbols that patterns name in one pass: from
// .symtab, or from what the file exports if it has been stripped.
func functionSymbols(file *elfsym.File, patterns []functionPattern) (namedSymbols, error) {
	named := func(name string) bool {
		whole, _, _ := strings.Cut(name, ".cold")
		return slices.ContainsFunc(patterns, func(p functionPattern) bool { return p.matches(whole) })
	}
	all, err := file.StaticSymbols(named, maxSourceSymbols)
	if err == nil && len(all) == 0 {
		all, err = file.DynamicSymbols(named)
	}
	if err != nil {
		return namedSymbols{}, err
	}
	symbols := namedSymbols{cold: map[string][]elfsym.Symbol{}}
	for _, symbol := range all {
		if symbol.Probeable() != nil {
			continue
		}
		if whole, _, split := strings.Cut(symbol.Name, ".cold"); split {
			symbols.cold[whole] = append(symbols.cold[whole], symbol)
		} else {
			symbols.whole = append(symbols.whole, symbol)
		}
	}
	return symbols, nil
}

// warnOfFunctions warns of wanted libraries that the target has not mapped yet.
func (s *Session) warnOfFunctions() error {
	files := s.names.opened()
	for _, p := range s.functionPatterns {
		mapped := slices.ContainsFunc(files, func(f *openImage) bool { return p.in(f.path) })
		switch {
		case !mapped:
			s.warnOnce(fmt.Sprintf("%q: the process has mapped no such library yet%s; its functions are followed from when it is loaded",
				p.title(), nearLibraries(files, p.library)))
		case p.set != "" && !s.hasSet(p.set):
			s.warnOnce(fmt.Sprintf("regions %q: %q has none of these functions (it may have been stripped)", p.set, p.library))
		}
	}
	return nil
}

// hasSet tells whether any function of a built-in set was found.
func (s *Session) hasSet(set string) bool {
	return slices.ContainsFunc(s.functionPatterns, func(p functionPattern) bool { return p.set == set && s.settled[p] })
}

// stageFunctions is the number of functions that are stages.
func (s *Session) stageFunctions() int {
	n := 0
	for _, f := range s.functions {
		if f.role&roleStage != 0 {
			n++
		}
	}
	return n
}

// nameFunctions gives functions their names in full: the kernel side has no room
// for those of some.
func (d *drain) nameFunctions() {
	for number, f := range d.functions {
		d.text[functionName|uint64(number)] = f.name
	}
}
