package agent

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/bpf"
	"stageprof/recording"
)

// finish closes the window, takes the probes off and reads what was counted.
func (s *Session) finish(end recording.WindowEnd) (*recording.Recording, error) {
	windowEnd, err := s.closeWindow()
	if err != nil {
		return nil, err
	}
	// At once: the code objects of the last samples may not be there for long.
	if err := s.samples.read(); err != nil {
		s.warnOnce(err.Error())
	}
	cpu := agentCPU() - s.startCPU
	// While the target's program is there, its latest libraries can still be named.
	if end != recording.EndExec {
		if err := s.names.refresh(); err != nil && !errors.Is(err, target.ErrTargetExited) {
			s.warnOnce(fmt.Sprintf("callers in libraries that were loaded late have no names: %v", err))
		}
	}
	busy := agentCPU()
	detached := s.quiesce()
	s.meter.switched(agentCPU() - busy)
	if s.config.Live {
		if err := s.retire(); err != nil {
			return nil, err
		}
	}
	s.warnOfChildren()
	unseeded, err := s.unseeded()
	if err != nil {
		return nil, err
	}
	// Only the ends of threads still change what is read now.
	dump, dumpErr := readIterator(s.iterate)
	if dumpErr != nil {
		s.warnOnce(fmt.Sprintf("stages that were open at the end are missing: %v", dumpErr))
	}

	states, err := parseStates(dump)
	if err != nil {
		return nil, err
	}
	d := drain{Session: s, windowEnd: windowEnd, r: s.header(end, windowEnd), states: states, complete: dumpErr == nil, unseeded: unseeded}
	if s.skips && d.complete {
		if err := d.awaitEnds(endPatience); err != nil {
			return nil, err
		}
	}
	if err := s.objects.ProcessStages.Lookup(uint32(0), &d.shared); err != nil {
		return nil, fmt.Errorf("reading the process's stages: %w", err)
	}
	if err := d.run(); err != nil {
		return nil, err
	}
	s.spans.kept = nil
	d.r.Overhead = s.overhead(d.r, cpu, detached)
	d.addFollowed()
	return d.r, s.bill(d.r)
}

// quiesce makes sure that no program changes the maps any more, and returns how
// long taking the probes off took, 0 if that comes later. Perf events take so long to remove that the
// Recording is made before: the window has been over for longer than any program
// runs.
func (s *Session) quiesce() time.Duration {
	begin := time.Now()
	s.leaveGates()
	links := []*probe.Links{&s.scheduler}
	if s.mechanism != probe.PerfEvent {
		links = append(links, &s.probes)
	}
	for _, l := range links {
		if err := l.Close(); err != nil {
			s.warnOnce(fmt.Sprintf("taking the probes off: %v", err))
		}
	}
	if s.mechanism == probe.PerfEvent {
		return 0
	}
	return time.Since(begin)
}

// ahead is how far ahead the window's end is set: every program must know of it
// before it comes, so that none accounts time beyond it.
const ahead = 2 * time.Millisecond

// closeWindow ends the window, unless the target's program has ended it.
func (s *Session) closeWindow() (uint64, error) {
	var end uint64
	if err := s.objects.WindowEnd.Get(&end); err != nil || end != 0 {
		return end, err
	}
	for {
		end = monotonic() + uint64(ahead)
		if err := s.objects.WindowEnd.Set(end); err != nil {
			return 0, fmt.Errorf("closing the window: %w", err)
		}
		if monotonic() < end { // else this process was held up, and the end came first
			time.Sleep(ahead)
			return end, nil
		}
	}
}

