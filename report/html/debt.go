package html

import (
	"cmp"

	"stageprof/correlate"
	"stageprof/report"
)

type waitingData struct {
	Stage  string      `json:"stage"`
	Waits  uint64      `json:"waits"`
	Wall   uint64      `json:"wall"`
	Owners []ownerData `json:"owners"`
}

type ownerData struct {
	Name       string `json:"name"`
	Waits      uint64 `json:"waits"`
	Wall       uint64 `json:"wall"`
	Operations uint64 `json:"operations"`
}

// debtsOf is null where no wait was for the work of a stage.
func debtsOf(l *correlate.Ledger) (stages []waitingData) {
	if !report.OwesStages(l) {
		return nil
	}
	for i := range l.Waiting {
		s := &l.Waiting[i]
		d := waitingData{Stage: cmp.Or(report.Printable(s.Path.Joined), report.OutsideTitle), Waits: s.Waits, Wall: s.WallNS}
		for _, o := range s.Owners {
			d.Owners = append(d.Owners, ownerData{report.OwnerName(o.Owner), o.Waits, o.WallNS, o.Operations})
		}
		stages = append(stages, d)
	}
	return stages
}
