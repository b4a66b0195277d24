package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/calibrate"
	"stageprof/agent/elfsym"
	"stageprof/agent/gil"
	"stageprof/agent/mark"
	"stageprof/agent/probe"
	"stageprof/gpu"
	"stageprof/recording"
)

// diagnosis is what doctor found. Its JSON is doctor's output.
type diagnosis struct {
	Version  string         `json:"version"`
	Kernel   string         `json:"kernel"` // uname -r
	Arch     string         `json:"arch"`
	Works    bool           `json:"works"`    // record can work
	Problems []string       `json:"problems"` // why it can't
	Features []feature      `json:"features"`
	GPU      *recording.GPU `json:"gpu"` // devices without samples; null when NVML does not answer
	GPUNote  string         `json:"gpu_note,omitempty"`
	Process  *process       `json:"process,omitempty"` // with --pid
}

type feature struct {
	Name      string `json:"name"`
	Present   bool   `json:"present"`
	Required  bool   `json:"required"`
	Privilege bool   `json:"privilege"`        // of the caller, not of the kernel
	Detail    string `json:"detail,omitempty"` // what its absence means
}

type process struct {
	PID       int       `json:"pid"`
	NSPID     int       `json:"ns_pid"` // in its own pid namespace
	Exe       string    `json:"exe"`
	Comm      string    `json:"comm"`
	Cmdline   []string  `json:"cmdline"`
	Rank      int       `json:"rank"`
	WorldSize int       `json:"world_size"`
	Python    *python   `json:"python"` // null: none
	Drivers   []driver  `json:"drivers"`
	Markers   []library `json:"markers"`
	// Sources lists the files that offer stages without markers, by the name
	// that record's --stages-from takes.
	Sources map[string][]string `json:"sources"`
	// Functions are those of --regions and --region that the process has mapped.
	Functions   []functionOffer `json:"functions"`
	Allocations []string        `json:"allocations"` // files with PyTorch's tracing points
	SyncDebt    syncDebt        `json:"sync_debt"`
	Descendants []descendant    `json:"descendants"` // that have mapped a driver
	Absent      []string        `json:"absent"`      // selected functions that no driver has
	Warnings    []string        `json:"warnings"`
	CostNote    string          `json:"cost_note,omitempty"` // why the sites have no cost
}

type descendant struct {
	PID     int    `json:"pid"`
	Rank    *int   `json:"rank"` // null: unknown
	Command string `json:"command"`
	Copy    bool   `json:"copy"` // forked, and has executed no program since
}

// syncDebt counts the probed functions that say whose work waits are for.
type syncDebt struct {
	Give int `json:"give"` // work to streams
	Wait int `json:"wait"` // for streams
}

type python struct {
	Version   string `json:"version"`
	Path      string `json:"path"`
	GILMethod string `json:"gil_method"`
	GILReason string `json:"gil_reason,omitempty"` // why the GIL can't be read
	// StacksReason is why Python stacks can't be read.
	StacksReason string `json:"stacks_reason,omitempty"`
	// MarkReason says why the mark command can't mark functions; "": it can.
	MarkReason string `json:"mark_reason,omitempty"`
}

type library struct {
	Path    string `json:"path"`
	BuildID string `json:"build_id"`
	Deleted bool   `json:"deleted"` // the file was removed or replaced since
}

type driver struct {
	library
	Version string `json:"version"` // "" when the file's name does not tell
	Static  bool   `json:"static"`  // linked in, not exported
	Sites   []site `json:"sites"`
}

type site struct {
	Symbol  string   `json:"symbol"`
	Aliases []string `json:"aliases,omitempty"`
	Group   string   `json:"group"`
	Entry   uint64   `json:"entry"` // file offset of the function
	Probe   uint64   `json:"probe"` // bytes from there to the probe
	Class   string   `json:"class"` // of the instruction there
	CostNS  *float64 `json:"cost_ns"`
}

// diagnose looks at the machine, and at a process if one was named. What is
// missing is part of the diagnosis, not an error; errors are faults of the
// command line.
func diagnose(ctx context.Context, c *doctorConfig) (*diagnosis, error) {
	d := &diagnosis{Version: versionString(), Kernel: kernelRelease(), Arch: runtime.GOARCH, Problems: []string{}}
	for _, f := range agent.Features(c.PID) {
		d.Features = append(d.Features, feature{f.Name, f.Present, f.Required, f.Privilege, f.Detail})
		if f.Required && !f.Present {
			d.Problems = append(d.Problems, f.Name+" is missing: "+f.Detail)
		}
	}
	d.findGPUs(ctx)
	if c.PID != 0 {
		if err := d.inspect(ctx, c); err != nil {
			return nil, err
		}
	}
	d.Works = len(d.Problems) == 0
	return d, nil
}

func (d *diagnosis) findGPUs(ctx context.Context) {
	poller, err := gpu.Open(ctx, gpu.DefaultPeriod)
	if err != nil {
		d.GPUNote = err.Error()
		return
	}
	d.GPU = poller.Inventory()
	if err := poller.Close(); err != nil {
		d.GPUNote = err.Error()
	}
}