func (s *Session) header(end recording.WindowEnd, windowEnd uint64) *recording.Recording {
	p := s.process
	rank := p.Rank()
	r := &recording.Recording{
		Format: recording.FormatVersion,
		Tool: recording.Tool{
			Version: s.config.Version, Command: s.config.Command,
			Kernel: kernelRelease(), Arch: runtime.GOARCH, Mechanism: string(s.mechanism),
		},
		Target: recording.Target{
			PID: p.PID(), NSPID: p.NSPID(), StartTime: p.StartTime(), Exe: p.Exe(), Comm: p.Comm(), Cmdline: p.Cmdline(),
			Rank: max(rank.Rank, 0), LocalRank: max(rank.LocalRank, 0), WorldSize: max(rank.WorldSize, 1),
		},
		Window: recording.Window{
			Start: s.startWall, StartNS: s.startMono, Duration: time.Duration(windowEnd - s.startMono), End: end,
		},
		Absent:   s.plan.absent(),
		Warnings: slices.Clone(s.warnings),
	}
	if s.pythonMatch == nil && s.markerLibs+s.rangePoints+s.stageFunctions() == 0 {
		r.Warnings = append(r.Warnings, s.noStages())
	}
	if python := s.plan.Python; python.Path != "" {
		r.Target.Python = &recording.Python{
			Version: python.Version, Path: python.Path, GILMethod: python.Method.String(), GILReason: python.Reason,
			Stacks: string(s.stacks()), StacksReason: s.stacksReason,
		}
	}
	return r
}

// drain turns the kernel side's maps into the tables of a Recording.
type drain struct {
	*Session
	r         *recording.Recording
	windowEnd uint64
	live      bool                   // the programs are running: this is a snapshot
	states    []bpf.ProbeThreadState // of the threads that exist
	complete  bool                   // these are all, and no more will come
	shared    bpf.ProbeThreadState   // of the whole process
	unseeded  map[uint32]bool        // by thread id: in the stages of midStage all along, as far as is known

	calls  map[bpf.ProbeCallKey]bpf.ProbeCallRow
	debts  map[bpf.ProbeDebtKey]bpf.ProbeDebtRow
	stages map[bpf.ProbeStageKey]bpf.ProbeStageRow

	regionTimes map[bpf.ProbeRegionKey]bpf.ProbeRegionRow
	regionParts map[bpf.ProbeRegionPartsKey]bpf.ProbeRegionPartsRow
	allocations map[bpf.ProbeAllocationKey]bpf.ProbeAllocationRow

	modules    *moduleTable
	frames     map[uint64]int // by return address
	threads    map[uint32]int // by serial number
	info       map[uint32]bpf.ProbeThreadInfo
	paths      map[uint32]int // by the kernel side's number
	parents    map[uint32]bpf.ProbePathKey
	text       map[uint64]string // names by address
	byNames    map[string]int    // paths by their names
	rowOf      map[stageID]int   // rows of stages
	regions    regionTable
	hits       hits
	rowSamples map[bpf.ProbeCallKey][]recording.Sample
	untrusted  uint64 // samples of Python code that may have been other code
}

// stageID is a key of the Recording's stages.
type stageID struct{ thread, path int }

