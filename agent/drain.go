package agent

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

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

// entriesAtOnce is how many entries of a hash map one system call reads. No bucket
// has so many, which is what the kernel asks of it.
const entriesAtOnce = 256

// entries calls each for every entry of a hash map.
func entries[K, V any](m *ebpf.Map, each func(K, V)) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, entriesAtOnce), make([]V, entriesAtOnce)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			each(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // that was all
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %v: %w", m, err)
		}
	}
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
