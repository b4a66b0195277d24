package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"stageprof/correlate"
)

// groupFlags say how calls are grouped.
type groupFlags struct {
	Names []string
	Sort  string
	Match string
	Top   int

	options correlate.GroupOptions // what they mean, after Validate
}

func (g *groupFlags) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&g.Names, "by", nil, "print a table of calls by these `properties` instead")
	f.StringVar(&g.Sort, "sort", "", "with --by: sort by this `column` (default \"cuda\")")
	f.StringVar(&g.Match, "match", "", "with --by: only groups whose key matches this `regexp`")
	f.IntVar(&g.Top, "top", 0, "with --by: only the first `N` groups (0: all)")
}

// Validate says which flag makes no sense.
func (g *groupFlags) Validate() error {
	if len(g.Names) == 0 {
		if g.Sort != "" || g.Match != "" || g.Top != 0 {
			return &usageError{errors.New("--sort, --match and --top are about the table of --by: group by what?")}
		}
		return nil
	}
	g.options = correlate.GroupOptions{Top: g.Top}
	for i, name := range g.Names {
		d, ok := correlate.FindDimension(name)
		if !ok {
			return &usageError{fmt.Errorf("calls can't be grouped by %q, only by %s", name, list(dimensionNames()))}
		}
		if slices.Contains(g.Names[:i], name) {
			return &usageError{fmt.Errorf("--by names %q twice", name)}
		}
		g.options.By = append(g.options.By, d)
	}
	sort := g.Sort
	if sort == "" {
		sort = "cuda"
	}
	var ok bool
	if g.options.Sort, ok = correlate.FindGroupColumn(sort, g.options.By); !ok {
		return &usageError{fmt.Errorf("there is no column %q to sort by, only %s, %s", sort, list(g.columnNames()), list(g.Names))}
	}
	if g.Top < 0 {
		return &usageError{fmt.Errorf("--top %d is negative", g.Top)}
	}
	if g.Match != "" {
		match, err := regexp.Compile(g.Match)
		if err != nil {
			return &usageError{fmt.Errorf("--match %q: %w", g.Match, err)}
		}
		g.options.Match = match
	}
	return nil
}

// columnNames are the columns that such groups have.
func (g *groupFlags) columnNames() []string {
	return slices.DeleteFunc(correlate.GroupColumnNames(), func(name string) bool {
		_, ok := correlate.FindGroupColumn(name, g.options.By)
		return !ok
	})
}

func dimensionNames() (names []string) {
	for _, d := range correlate.Dimensions {
		names = append(names, d.Name)
	}
	return names
}

// dimensionHelp is a line on each of the dimensions.
func dimensionHelp() string {
	var b strings.Builder
	for _, d := range correlate.Dimensions {
		fmt.Fprintf(&b, "  %-12s %s\n", d.Name, d.Help)
	}
	return b.String()
}
