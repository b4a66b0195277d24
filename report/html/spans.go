package html

import (
	"cmp"
	"slices"

	"stageprof/correlate"
)

// spansData is a list for each field of the single spans: there can be many, and
// objects would say the names of their fields as often.
type spansData struct {
	Stage   []int    `json:"stage"`
	Thread  []int    `json:"thread"`
	Begin   []uint64 `json:"begin"` // since the window's
	Wall    []uint64 `json:"wall"`
	Partial []int    `json:"partial"` // indices of the other lists
	Parts   []uint64 `json:"parts"`   // of each span: how many, then name and time of each
}

func (b *builder) spans() spansData {
	spans := slices.SortedStableFunc(b.ledger.Spans(), func(x, y correlate.Span) int {
		return cmp.Or(cmp.Compare(x.BeginNS, y.BeginNS), cmp.Compare(y.WallNS, x.WallNS))
	})
	d := spansData{Stage: []int{}, Thread: []int{}, Begin: []uint64{}, Wall: []uint64{}, Partial: []int{}, Parts: []uint64{}}
	start := b.ledger.Source.Window.StartNS
	for i := range spans {
		s := &spans[i]
		d.Stage = append(d.Stage, b.stageOf(s.Path, false))
		d.Thread = append(d.Thread, s.Thread)
		d.Begin = append(d.Begin, s.BeginNS-min(start, s.BeginNS))
		d.Wall = append(d.Wall, s.WallNS)
		if s.Partial {
			d.Partial = append(d.Partial, i)
		}
		d.Parts = append(d.Parts, uint64(len(s.Parts)))
		for _, part := range s.Parts {
			d.Parts = append(d.Parts, uint64(b.partName(part.PartName)), part.NS)
		}
	}
	return d
}
