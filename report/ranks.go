package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// mostRanks bounds the rows of processes below a stage; the slowest stay.
const mostRanks = 16

// TextOfSeveral writes the tables that compare processes which were recorded
// together: what each one did, and each stage by process, the slowest first.
// missed names those that were not recorded. With Full the tables of each
// process follow, as [Text] writes them. Of one process it is Text's.
func TextOfSeveral(w io.Writer, ledgers []*correlate.Ledger, missed []string, o TextOptions) error {
	if len(ledgers) == 1 {
		if err := Text(w, ledgers[0], o); err != nil {
			return err
		}
	}
	s := &several{ledgers: ledgers, width: cmp.Or(max(o.Width, 0), defaultWidth)}
	if len(ledgers) > 1 {
		s.writeHead()
		s.writeProcesses()
		s.writeStages()
		s.writeLosses()
		s.writeBudgets()
		s.writeCost()
		s.writeWarnings()
	}
	s.writeMissed(missed)
	if len(ledgers) > 1 && !o.Full {
		one := "process"
		if s.processes() < len(s.ledgers) {
			one = "recording"
		}
		s.printf("\nThe tables of each %s: --full, or --save and stageprof report\n", one)
	}
	if _, err := io.WriteString(w, s.String()); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	if len(ledgers) == 1 || !o.Full {
		return nil
	}
	for _, l := range ledgers {
		if _, err := io.WriteString(w, "\n"+strings.Repeat("─", min(s.width, defaultWidth))+"\n"); err != nil {
			return fmt.Errorf("writing report: %w", err)
		}
		if err := Text(w, l, o); err != nil {
			return err
		}
	}
	return nil
}

// several writes about some processes.
type several struct {
	strings.Builder
	ledgers []*correlate.Ledger
	width   int
}

func (s *several) printf(format string, args ...any) { fmt.Fprintf(s, format, args...) }

// nameOf tells a process from the others.
func nameOf(l *correlate.Ledger) string {
	t := &l.Source.Target
	if t.WorldSize > 1 {
		return fmt.Sprintf("rank %d, pid %d", t.Rank, t.PID)
	}
	return fmt.Sprintf("pid %d", t.PID)
}

func (s *several) writeHead() {
	first, last := extent(s.ledgers[0].Source)
	var calls, wall uint64
	for _, l := range s.ledgers {
		from, until := extent(l.Source)
		if from.Before(first) {
			first = from
		}
		if until.After(last) {
			last = until
		}
		calls += l.All.Count
		wall += l.All.WallNS
	}
	window := duration(uint64(max(last.Sub(first), 0)))
	if slices.ContainsFunc(s.ledgers, func(l *correlate.Ledger) bool { return correlate.HasGaps(l.Source) }) {
		window += ", recorded in windows,"
	}
	if !first.IsZero() {
		window += " from " + first.UTC().Format(time.DateTime) + " UTC"
	}
	writeItems(&s.Builder, []string{
		"stageprof " + printable(s.ledgers[0].Source.Tool.Version), s.subject(),
	}, "", s.width)
	writeItems(&s.Builder, []string{window, plural(calls, "driver call") + " took " + duration(wall) + " of host time"}, "", s.width)
}

// extent is from when to when a process was recorded, with the time between windows.
func extent(r *recording.Recording) (from, until time.Time) {
	from, whole := r.Window.Start, r.Window.Duration
	if c, ok := correlate.CoverageOf(r); ok {
		whole = c.Elapsed
		if trial := r.Budget.Trial; trial != nil && !from.IsZero() {
			from = from.Add(-time.Duration(r.Window.StartNS - trial.StartNS))
		}
	}
	return from, from.Add(max(whole, 0))
}

// processes is how many processes were recorded; one may have been several times.
func (s *several) processes() int {
	type process struct {
		pid     int
		started int64
	}
	processes := map[process]bool{}
	for _, l := range s.ledgers {
		t := &l.Source.Target
		processes[process{t.PID, t.StartTime.UnixNano()}] = true
	}
	return len(processes)
}

