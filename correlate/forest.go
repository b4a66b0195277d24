package correlate

import (
	"cmp"
	"slices"

	"stageprof/recording"
)

// forest collects stages by path. A path's parents are in it too, whether or
// not anything was recorded for them.
type forest map[string]*stageSum

type stageSum struct {
	spans   *Spans
	calls   nestedSums
	adopted map[recording.Attribution]*nestedSums
	threads map[int]*stageThreadSum
}

type stageThreadSum struct {
	spans *Spans
	own   Total
}

// nestedSums accumulates calls of a stage itself, and with those inside it.
type nestedSums struct{ own, within sums }

func (n *nestedSums) add(k callKey, t *Total, innermost bool) {
	n.within.add(k.symbol, k.api, k.gil, t)
	if innermost {
		n.own.add(k.symbol, k.api, k.gil, t)
	}
}

// add visits the stage of path and all its parents.
func (f forest) add(path Path, visit func(s *stageSum, innermost bool)) {
	for p := range parents(path.Joined, path.Names) {
		if f[p.Joined] == nil {
			f[p.Joined] = &stageSum{}
		}
		visit(f[p.Joined], len(p.Names) == len(path.Names))
	}
}

func (s *stageSum) adoptedBy(a recording.Attribution) *nestedSums {
	if s.adopted == nil {
		s.adopted = map[recording.Attribution]*nestedSums{}
	}
	if s.adopted[a] == nil {
		s.adopted[a] = &nestedSums{}
	}
	return s.adopted[a]
}

func (s *stageSum) thread(i int) *stageThreadSum {
	if s.threads == nil {
		s.threads = map[int]*stageThreadSum{}
	}
	if s.threads[i] == nil {
		s.threads[i] = &stageThreadSum{}
	}
	return s.threads[i]
}

// finish orders the stages so that parents come before their children.
func (f forest) finish(n naming, process bool) []Stage {
	stages := make([]Stage, 0, len(f))
	for joined, s := range f {
		stages = append(stages, Stage{
			Path:    Path{Joined: joined, Names: n[joined]},
			Process: process,
			Spans:   s.spans,
			Own:     s.calls.own.breakdown(),
			Within:  s.calls.within.breakdown(),
			Adopted: s.finishAdopted(),
			Threads: s.finishThreads(),
		})
	}
	slices.SortFunc(stages, func(x, y Stage) int { return comparePaths(x.Path, y.Path) })
	return stages
}

func (s *stageSum) finishAdopted() []Adopted {
	var adopted []Adopted
	for a, n := range s.adopted {
		adopted = append(adopted, Adopted{Attribution: a, Own: n.own.breakdown(), Within: n.within.breakdown()})
	}
	slices.SortFunc(adopted, func(x, y Adopted) int { return cmp.Compare(x.Attribution, y.Attribution) })
	return adopted
}

func (s *stageSum) finishThreads() []StageThread {
	var threads []StageThread
	for i, t := range s.threads {
		threads = append(threads, StageThread{Thread: i, Spans: t.spans, Own: t.own})
	}
	slices.SortFunc(threads, func(x, y StageThread) int { return cmp.Compare(x.Thread, y.Thread) })
	return threads
}

// comparePaths puts parents before children. Paths that are written alike have
// the same names, so the order is total.
func comparePaths(a, b Path) int { return slices.Compare(a.Names, b.Names) }
