package correlate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"stageprof/recording"
)

// callKey is the visible key of a call.
type callKey struct {
	thread      int
	path        string
	symbol, api string
	gil         recording.GIL
	attribution recording.Attribution
}

// addCalls adds the rows in the order of the Ledger: those of one Call come one
// after the other, and among them those of one Site. So nothing has to be kept
// beside the Ledger, of which the calls of many threads are the most.
func (b *builder) addCalls() {
	rows := make([]*recording.Call, len(b.source.Calls))
	for i := range rows {
		rows[i] = &b.source.Calls[i]
	}
	slices.SortFunc(rows, func(x, y *recording.Call) int { return cmp.Or(b.compareCalls(x, y), b.compareSites(x, y)) })
	b.calls = make([]Call, 0, count(runs(rows, b.compareCalls)))
	for of := range runs(rows, b.compareCalls) {
		if c := b.call(of); len(c.Sites) > 0 {
			b.calls = append(b.calls, c)
		}
	}
}

// call adds the rows of one Call.
func (b *builder) call(rows []*recording.Call) Call {
	row, path := rows[0], b.paths[rows[0].Path]
	symbol := &b.source.Symbols[row.Symbol]
	c := Call{
		Thread: b.threadOf[row.Thread], Path: path, Symbol: symbol.Name, API: symbol.API,
		GIL: knownGIL(row.GIL), Attribution: knownAttribution(row.Attribution, path),
		Sites: make([]Site, 0, count(runs(rows, b.compareSites))),
	}
	for of := range runs(rows, b.compareSites) {
		if s := b.site(&c, of); s.Count > 0 {
			c.Total.add(&s.Total)
			c.Sites = append(c.Sites, s)
		}
	}
	return c
}

// site adds the rows of one Site.
func (b *builder) site(c *Call, rows []*recording.Call) Site {
	key := callKey{c.Thread, c.Path.Joined, c.Symbol, c.API, c.GIL, c.Attribution}
	bias := b.source.Symbols[rows[0].Symbol].BiasNS
	var sum siteSum
	for i := range rows {
		row, impossible := plausibleCall(*rows[i], b.limit)
		b.impossibleCalls = add(b.impossibleCalls, impossible)
		if row.Count == 0 {
			continue
		}
		total := corrected(&row, bias)
		sum.add(&total, divideTotal(&total, row.Samples, bias))
		b.regions.addCall(row.Region, key, c.Path, &total)
		b.attribute(key, c.Path, &total)
	}
	return Site{Symbol: rows[0].Symbol, Caller: rows[0].Caller, Region: rows[0].Region, Total: sum.total, Stacks: sum.finish()}
}

// compareCalls orders rows as the Ledger does calls.
func (b *builder) compareCalls(x, y *recording.Call) int {
	xPath, yPath := b.paths[x.Path], b.paths[y.Path]
	xSymbol, ySymbol := &b.source.Symbols[x.Symbol], &b.source.Symbols[y.Symbol]
	return cmp.Or(
		comparePaths(xPath, yPath), cmp.Compare(b.threadOf[x.Thread], b.threadOf[y.Thread]),
		strings.Compare(xSymbol.Name, ySymbol.Name), strings.Compare(xSymbol.API, ySymbol.API),
		cmp.Compare(knownGIL(x.GIL), knownGIL(y.GIL)),
		cmp.Compare(knownAttribution(x.Attribution, xPath), knownAttribution(y.Attribution, yPath)))
}

// compareSites orders rows of one Call as the Ledger does sites: by what they
// are, and only then by their IDs, which depend on the order in which the agent
// met them.
func (b *builder) compareSites(x, y *recording.Call) int {
	return cmp.Or(
		cmp.Compare(b.source.Symbols[x.Symbol].Address, b.source.Symbols[y.Symbol].Address),
		cmp.Compare(b.callerAddress(x), b.callerAddress(y)),
		b.compareRegions(x.Region, y.Region),
		cmp.Compare(x.Symbol, y.Symbol), cmp.Compare(x.Caller, y.Caller))
}

func (b *builder) callerAddress(c *recording.Call) uint64 {
	if c.Caller == -1 {
		return 0
	}
	return b.source.Frames[c.Caller].Address
}

// runs yields the parts of an ordered list whose elements compare as equal.
func runs[T any](list []T, compare func(x, y T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && compare(list[0], list[n]) == 0 {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

func count[T any](parts iter.Seq[T]) (n int) {
	for range parts {
		n++
	}
	return n
}

// callTimes are the calls by whose time they are a part of. Calls on behalf of
// another thread's stage are made outside any stage of one's own, those of a
// Python function in the stage around it.
func (b *builder) callTimes() map[threadPath][]callTime {
	times := map[threadPath][]callTime{}
	for i := range b.calls {
		c := &b.calls[i]
		in := threadPath{c.Thread, c.Path.Joined}
		if c.Attribution == recording.AttributionAutograd || c.Attribution == recording.AttributionProcess {
			in.path = ""
		} else if b.python[c.Path.Joined] {
			in.path = c.Path.parent()
		}
		if !b.times.anyRegions {
			times[in] = append(times[in], timeOf(c, &c.Total))
			continue
		}
		for i := range c.Sites {
			of := timeOf(c, &c.Sites[i].Total)
			of.region = c.Sites[i].Region
			times[in] = append(times[in], of)
		}
	}
	return times
}

func timeOf(c *Call, t *Total) callTime {
	cpu := min(t.RawCPUNS, t.RawWallNS)
	corrected := min(t.CPUNS, cpu)
	return callTime{
		api: c.API, gil: c.GIL,
		cpu: corrected, probes: cpu - corrected, blocked: t.RawWallNS - cpu,
	}
}