// subject says how many there are of what.
func (s *several) subject() string {
	recordings := count(uint64(len(s.ledgers)))
	switch n := s.processes(); {
	case n == len(s.ledgers):
		return recordings + " processes"
	case n == 1:
		return recordings + " recordings of one process"
	default:
		return recordings + " recordings of " + count(uint64(n)) + " processes"
	}
}

func (s *several) writeProcesses() {
	t := &table{
		titles:   []string{"RANK", "PID", "WINDOW", "CALLS", "CUDA", "GIL HELD", "LOST", "ENDED BY", "COMMAND"},
		left:     []bool{true, false, false, false, false, false, false, true, true},
		rigid:    make([]bool, 9),
		lastLeft: true,
	}
	t.rigid[7] = true
	for _, l := range s.ledgers {
		r := l.Source
		rank := missing
		if r.Target.WorldSize > 1 {
			rank = fmt.Sprint(r.Target.Rank)
		}
		t.rows = append(t.rows, row{cells: []string{
			rank, fmt.Sprint(r.Target.PID), recorded(r), count(l.All.Count), duration(l.All.WallNS),
			duration(l.All.GIL[recording.GILHeld].WallNS), count(l.Balance.Lost), printable(string(r.Window.End)), printable(commandOf(&r.Target)),
		}})
	}
	s.printf("\n")
	t.write(&s.Builder, s.width)
}

// ranked is one stage in one process.
type ranked struct {
	ledger *correlate.Ledger
	stage  *correlate.Stage
}

// mean is the mean wall time of the complete spans; ok is false if there is none.
func (r ranked) mean() (ns uint64, ok bool) {
	if r.stage.Spans == nil || r.stage.Spans.Count == 0 {
		return 0, false
	}
	return r.stage.Spans.WallNS / r.stage.Spans.Count, true
}

// compareRanked puts the slowest first, and those without a complete span last.
func compareRanked(a, b ranked) int {
	x, known := a.mean()
	y, knownToo := b.mean()
	switch {
	case known != knownToo && known:
		return -1
	case known != knownToo:
		return 1
	}
	return cmp.Compare(y, x)
}

// byStage gathers a stage's processes; stages stand in the order of the first
// process that has them.
func (s *several) byStage() [][]ranked {
	type key struct {
		process bool
		path    string
	}
	at := map[key]int{}
	var list [][]ranked
	for _, l := range s.ledgers {
		for _, p := range Place(l.Stages) {
			k := key{p.Stage.Process, p.Stage.Path.Joined}
			i, ok := at[k]
			if !ok {
				i = len(list)
				at[k] = i
				list = append(list, nil)
			}
			list[i] = append(list[i], ranked{l, p.Stage})
		}
	}
	for _, processes := range list {
		slices.SortStableFunc(processes, compareRanked)
	}
	return list
}

func (s *several) writeStages() {
	stages := s.byStage()
	if len(stages) == 0 {
		return
	}
	t := &table{titles: []string{"STAGE BY PROCESS", "SPANS", "WALL", "PER SPAN", "VS MEDIAN", "CUDA", "%WALL", "CALLS"}}
	for _, processes := range stages {
		t.rows = append(t.rows, row{cells: []string{printable(processes[0].stage.Path.Joined), "", "", "", "", "", "", ""}})
		median, known := medianOf(processes)
		for _, r := range processes[:min(mostRanks, len(processes))] {
			t.rows = append(t.rows, rankedRow(r, median, known))
		}
		if more := len(processes) - mostRanks; more > 0 {
			t.rows[len(t.rows)-1].notes = []string{"and " + plural(uint64(more), "faster one")}
		}
	}
	s.printf("\n")
	t.write(&s.Builder, s.width)
	writeWords(&s.Builder, "The slowest process of each stage comes first. Where ranks run in lockstep, all wait for the slowest one: it is the one that waits least where the others wait.", "", "", s.width)
}

// medianOf is that of the processes' means; they are sorted.
func medianOf(processes []ranked) (median uint64, known bool) {
	n := 0
	for _, r := range processes {
		if _, ok := r.mean(); ok {
			n++
		}
	}
	if n < 2 {
		return 0, false
	}
	low, _ := processes[n/2].mean()
	high, _ := processes[(n-1)/2].mean()
	return low + (high-low)/2, true
}

