package html

import (
	"stageprof/correlate"
	"stageprof/report"
)

type comparisonData struct {
	Headline string       `json:"headline"`
	Titles   []string     `json:"titles"`
	Stages   []changeData `json:"stages"`
	Warnings []string     `json:"warnings"`
}

type changeData struct {
	Path    string         `json:"path"`
	Process bool           `json:"process"`
	Longer  *bool          `json:"longer"` // null where the wall time did not change significantly
	Rows    [][]string     `json:"rows"`   // below the titles; the first one is about the wall time
	Before  *meanPartsData `json:"before"` // null where the stage did not run, or there is no span of it
	After   *meanPartsData `json:"after"`
}

// meanPartsData are the means of the parts of an iteration, by segment.
type meanPartsData struct {
	Wall     float64   `json:"wall"`
	Segments []float64 `json:"segments"`
}

func comparisonOf(c *correlate.Comparison) *comparisonData {
	d := &comparisonData{Headline: report.Headline(c), Titles: report.ChangeTitles(), Stages: []changeData{}}
	for i := range c.Stages {
		s := &c.Stages[i]
		stage := changeData{
			Path: report.Printable(s.Path.Joined), Process: s.Process,
			Before: meanParts(c.Before, s), After: meanParts(c.After, s),
		}
		if wall := s.Wall(); wall.Significant {
			longer := wall.Delta() > 0
			stage.Longer = &longer
		}
		for _, row := range report.ChangeRows(s) {
			stage.Rows = append(stage.Rows, row.Cells)
		}
		d.Stages = append(d.Stages, stage)
	}
	for _, w := range c.Warnings {
		d.Warnings = append(d.Warnings, report.Printable(w))
	}
	return d
}

// meanParts are those of all single spans of a stage in the runs of one side.
func meanParts(runs []correlate.Run, s *correlate.StageChange) *meanPartsData {
	d := &meanPartsData{Segments: make([]float64, len(segments))}
	var spans float64
	for _, run := range runs {
		if it := iterationsIn(run.Ledger, s); it != nil {
			n := float64(it.Count)
			spans += n
			d.Wall += n * float64(it.Wall.MeanNS)
			for _, part := range it.Parts {
				d.Segments[segmentOf(part.PartName)] += n * float64(part.MeanNS)
			}
		}
	}
	if spans == 0 {
		return nil
	}
	d.Wall /= spans
	for i := range d.Segments {
		d.Segments[i] /= spans
	}
	return d
}

// iterationsIn are those of a stage, nil where there are none.
func iterationsIn(l *correlate.Ledger, s *correlate.StageChange) *correlate.Iterations {
	for i := range l.Stages {
		stage := &l.Stages[i]
		if stage.Process == s.Process && stage.Path.Joined == s.Path.Joined && stage.Iterations != nil && stage.Iterations.Count > 0 {
			return stage.Iterations
		}
	}
	return nil
}
