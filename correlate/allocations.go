package correlate

import (
	"cmp"
	"slices"

	"stageprof/recording"
)

// Allocations sums the memory that PyTorch's allocator gave out and got back in
// one stage, over all threads. Bytes are what was asked for.
type Allocations struct {
	Path         Path
	Attribution  recording.Attribution
	Count        uint64
	Bytes        uint64
	Freed        uint64
	FreedBytes   uint64 // of those that were allocated in the recording
	FreedUnknown uint64 // of Freed: the others
}

func (b *builder) allocations() []Allocations {
	type key struct {
		path        string
		attribution recording.Attribution
	}
	sums := map[key]*Allocations{}
	for _, row := range b.source.Allocations {
		path := b.paths[row.Path]
		k := key{path.Joined, knownAttribution(row.Attribution, path)}
		s := sums[k]
		if s == nil {
			s = &Allocations{Path: path, Attribution: k.attribution}
			sums[k] = s
		}
		s.Count, s.Bytes = add(s.Count, row.Count), add(s.Bytes, row.Bytes)
		s.Freed, s.FreedBytes = add(s.Freed, row.Freed), add(s.FreedBytes, row.FreedBytes)
		s.FreedUnknown = add(s.FreedUnknown, row.FreedUnknown)
	}
	list := make([]Allocations, 0, len(sums))
	for _, s := range sums {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(x, y Allocations) int {
		return cmp.Or(comparePaths(x.Path, y.Path), cmp.Compare(x.Attribution, y.Attribution))
	})
	return list
}