// run reads the rows before what they refer to, which never goes away.
func (d *drain) run() error {
	d.modules = newModuleTable(d.names, d.r.Target.Exe)
	d.frames, d.threads, d.paths = map[uint64]int{}, map[uint32]int{}, map[uint32]int{}
	d.byNames, d.rowOf = map[string]int{}, map[stageID]int{}
	d.regions, d.hits = d.newRegionTable(), hits{}
	for _, step := range []func() error{
		d.addSamples, d.readRows, d.readNames, d.readThreads, d.addSymbols, d.addCalls, d.addDebts, d.addStages, d.addSpans, d.addTimeline, d.addOpen, d.addRegionTimes,
		d.addRegionParts, d.addAllocations,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	d.r.Modules = d.modules.modules
	for _, warning := range []string{d.noPythonStages(), d.noMatch()} {
		if warning != "" && !d.live {
			d.r.Warnings = append(d.r.Warnings, warning)
		}
	}
	return d.addLosses()
}

func (d *drain) readRows() (err error) {
	if d.calls, err = rows[bpf.ProbeCallKey](d.objects.Calls, d.live, wholeCall); err != nil {
		return err
	}
	if d.debts, err = rows[bpf.ProbeDebtKey](d.objects.Debts, d.live, anyDebt); err != nil {
		return err
	}
	if d.stages, err = d.stageRows(); err != nil {
		return err
	}
	if d.regionTimes, err = rows[bpf.ProbeRegionKey](d.objects.Regions, d.live, wholeRegion); err != nil {
		return err
	}
	if d.regionParts, err = rows[bpf.ProbeRegionPartsKey](d.objects.RegionParts, d.live, wholeRegionParts); err != nil {
		return err
	}
	d.allocations, err = rows[bpf.ProbeAllocationKey](d.objects.Allocations, d.live, wholeAllocation)
	return err
}

// entries calls each for every entry of a hash map.
func entries[K, V any](m *ebpf.Map, each func(K, V)) error {
	var key K
	var value V
	rows := m.Iterate()
	for rows.Next(&key, &value) {
		each(key, value)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading %v: %w", m, err)
	}
	return nil
}

func (d *drain) readNames() error {
	d.text, d.parents = map[uint64]string{}, map[uint32]bpf.ProbePathKey{}
	defer d.nameFunctions()
	return errors.Join(
		entries(d.objects.Names, func(address uint64, name bpf.ProbeStageName) { d.text[address] = cText(name.Text[:]) }),
		entries(d.objects.Paths, func(key bpf.ProbePathKey, id uint32) { d.parents[id] = key }),
	)
}

func (d *drain) readThreads() error {
	d.info = maps.Clone(d.retired.info)
	return entries(d.objects.Threads, func(serial uint32, info bpf.ProbeThreadInfo) { d.info[serial] = info })
}

// thread returns the id of a thread incarnation, adding it at its first use.
func (d *drain) thread(serial uint32) int {
	if serial == processThread {
		return -1
	}
	id, ok := d.threads[serial]
	if !ok {
		id = len(d.r.Threads)
		d.threads[serial] = id
		info := d.info[serial]
		row := recording.Thread{
			ID: id, TID: int(info.Tid), NTID: int(info.NsTid), Name: cText(info.Comm[:]), Serial: uint64(serial),
		}
		if serial == foldedThread {
			row.Name, row.Folded = foldedName, true
		}
		d.r.Threads = append(d.r.Threads, row)
	}
	return id
}

// processThread is bpf/types.h's THREAD_PROCESS.
const processThread = ^uint32(0)

// The kernel side's numbers for what is not a path of names.
const (
	pathNone    = 0
	pathOther   = 1
	pathOtherAt = 0xffffff00 // in rows and spans: and the stage's depth
	otherName   = "(other stages)"
	maxPath     = 64
)

const foldedName = "(ended threads)"

// path returns the id of a stage path.
func (d *drain) path(number uint32) int {
	id, ok := d.paths[number]
	if !ok {
		id = d.pathOf(d.namesOf(number))
		d.paths[number] = id
		if isPythonName(d.parents[number].Name) {
			d.r.Paths[id].PythonFunction = true
		}
	}
	return id
}

func (d *drain) namesOf(number uint32) []string {
	var reversed []string
	for number != pathNone && len(reversed) < maxPath {
		key, known := d.parents[number]
		if !known { // pathOther
			reversed = append(reversed, otherName)
			break
		}
		name := d.text[key.Name]
		if isPythonName(key.Name) { // not to be taken for a marked stage of the same name
			name += "()"
		}
		reversed = append(reversed, name)
		number = key.Parent
	}
	names := make([]string, 0, len(reversed))
	for i := range reversed {
		names = append(names, reversed[len(reversed)-1-i])
	}
	return names
}

// pathOf returns the id of the path with these names. Copies of a name at
// several addresses (several marker libraries) make one path.
func (d *drain) pathOf(names []string) int {
	key := strings.Join(names, "\x00")
	id, ok := d.byNames[key]
	if !ok {
		id = len(d.r.Paths)
		d.byNames[key] = id
		d.r.Paths = append(d.r.Paths, recording.StagePath{ID: id, Names: names})
	}
	return id
}

func (d *drain) addSymbols() error {
	for i, s := range d.symbols {
		address := s.Vaddr
		if len(s.driver.Biases) > 0 {
			address += s.driver.Biases[0]
		}
		d.r.Symbols = append(d.r.Symbols, recording.Symbol{
			ID: i, Name: s.Symbol, API: s.API, Group: string(s.Group),
			Module: d.modules.module(d.names.find(address)), Address: address,
			ProbeOffset: s.Placement.Skip, Placement: s.Placement.Class.String(),
			BiasNS: d.costs[s.Placement.Class].Bias,
		})
	}
	return nil
}

var gilStates = map[bpf.ProbeGilState]recording.GIL{
	bpf.ProbeGilStateGIL_NONE:     recording.GILNone,
	bpf.ProbeGilStateGIL_UNKNOWN:  recording.GILUnknown,
	bpf.ProbeGilStateGIL_FREE:     recording.GILFree,
	bpf.ProbeGilStateGIL_HELD:     recording.GILHeld,
	bpf.ProbeGilStateGIL_DISABLED: recording.GILDisabled,
}

var attributions = map[bpf.ProbeAttribution]recording.Attribution{
	bpf.ProbeAttributionATTRIBUTION_NONE:     recording.AttributionNone,
	bpf.ProbeAttributionATTRIBUTION_OWN:      recording.AttributionOwn,
	bpf.ProbeAttributionATTRIBUTION_AUTOGRAD: recording.AttributionAutograd,
	bpf.ProbeAttributionATTRIBUTION_PROCESS:  recording.AttributionProcess,
}

func (d *drain) addCalls() error {
	d.r.Calls = make([]recording.Call, 0, len(d.calls)+len(d.retired.calls.rows))
	for _, table := range []map[bpf.ProbeCallKey]bpf.ProbeCallRow{d.calls, d.retired.calls.rows} {
		for key, row := range table {
			if row.Count > 0 { // else it was made, but its first call was cut off
				d.r.Calls = append(d.r.Calls, d.call(key, &row))
			}
		}
	}
	return nil
}

func (d *drain) call(key bpf.ProbeCallKey, row *bpf.ProbeCallRow) recording.Call {
	return recording.Call{
		Thread: d.thread(key.Thread), Path: d.path(key.Path), Symbol: int(key.Symbol), Caller: d.frame(key.Caller),
		GIL:         gilStates[bpf.ProbeGilState(key.Gil)],
		Attribution: attributions[bpf.ProbeAttribution(key.Attribution)],
		Region:      d.regions.path(key.Region),
		Count:       row.Count, Errors: row.Errors, WallNS: row.Wall, CPUNS: row.Cpu, Bytes: row.Bytes,
		MinNS: row.Min, MaxNS: row.Max, Hist: row.Hist, Samples: d.rowSamples[key],
		GILWaitCausedNS: row.GilWait,
	}
}

var debtKinds = map[bpf.ProbeDebtKind]recording.DebtKind{
	bpf.ProbeDebtKindDEBT_STAGE:     recording.DebtStage,
	bpf.ProbeDebtKindDEBT_FORGOTTEN: recording.DebtForgotten,
	bpf.ProbeDebtKindDEBT_UNSEEN:    recording.DebtUnseen,
	bpf.ProbeDebtKindDEBT_IDLE:      recording.DebtIdle,
}

func (d *drain) addDebts() error {
	for _, table := range []map[bpf.ProbeDebtKey]bpf.ProbeDebtRow{d.debts, d.retired.debts.rows} {
		for key, row := range table {
			if row.Waits == 0 { // made, but its first wait was cut off
				continue
			}
			d.r.Debts = append(d.r.Debts, recording.Debt{
				Thread: d.thread(key.Thread), Path: d.path(key.Path), Symbol: int(key.Symbol),
				Kind: debtKinds[bpf.ProbeDebtKind(key.Kind)], Owner: d.path(key.Owner),
				Waits: row.Waits, WallNS: row.Wall, Operations: row.Operations,
			})
		}
	}
	return nil
}

func (d *drain) frame(address uint64) int {
	if address == 0 {
		return -1
	}
	id, ok := d.frames[address]
	if !ok {
		id = len(d.r.Frames)
		d.frames[address] = id
		f := d.modules.frame(address)
		f.ID = id
		d.r.Frames = append(d.r.Frames, f)
	}
	return id
}

func (d *drain) addStages() error {
	d.r.Stages = make([]recording.Stage, 0, len(d.stages)+len(d.retired.stages.rows))
	for _, table := range []map[bpf.ProbeStageKey]bpf.ProbeStageRow{d.stages, d.retired.stages.rows} {
		for key, row := range table {
			d.addStage(key, &row)
		}
	}
	return nil
}

// stage returns the row of a thread and path, adding it at its first use.
func (d *drain) stage(thread, path int) *recording.Stage {
	id := stageID{thread, path}
	i, ok := d.rowOf[id]
	if !ok {
		i = len(d.r.Stages)
		d.rowOf[id] = i
		d.r.Stages = append(d.r.Stages, recording.Stage{Thread: thread, Path: path})
	}
	return &d.r.Stages[i]
}

// addStage adds a row. Copies of a name at several addresses make one row.
func (d *drain) addStage(key bpf.ProbeStageKey, row *bpf.ProbeStageRow) {
	if key.Path == pathNone && bpf.ProbeThreadEnd(d.info[key.Thread].Ended) == bpf.ProbeThreadEndTHREAD_ENDED_UNSEEDED {
		d.addUnseededEnd(d.thread(key.Thread), d.info[key.Thread].Tid, partsOf(row.Parts))
		return
	}
	s := d.stage(d.thread(key.Thread), d.path(key.Path))
	if row.Count > 0 {
		if s.Count == 0 {
			s.MinNS = row.Min
		}
		s.MinNS, s.MaxNS = min(s.MinNS, row.Min), max(s.MaxNS, row.Max)
	}
	s.Count += row.Count
	s.WallNS += row.Wall
	s.ChildNS += row.Child
	s.PartialCount += row.PartialCount
	s.PartialWallNS += row.PartialWall
	s.PartialChildNS += row.PartialChild
	if key.Thread != processThread { // a process has no CPU time of a stage
		s.CPUNS += row.Cpu
		s.PartialCPUNS += row.PartialCpu
	}
	addTo(s.Hist[:], row.Hist[:])
	s.Parts = s.Parts.Plus(partsOf(row.Parts))
	s.PartialParts = s.PartialParts.Plus(partsOf(row.PartialParts))
	if function := d.innermostFunction(key.Path); function >= 0 && d.functions[function].role&roleRegion == 0 {
		d.hits.add(function, key.Thread, row.Count+row.PartialCount)
	}
}

// addOpen adds the stages of threads that were in mid-stage when the window
// opened and neither emitted a marker nor called the driver in it: they were
// open during the whole window. A snapshot has all other open stages too.
func (d *drain) addOpen() error {
	for i := range d.states {
		state := &d.states[i]
		thread := d.thread(state.Serial)
		switch {
		case state.Seeded == 0 && d.unseeded[state.Tid]:
			d.addUnseeded(thread, state)
		case d.live:
			d.addOpenStages(thread, state)
		}
	}
	d.addOpenOfProcess()
	return nil
}

// addOpenOfProcess does the same for the stages of the whole process.
func (d *drain) addOpenOfProcess() {
	for _, r := range d.registries {
		if d.shared.Seeded != 0 || len(d.shown(r.process.open)) == 0 {
			continue
		}
		for _, span := range d.allAlong(-1, r.process.open, recording.Parts{}, d.windowEnd-d.startMono) {
			d.cut(&span)
		}
	}
	if d.live && d.shared.Seeded != 0 {
		d.addOpenStages(-1, &d.shared)
	}
}

// addUnseeded adds the stages that a thread has been in since the window opened,
// up to now.
func (d *drain) addUnseeded(thread int, state *bpf.ProbeThreadState) {
	if d.hasEnded(state.Serial) { // then its row has them
		return
	}
	parts := partsOf(state.Outside.Parts)
	wall := d.windowEnd - d.startMono
	if d.live { // each thread is looked at in a moment of its own
		wall = parts.Total()
	}
	for _, span := range d.allAlong(thread, d.midStage[state.Tid].open, parts, wall) {
		d.cut(&span)
	}
}

// addUnseededEnd does the same for a thread that has ended. Its row has all of
// its time as outside any stage.
func (d *drain) addUnseededEnd(thread int, tid uint32, parts recording.Parts) {
	for _, span := range d.allAlong(thread, d.midStage[tid].open, parts, parts.Total()) {
		d.addPartial(&span)
		if !d.live {
			d.r.Spans = append(d.r.Spans, span)
		}
	}
}

// allAlong returns spans of stages that were open from the window's start on, of
// which the parts are the innermost one's. Without stages the time is outside.
func (d *drain) allAlong(thread int, all []openStage, parts recording.Parts, wall uint64) []recording.Span {
	stages := d.shown(all)
	if len(stages) == 0 {
		d.addOutside(thread, parts)
		return nil
	}
	var names []string
	spans := make([]recording.Span, len(stages))
	for i, stage := range stages {
		names = append(names, stage.name)
		spans[i] = recording.Span{
			Thread: thread, Path: d.pathOf(names[: i+1 : i+1]), BeginNS: d.startMono, WallNS: wall,
			CPUNS: parts.RunningNS + parts.CUDACPUNS, Partial: true, ChildNS: wall,
		}
	}
	innermost := &spans[len(spans)-1]
	innermost.ChildNS, innermost.Parts = 0, parts
	return spans
}

func (d *drain) addOutside(thread int, parts recording.Parts) {
	row := d.stage(thread, d.pathOf(nil))
	row.WallNS += parts.Total()
	row.Parts = row.Parts.Plus(parts)
}

// cut adds a span that the window's end, or the snapshot, cuts.
func (d *drain) cut(s *recording.Span) {
	d.addPartial(s)
	switch {
	case d.live:
		d.r.Open = append(d.r.Open, *s)
	case s.Thread >= 0:
		d.r.Spans = append(d.r.Spans, *s)
	case d.r.Timeline != nil:
		d.r.Timeline.Spans = append(d.r.Timeline.Spans, *s)
	}
}

// addPartial adds a span that an edge of the window cuts to its row.
func (d *drain) addPartial(s *recording.Span) {
	row := d.stage(s.Thread, s.Path)
	row.PartialCount++
	row.PartialWallNS += s.WallNS
	row.PartialChildNS += s.ChildNS
	row.PartialCPUNS += s.CPUNS
	row.PartialParts = row.PartialParts.Plus(s.Parts)
}

// parseStates decodes what the thread iterator wrote.
func parseStates(dump []byte) ([]bpf.ProbeThreadState, error) {
	const size = int(unsafe.Sizeof(bpf.ProbeThreadState{}))
	states := make([]bpf.ProbeThreadState, len(dump)/size)
	if len(dump)%size != 0 {
		return nil, fmt.Errorf("decoding %d bytes of thread states: %w", len(dump), errStates)
	}
	// The Go type has the kernel side's layout; reflection would take a multiple
	// of the time.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(states))), len(dump)), dump)
	return states, nil
}

var errStates = errors.New("not a whole number of records")

func (d *drain) addLosses() error {
	t, err := readTally(d.objects.Counters)
	if err != nil {
		return err
	}
	var counted uint64
	for _, c := range d.r.Calls {
		counted += c.Count
	}
	if d.live {
		t = t.snapshot(counted, d.inCall())
	}
	d.r.Seen = &recording.Seen{Calls: t.entered()}
	d.r.Losses = t.losses(counted)
	d.addLoss(recording.LossSpansNotKept, "other", d.spans.dropped, d.spans.help())
	d.addSampleLosses()
	d.addSkipped()
	var names, threads uint64
	for _, r := range d.registries {
		n, t := r.overflows(d.process)
		names, threads = names+n, threads+t
	}
	d.addLoss(reasonNamesOverflow, "names", names,
		"the marker library had no room for further distinct names; such stages are called \"(too many names)\"")
	d.addLoss(reasonThreadOverflow, "spans", threads,
		"the marker library had no room for further threads; they began no stages")
	sortLosses(d.r.Losses)
	return nil
}

// inCall is how many threads were in a call.
func (d *drain) inCall() (n uint64) {
	for i := range d.states {
		if d.states[i].Sp != 0 {
			n++
		}
	}
	return n
}

func (d *drain) addLoss(reason, kind string, count uint64, help string) {
	if count > 0 {
		d.r.Losses = append(d.r.Losses, recording.Loss{Reason: reason, Kind: kind, Count: count, Help: help})
	}
}
