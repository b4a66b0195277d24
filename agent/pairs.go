package agent

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// SourceUSDT begins a source that names a pair of static probes:
// "usdt:LIB:PROVIDER:BEGIN,END".
const SourceUSDT = "usdt"

const (
	pairPrefix = SourceUSDT + ":"
	maxPairs   = 8       // as many sources as bpf/types.h's SOURCES leaves for SOURCE_PAIR and on
	pairName   = 5 << 61 // bpf/types.h's PAIR_NAME
)

// probePair is a pair of static probes that begin and end a stage.
type probePair struct {
	library, provider, begin, end string
}

func (p probePair) String() string {
	return pairPrefix + p.library + ":" + p.provider + ":" + p.begin + "," + p.end
}

func parsePair(text string) (probePair, error) {
	parts := strings.Split(strings.TrimPrefix(text, pairPrefix), ":")
	bad := fmt.Errorf("%w: %q does not name a pair of probes as usdt:LIB:PROVIDER:BEGIN,END", ErrUsage, text)
	if len(parts) != 3 || slices.Contains(parts, "") {
		return probePair{}, bad
	}
	begin, end, ok := strings.Cut(parts[2], ",")
	if !ok || begin == "" || end == "" || begin == end || strings.Contains(end, ",") {
		return probePair{}, bad
	}
	return probePair{parts[0], parts[1], begin, end}, nil
}

// probePairs lists the pairs that the configuration asks for. A pair's number is
// its place in the list.
func (c *Config) probePairs() ([]probePair, error) {
	var pairs []probePair
	for _, source := range c.StagesFrom {
		if !strings.HasPrefix(source, pairPrefix) {
			continue
		}
		p, err := parsePair(source)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	}
	if len(pairs) > maxPairs {
		return nil, fmt.Errorf("%w: %d pairs of probes, %d can be followed", ErrUsage, len(pairs), maxPairs)
	}
	return pairs, nil
}

// attachPairs probes the wanted pairs of files that have not been looked at yet.
func (s *Session) attachPairs() error {
	pairs, err := s.config.probePairs()
	if err != nil {
		return err
	}
	for _, file := range s.names.opened() {
		if file.noPairs {
			continue
		}
		file.noPairs = true
		for number, pair := range pairs {
			if !isLibrary(file.path, pair.library) {
				continue
			}
			if err := s.attachPair(file, pair, bpf.ProbeSourceSOURCE_PAIR+bpf.ProbeSource(number)); err != nil {
				s.warnOnce(fmt.Sprintf("stages can't be taken from %q: %v", pair, err))
			}
		}
	}
	return nil
}

func (s *Session) attachPair(file *openImage, pair probePair, source bpf.ProbeSource) error {
	found, err := findPair(file.elf, pair)
	if err != nil {
		return fmt.Errorf("%q: %w", file.path, err)
	}
	points, err := s.pairPoints(file.elf, found, source)
	if err != nil || len(points) == 0 {
		return err
	}
	if err := s.attachTo(file, s.objects.RangeHit, points); err != nil {
		return err
	}
	s.rangePoints += len(points)
	s.pairsFound[pair] = true
	return nil
}

// foundPair is the places where a pair's probes stand in a file.
type foundPair struct {
	probePair
	begins, ends []elfsym.USDTProbe
}

var errNoPair = errors.New("it has no such probes")

func findPair(file *elfsym.File, pair probePair) (foundPair, error) {
	all, err := file.USDT()
	if err != nil {
		return foundPair{}, err
	}
	found := foundPair{probePair: pair}
	for _, p := range all {
		switch {
		case p.Provider != pair.provider:
		case p.Name == pair.begin:
			found.begins = append(found.begins, p)
		case p.Name == pair.end:
			found.ends = append(found.ends, p)
		}
	}
	if len(found.begins) == 0 || len(found.ends) == 0 {
		return foundPair{}, fmt.Errorf("%w (it has %s)", errNoPair, probeNames(all))
	}
	return found, nil
}

