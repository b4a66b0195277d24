package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
)

// mostRegions bounds the rows of the table of regions.
const mostRegions = 40

// regionNode is a region in one stage with the regions inside it.
type regionNode struct {
	region   *correlate.Region
	children []*regionNode
}

func (n *regionNode) wall() uint64 {
	return n.region.WallNS + min(n.region.Partial.WallNS, ^uint64(0)-n.region.WallNS)
}

// regionTree arranges the regions of one stage, the longest first.
func regionTree(regions []correlate.Region) []*regionNode {
	var roots []*regionNode
	nodes := map[string]*regionNode{}
	for i := range regions { // outer ones come before those inside them
		r := &regions[i]
		n := &regionNode{region: r}
		nodes[strings.Join(r.Names, "\x00")] = n
		if above := nodes[strings.Join(r.Names[:len(r.Names)-1], "\x00")]; above != nil {
			above.children = append(above.children, n)
		} else {
			roots = append(roots, n)
		}
	}
	sortRegions(roots)
	return roots
}

func sortRegions(nodes []*regionNode) {
	slices.SortStableFunc(nodes, func(a, b *regionNode) int {
		return cmp.Or(cmp.Compare(b.wall(), a.wall()), cmp.Compare(b.region.Within.WallNS, a.region.Within.WallNS))
	})
	for _, n := range nodes {
		sortRegions(n.children)
	}
}

// writeRegions writes the table of regions by the stage in which they were
// entered.
func (t *text) writeRegions() {
	regions := t.ledger.Regions
	if len(regions) == 0 {
		return
	}
	table := &table{titles: []string{"REGION", "TIMES", "WALL", "MEAN", "MAX", "CUDA", "CALLS"}}
	for len(regions) > 0 {
		first := &regions[0]
		n := slices.IndexFunc(regions, func(r correlate.Region) bool {
			return r.Path.Joined != first.Path.Joined || r.Attribution != first.Attribution
		})
		if n < 0 {
			n = len(regions)
		}
		table.rows = append(table.rows, row{cells: []string{"in " + stageWithReason(first.Path, first.Attribution), "", "", "", "", "", ""}})
		for _, node := range regionTree(regions[:n]) {
			t.addRegion(table, node, 1)
		}
		regions = regions[n:]
	}
	t.printf("\n")
	table.writeFirst(&t.Builder, t.width, mostRegions)
	writeWords(&t.Builder, "A region is a function that was followed. CUDA and CALLS are driver calls inside it, WALL is all of its time. +n: executions that were cut, or not seen to end.", "", "", t.width)
}

func (t *text) addRegion(to *table, n *regionNode, depth int) {
	r := n.region
	times, mean, most := count(r.Count), missing, missing
	if r.Count > 0 {
		mean, most = duration(r.WallNS/r.Count), duration(r.MaxNS)
	}
	if r.Partial.Count > 0 {
		times += fmt.Sprintf(" +%s", count(r.Partial.Count))
	}
	to.rows = append(to.rows, row{depth: depth, cells: []string{
		printable(shortFunction(r.Innermost())), times, duration(n.wall()), mean, most,
		duration(r.Within.WallNS), count(r.Within.Count),
	}})
	for _, child := range n.children {
		t.addRegion(to, child, depth+1)
	}
}

// writeRegionParts writes where the time of a stage was spent, of stages that had
// any in regions.
func (t *text) writeRegionParts() {
	l := t.ledger
	var split []splitTime
	for _, p := range Place(l.Stages) {
		split = append(split, splitTime{printable(p.Stage.Path.Joined), p.Stage.Parts, p.Stage.ByRegion})
	}
	split = append(split, splitTime{outsideTitle, l.PartsOutside, l.OutsideByRegion})
	split = slices.DeleteFunc(split, func(s splitTime) bool { return len(s.byRegion) < 2 })
	if len(split) == 0 {
		return
	}
	var partitions []*correlate.Partition
	for i := range split {
		partitions = append(partitions, split[i].whole)
	}
	columns := partColumns(partitions)
	title := regionTitles(l.Source)
	table := &table{titles: append([]string{"WALL TIME BY REGION", "WALL"}, partTitles(columns)...)}
	for _, s := range split {
		table.rows = append(table.rows, row{cells: append([]string{s.name}, partCells(columns, s.whole)...)})
		for _, p := range correlate.ByInnermostRegion(l, s.byRegion) {
			addPartsRow(table, columns, title(p.Name), 1, &p.Partition)
		}
	}
	t.printf("\n")
	table.writeFirst(&t.Builder, t.width, mostRegions)
	writeWords(&t.Builder, "A stage's time without the stages inside it, by the innermost region that was open. A call's time is with the region that it was made in.", "", "", t.width)
}

