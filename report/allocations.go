package report

import (
	"cmp"
	"slices"

	"stageprof/correlate"
	"stageprof/recording"
)

// writeAllocations writes the table of PyTorch's tensors' memory, by stage.
func (t *text) writeAllocations() {
	list := slices.Clone(t.ledger.Allocations)
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b correlate.Allocations) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.FreedBytes, a.FreedBytes))
	})
	table := &table{titles: []string{"ALLOCATED IN", "TIMES", "BYTES", "FREED", "BYTES"}}
	for i := range list {
		a := &list[i]
		table.rows = append(table.rows, row{cells: []string{
			stageWithReason(a.Path, a.Attribution), count(a.Count), size(a.Bytes), count(a.Freed), size(a.FreedBytes),
		}})
	}
	t.printf("\n")
	table.write(&t.Builder, t.width)
	writeWords(&t.Builder, "Memory that PyTorch's CUDA allocator gave to tensors and got back, as asked for. The bytes of what was allocated before the recording are not known.", "", "", t.width)
}

// stageWithReason names a stage, and why work of another thread belongs to it.
func stageWithReason(p correlate.Path, attribution recording.Attribution) string {
	name := printable(cmp.Or(p.Joined, outsideTitle))
	if attribution == recording.AttributionAutograd || attribution == recording.AttributionProcess {
		name += " + " + string(attribution)
	}
	return name
}

type jsonAllocation struct {
	StagePath    string                `json:"stage_path"`
	Attribution  recording.Attribution `json:"attribution"`
	Count        uint64                `json:"count"`
	Bytes        uint64                `json:"bytes"`
	Freed        uint64                `json:"freed"`
	FreedBytes   uint64                `json:"freed_bytes"`
	FreedUnknown uint64                `json:"freed_unknown"`
}

func allocationOf(a *correlate.Allocations) jsonAllocation {
	return jsonAllocation{
		StagePath: a.Path.Joined, Attribution: a.Attribution, Count: a.Count, Bytes: a.Bytes,
		Freed: a.Freed, FreedBytes: a.FreedBytes, FreedUnknown: a.FreedUnknown,
	}
}