// probeNames lists some of a file's static probes for a person.
func probeNames(all []elfsym.USDTProbe) string {
	const most = 20
	var names []string
	for _, p := range all {
		if name := p.Provider + ":" + p.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return "none at all"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// pairPoints returns what to probe for a pair: nothing if its stages are all of
// one name, which is not wanted.
func (s *Session) pairPoints(file *elfsym.File, pair foundPair, source bpf.ProbeSource) ([]probe.Point, error) {
	var points []probe.Point
	add := func(p elfsym.USDTProbe, cookie uint64) error {
		offset, err := file.USDTPlace(p)
		points = append(points, probe.Point{Offset: offset, Cookie: cookie, Semaphore: p.Semaphore})
		return err
	}
	named := false
	for _, p := range pair.begins {
		f := rangeFunction{source: source, action: bpf.ProbeRangeRANGE_PUSH_NAMED}
		distance := int32(0)
		if name, ok := nameOperand(p); ok {
			f.action, f.argument, distance = name.action, name.register, name.distance
		} else {
			named = true
		}
		if err := add(p, f.cookie()|uint64(uint32(distance))<<32); err != nil {
			return nil, err
		}
	}
	for _, p := range pair.ends {
		if err := add(p, rangeFunction{source: source, action: bpf.ProbeRangeRANGE_POP, argument: 1}.cookie()); err != nil {
			return nil, err
		}
	}
	if !named {
		return points, nil
	}
	if s.stageMatch != nil && !s.stageMatch.Match(pair.begin) {
		return nil, nil
	}
	return points, s.namePair(pair.begin, source)
}

// namePair tells the kernel side what a pair's stages are called that have no
// name of their own.
func (s *Session) namePair(text string, source bpf.ProbeSource) error {
	var name bpf.ProbeStageName
	copy(name.Text[:len(name.Text)-1], text)
	if err := s.objects.Names.Put(uint64(pairName|uint64(source)), name); err != nil {
		return fmt.Errorf("passing on the name %q: %w", text, err)
	}
	return nil
}

// textOperand is where the kernel side finds the address of a name's text.
type textOperand struct {
	action   bpf.ProbeRange
	register uint64
	distance int32
}

// nameOperand returns where the name of a probe's stage is: in its first
// argument, if that has a pointer's size and can be read.
func nameOperand(p elfsym.USDTProbe) (textOperand, bool) {
	operands, _ := p.Operands() // what comes after one that is not understood does not matter
	if len(operands) == 0 {
		return textOperand{}, false
	}
	o := operands[0]
	if max(o.Size, -o.Size) != 8 || o.Register < 0 || o.Value != int64(int32(o.Value)) {
		return textOperand{}, false
	}
	operand := textOperand{bpf.ProbeRangeRANGE_PUSH_REGISTER, uint64(o.Register), int32(o.Value)}
	if o.Memory {
		operand.action = bpf.ProbeRangeRANGE_PUSH_MEMORY
	}
	return operand, true
}

// warnOfPairs warns of wanted pairs that the target does not have yet.
func (s *Session) warnOfPairs() error {
	pairs, err := s.config.probePairs()
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		mapped := slices.ContainsFunc(s.names.opened(), func(f *openImage) bool { return isLibrary(f.path, pair.library) })
		if !s.pairsFound[pair] && !mapped {
			s.warnOnce(fmt.Sprintf("the process has mapped no %q yet, from which %q is wanted", pair.library, pair))
		}
	}
	return nil
}

// pairEndings are how the names of probes end that belong together.
var pairEndings = [][2]string{
	{"begin", "end"}, {"start", "end"}, {"start", "done"}, {"start", "stop"}, {"entry", "return"}, {"entry", "exit"}, {"enter", "exit"}, {"enter", "leave"},
}

// offeredPairs lists the pairs of a file that can serve as a source, going by
// their names.
func offeredPairs(file *openImage) []string {
	all, err := file.elf.USDT()
	if err != nil {
		return nil
	}
	var offered []string
	for _, p := range all {
		for _, ending := range pairEndings {
			stem, ok := strings.CutSuffix(p.Name, ending[0])
			pair := probePair{path.Base(file.path), p.Provider, p.Name, stem + ending[1]}
			if !ok || slices.Contains(offered, pair.String()) || !probeable(file.elf, pair) {
				continue
			}
			offered = append(offered, pair.String())
		}
	}
	return offered
}

func probeable(file *elfsym.File, pair probePair) bool {
	found, err := findPair(file, pair)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(append(found.begins, found.ends...), func(p elfsym.USDTProbe) bool {
		_, err := file.USDTPlace(p)
		return err != nil
	})
}
