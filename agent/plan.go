package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/gil"
	"stageprof/agent/probe"
	"stageprof/agent/pystack"
	"stageprof/agent/target"
)

// Plan is what would be recorded of a process, and where the probes go.
type Plan struct {
	PID      int
	NSPID    int
	Exe      string
	Comm     string
	Cmdline  []string
	Rank     target.Rank
	Selector probe.Selector
	Python   gil.Plan
	Stacks   string // why Python stacks can't be read, "" if they can or there is no Python
	Drivers  []DriverPlan
	NoDriver error               // why there is none, wraps ErrNoDriver
	Markers  []target.Image      // mapped marker libraries
	Sources  map[string][]string // by Inspect: files that offer other stage sources, see Sources
	Absent   []string            // known and selected spellings that no driver has, sorted
	Warnings []string            // what will be worse than it could be, and why
	unusable []string            // mapped drivers that can not be probed, and why
}

// DriverPlan is one mapped driver and the addresses to probe in it.
type DriverPlan struct {
	target.Driver
	Sites []probe.Site
}

// Inspect plans a recording without attaching anything.
func Inspect(_ context.Context, pid int, probes string) (*Plan, error) {
	config := Config{PID: pid, Probes: probes}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	process, err := target.Open(pid)
	if err != nil {
		return nil, err
	}
	plan, err := newPlan(process, config.Probes, nil)
	if err == nil {
		plan.Sources, err = inspectSources(process)
	}
	if err == nil && plan.Stacks == "" && plan.Python.Method != gil.None {
		plan.Sources[SourcePython] = []string{plan.Python.Path}
	}
	return plan, errors.Join(err, process.Close())
}

func inspectSources(process *target.Process) (map[string][]string, error) {
	im := newImages(process)
	if err := im.refresh(); err != nil {
		return nil, errors.Join(err, im.close())
	}
	return im.offeredSources(), im.close()
}

// newPlan looks at a process. It finds drivers wherever they are mapped; none
// is not an error here. Functions of the groups leftOut are not wanted.
func newPlan(process *target.Process, probes string, leftOut []probe.Group) (*Plan, error) {
	selector, err := probe.ParseSelector(probes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	selector = selector.Without(leftOut...)
	plan := &Plan{
		PID: process.PID(), NSPID: process.NSPID(), Exe: process.Exe(), Comm: process.Comm(),
		Cmdline: process.Cmdline(), Rank: process.Rank(), Selector: selector,
	}
	if plan.Python, err = gil.Detect(process); err != nil {
		return nil, fmt.Errorf("looking for Python: %w", err)
	}
	if _, err := pystack.Find(process, plan.Python); err != nil && plan.Python.Method != gil.None {
		plan.Stacks = err.Error()
	}
	drivers, err := process.Drivers()
	if err != nil {
		return nil, fmt.Errorf("looking for the CUDA driver: %w", err)
	}
	for _, d := range drivers {
		planned, err := planDriver(d, selector)
		if err != nil { // the process may have mapped anything, a broken file too
			plan.unusable = append(plan.unusable, err.Error())
			continue
		}
		plan.Drivers = append(plan.Drivers, planned)
	}
	if plan.Markers, err = process.MarkerLibs(); err != nil {
		return nil, fmt.Errorf("looking for stage markers: %w", err)
	}
	if len(plan.Drivers) == 0 {
		plan.NoDriver = errNoDriver(process)
	}
	plan.Absent = plan.absent()
	plan.Warnings = plan.warnings(process)
	return plan, nil
}

func planDriver(d target.Driver, selector probe.Selector) (DriverPlan, error) {
	sites, err := probe.Sites(d.ELF, selector)
	if err != nil {
		return DriverPlan{}, fmt.Errorf("choosing probes in %q: %w", d.Path, err)
	}
	return DriverPlan{Driver: d, Sites: sites}, nil
}

func (p *Plan) absent() []string {
	if len(p.Drivers) == 0 {
		return nil
	}
	var sites []probe.Site
	for _, d := range p.Drivers {
		sites = append(sites, d.Sites...)
	}
	return probe.Absent(p.Selector, sites)
}

// sites is the number of addresses to probe.
func (p *Plan) sites() int {
	n := 0
	for _, d := range p.Drivers {
		n += len(d.Sites)
	}
	return n
}

// classes lists the kinds of code that the plan puts probes on.
func (p *Plan) classes() []elfsym.Class {
	var classes []elfsym.Class
	for _, d := range p.Drivers {
		for _, s := range d.Sites {
			if !slices.Contains(classes, s.Placement.Class) {
				classes = append(classes, s.Placement.Class)
			}
		}
	}
	slices.Sort(classes)
	return classes
}

// noMarkers is what a recording without a source of stages comes to.
const noMarkers = "the process has mapped no marker library: calls can't be attributed to stages"

// otherMarkers is the same where there are markers that were not asked for.
const otherMarkers = "the process has none of what --stages-from names, so calls can't be attributed to stages; it has markers: add them to --stages-from"

// noStages says why there can be no stages, where there is no source of them.
func (s *Session) noStages() string {
	if len(s.plan.Markers) > 0 && !slices.Contains(s.config.StagesFrom, SourceMarkers) {
		return otherMarkers
	}
	return noMarkers
}

func (p *Plan) warnings(process *target.Process) []string {
	w := p.degradations(process)
	if len(p.Markers) == 0 {
		w = append(w, noMarkers)
	}
	return w
}

// degradations are the warnings that nothing in the course of a recording takes
// back.
func (p *Plan) degradations(process *target.Process) []string {
	w := slices.Clone(p.unusable)
	if p.Python.Method == gil.Unknown {
		w = append(w, "the GIL's state can't be read: "+p.Python.Reason)
	}
	if stepped := p.stepped(); stepped > 0 {
		w = append(w, fmt.Sprintf("%d of %d probes stand on instructions that the kernel must single-step: calls of these functions cost several times as much",
			stepped, p.sites()))
	}
	for _, s := range process.Skipped() {
		w = append(w, fmt.Sprintf("%q could not be examined: %v", s.Path, s.Err))
	}
	return w
}

func (p *Plan) stepped() int {
	n := 0
	for _, d := range p.Drivers {
		for _, s := range d.Sites {
			if s.Placement.Class == elfsym.Stepped {
				n++
			}
		}
	}
	return n
}

// errNothingNear explains what is mapped instead of a driver, or why that can't
// be told.
func errNothingNear(process *target.Process) error {
	for _, s := range process.Skipped() {
		if strings.HasPrefix(path.Base(s.Path), "libcuda.so") {
			return fmt.Errorf("%w that could be examined: %w", ErrNoDriver, s.Err)
		}
	}
	mappings, err := process.Mappings()
	if err != nil {
		return errors.Join(ErrNoDriver, err)
	}
	var near []string
	for _, m := range mappings {
		base := path.Base(m.Path)
		if m.Exec && strings.Contains(strings.ToLower(base), "cu") && !slices.Contains(near, base) && len(near) < 8 {
			near = append(near, base)
		}
	}
	what := "nothing of that kind"
	if len(near) > 0 {
		what = fmt.Sprintf("%q", near)
	}
	return fmt.Errorf("%w: process %d (%q) maps %s; give the process that calls CUDA, or --wait if it will load the driver later",
		ErrNoDriver, process.PID(), process.Comm(), what)
}
