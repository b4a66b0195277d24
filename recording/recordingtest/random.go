package recordingtest

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"stageprof/recording"
)

// Random gives a valid Recording with something in every field, also in those
// that are added later. Its values are not plausible: numbers of any size,
// names of any characters, states that do not exist.
func Random(rng *rand.Rand) *recording.Recording {
	r := &recording.Recording{}
	fill(rng, reflect.ValueOf(r).Elem())
	connect(r)
	return r
}

// RandomRun is Random with nothing that is impossible in its window, and with
// complete spans of a stage that two of them have in common.
func RandomRun(rng *rand.Rand) *recording.Recording {
	r := Random(rng)
	r.Window.Duration = math.MaxInt64
	r.Paths[0].Names = []string{"common"}
	r.Stages[0].Thread, r.Stages[0].Path = 0, 0
	r.Stages[0].Count, r.Stages[0].WallNS, r.Stages[0].MaxNS = 3, 1e9, 5e8
	return r
}

// fill sets every field to something.
func fill(rng *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(rng.Int64N(1<<33), rng.Int64N(1e9)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(rng, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rng, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rng.IntN(4)+1, 4))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.String:
		v.SetString(randomText(rng))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64() * 1e6)
	case reflect.Int, reflect.Int64:
		v.SetInt(rng.Int64() >> rng.IntN(63))
	case reflect.Uint64:
		v.SetUint(rng.Uint64() >> rng.IntN(63))
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

// randomText often gives the same text, since rows that look alike matter.
func randomText(rng *rand.Rand) string {
	texts := []string{
		"", "/", "a", "a/b", "b", "free", "held", "own", "autograd", "process", "calls", "spans", "none", "stage", "idle",
		"f(x)<y>[z]::w", "größe", "前向", "\x1b[2J", "\u202e", "long " + strings.Repeat("name ", 30),
	}
	if rng.IntN(4) > 0 {
		return texts[rng.IntN(len(texts))]
	}
	return string([]rune{rng.Int32N(0xd800), '\u2028', 0xe000 + rng.Int32N(0x10ffff-0xe000)})
}

// connect makes the cross references of a random Recording valid.
func connect(r *recording.Recording) {
	r.Format = recording.FormatVersion
	for i := range r.Modules {
		r.Modules[i].ID = i
	}
	for i := range r.Symbols {
		r.Symbols[i].ID, r.Symbols[i].Module = i, i%len(r.Modules)
	}
	for i := range r.Frames {
		r.Frames[i].ID, r.Frames[i].Module = i, i%len(r.Modules)
	}
	for i := range r.Threads {
		r.Threads[i].ID = i
	}
	for i := range r.Paths {
		r.Paths[i].ID = i
	}
	for i := range r.PythonFunctions {
		r.PythonFunctions[i].ID = i
	}
	for i := range r.PythonStacks {
		r.PythonStacks[i].ID = i
		for j := range r.PythonStacks[i].Frames {
			r.PythonStacks[i].Frames[j].Function = (i + j) % len(r.PythonFunctions)
		}
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		for j := range c.Samples {
			c.Samples[j].Stack = (i + j) % len(r.PythonStacks)
		}
		c.Thread, c.Path, c.Symbol, c.Caller = i%len(r.Threads), i%len(r.Paths), i%len(r.Symbols), i%(len(r.Frames)+1)-1
	}
	connectRegions(r)
	for i := range r.Stages {
		r.Stages[i].Thread, r.Stages[i].Path = i%(len(r.Threads)+1)-1, i%len(r.Paths)
	}
	for i := range r.Open {
		r.Open[i].Thread = i%(len(r.Threads)+1) - 1
		connectSpan(r, &r.Open[i], i)
	}
	connectTimeline(r)
	for i := range r.Debts {
		d := &r.Debts[i]
		d.Thread, d.Path, d.Symbol, d.Owner = i%len(r.Threads), i%len(r.Paths), i%len(r.Symbols), (i+1)%len(r.Paths)
	}
	for i := range r.Spans {
		r.Spans[i].Thread = i % len(r.Threads)
		connectSpan(r, &r.Spans[i], i)
	}
}

func connectSpan(r *recording.Recording, s *recording.Span, i int) {
	s.Path = i % len(r.Paths)
	for j := range s.Calls {
		s.Calls[j].Symbol = j % len(r.Symbols)
	}
}

func connectTimeline(r *recording.Recording) {
	t := r.Timeline
	for i := range t.Calls {
		t.Calls[i].Thread, t.Calls[i].Path, t.Calls[i].Symbol = i%len(r.Threads), i%len(r.Paths), i%len(r.Symbols)
	}
	for i := range t.Off {
		t.Off[i].Thread = i % len(r.Threads)
	}
	for i := range t.Waits {
		t.Waits[i].Thread = i % len(r.Threads)
	}
	for i := range t.Spans {
		t.Spans[i].Thread = i%(len(r.Threads)+1) - 1
		connectSpan(r, &t.Spans[i], i)
	}
}

func connectRegions(r *recording.Recording) {
	for i := range r.Regions {
		r.Regions[i].ID, r.Regions[i].Module = i, i%len(r.Modules)
	}
	for i := range r.RegionPaths {
		p := &r.RegionPaths[i]
		p.ID = i
		for j := range p.Regions {
			p.Regions[j] = (i+j)%(len(r.Regions)+1) - 1
		}
		if i == 0 {
			p.Regions = nil
		}
	}
	for i := range r.Calls {
		r.Calls[i].Region = i % len(r.RegionPaths)
	}
	for i := range r.Allocations {
		a := &r.Allocations[i]
		a.Thread, a.Path, a.Region = i%len(r.Threads), i%len(r.Paths), i%len(r.RegionPaths)
	}
	var times []recording.RegionTime
	for i, t := range r.RegionTimes {
		t.Thread, t.Path, t.Region = i%len(r.Threads), i%len(r.Paths), i%len(r.RegionPaths)
		if t.Region != 0 {
			times = append(times, t)
		}
	}
	r.RegionTimes = times
	var parts []recording.RegionParts
	for i, p := range r.RegionParts {
		p.Thread, p.Path, p.Region = i%len(r.Threads), i%len(r.Paths), i%len(r.RegionPaths)
		if p.Region != 0 {
			parts = append(parts, p)
		}
	}
	r.RegionParts = parts
}
