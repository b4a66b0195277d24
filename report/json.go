package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// jsonFormat is the version of the JSON object. It changes when a reader of the
// previous one would misread it.
const jsonFormat = 1

// JSON writes the Ledger as one JSON object, which the package's doc describes.
func JSON(w io.Writer, l *correlate.Ledger) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document(l)); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

type jsonDocument struct {
	Format          int                 `json:"format"`
	Version         string              `json:"version"`
	Target          recording.Target    `json:"target"`
	Window          jsonWindow          `json:"window"`
	Calls           []jsonCall          `json:"calls"`
	Stages          []jsonStage         `json:"stages"`
	Regions         []jsonRegion        `json:"regions"`
	Allocations     []jsonAllocation    `json:"allocations"`
	Outside         jsonBreakdown       `json:"outside"`
	PartsOutside    jsonParts           `json:"parts_outside"`
	OutsideByRegion []jsonRegionParts   `json:"parts_outside_by_region"`
	All             jsonBreakdown       `json:"all"`
	Threads         []jsonThread        `json:"threads"`
	SyncDebt        []jsonDebt          `json:"sync_debt"`
	Losses          map[string]jsonLoss `json:"losses"`
	Balance         jsonBalance         `json:"balance"`
	Overhead        jsonOverhead        `json:"overhead"`
	Budget          *jsonBudget         `json:"budget"`
	Probes          []jsonProbe         `json:"probes"`
	Absent          []string            `json:"absent"`
	GPU             *recording.GPU      `json:"gpu"`
	GPUNote         string              `json:"gpu_note"`
	GPUStages       []jsonDeviceStage   `json:"gpu_stages"`
	Warnings        []string            `json:"warnings"`
}

type jsonWindow struct {
	Start      time.Time           `json:"start"`
	StartNS    uint64              `json:"start_ns"`
	DurationNS int64               `json:"duration_ns"`
	End        recording.WindowEnd `json:"end"`
}

type jsonCall struct {
	Thread      string                `json:"thread"`
	TID         int                   `json:"tid"`
	StagePath   string                `json:"stage_path"`
	Symbol      string                `json:"symbol"`
	API         string                `json:"api"`
	GIL         recording.GIL         `json:"gil"`
	Attribution recording.Attribution `json:"attribution"`
	jsonTotal
	Stacks []jsonStack `json:"stacks"`
}

type jsonStack struct {
	Frames  []jsonFrame `json:"frames"`
	Cut     bool        `json:"cut"`
	Samples uint64      `json:"samples"`
	Count   uint64      `json:"count"`
	Errors  uint64      `json:"errors"`
	Bytes   uint64      `json:"bytes"`
	WallNS  uint64      `json:"wall_ns"`
	CPUNS   uint64      `json:"cpu_ns"`

	GILWaitCausedNS uint64 `json:"gil_wait_caused_ns,omitempty"`
}

type jsonFrame struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
}

type jsonTotal struct {
	Count     uint64  `json:"count"`
	Errors    uint64  `json:"errors"`
	WallNS    uint64  `json:"wall_ns"`
	CPUNS     uint64  `json:"cpu_ns"`
	Bytes     uint64  `json:"bytes"`
	RawWallNS *uint64 `json:"raw_wall_ns"`
	RawCPUNS  *uint64 `json:"raw_cpu_ns"`
	MinNS     *uint64 `json:"min_ns"`
	MaxNS     *uint64 `json:"max_ns"`
	P50NS     *uint64 `json:"p50_ns"`
	P99NS     *uint64 `json:"p99_ns"`

	GILWaitCausedNS uint64 `json:"gil_wait_caused_ns,omitempty"`
}

type jsonSum struct {
	jsonTotal
	GIL map[recording.GIL]jsonTotal `json:"gil"`
}

type jsonBreakdown struct {
	jsonSum
	Share   *float64           `json:"share"`
	Symbols map[string]jsonSum `json:"symbols"`
	APIs    map[string]jsonSum `json:"apis"`
}

type jsonStage struct {
	StagePath   string            `json:"stage_path"`
	Names       []string          `json:"names"`
	Process     bool              `json:"process"`
	Python      bool              `json:"python_function"`
	Spans       *jsonSpans        `json:"spans"`
	Calls       jsonBreakdown     `json:"calls"`
	CallsWithin jsonBreakdown     `json:"calls_within"`
	Adopted     []jsonAdopted     `json:"adopted"`
	Threads     []jsonStageThread `json:"threads"`
	Parts       jsonParts         `json:"parts"`
	PartsWithin jsonParts         `json:"parts_within"`
	ByRegion    []jsonRegionParts `json:"parts_by_region"`
	Iterations  *jsonIterations   `json:"iterations"`
}

