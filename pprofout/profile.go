package pprofout

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
)

// Options says how a profile is made.
type Options struct {
	StageFrames bool   // put the stage path into root frames too
	Version     string // of the stageprof that writes; "" is the one that recorded
}

// Write writes the profile of l, gzip-compressed, as pprof reads it.
func Write(w io.Writer, l *correlate.Ledger, o Options) error {
	p, err := Profile(l, o)
	return encode(w, p, err)
}

func encode(w io.Writer, p *profile.Profile, err error) error {
	if err != nil {
		return err
	}
	if err := p.Write(w); err != nil {
		return fmt.Errorf("writing profile: %w", err)
	}
	return nil
}

// Profile makes a profile of the calls of l and of the calls that were lost.
// It fails only when the result would not be a valid profile.
func Profile(l *correlate.Ledger, o Options) (*profile.Profile, error) {
	w := newWriter(l, o, callsShape)
	for i := range l.Calls {
		w.addCall(&l.Calls[i])
	}
	for _, loss := range l.Losses {
		if loss.Kind == correlate.LossCalls {
			w.addLoss(loss)
		}
	}
	return w.finish()
}

// The sample types, in the order of a sample's values.
const (
	callsColumn = iota
	wallColumn
	cpuColumn
	bytesColumn
)

// callsShape is the shape of the profile of calls.
var callsShape = shape{
	title: "host time inside CUDA driver calls; it is not GPU time",
	types: []profile.ValueType{
		callsColumn: {Type: "calls", Unit: "count"},
		wallColumn:  {Type: "wall", Unit: "nanoseconds"},
		cpuColumn:   {Type: "cpu", Unit: "nanoseconds"},
		bytesColumn: {Type: "bytes", Unit: "bytes"},
	},
}

// shape is what tells one kind of profile from another. The first type is also
// that of the period.
type shape struct {
	title string // what pprof says above its reports
	types []profile.ValueType
}

type writer struct {
	ledger  *correlate.Ledger
	options Options
	shape   shape
	tables  *tables

	samples map[string]*profile.Sample // by stack and labels
	order   []*profile.Sample
}

func newWriter(l *correlate.Ledger, o Options, s shape) *writer {
	return &writer{
		ledger:  l,
		options: o,
		shape:   s,
		tables:  newTables(l.Source),
		samples: map[string]*profile.Sample{},
	}
}

// labels are the labels that differ between samples.
type labels struct{ stage, stagePath, gil, thread, attribution string }

const (
	none    = "none"
	unknown = "unknown"
)

func (w *writer) addCall(c *correlate.Call) {
	of := w.labelsOf(c.Thread, c.Path)
	of.gil, of.attribution = string(c.GIL), string(c.Attribution)
	var root []*profile.Location
	if w.options.StageFrames {
		root = w.tables.stages(c.Path)
	}
	for _, site := range c.Sites {
		stack := []*profile.Location{w.tables.leaf(site.Symbol)}
		if site.Caller != -1 {
			stack = append(stack, w.tables.caller(site.Caller))
		}
		stack = append(stack, w.tables.regions(&site)...)
		if site.Stacks == nil {
			w.add(slices.Concat(stack, root), of, columnsOf(site.Count, site.WallNS, site.CPUNS, site.Bytes))
		}
		for _, s := range site.Stacks {
			w.add(slices.Concat(stack, w.tables.python(s.Stack), root), of, columnsOf(s.Count, s.WallNS, s.CPUNS, s.Bytes))
		}
	}
}

func columnsOf(calls, wall, cpu, bytes uint64) []int64 {
	return []int64{
		callsColumn: clamp(calls),
		wallColumn:  clamp(wall),
		cpuColumn:   clamp(cpu),
		bytesColumn: clamp(bytes),
	}
}

// labelsOf are the labels of a thread in a stage.
func (w *writer) labelsOf(thread int, path correlate.Path) labels {
	of := labels{stage: none, stagePath: none, thread: cmp.Or(w.ledger.Threads[thread].Name, unknown)}
	if !path.Outside() {
		of.stage, of.stagePath = path.Innermost(), path.Joined
	}
	return of
}

// addLoss adds a loss to the first column.
func (w *writer) addLoss(l recording.Loss) {
	of := labels{stage: none, stagePath: none, gil: unknown, thread: unknown, attribution: none}
	value := make([]int64, len(w.shape.types))
	value[0] = clamp(l.Count)
	w.add([]*profile.Location{w.tables.loss(l.Reason)}, of, value)
}

// add sums samples of one stack and one set of labels: threads of one name
// give one sample.
func (w *writer) add(stack []*profile.Location, of labels, value []int64) {
	var key strings.Builder
	for _, location := range stack {
		fmt.Fprintf(&key, "%d ", location.ID)
	}
	fmt.Fprintf(&key, "%q", of)
	s := w.samples[key.String()]
	if s == nil {
		s = w.newSample(stack, of)
		w.samples[key.String()] = s
		w.order = append(w.order, s)
	}
	for i, v := range value {
		s.Value[i] += min(v, math.MaxInt64-s.Value[i])
	}
}

func (w *writer) newSample(stack []*profile.Location, of labels) *profile.Sample {
	target := &w.ledger.Source.Target
	device, _ := w.ledger.Device()
	s := &profile.Sample{
		Location: stack,
		Value:    make([]int64, len(w.shape.types)),
		Label: map[string][]string{
			"stage":       {readable(of.stage)},
			"stage_path":  {readable(of.stagePath)},
			"gil":         {of.gil},
			"thread":      {readable(of.thread)},
			"attribution": {of.attribution},
		},
		NumLabel: map[string][]int64{
			"pid":    {int64(target.PID)},
			"rank":   {int64(target.Rank)},
			"device": {int64(device)}, // 0 where it is not known
		},
		NumUnit: map[string][]string{},
	}
	for key := range s.NumLabel {
		s.NumUnit[key] = []string{"count"} // a zero without a unit vanishes
	}
	return s
}

func (w *writer) finish() (*profile.Profile, error) {
	source := w.ledger.Source
	period := w.shape.types[0]
	p := &profile.Profile{
		DefaultSampleType: "wall",
		PeriodType:        &period,
		Period:            1,
		DurationNanos:     max(int64(source.Window.Duration), 0),
		Comments:          comments(w.ledger, w.options, w.shape.title),
		Sample:            w.order,
	}
	for _, t := range w.shape.types {
		p.SampleType = append(p.SampleType, &t)
	}
	if !source.Window.Start.IsZero() {
		p.TimeNanos = source.Window.Start.UnixNano()
	}
	w.tables.finish(p)
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("building profile: %w", err)
	}
	return p, nil
}

func clamp(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// readable makes one line of valid UTF-8 of a text that the target chose.
func readable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f:
			return '\uFFFD'
		default:
			return r
		}
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
