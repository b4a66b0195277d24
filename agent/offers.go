package agent

import (
	"cmp"
	"errors"
	"slices"

	"stageprof/agent/target"
)

// Offers are a process's functions that can be followed, and its tracing points.
type Offers struct {
	Functions   []OfferedFunction // of the built-in sets and of the wanted patterns, by set and name
	Allocations []string          // files with the tracing points that Config.Allocations needs
}

// OfferedFunction is a function that can be followed, or the reason why not.
type OfferedFunction struct {
	Set     string // of RegionSets, or the pattern that names it
	Library string // path of its file
	Name    string // as it stands in its source, without parameters
	Symbol  string
	Exits   int
	ByJump  bool  // no return ends it, which makes it cheap to follow
	Refused error // nil if it can be followed
}

// InspectFunctions looks for the built-in regions and for those of the given
// patterns, LIB:SYMBOL, in a process, without attaching anything.
func InspectFunctions(pid int, regions []string) (*Offers, error) {
	config := Config{PID: pid, RegionSets: RegionSets(), Regions: regions}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	patterns, err := config.regionPatterns()
	if err != nil {
		return nil, err
	}
	process, err := target.Open(pid)
	if err != nil {
		return nil, err
	}
	im := newImages(process)
	offers := &Offers{}
	if err = im.refresh(); err == nil {
		err = offers.find(im, patterns)
	}
	return offers, errors.Join(err, im.close(), process.Close())
}

func (o *Offers) find(im *images, patterns []functionPattern) error {
	for _, file := range im.opened() {
		if points, err := allocationPoints(file); err == nil && len(points) > 0 {
			o.Allocations = append(o.Allocations, file.path)
		}
		wanted := patternsFor(file, patterns)
		if len(wanted) == 0 {
			continue
		}
		symbols, err := functionSymbols(file.elf, wanted)
		if err != nil {
			return err
		}
		for _, w := range wantedFunctions(symbols.whole, wanted) {
			f, refused := w.follow(file, symbols.cold[w.symbol.Name])
			o.add(f, w.by, refused)
		}
	}
	slices.SortFunc(o.Functions, func(a, b OfferedFunction) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Library, b.Library), cmp.Compare(a.Symbol, b.Symbol))
	})
	return nil
}

func (o *Offers) add(f followed, by functionPattern, refused error) {
	o.Functions = append(o.Functions, OfferedFunction{
		Set: cmp.Or(by.set, by.String()), Library: f.file.path, Name: f.name, Symbol: f.symbol,
		Exits: len(f.body.Exits), ByJump: f.endsWithJump(), Refused: refused,
	})
}
