package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"stageprof/correlate"
	"stageprof/recording"
)

// writeSymbols writes the table of functions, over all stages.
func (t *text) writeSymbols() {
	all := &t.ledger.All
	if len(all.Symbols) == 0 {
		return
	}
	symbols := &table{titles: []string{"CALL", "CALLS", "CUDA", "ON CPU", "MEAN", "~P50", "~P99", "MAX"}}
	if all.Bytes > 0 {
		symbols.titles = append(symbols.titles, "BYTES")
	}
	add := func(n *correlate.Named) {
		r := row{
			cells: []string{
				printable(n.Name), count(n.Count), duration(n.WallNS), duration(n.CPUNS),
				duration(n.MeanNS()), quantile(&n.Total, 0.5), quantile(&n.Total, 0.99), duration(n.MaxNS),
			},
			notes: rareNotes(&n.Sum),
		}
		switch {
		case n.Bytes > 0:
			r.cells = append(r.cells, size(n.Bytes))
		case all.Bytes > 0:
			r.cells = append(r.cells, "")
		}
		symbols.rows = append(symbols.rows, r)
	}
	shown := min(mostSymbols, len(all.Symbols))
	if len(all.Symbols) == shown+1 {
		shown++ // the last one takes no more room than a line about it
	}
	for i := range all.Symbols[:shown] {
		add(&all.Symbols[i])
	}
	t.printf("\n")
	symbols.write(&t.Builder, t.width)
	if rest := all.Symbols[shown:]; len(rest) > 0 {
		var calls, wall uint64
		for i := range rest {
			calls += rest[i].Count
			wall += rest[i].WallNS
		}
		t.printf("%s: %s, %s\n", plural(uint64(len(rest)), "more function"), plural(calls, "call"), duration(wall))
	}
	writeWords(&t.Builder, "~P50 and ~P99 come from a histogram of powers of two: off by less than a factor of two.", "", "", t.width)
}

// rareNotes are what is worth a look where it happens at all.
func rareNotes(s *correlate.Sum) (notes []string) {
	if held := s.GIL[recording.GILHeld]; held.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s with the GIL held: %s%s", plural(held.Count, "call"), duration(held.WallNS), causedNote(&held)))
	}
	if s.Errors > 0 {
		notes = append(notes, plural(s.Errors, "call")+" returned an error")
	}
	return notes
}

func quantile(total *correlate.Total, q float64) string {
	ns, ok := total.Quantile(q)
	if !ok {
		return missing
	}
	return duration(ns)
}

// writeThreads writes the table of threads. One thread has nothing to add to
// the tables before.
func (t *text) writeThreads() {
	l := t.ledger
	if len(l.Threads) < 2 {
		return
	}
	order := make([]int, len(l.Threads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(l.Threads[b].All.WallNS, l.Threads[a].All.WallNS)
	})
	mostly := costliestPaths(l)
	threads := &table{
		titles:   slices.Concat([]string{"THREAD", "TID", "IN STAGES", "CUDA"}, t.gilTitles(), []string{"CALLS", "MOST CUDA IN"}),
		lastLeft: true,
	}
	shown := min(mostThreads, len(order))
	if len(order) == shown+1 {
		shown++
	}
	for _, i := range order[:shown] {
		th := &l.Threads[i]
		staged := missing
		if th.Staged {
			staged = duration(th.StagesNS)
		}
		threads.rows = append(threads.rows, row{cells: slices.Concat(
			[]string{printable(th.Name), strconv.Itoa(th.TID), staged, duration(th.All.WallNS)},
			t.gilCells(&th.All.Sum), []string{count(th.All.Count), mostly[i]})})
	}
	t.printf("\n")
	threads.write(&t.Builder, t.width)
	if rest := order[shown:]; len(rest) > 0 {
		var calls, wall uint64
		for _, i := range rest {
			calls += l.Threads[i].All.Count
			wall += l.Threads[i].All.WallNS
		}
		t.printf("%s: %s, %s\n", plural(uint64(len(rest)), "more thread"), plural(calls, "call"), duration(wall))
	}
}

// costliestPaths names, for each thread, the stage in which it spent most
// driver time.
func costliestPaths(l *correlate.Ledger) map[int]string {
	type key struct {
		thread int
		path   string
	}
	wall := map[key]uint64{}
	most := map[int]key{}
	for i := range l.Calls { // in a fixed order, so ties are broken in one way
		c := &l.Calls[i]
		k := key{c.Thread, c.Path.Joined}
		wall[k] += c.WallNS
	}
	for i := range l.Calls {
		k := key{l.Calls[i].Thread, l.Calls[i].Path.Joined}
		if best, ok := most[k.thread]; !ok || wall[k] > wall[best] {
			most[k.thread] = k
		}
	}
	names := map[int]string{}
	for thread, k := range most {
		names[thread] = printable(cmp.Or(k.path, outsideTitle))
	}
	return names
}