// splitTime is the time of a stage itself, or outside any.
type splitTime struct {
	name     string
	whole    *correlate.Partition
	byRegion []correlate.RegionPartition
}

// outsideRegions names the time outside any region.
const outsideRegions = "(outside any region)"

// regionTitles names regions by their functions alone, where no two are named
// alike then: the columns take much of a line.
func regionTitles(r *recording.Recording) func(name string) string {
	named := map[string]string{}
	for i := range r.Regions {
		name := r.Regions[i].Name
		last := lastOf(name, 1)
		if other, ok := named[last]; ok && other != name {
			name = ""
		}
		named[last] = name
	}
	return func(name string) string {
		switch last := lastOf(name, 1); {
		case name == "":
			return outsideRegions
		case named[last] == name:
			return printable(last)
		default:
			return printable(shortFunction(name))
		}
	}
}

type jsonRegionParts struct {
	Names  []string  `json:"names"`
	WallNS uint64    `json:"wall_ns"`
	Parts  jsonParts `json:"parts"`
}

// regionPartsOf is null when the recording does not say.
func regionPartsOf(l *correlate.Ledger, byRegion []correlate.RegionPartition) (list []jsonRegionParts) {
	for i := range byRegion {
		p := &byRegion[i]
		list = append(list, jsonRegionParts{Names: l.RegionNames(p.Region), WallNS: p.WallNS, Parts: partsOf(&p.Partition)})
	}
	return list
}

// shortFunction leaves of a C++ name the function and what it is a member of.
func shortFunction(name string) string { return lastOf(name, 2) }

// lastOf leaves of a C++ name the last parts between "::".
func lastOf(name string, parts int) string {
	depth, seen := 0, 0
	for i := len(name) - 1; i > 0; i-- {
		switch name[i] {
		case '>', ')':
			depth++
		case '<', '(':
			depth--
		case ':':
			if depth != 0 || name[i-1] != ':' {
				continue
			}
			if seen++; seen == parts {
				return name[i+1:]
			}
			i--
		}
	}
	return name
}

type jsonRegion struct {
	StagePath   string                `json:"stage_path"`
	Attribution recording.Attribution `json:"attribution"`
	Names       []string              `json:"names"`
	Count       uint64                `json:"count"`
	WallNS      uint64                `json:"wall_ns"`
	ExclusiveNS uint64                `json:"exclusive_ns"`
	MinNS       *uint64               `json:"min_ns"`
	MaxNS       *uint64               `json:"max_ns"`
	Partial     jsonRegionPartial     `json:"partial"`
	Calls       jsonBreakdown         `json:"calls"`
	CallsWithin jsonBreakdown         `json:"calls_within"`
}

type jsonRegionPartial struct {
	Count       uint64 `json:"count"`
	WallNS      uint64 `json:"wall_ns"`
	ExclusiveNS uint64 `json:"exclusive_ns"`
}

func regionOf(r *correlate.Region) jsonRegion {
	return jsonRegion{
		StagePath: r.Path.Joined, Attribution: r.Attribution, Names: r.Names,
		Count: r.Count, WallNS: r.WallNS, ExclusiveNS: r.ExclusiveNS,
		MinNS: known(r.MinNS, r.Count > 0), MaxNS: known(r.MaxNS, r.Count > 0),
		Partial: jsonRegionPartial(r.Partial),
		Calls:   breakdownOf(&r.Own), CallsWithin: breakdownOf(&r.Within),
	}
}
