package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
)

// Site is one address of a driver that gets a pair of probes.
type Site struct {
	Symbol    string   // exact exported spelling
	Aliases   []string // further names of the same address
	API       string   // function that Symbol spells
	Group     Group    //
	Entry     uint64   // file offset of the function's first instruction
	Vaddr     uint64   // its address in the file's own address space
	Placement elfsym.Placement
}

// Offset is the file offset of the probes.
func (s Site) Offset() uint64 { return s.Entry + s.Placement.Skip }

// maxStaticSymbols bounds the symbol table that is searched for a driver that
// is linked into an executable or library and not exported.
const maxStaticSymbols = 64 << 20

// What a file may claim to define: a real driver has some 700 functions. Each
// probe takes time to attach, and the kernel side numbers symbols with 16 bits.
const (
	maxFunctions = 8192
	MaxSymbols   = 1 << 16 // of all drivers of a process
)

// ErrTooMany: a file defines more driver functions than any driver.
var ErrTooMany = errors.New("more driver functions than any driver has")

// Sites returns the selected driver functions that a file defines, sorted by
// symbol; names of one address make one site.
func Sites(file *elfsym.File, selector Selector) ([]Site, error) {
	symbols, err := driverSymbols(file, selector)
	if err != nil {
		return nil, err
	}
	if len(symbols) > maxFunctions {
		return nil, fmt.Errorf("%w: %d", ErrTooMany, len(symbols))
	}
	placements, err := file.PlaceAll(symbols, Kernel())
	if err != nil {
		return nil, fmt.Errorf("placing probes: %w", err)
	}
	var sites []Site
	at := map[uint64]int{}
	for n, symbol := range symbols {
		if i, ok := at[symbol.Offset]; ok {
			sites[i].addName(symbol.Name)
			continue
		}
		at[symbol.Offset] = len(sites)
		api := API(symbol.Name)
		sites = append(sites, Site{
			Symbol: symbol.Name, API: api, Group: GroupOf(api),
			Entry: symbol.Offset, Vaddr: symbol.Value, Placement: placements[n],
		})
	}
	return sites, nil
}

func (s *Site) addName(name string) {
	if s.Symbol != name && !slices.Contains(s.Aliases, name) {
		s.Aliases = append(s.Aliases, name)
	}
}

// driverSymbols returns the functions to probe: what the file exports, or, for
// a driver that was linked in and hidden, what its symbol table still names.
func driverSymbols(file *elfsym.File, selector Selector) ([]elfsym.Symbol, error) {
	symbols, err := file.DynamicSymbols(selector.Matches)
	if err != nil {
		return nil, fmt.Errorf("reading exported symbols: %w", err)
	}
	if len(symbols) == 0 {
		if symbols, err = file.StaticSymbols(selector.Matches, maxStaticSymbols); err != nil {
			return nil, fmt.Errorf("reading the symbol table: %w", err)
		}
	}
	symbols = slices.DeleteFunc(symbols, func(s elfsym.Symbol) bool { return file.Probeable(s) != nil })
	slices.SortFunc(symbols, func(a, b elfsym.Symbol) int { return strings.Compare(a.Name, b.Name) })
	return symbols, nil
}

// Absent returns the known spellings that are selected and that no site has.
func Absent(selector Selector, sites []Site) []string {
	present := map[string]bool{}
	for _, s := range sites {
		present[s.Symbol] = true
		for _, alias := range s.Aliases {
			present[alias] = true
		}
	}
	var absent []string
	for _, name := range Known() {
		if selector.Matches(name) && !present[name] {
			absent = append(absent, name)
		}
	}
	return absent
}
