package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrSelector says that a selector can't be understood.
var ErrSelector = errors.New("unknown probe selection")

// Selector decides which driver functions are probed.
type Selector struct {
	expression string
	groups     map[Group]bool
	names      map[string]bool // APIs and exact symbols
	without    []Group         // not selected whatever the expression says
}

// ParseSelector reads a comma-separated list of "default", "all", groups,
// functions (cuLaunchKernel: every spelling of it) and exact spellings
// (cuLaunchKernel_ptsz: only that one). A name that no known driver exports
// gives an error that wraps ErrSelector and names the nearest known one.
func ParseSelector(expression string) (Selector, error) {
	s := Selector{expression: expression, groups: map[Group]bool{}, names: map[string]bool{}}
	for term := range strings.SplitSeq(expression, ",") {
		if err := s.add(strings.TrimSpace(term)); err != nil {
			return Selector{}, err
		}
	}
	return s, nil
}

func (s *Selector) add(term string) error {
	switch {
	case term == "all":
		s.addGroups(Groups())
	case term == "default":
		s.addGroups(slices.DeleteFunc(Groups(), func(g Group) bool { return g == Other }))
	case slices.Contains(Groups(), Group(term)):
		s.groups[Group(term)] = true
	case callsBack(API(term)):
		return fmt.Errorf("%w %q: it calls a function of the caller's, whose exceptions no timed call lets pass", ErrSelector, term)
	case isKnown(term):
		s.names[term] = true
	default:
		return fmt.Errorf("%w %q%s; give default, all, one of the groups %s, or driver functions",
			ErrSelector, term, suggestion(term), joinGroups())
	}
	return nil
}

func (s *Selector) addGroups(groups []Group) {
	for _, g := range groups {
		s.groups[g] = true
	}
}

// callsBack tells whether a function calls one of its caller's before it returns.
// A C++ exception of that one can't be unwound past a return probe: it would end
// the process.
func callsBack(api string) bool {
	return strings.HasPrefix(api, "cuOccupancyMaxPotentialBlockSize")
}

// Matches tells whether an exported symbol is selected. Functions that call back
// never are.
func (s Selector) Matches(symbol string) bool {
	api := API(symbol)
	return IsDriverName(symbol) && !callsBack(api) && (s.names[symbol] || s.names[api] || s.groups[GroupOf(api)]) &&
		!slices.Contains(s.without, GroupOf(api))
}

// Without returns the selector of the same functions but those of some groups.
func (s Selector) Without(groups ...Group) Selector {
	s.without = append(slices.Clone(s.without), groups...)
	return s
}

// String returns the expression that the selector was parsed from, and what it is
// without.
func (s Selector) String() string {
	if len(s.without) == 0 {
		return s.expression
	}
	return fmt.Sprintf("%s without %v", s.expression, s.without)
}

func isKnown(name string) bool {
	return slices.ContainsFunc(Known(), func(k string) bool { return k == name || API(k) == name })
}

func joinGroups() string {
	var names []string
	for _, g := range Groups() {
		names = append(names, string(g))
	}
	return strings.Join(names, ", ")
}

// suggestion names the nearest selectable word, if it is so near that a slip may
// have made one of the other.
func suggestion(name string) string {
	word := nearest(name)
	if distance(name, word) > max(1, len(name)/4) {
		return ""
	}
	return fmt.Sprintf(": nearest is %q", word)
}

// nearest returns the selectable word with the smallest edit distance to name.
func nearest(name string) string {
	words := append([]string{"default", "all"}, Known()...)
	for _, k := range Known() {
		words = append(words, API(k))
	}
	for _, g := range Groups() {
		words = append(words, string(g))
	}
	slices.Sort(words)
	return slices.MinFunc(words, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is the Levenshtein distance, ignoring case.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