// jsonParts are parts by name; nil is null.
type jsonParts map[string]uint64

type jsonIterations struct {
	Count   uint64                      `json:"count"`
	Skipped uint64                      `json:"skipped"`
	Missing uint64                      `json:"missing"`
	Wall    *jsonDistribution           `json:"wall"`
	Parts   map[string]jsonDistribution `json:"parts"`
}

type jsonDistribution struct {
	MeanNS uint64 `json:"mean_ns"`
	P50NS  uint64 `json:"p50_ns"`
	P99NS  uint64 `json:"p99_ns"`
	MaxNS  uint64 `json:"max_ns"`
}

type jsonSpans struct {
	Count       uint64           `json:"count"`
	WallNS      uint64           `json:"wall_ns"`
	ExclusiveNS uint64           `json:"exclusive_ns"`
	CPUNS       uint64           `json:"cpu_ns"`
	MinNS       *uint64          `json:"min_ns"`
	MaxNS       *uint64          `json:"max_ns"`
	P50NS       *uint64          `json:"p50_ns"`
	P99NS       *uint64          `json:"p99_ns"`
	Parts       *recording.Parts `json:"parts"`
	Partial     jsonPartial      `json:"partial"`
}

type jsonPartial struct {
	Count       uint64           `json:"count"`
	WallNS      uint64           `json:"wall_ns"`
	ExclusiveNS uint64           `json:"exclusive_ns"`
	CPUNS       uint64           `json:"cpu_ns"`
	Parts       *recording.Parts `json:"parts"`
}

type jsonAdopted struct {
	Attribution recording.Attribution `json:"attribution"`
	Calls       jsonBreakdown         `json:"calls"`
	CallsWithin jsonBreakdown         `json:"calls_within"`
}

type jsonStageThread struct {
	Thread      string            `json:"thread"`
	TID         int               `json:"tid"`
	Spans       *jsonSpans        `json:"spans"`
	Calls       jsonTotal         `json:"calls"`
	Parts       jsonParts         `json:"parts"`
	PartsWithin jsonParts         `json:"parts_within"`
	ByRegion    []jsonRegionParts `json:"parts_by_region"`
}

type jsonThread struct {
	Thread          string            `json:"thread"`
	TID             int               `json:"tid"`
	NSTID           int               `json:"ns_tid"`
	Incarnations    int               `json:"incarnations"`
	StagesNS        *uint64           `json:"stages_ns"`
	Calls           jsonBreakdown     `json:"calls"`
	Outside         jsonTotal         `json:"outside"`
	Adopted         jsonTotal         `json:"adopted"`
	Role            correlate.Role    `json:"role"`
	Parts           jsonParts         `json:"parts"`
	PartsOutside    jsonParts         `json:"parts_outside"`
	OutsideByRegion []jsonRegionParts `json:"parts_outside_by_region"`
}

// jsonDebt is an estimate: see the package's doc.
type jsonDebt struct {
	Thread     string             `json:"thread"`
	TID        int                `json:"tid"`
	StagePath  string             `json:"stage_path"`
	Symbol     string             `json:"symbol"`
	API        string             `json:"api"`
	Owner      recording.DebtKind `json:"owner"`
	OwnerPath  *string            `json:"owner_path"`
	Waits      uint64             `json:"waits"`
	WallNS     uint64             `json:"estimated_wall_ns"`
	Operations uint64             `json:"operations"`
}

type jsonDeviceStage struct {
	StagePath      string  `json:"stage_path"`
	GPU            int     `json:"gpu"`
	OpenNS         uint64  `json:"open_ns"`
	UtilizationPct float64 `json:"utilization_pct"`
	PowerW         float64 `json:"power_w"`
	EnergyJ        float64 `json:"energy_j"`
}

