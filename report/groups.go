package report

import (
	"strconv"
	"strings"

	"stageprof/correlate"
)

// Groups shows calls by group.
func Groups(g *correlate.Groups) *View {
	v := &View{grid: groupGrid(g), json: groupsOf(g)}
	if g.Left > 0 {
		v.notes = append(v.notes, plural(uint64(g.Left), "more group")+": "+plural(g.Rest.Count, "call")+", "+duration(g.Rest.WallNS))
	}
	if g.Hidden.Count > 0 {
		v.notes = append(v.notes, "groups that do not match: "+plural(g.Hidden.Count, "call")+", "+duration(g.Hidden.WallNS))
	}
	v.notes = append(v.notes, "CUDA is host time inside driver calls, not GPU time; % of that of all calls.")
	return v
}

func groupGrid(g *correlate.Groups) *grid {
	table := &grid{}
	for _, d := range g.Options.By {
		table.columns = append(table.columns, gridColumn{title: strings.ToUpper(d.Name), key: d.Name, left: !d.Number})
	}
	table.columns = append(table.columns,
		gridColumn{title: "CALLS", key: "count"}, gridColumn{title: "CUDA", key: "wall_ns"}, gridColumn{title: "%", key: "share"},
		gridColumn{title: "ON CPU", key: "cpu_ns"}, gridColumn{title: "MEAN", key: "mean_ns"},
		gridColumn{title: "~P50", key: "p50_ns"}, gridColumn{title: "~P99", key: "p99_ns"}, gridColumn{title: "MAX", key: "max_ns"},
		gridColumn{title: "BYTES", key: "bytes", raw: g.Shown.Bytes == 0},
		gridColumn{title: "ERRORS", key: "errors", raw: g.Shown.Errors == 0},
		gridColumn{title: "GIL WAIT CAUSED", key: "gil_wait_caused_ns", raw: g.Shown.GILWaitCausedNS == 0})
	for i := range g.List {
		table.rows = append(table.rows, gridRow{cells: groupCells(g, &g.List[i])})
	}
	return table
}

func groupCells(g *correlate.Groups, group *correlate.Group) []gridCell {
	var cells []gridCell
	for _, value := range group.Key {
		cells = append(cells, textCell(value))
	}
	share := gridCell{text: shareOf(group.WallNS, g.All.WallNS)}
	if g.All.WallNS > 0 {
		share.raw = float64(group.WallNS) / float64(g.All.WallNS)
	}
	return append(cells,
		countCell(group.Count), durationCell(group.WallNS), share, durationCell(group.CPUNS), durationCell(group.MeanNS()),
		quantileCell(&group.Total, 0.5), quantileCell(&group.Total, 0.99), durationCell(group.MaxNS),
		gridCell{size(group.Bytes), group.Bytes}, countCell(group.Errors), durationCell(group.GILWaitCausedNS))
}

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
	Rest   jsonTotal   `json:"rest"`
	Hidden jsonTotal   `json:"hidden"`
	All    jsonTotal   `json:"all"`
}

type jsonGroup struct {
	Key   map[string]any `json:"key"`
	Share *float64       `json:"share"`
	jsonTotal
}

func groupsOf(g *correlate.Groups) jsonGroups {
	j := jsonGroups{Format: jsonFormat, By: []string{}, Groups: []jsonGroup{}, Left: g.Left, Rest: totalOf(&g.Rest), Hidden: totalOf(&g.Hidden), All: totalOf(&g.All)}
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
		j.Groups = append(j.Groups, jsonGroup{Key: key, Share: share(group.WallNS, g.All.WallNS), jsonTotal: totalOf(&group.Total)})
	}
	return j
}

func keyValue(d correlate.Dimension, value string) any {
	if n, err := strconv.Atoi(value); d.Number && err == nil {
		return n
	}
	return value
}
