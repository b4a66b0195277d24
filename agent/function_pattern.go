package agent

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/ianlancetaylor/demangle"

	"stageprof/agent/elfsym"
)

// functionPattern names functions of a library.
type functionPattern struct {
	library string // file name, or the end of a path
	symbol  string // "*" stands for anything
	role    uint8
	set     string // the built-in set that it is of, "" for one that was asked for by name
}

// parseFunctionPattern reads LIB:SYMBOL. Names of C++ functions may hold colons.
func parseFunctionPattern(text string, role uint8) (functionPattern, error) {
	library, symbol, ok := strings.Cut(text, ":")
	if !ok || library == "" || symbol == "" {
		return functionPattern{}, fmt.Errorf("%w: %q does not name a function as LIB:SYMBOL", ErrUsage, text)
	}
	if strings.Trim(symbol, "*") == "" {
		return functionPattern{}, fmt.Errorf("%w: %q names every function of the library", ErrUsage, text)
	}
	return functionPattern{library: library, symbol: symbol, role: role}, nil
}

func (p functionPattern) String() string { return p.library + ":" + p.symbol }

// title names a pattern in messages: those of a set together.
func (p functionPattern) title() string {
	if p.set != "" {
		return p.set + " (" + p.library + ")"
	}
	return p.String()
}

// exact tells whether the pattern names one function, which has to be there.
func (p functionPattern) exact() bool {
	return p.set == "" && p.symbol != "" && !strings.Contains(p.symbol, "*")
}

// in tells whether a mapped file is the pattern's library.
func (p functionPattern) in(file string) bool { return isLibrary(file, p.library) }

// isLibrary tells whether a mapped file is the library that was named: by its
// name, by the end of its path, or by its name without the version behind ".so".
func isLibrary(file, library string) bool {
	if file == library || strings.HasSuffix(file, "/"+strings.TrimPrefix(library, "/")) {
		return true
	}
	return strings.HasSuffix(library, ".so") && strings.HasPrefix(path.Base(file), library+".")
}

// matches tells whether a symbol, or the function that it is a copy of, has the
// pattern's name.
func (p functionPattern) matches(symbol string) bool {
	if strings.Contains(p.symbol, "::") {
		return p.matchesSource(symbol)
	}
	return glob(p.symbol, symbol) || glob(p.symbol, original(symbol))
}

// matchesSource compares a C++ function's name as it stands in its source, or
// the end of it, without parameters. What the pattern consists of is looked for
// first: to turn the names of all symbols into those of the source takes long.
func (p functionPattern) matchesSource(symbol string) bool {
	for _, piece := range strings.FieldsFunc(p.symbol, func(r rune) bool { return r == ':' || r == '*' }) {
		if isIdentifier(piece) && !strings.Contains(symbol, piece) {
			return false
		}
	}
	name := displayName(symbol)
	return glob(p.symbol, name) || glob("*::"+p.symbol, name)
}

// isIdentifier tells whether a piece of a name is the same in a symbol.
func isIdentifier(piece string) bool {
	return !strings.ContainsFunc(piece, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// glob matches a text with a pattern in which "*" stands for anything.
func glob(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == text
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, behind, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = behind
	}
	return true
}

// copySuffixes are what compilers put behind the names of whole copies of a
// function. Parts of one (".part.0") are called by it, so they are none.
var copySuffixes = []string{".isra.", ".constprop.", ".lto_priv.", ".llvm."}

// original is the name of the function that a symbol is a copy of.
func original(symbol string) string {
	end := len(symbol)
	for _, suffix := range copySuffixes {
		if at := strings.Index(symbol, suffix); at > 0 {
			end = min(end, at)
		}
	}
	return symbol[:end]
}

// displayName is a function's name without parameters, as it stands in its
// source.
func displayName(symbol string) string {
	return demangle.Filter(symbol, demangle.NoParams, demangle.NoClones)
}

// unmatched says, once, which patterns name nothing although their library is
// there, and what it has instead.
func (s *Session) unmatched() error {
	var errs []error
	for _, p := range s.functionPatterns {
		if s.settled[p] || p.set != "" { // versions of a library differ
			continue
		}
		for _, file := range s.names.opened() {
			if p.in(file.path) {
				errs = append(errs, noFunction(file, p))
				s.settled[p] = true
			}
		}
	}
	return errors.Join(errs...)
}

func noFunction(file *openImage, p functionPattern) error {
	near, err := nearFunctions(file.elf, p)
	if err != nil {
		return err
	}
	has := "nothing of a like name"
	if len(near) > 0 {
		has = strings.Join(near, ", ")
	}
	return fmt.Errorf("%w: %q has no function %q; it has %s", elfsym.ErrNoSymbol, file.path, p.symbol, has)
}

// mostNear bounds the names in a message.
const mostNear = 5

// nearFunctions lists functions whose names hold what the pattern holds, the
// shortest first; upper and lower case are alike.
func nearFunctions(file *elfsym.File, p functionPattern) ([]string, error) {
	pieces := strings.FieldsFunc(strings.ToLower(p.symbol), func(r rune) bool { return r == '*' || r == ':' })
	like := func(name string) bool {
		lower := strings.ToLower(name)
		return !slices.ContainsFunc(pieces, func(piece string) bool { return !strings.Contains(lower, piece) })
	}
	all, err := file.StaticSymbols(like, maxSourceSymbols)
	if err == nil && len(all) == 0 {
		all, err = file.DynamicSymbols(like)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, symbol := range all {
		if symbol.Probeable() == nil {
			names = append(names, symbol.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	names = slices.Compact(names)
	return names[:min(len(names), mostNear)], nil
}

// nearLibraries lists files with names like that of a library.
func nearLibraries(files []*openImage, library string) string {
	stem, _, _ := strings.Cut(strings.TrimPrefix(path.Base(library), "lib"), ".")
	var near []string
	for _, f := range files {
		if base := path.Base(f.path); strings.Contains(strings.ToLower(base), strings.ToLower(stem)) && len(near) < mostNear {
			near = append(near, base)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return " (it has " + strings.Join(near, ", ") + ")"
}
