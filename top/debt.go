package top

import (
	"slices"

	"stageprof/correlate"
	"stageprof/report"
)

// debtPanel is about whose work the stage waited for.
func debtPanel(o *opened) []line {
	if o.row.key.adopted != "" || o.row.key.process {
		return nil
	}
	waiting := o.screen.sample.now.Waiting
	i := slices.IndexFunc(waiting, func(w correlate.WaitingStage) bool {
		return w.Path.Joined == o.row.key.path && w.Path.Outside() == o.row.key.outside
	})
	if i < 0 {
		return nil
	}
	f, unit := &o.row.now, o.unit()
	var rows [][]cell
	for _, owner := range waiting[i].Owners {
		rows = append(rows, []cell{
			{line: text(report.OwnerName(owner.Owner))},
			numberCell(number(f.of(unit, float64(owner.Waits)))),
			numberCell(duration(f.of(unit, float64(owner.WallNS)))),
			numberCell(shareText(owner.WallNS, waiting[i].WallNS)),
			numberCell(number(f.of(unit, float64(owner.Operations)))),
		})
	}
	head, lines := grid([]column{
		{title: "WAITED FOR (ESTIMATE)", left: true}, {title: "WAITS/" + unit.sign()}, {title: "WAITED/" + unit.sign()},
		{title: "SHARE"}, {title: "OPERATIONS/" + unit.sign(), from: 82},
	}, rows, o.screen.width)
	return append([]line{head}, lines...)
}

func shareText(part, whole uint64) string {
	if whole == 0 {
		return report.Missing
	}
	return report.Percent(float64(part) / float64(whole))
}