type jsonLoss struct {
	Kind  string `json:"kind"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

type jsonBalance struct {
	Seen     *uint64 `json:"seen"`
	Reported uint64  `json:"reported"`
	Lost     uint64  `json:"lost"`
	Holds    bool    `json:"holds"`
}

type jsonOverhead struct {
	Calibrated  bool    `json:"calibrated"`
	CallCostNS  float64 `json:"call_cost_ns"`
	AddedNS     uint64  `json:"added_ns"`
	AgentCPUNS  int64   `json:"agent_cpu_ns"`
	AgentRSS    uint64  `json:"agent_rss"`
	AttachNS    int64   `json:"attach_ns"`
	DetachNS    int64   `json:"detach_ns"`
	Calibration string  `json:"calibration"`
	ProbedSites int     `json:"probed_sites"`
	KernelBytes uint64  `json:"kernel_bytes"`
	Followed    uint64  `json:"followed"`
	FollowedNS  *uint64 `json:"followed_ns"`
	Samples     uint64  `json:"samples"`
	SamplesNS   uint64  `json:"samples_ns"`
	Looks       uint64  `json:"looks"`
	LooksNS     uint64  `json:"looks_ns"`
	// By the kernel's own account, if it kept one.
	Programs []recording.Program `json:"programs,omitempty"`
}

type jsonProbe struct {
	Symbol      string  `json:"symbol"`
	API         string  `json:"api"`
	Group       string  `json:"group"`
	Module      string  `json:"module"`
	BuildID     string  `json:"build_id"`
	Address     uint64  `json:"address"`
	ProbeOffset uint64  `json:"probe_offset"`
	Placement   string  `json:"placement"`
	BiasNS      float64 `json:"bias_ns"`
}

func document(l *correlate.Ledger) *jsonDocument {
	r := l.Source
	d := &jsonDocument{
		Format:          jsonFormat,
		Version:         r.Tool.Version,
		Target:          r.Target,
		Window:          jsonWindow{Start: r.Window.Start, StartNS: r.Window.StartNS, DurationNS: int64(r.Window.Duration), End: r.Window.End},
		Calls:           []jsonCall{},
		Stages:          []jsonStage{},
		Regions:         []jsonRegion{},
		Allocations:     []jsonAllocation{},
		Outside:         breakdownOf(&l.Outside),
		PartsOutside:    partsOf(l.PartsOutside),
		OutsideByRegion: regionPartsOf(l, l.OutsideByRegion),
		All:             breakdownOf(&l.All),
		Threads:         []jsonThread{},
		SyncDebt:        debtsOf(l),
		Losses:          lossesOf(l.Losses),
		Balance:         balanceOf(l.Balance),
		Overhead:        overheadOf(&r.Overhead),
		Budget:          budgetOf(l),
		Probes:          probesOf(r),
		Absent:          append([]string{}, r.Absent...),
		GPU:             r.GPU,
		GPUNote:         r.GPUNote,
		GPUStages:       deviceStagesOf(l),
		Warnings:        append([]string{}, r.Warnings...),
	}
	for i := range l.Calls {
		d.Calls = append(d.Calls, callOf(l, &l.Calls[i]))
	}
	for i := range l.Stages {
		d.Stages = append(d.Stages, stageOf(l, &l.Stages[i]))
	}
	for i := range l.Regions {
		d.Regions = append(d.Regions, regionOf(&l.Regions[i]))
	}
	for i := range l.Allocations {
		d.Allocations = append(d.Allocations, allocationOf(&l.Allocations[i]))
	}
	for i := range l.Threads {
		d.Threads = append(d.Threads, threadOf(l, &l.Threads[i]))
	}
	return d
}

func callOf(l *correlate.Ledger, c *correlate.Call) jsonCall {
	t := &l.Threads[c.Thread]
	return jsonCall{
		Thread: t.Name, TID: t.TID, StagePath: c.Path.Joined, Symbol: c.Symbol, API: c.API,
		GIL: c.GIL, Attribution: c.Attribution, jsonTotal: totalOf(&c.Total), Stacks: stacksOf(l.Source, c.Stacks()),
	}
}

// stacksOf is null when no stack was read.
func stacksOf(r *recording.Recording, stacks []correlate.Stack) []jsonStack {
	var list []jsonStack
	for _, s := range stacks {
		j := jsonStack{
			Samples: s.Samples, Count: s.Count, Errors: s.Errors, Bytes: s.Bytes, WallNS: s.WallNS, CPUNS: s.CPUNS,
			GILWaitCausedNS: s.GILWaitCausedNS,
		}
		if s.Known() {
			stack := &r.PythonStacks[s.Stack]
			j.Frames, j.Cut = []jsonFrame{}, stack.Cut
			for _, f := range stack.Frames {
				function := &r.PythonFunctions[f.Function]
				j.Frames = append(j.Frames, jsonFrame{function.Name, function.File, f.Line})
			}
		}
		list = append(list, j)
	}
	return list
}

func totalOf(t *correlate.Total) jsonTotal {
	return jsonTotal{
		Count: t.Count, Errors: t.Errors, WallNS: t.WallNS, CPUNS: t.CPUNS, Bytes: t.Bytes,
		RawWallNS: known(t.RawWallNS, true), RawCPUNS: known(t.RawCPUNS, true),
		MinNS: known(t.MinNS, t.Count > 0), MaxNS: known(t.MaxNS, t.Count > 0),
		P50NS: known(t.Quantile(0.5)), P99NS: known(t.Quantile(0.99)),
		GILWaitCausedNS: t.GILWaitCausedNS,
	}
}

// known is a value for JSON, null unless ok.
func known(v uint64, ok bool) *uint64 {
	if !ok {
		return nil
	}
	return &v
}

func sumOf(s *correlate.Sum) jsonSum {
	gil := map[recording.GIL]jsonTotal{}
	for state, total := range s.GIL {
		gil[state] = totalOf(&total)
	}
	return jsonSum{jsonTotal: totalOf(&s.Total), GIL: gil}
}

func breakdownOf(b *correlate.Breakdown) jsonBreakdown {
	return jsonBreakdown{jsonSum: sumOf(&b.Sum), Symbols: namedOf(b.Symbols), APIs: namedOf(b.APIs)}
}

func namedOf(list []correlate.Named) map[string]jsonSum {
	named := map[string]jsonSum{}
	for i := range list {
		named[list[i].Name] = sumOf(&list[i].Sum)
	}
	return named
}

func stageOf(l *correlate.Ledger, s *correlate.Stage) jsonStage {
	j := jsonStage{
		StagePath:   s.Path.Joined,
		Names:       s.Path.Names,
		Process:     s.Process,
		Python:      s.Python,
		Spans:       spansOf(s.Spans),
		Calls:       breakdownOf(&s.Own),
		CallsWithin: breakdownOf(&s.Within),
		Adopted:     []jsonAdopted{},
		Threads:     []jsonStageThread{},
		Parts:       partsOf(s.Parts),
		PartsWithin: partsOf(s.PartsWithin),
		ByRegion:    regionPartsOf(l, s.ByRegion),
		Iterations:  iterationsOf(s.Iterations),
	}
	if s.Spans != nil && !s.Process {
		j.Calls.Share = share(s.Own.WallNS, s.Spans.ExclusiveWindowNS())
		j.CallsWithin.Share = share(s.Within.WallNS, s.Spans.WindowNS())
	}
	for i := range s.Adopted {
		a := &s.Adopted[i]
		j.Adopted = append(j.Adopted, jsonAdopted{a.Attribution, breakdownOf(&a.Own), breakdownOf(&a.Within)})
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		at := &l.Threads[t.Thread]
		j.Threads = append(j.Threads, jsonStageThread{
			Thread: at.Name, TID: at.TID, Spans: spansOf(t.Spans), Calls: totalOf(&t.Own),
			Parts: partsOf(t.Parts), PartsWithin: partsOf(t.PartsWithin), ByRegion: regionPartsOf(l, t.ByRegion),
		})
	}
	return j
}

func share(part, whole uint64) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

func spansOf(s *correlate.Spans) *jsonSpans {
	if s == nil {
		return nil
	}
	j := &jsonSpans{
		Count: s.Count, WallNS: s.WallNS, ExclusiveNS: s.ExclusiveNS, CPUNS: s.CPUNS,
		MinNS: known(s.MinNS, s.Count > 0), MaxNS: known(s.MaxNS, s.Count > 0),
		P50NS: known(s.Quantile(0.5)), P99NS: known(s.Quantile(0.99)),
		Parts: measuredParts(s.Parts),
		Partial: jsonPartial{
			Count: s.Partial.Count, WallNS: s.Partial.WallNS, ExclusiveNS: s.Partial.ExclusiveNS,
			CPUNS: s.Partial.CPUNS, Parts: measuredParts(s.Partial.Parts),
		},
	}
	return j
}

// measuredParts is null when there are none.
func measuredParts(p recording.Parts) *recording.Parts {
	if p == (recording.Parts{}) {
		return nil
	}
	return &p
}

func partsOf(p *correlate.Partition) jsonParts {
	if p == nil {
		return nil
	}
	parts := jsonParts{}
	for _, part := range p.Parts {
		parts[part.String()] += part.NS
	}
	return parts
}

func iterationsOf(it *correlate.Iterations) *jsonIterations {
	if it == nil {
		return nil
	}
	parts := map[string]jsonDistribution{}
	for _, p := range it.Parts {
		parts[p.String()] = jsonDistribution(p.Distribution)
	}
	j := &jsonIterations{Count: it.Count, Skipped: it.Skipped, Missing: it.Missing, Parts: parts}
	if it.Count > 0 {
		j.Wall = (*jsonDistribution)(&it.Wall)
	}
	return j
}

func threadOf(l *correlate.Ledger, t *correlate.Thread) jsonThread {
	return jsonThread{
		Thread: t.Name, TID: t.TID, NSTID: t.NTID, Incarnations: t.Incarnations,
		StagesNS: known(t.StagesNS, t.Staged),
		Calls:    breakdownOf(&t.All), Outside: totalOf(&t.Outside), Adopted: totalOf(&t.Adopted),
		Role: t.Role(), Parts: partsOf(t.Parts), PartsOutside: partsOf(t.PartsOutside), OutsideByRegion: regionPartsOf(l, t.OutsideByRegion),
	}
}

// debtsOf is null when they were not recorded.
func debtsOf(l *correlate.Ledger) []jsonDebt {
	var debts []jsonDebt
	for _, d := range l.Debts {
		t := &l.Threads[d.Thread]
		j := jsonDebt{
			Thread: t.Name, TID: t.TID, StagePath: d.Path.Joined, Symbol: d.Symbol, API: d.API, Owner: d.Kind,
			Waits: d.Waits, WallNS: d.WallNS, Operations: d.Operations,
		}
		if d.Kind == recording.DebtStage {
			j.OwnerPath = &d.Owner.Path.Joined
		}
		debts = append(debts, j)
	}
	return debts
}

func deviceStagesOf(l *correlate.Ledger) []jsonDeviceStage {
	stages := []jsonDeviceStage{}
	for _, s := range l.Devices {
		stages = append(stages, jsonDeviceStage{s.Path.Joined, s.Device, s.OpenNS, s.UtilizationPct, s.PowerW, s.EnergyJ})
	}
	return stages
}

func lossesOf(list []recording.Loss) map[string]jsonLoss {
	kinds := map[string]int{}
	for _, l := range list {
		kinds[l.Reason]++
	}
	losses := map[string]jsonLoss{}
	for _, l := range list {
		key := l.Reason
		if kinds[key] > 1 {
			key += "/" + l.Kind
		}
		losses[key] = jsonLoss{Kind: l.Kind, Count: l.Count, Help: l.Help}
	}
	return losses
}

func balanceOf(b correlate.Balance) jsonBalance {
	return jsonBalance{Seen: known(b.Seen, b.Counted), Reported: b.Reported, Lost: b.Lost, Holds: b.Holds()}
}

func overheadOf(o *recording.Overhead) jsonOverhead {
	return jsonOverhead{
		Calibrated: o.Calibrated, CallCostNS: o.CallCostNS, AddedNS: o.AddedNS,
		AgentCPUNS: int64(o.AgentCPU), AgentRSS: o.AgentRSS, AttachNS: int64(o.Attach), DetachNS: int64(o.Detach),
		Calibration: o.Calibration, ProbedSites: o.ProbedSites, KernelBytes: o.KernelBytes,
		Followed: o.Followed, FollowedNS: known(o.FollowedNS, o.FollowedNS > 0 || o.Followed == 0),
		Samples: o.Samples, SamplesNS: o.SamplesNS, Looks: o.Looks, LooksNS: o.LooksNS, Programs: o.Programs,
	}
}

func probesOf(r *recording.Recording) []jsonProbe {
	probes := []jsonProbe{}
	for _, s := range r.Symbols {
		m := &r.Modules[s.Module]
		probes = append(probes, jsonProbe{
			Symbol: s.Name, API: s.API, Group: s.Group, Module: m.Path, BuildID: m.BuildID,
			Address: s.Address, ProbeOffset: s.ProbeOffset, Placement: s.Placement, BiasNS: s.BiasNS,
		})
	}
	return probes
}
