package html

import (
	"cmp"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

type pageData struct {
	Segments   []segment       `json:"segments"`
	Comparison *comparisonData `json:"comparison"`
	Recordings []recordingData `json:"recordings"`
	Shown      int             `json:"shown"`
}

type recordingData struct {
	Name      string        `json:"name"`
	Process   []string      `json:"process"`
	Command   string        `json:"command"`
	Window    string        `json:"window"`
	CallsLine string        `json:"calls_line"`
	WindowNS  int64         `json:"window_ns"`
	PartNames []partName    `json:"part_names"`
	Threads   []threadData  `json:"threads"`
	Stages    []stageData   `json:"stages"`
	Outside   *partsData    `json:"outside"`
	Calls     []callData    `json:"calls"`
	Spans     spansData     `json:"spans"`
	Debts     []waitingData `json:"debts"`
	Python    []pythonData  `json:"python"`
	Lost      [][]string    `json:"lost"`
	Account   string        `json:"account"`
	Budget    [][]string    `json:"budget"` // null when there was none
	Cost      [][]string    `json:"cost"`
	GPUTitle  string        `json:"gpu_title"`
	GPU       [][]string    `json:"gpu"`
	Warnings  []string      `json:"warnings"`
}

type threadData struct {
	Name   string                      `json:"name"`
	TID    int                         `json:"tid"`
	Role   correlate.Role              `json:"role"`
	Stages *uint64                     `json:"stages"`
	Calls  totalData                   `json:"calls"`
	GIL    map[recording.GIL]totalData `json:"gil"`
	Parts  *partsData                  `json:"parts"`
}

type stageData struct {
	Name        string                      `json:"name"`
	Path        string                      `json:"path"`
	Depth       int                         `json:"depth"`
	Inside      int                         `json:"inside"`
	Process     bool                        `json:"process"`
	Complete    uint64                      `json:"complete"`
	Partial     uint64                      `json:"partial"`
	Wall        *uint64                     `json:"wall"`
	Exclusive   *uint64                     `json:"exclusive"`
	PerSpan     *uint64                     `json:"per_span"`
	Parts       *partsData                  `json:"parts"`
	PartsWithin *partsData                  `json:"parts_within"`
	Iterations  *iterationsData             `json:"iterations"`
	Calls       totalData                   `json:"calls"`
	GIL         map[recording.GIL]totalData `json:"gil"`
	Adopted     []adoptedData               `json:"adopted"`
}

type iterationsData struct {
	Count   uint64             `json:"count"`
	Missing uint64             `json:"missing"`
	Wall    distributionData   `json:"wall"`
	Parts   []distributionData `json:"parts"` // the largest in sum first
}

type distributionData struct {
	Name string `json:"name,omitempty"`
	Mean uint64 `json:"mean"`
	P50  uint64 `json:"p50"`
	P99  uint64 `json:"p99"`
	Max  uint64 `json:"max"`
}

type adoptedData struct {
	Attribution recording.Attribution `json:"attribution"`
	Calls       totalData             `json:"calls"`
}

type totalData struct {
	Count  uint64 `json:"count"`
	Wall   uint64 `json:"wall"`
	Caused uint64 `json:"caused,omitempty"`
}

type callData struct {
	Stage       int                   `json:"stage"`
	Thread      int                   `json:"thread"`
	Symbol      string                `json:"symbol"`
	GIL         recording.GIL         `json:"gil"`
	Attribution recording.Attribution `json:"attribution"`
	Count       uint64                `json:"count"`
	Errors      uint64                `json:"errors"`
	Wall        uint64                `json:"wall"`
	CPU         uint64                `json:"cpu"`
	Bytes       uint64                `json:"bytes"`
	Max         uint64                `json:"max"`
	P50         *uint64               `json:"p50"`
	P99         *uint64               `json:"p99"`
	Callers     []callerData          `json:"callers"`
}

type callerData struct {
	Name string `json:"name"`
	totalData
}

func makeData(runs ...correlate.Run) *pageData {
	d := &pageData{Segments: segments}
	for _, run := range runs {
		d.Recordings = append(d.Recordings, dataOf(run))
	}
	return d
}

func dataOf(run correlate.Run) recordingData {
	l := run.Ledger
	head := report.Head(l)
	title, gpu := report.GPU(l)
	b := &builder{ledger: l, parts: map[correlate.PartName]int{}, stages: map[stageKey]int{}}
	d := recordingData{
		Name: report.Printable(run.Name), Process: head.Process, Command: head.Command,
		Window: head.Window, CallsLine: head.Calls, WindowNS: int64(max(l.Source.Window.Duration, 0)),
		Threads: []threadData{}, Stages: []stageData{}, Calls: []callData{},
		Lost: report.Lost(l), Account: report.Account(l), Budget: report.Budget(l), Cost: report.Cost(l),
		Debts: debtsOf(l), Python: pythonOf(l), GPUTitle: title, GPU: gpu,
	}
	for i := range l.Threads {
		d.Threads = append(d.Threads, b.thread(&l.Threads[i]))
	}
	for i, placed := range report.Place(l.Stages) {
		b.stages[keyOf(placed.Stage.Path, placed.Stage.Process)] = i
		d.Stages = append(d.Stages, b.stage(placed))
	}
	d.Outside = b.partition(l.PartsOutside)
	for i := range l.Calls {
		d.Calls = append(d.Calls, b.call(&l.Calls[i]))
	}
	d.Spans = b.spans()
	d.PartNames = b.names
	for _, w := range l.Source.Warnings {
		d.Warnings = append(d.Warnings, report.Printable(w))
	}
	return d
}

// builder makes the data of one Ledger.
type builder struct {
	ledger *correlate.Ledger
	names  []partName
	parts  map[correlate.PartName]int // index of names
	stages map[stageKey]int           // index of the stages' data
}

// stageKey tells stages apart: a thread's and one of the whole process can have
// the same path.
type stageKey struct {
	path    string
	process bool
}

func keyOf(p correlate.Path, process bool) stageKey { return stageKey{p.Joined, process} }

func (b *builder) thread(t *correlate.Thread) threadData {
	d := threadData{
		Name: report.Printable(t.Name), TID: t.TID, Role: t.Role(),
		Calls: totalOf(&t.All.Total), GIL: gilOf(&t.All.Sum), Parts: b.partition(t.Parts),
	}
	if t.Staged {
		d.Stages = &t.StagesNS
	}
	return d
}

func (b *builder) stage(p report.Placed) stageData {
	s := p.Stage
	d := stageData{
		Name: report.Printable(s.Path.Innermost()), Path: report.Printable(s.Path.Joined),
		Depth: p.Depth, Inside: p.Inside, Process: s.Process,
		Parts: b.partition(s.Parts), PartsWithin: b.partition(s.PartsWithin), Iterations: iterationsOf(s.Iterations),
		Calls: totalOf(&s.Within.Total), GIL: gilOf(&s.Within.Sum),
	}
	if s.Spans != nil {
		wall, exclusive := s.Spans.WindowNS(), s.Spans.ExclusiveWindowNS()
		d.Complete, d.Partial, d.Wall, d.Exclusive = s.Spans.Count, s.Spans.Partial.Count, &wall, &exclusive
		if s.Spans.Count > 0 {
			mean := s.Spans.WallNS / s.Spans.Count
			d.PerSpan = &mean
		}
	}
	for i := range s.Adopted {
		a := &s.Adopted[i]
		d.Adopted = append(d.Adopted, adoptedData{a.Attribution, totalOf(&a.Within.Total)})
	}
	return d
}

func iterationsOf(it *correlate.Iterations) *iterationsData {
	if it == nil || it.Count == 0 {
		return nil
	}
	d := &iterationsData{Count: it.Count, Missing: it.Missing, Wall: distributionOf("", it.Wall)}
	for _, p := range it.Parts {
		d.Parts = append(d.Parts, distributionOf(report.Printable(p.String()), p.Distribution))
	}
	return d
}

func distributionOf(name string, d correlate.Distribution) distributionData {
	return distributionData{name, d.MeanNS, d.P50NS, d.P99NS, d.MaxNS}
}

func totalOf(t *correlate.Total) totalData { return totalData{t.Count, t.WallNS, t.GILWaitCausedNS} }

func gilOf(s *correlate.Sum) map[recording.GIL]totalData {
	states := map[recording.GIL]totalData{}
	for state, total := range s.GIL {
		states[state] = totalOf(&total)
	}
	return states
}

func (b *builder) call(c *correlate.Call) callData {
	return callData{
		Stage: b.stageOf(c.Path, c.Attribution == recording.AttributionProcess), Thread: c.Thread,
		Symbol: report.Printable(c.Symbol), GIL: c.GIL, Attribution: c.Attribution,
		Count: c.Count, Errors: c.Errors, Wall: c.WallNS, CPU: c.CPUNS, Bytes: c.Bytes, Max: c.MaxNS,
		P50: known(c.Quantile(0.5)), P99: known(c.Quantile(0.99)), Callers: b.callers(c.Sites),
	}
}

// stageOf is the index of the stage, -1 outside any.
func (b *builder) stageOf(p correlate.Path, process bool) int {
	if i, ok := b.stages[keyOf(p, process)]; ok {
		return i
	}
	return -1
}

// known is a value, null unless ok.
func known(v uint64, ok bool) *uint64 {
	if !ok {
		return nil
	}
	return &v
}

// callers sums the sites of one call by the caller's name, the costliest first.
func (b *builder) callers(sites []correlate.Site) (callers []callerData) {
	for _, s := range sites {
		name := "unknown"
		if s.Caller >= 0 {
			name = report.Printable(b.ledger.Source.FrameName(s.Caller))
		}
		i := slices.IndexFunc(callers, func(c callerData) bool { return c.Name == name })
		if i == -1 {
			i = len(callers)
			callers = append(callers, callerData{Name: name})
		}
		callers[i].Count += s.Count
		callers[i].Wall += s.WallNS
		callers[i].Caused += s.GILWaitCausedNS
	}
	slices.SortFunc(callers, func(x, y callerData) int {
		return cmp.Or(cmp.Compare(y.Wall, x.Wall), strings.Compare(x.Name, y.Name))
	})
	return callers
}