func (d *diagnosis) inspect(ctx context.Context, c *doctorConfig) error {
	plan, err := agent.Inspect(ctx, c.PID, c.Probes)
	if errors.Is(err, agent.ErrUsage) {
		return err
	}
	if err != nil {
		d.Problems = append(d.Problems, err.Error())
		return nil
	}
	d.Process = newProcess(plan)
	if python := d.Process.Python; python != nil {
		if err := mark.Inspect(c.PID); err != nil {
			python.MarkReason = err.Error()
		}
	}
	switch err := d.Process.findFunctions(ctx, c.Regions); {
	case errors.Is(err, agent.ErrUsage):
		return err
	case err != nil:
		d.Process.Warnings = append(d.Process.Warnings, "functions that can be followed: "+err.Error())
	}
	if err := d.Process.findDescendants(); err != nil {
		d.Process.Warnings = append(d.Process.Warnings, err.Error())
	}
	switch n := d.Process.sites(); {
	case len(plan.Drivers) == 0 && len(d.Process.Descendants) > 0:
		d.Problems = append(d.Problems, "the process has mapped no CUDA driver, but its descendants have: give the pid of one, or record --children")
	case len(plan.Drivers) == 0:
		d.Problems = append(d.Problems, plan.NoDriver.Error())
	case n == 0:
		d.Problems = append(d.Problems, fmt.Sprintf("the driver exports none of the functions of --probes %s", c.Probes))
	case len(d.Problems) == 0:
		d.Process.measure(ctx, plan)
	}
	return nil
}

func newProcess(plan *agent.Plan) *process {
	p := &process{
		PID: plan.PID, NSPID: plan.NSPID, Exe: plan.Exe, Comm: plan.Comm, Cmdline: plan.Cmdline,
		Rank: plan.Rank.Rank, WorldSize: plan.Rank.WorldSize,
		Python: newPython(plan), Sources: plan.Sources, Absent: plan.Absent, Warnings: plan.Warnings,
	}
	for _, planned := range plan.Drivers {
		drv := driver{
			library: library{planned.Path, planned.BuildID, planned.Deleted},
			Version: planned.Version, Static: planned.Static,
		}
		for _, s := range planned.Sites {
			p.SyncDebt.add(s)
			drv.Sites = append(drv.Sites, site{
				Symbol: s.Symbol, Aliases: s.Aliases, Group: string(s.Group),
				Entry: s.Entry, Probe: s.Placement.Skip, Class: s.Placement.Class.String(),
			})
		}
		p.Drivers = append(p.Drivers, drv)
	}
	for _, m := range plan.Markers {
		p.Markers = append(p.Markers, library{m.Path, m.BuildID, m.Deleted})
	}
	return p
}

func (p *process) findDescendants() error {
	users, err := agent.Users(p.PID)
	if err != nil {
		return err
	}
	p.Descendants = []descendant{}
	for _, u := range users {
		d := descendant{PID: u.PID, Command: u.Command, Copy: u.Copy}
		if u.Rank >= 0 {
			d.Rank = &u.Rank
		}
		p.Descendants = append(p.Descendants, d)
	}
	return nil
}

func (d *syncDebt) add(s probe.Site) {
	gives, waits := s.OfStreams()
	if gives {
		d.Give++
	}
	if waits {
		d.Wait++
	}
}

func newPython(p *agent.Plan) *python {
	plan := p.Python
	if plan.Method == gil.None {
		return nil
	}
	return &python{Version: plan.Version, Path: plan.Path, GILMethod: plan.Method.String(), GILReason: plan.Reason, StacksReason: p.Stacks}
}

func (p *process) sites() int {
	n := 0
	for _, d := range p.Drivers {
		n += len(d.Sites)
	}
	return n
}

// measure fills in what a probed call costs at each site. It is measured in a
// process of our own, on code of the same class.
func (p *process) measure(ctx context.Context, plan *agent.Plan) {
	costs, err := calibration(ctx, plan)
	if err != nil {
		p.CostNote = err.Error()
		return
	}
	for i := range p.Drivers {
		for j := range p.Drivers[i].Sites {
			s := &p.Drivers[i].Sites[j]
			if cost, ok := costs[s.Class]; ok {
				s.CostNS = &cost
			}
		}
	}
}

// calibration gives the nanoseconds that a pair of probes costs on each class
// of code in the plan.
func calibration(ctx context.Context, plan *agent.Plan) (map[string]float64, error) {
	mechanism, err := probe.Choose(probe.Auto)
	if err != nil {
		return nil, err
	}
	var classes []elfsym.Class
	for _, d := range plan.Drivers {
		for _, s := range d.Sites {
			classes = append(classes, s.Placement.Class)
		}
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)

	result, err := calibrate.Run(ctx, mechanism, true, classes)
	if errors.Is(err, calibrate.ErrProcessFilter) {
		result, err = calibrate.Run(ctx, mechanism, false, classes)
	}
	if err != nil {
		return nil, fmt.Errorf("measuring the cost of probes: %w", err)
	}
	costs := map[string]float64{}
	for class, cost := range result {
		costs[class.String()] = cost.Added
	}
	return costs, nil
}

// kernelRelease is what uname -r prints.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return cmp.Or(unix.ByteSliceToString(name.Release[:]), "unknown")
}