func rankedRow(r ranked, median uint64, known bool) row {
	whole := wholeTime(r.stage.Spans, r.stage.Within.WallNS)
	if r.stage.Process {
		whole.share = ""
	}
	versus := missing
	if mean, ok := r.mean(); ok && known && median > 0 {
		versus = fmt.Sprintf("%+.0f%%", 100*(float64(mean)/float64(median)-1))
	}
	return row{depth: 1, cells: []string{
		nameOf(r.ledger), whole.spans, whole.wall, whole.perSpan, versus,
		duration(r.stage.Within.WallNS), whole.share, count(r.stage.Within.Count),
	}}
}

func (s *several) writeLosses() {
	s.printf("\nLOST\n")
	var rows []row
	for _, l := range s.ledgers {
		for _, note := range Lost(l) {
			rows = append(rows, row{cells: append([]string{nameOf(l)}, note...)})
		}
		if b := l.Balance; b.Counted && !b.Holds() {
			rows = append(rows, row{cells: []string{nameOf(l), "", "", Account(l)}})
		}
	}
	if len(rows) == 0 {
		s.printf("  nothing\n")
	}
	writeList(&s.Builder, rows, s.width)
}

func (s *several) writeCost() {
	var kernel uint64
	var attach time.Duration
	sites := 0
	var cpu, whole time.Duration // the one agent's, by whom it has recorded for longest
	var memory uint64
	for _, l := range s.ledgers {
		o := &l.Source.Overhead
		kernel += o.KernelBytes
		attach = max(attach, o.Attach)
		sites += o.ProbedSites
		memory = max(memory, o.AgentRSS)
		if o.AgentCPU > cpu {
			from, until := extent(l.Source)
			cpu, whole = o.AgentCPU, until.Sub(from)
		}
	}
	s.printf("\nCOST OF STAGEPROF\n")
	var rows []row
	for _, l := range s.ledgers {
		if o := &l.Source.Overhead; o.Calibrated {
			rows = append(rows, row{cells: []string{nameOf(l), fmt.Sprintf("%s per call, %s in all calls together",
				duration(uint64(max(o.CallCostNS, 0))), duration(o.AddedNS))}})
		} else {
			rows = append(rows, row{cells: []string{nameOf(l), "not measured"}})
		}
	}
	rows = append(rows,
		row{cells: []string{"agent", fmt.Sprintf("%s of CPU%s, %s of memory and %s in the kernel", duration(uint64(cpu)), ofOneCore(cpu, whole), size(memory), size(kernel))}},
		row{cells: []string{"probes", fmt.Sprintf("%s, a process attached in at most %s", plural(uint64(sites), "site"), duration(uint64(attach)))}})
	writeList(&s.Builder, rows, s.width)
}

func (s *several) writeWarnings() {
	var rows []row
	for _, l := range s.ledgers {
		for _, w := range l.Source.Warnings {
			rows = append(rows, row{cells: []string{nameOf(l), printable(w)}})
		}
	}
	if len(rows) > 0 {
		s.printf("\nWARNINGS\n")
		writeList(&s.Builder, rows, s.width)
	}
}

func (s *several) writeMissed(missed []string) {
	if len(missed) == 0 {
		return
	}
	s.printf("\nNOT RECORDED\n")
	for _, m := range missed {
		writeList(&s.Builder, []row{{cells: []string{"-", printable(m)}}}, s.width)
	}
}

type jsonSeveral struct {
	Format      int             `json:"format"`
	Processes   []*jsonDocument `json:"processes"`
	NotRecorded []string        `json:"not_recorded"`
}

// JSONOfSeveral writes one object with the objects of all processes, which the
// package's doc describes.
func JSONOfSeveral(w io.Writer, ledgers []*correlate.Ledger, missed []string) error {
	d := jsonSeveral{Format: jsonFormat, Processes: []*jsonDocument{}, NotRecorded: append([]string{}, missed...)}
	for _, l := range ledgers {
		d.Processes = append(d.Processes, document(l))
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}
