package report

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stageprof/correlate"
)

// Groups shows calls by group.
func Groups(g *correlate.Groups) *View {
	return &View{grid: groupGrid(g), json: groupsOf(g), notes: groupNotes(g)}
}

// groupNotes say what the table does not, and what it can't.
func groupNotes(g *correlate.Groups) (notes []string) {
	if g.All.Count == 0 {
		notes = append(notes, "The recording has no calls.")
	}
	if g.Left > 0 {
		notes = append(notes, plural(uint64(g.Left), "more group")+": "+tallyText(&g.Rest))
	}
	if g.Hidden.Count > 0 || timeOf(&g.Hidden) > 0 {
		notes = append(notes, "groups that do not match: "+tallyText(&g.Hidden))
	}
	notes = append(notes, "CUDA is host time inside driver calls, not GPU time; % of that of all calls.")
	switch {
	case !g.Timed && slices.ContainsFunc(g.Options.By, func(d correlate.Dimension) bool { return d.Name == "region" }):
		notes = append(notes, "The recording does not say which regions time was spent in.")
	case g.Timed:
		notes = append(notes, "WALL and the columns behind it: threads' own time, in the stage without those inside it, by the innermost region that was open. CUDA also has calls that other threads made for a stage.")
	}
	switch {
	case g.Sampled && g.All.Samples == 0:
		notes = append(notes, "PYTHON: the recording has no Python stacks.")
	case g.Sampled:
		notes = append(notes, "PYTHON: the innermost line outside installed packages. How calls of one thread, stage, function, caller and GIL state are divided over lines is estimated from "+
			plural(g.All.Samples, "sample")+"; their sums are exact. "+correlate.NotSampled+": calls of which none was sampled.")
	}
	if slices.ContainsFunc(g.List, func(group correlate.Group) bool { return unknownDevice(g.Options.By, group.Key) }) {
		notes = append(notes, "DEVICE unknown: NVML was not read, or saw the process on no device or on several.")
	}
	return notes
}

// tallyText is what groups sum to.
func tallyText(t *correlate.Tally) string {
	text := plural(t.Count, "call") + ", " + duration(t.WallNS)
	if t.Time != nil {
		text += "; wall time " + duration(t.Time.WallNS)
	}
	return text
}

func timeOf(t *correlate.Tally) uint64 {
	if t.Time == nil {
		return 0
	}
	return t.Time.WallNS
}

func unknownDevice(by []correlate.Dimension, key []string) bool {
	i := slices.IndexFunc(by, func(d correlate.Dimension) bool { return d.Name == "device" })
	return i >= 0 && key[i] == "unknown"
}

func groupGrid(g *correlate.Groups) *grid {
	table := &grid{}
	for _, d := range g.Options.By {
		table.columns = append(table.columns, gridColumn{title: strings.ToUpper(d.Name), key: d.Name, left: !d.Number})
	}
	// Where there are further columns, a line of text has no room for these.
	short := g.Timed || g.Sampled
	table.columns = append(table.columns,
		gridColumn{title: "CALLS", key: "count"}, gridColumn{title: "CUDA", key: "wall_ns"}, gridColumn{title: "%", key: "share"},
		gridColumn{title: "ON CPU", key: "cpu_ns", raw: short}, gridColumn{title: "MEAN", key: "mean_ns", raw: g.Timed},
		gridColumn{title: "~P50", key: "p50_ns", raw: short}, gridColumn{title: "~P99", key: "p99_ns", raw: short},
		gridColumn{title: "MAX", key: "max_ns", raw: short},
		gridColumn{title: "BYTES", key: "bytes", raw: g.Shown.Bytes == 0 || short},
		gridColumn{title: "ERRORS", key: "errors", raw: g.Shown.Errors == 0},
		gridColumn{title: "GIL WAIT CAUSED", key: "gil_wait_caused_ns", raw: g.Shown.GILWaitCausedNS == 0})
	if g.Sampled {
		table.columns = append(table.columns, gridColumn{title: "SAMPLES", key: "samples"})
	}
	parts := groupParts(g)
	if g.Timed {
		table.columns = append(table.columns, gridColumn{title: "WALL", key: "time_wall_ns"})
	}
	for _, c := range parts {
		table.columns = append(table.columns, gridColumn{title: c.title, key: "time_" + c.key})
	}
	for i := range g.List {
		table.rows = append(table.rows, gridRow{cells: groupCells(g, &g.List[i], parts)})
	}
	return table
}

// groupParts are the columns of the parts of threads' time, none unless there is
// any.
func groupParts(g *correlate.Groups) []partColumn {
	if !g.Timed {
		return nil
	}
	return partColumns([]*correlate.Partition{g.All.Time})
}

func groupCells(g *correlate.Groups, group *correlate.Group, parts []partColumn) []gridCell {
	var cells []gridCell
	for i, value := range group.Key {
		cells = append(cells, keyCell(g.Options.By[i], value))
	}
	share := gridCell{text: shareOf(group.WallNS, g.All.WallNS)}
	if g.All.WallNS > 0 {
		share.raw = float64(group.WallNS) / float64(g.All.WallNS)
	}
	longest := durationCell(group.MaxNS)
	if g.Sampled || group.Count == 0 {
		longest = gridCell{text: missing}
	}
	mean := durationCell(group.MeanNS())
	if group.Count == 0 {
		mean = gridCell{text: missing}
	}
	cells = append(cells,
		countCell(group.Count), durationCell(group.WallNS), share, durationCell(group.CPUNS), mean,
		quantileCell(&group.Total, 0.5), quantileCell(&group.Total, 0.99), longest,
		gridCell{size(group.Bytes), group.Bytes}, countCell(group.Errors), durationCell(group.GILWaitCausedNS))
	if g.Sampled {
		cells = append(cells, countCell(group.Samples))
	}
	return append(cells, sharesOfTime(group.Time, parts)...)
}

// sharesOfTime are a time and the shares of its parts, which are times in the raw form.
func sharesOfTime(p *correlate.Partition, parts []partColumn) (cells []gridCell) {
	if p == nil {
		return nil
	}
	texts := partCells(parts, p)
	cells = append(cells, gridCell{texts[0], p.WallNS})
	for i := range parts {
		cells = append(cells, gridCell{texts[1+i], parts[i].of(p)})
	}
	return cells
}

// keyCell names the value of a property. People are shown less of long ones.
func keyCell(d correlate.Dimension, value string) gridCell {
	cell := textCell(value)
	switch d.Name {
	case "python":
		cell.text = printable(shortLine(value))
	case "region":
		cell.text = printable(shortFunction(value))
	}
	return cell
}

// shortLine leaves of "/path/file.py:7 Class.method" the file's own name and the
// function's. Blanks and dots can be in either.
func shortLine(line string) string {
	at := lineNumber.FindStringIndex(line)
	if at == nil {
		return line
	}
	function := line[at[1]:]
	return shortFile(line[:at[0]]) + line[at[0]:at[1]] + function[strings.LastIndex(function, ".")+1:]
}

var lineNumber = regexp.MustCompile(`:\d+ `)

func quantileCell(t *correlate.Total, q float64) gridCell {
	ns, ok := t.Quantile(q)
	if !ok {
		return gridCell{text: missing}
	}
	return durationCell(ns)
}

type jsonGroups struct {
	Format int         `json:"format"`
	By     []string    `json:"by"`
	Match  *string     `json:"match"`
	Groups []jsonGroup `json:"groups"`
	Left   int         `json:"left"`
	Rest   jsonTally   `json:"rest"`
	Hidden jsonTally   `json:"hidden"`
	All    jsonTally   `json:"all"`
}

type jsonGroup struct {
	Key   map[string]any `json:"key"`
	Share *float64       `json:"share"`
	jsonTally
}

type jsonTally struct {
	jsonTotal
	Samples *uint64   `json:"samples,omitempty"`
	Time    *jsonTime `json:"time,omitempty"`
}

type jsonTime struct {
	WallNS uint64    `json:"wall_ns"`
	Parts  jsonParts `json:"parts"`
}

// tallyOf leaves out what is not known of calls that are divided by estimate.
func tallyOf(g *correlate.Groups, t *correlate.Tally) jsonTally {
	j := jsonTally{jsonTotal: totalOf(&t.Total)}
	if g.Sampled {
		j.Samples = &t.Samples
		j.RawWallNS, j.RawCPUNS, j.MinNS, j.MaxNS = nil, nil, nil, nil
	}
	if t.Time != nil {
		j.Time = &jsonTime{t.Time.WallNS, partsOf(t.Time)}
	}
	return j
}

func groupsOf(g *correlate.Groups) jsonGroups {
	j := jsonGroups{Format: jsonFormat, By: []string{}, Groups: []jsonGroup{}, Left: g.Left, Rest: tallyOf(g, &g.Rest), Hidden: tallyOf(g, &g.Hidden), All: tallyOf(g, &g.All)}
	if g.Options.Match != nil {
		match := g.Options.Match.String()
		j.Match = &match
	}
	for _, d := range g.Options.By {
		j.By = append(j.By, d.Name)
	}
	for i := range g.List {
		group := &g.List[i]
		key := map[string]any{}
		for k, d := range g.Options.By {
			key[d.Name] = keyValue(d, group.Key[k])
		}
		j.Groups = append(j.Groups, jsonGroup{Key: key, Share: share(group.WallNS, g.All.WallNS), jsonTally: tallyOf(g, &group.Tally)})
	}
	return j
}

func keyValue(d correlate.Dimension, value string) any {
	if n, err := strconv.Atoi(value); d.Number && err == nil {
		return n
	}
	return value
}
