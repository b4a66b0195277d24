package timeline_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// The tests read a trace as a viewer does: packet after packet, with a stack of
// open slices for each track. What a viewer would count as an error fails.

// shown is one slice as a viewer shows it.
type shown struct {
	Thread     int64 // its id, 0: the process
	Track      string
	Name       string
	Categories []string
	Begin, End uint64
	Depth      int
	Args       map[string]string
	To         []uint64
	From       []uint64
}

type fields map[protowire.Number][]any // uint64 or []byte

func parse(t *testing.T, b []byte) fields {
	t.Helper()
	f := fields{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var value any
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d is of kind %d", number, kind)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		f[number] = append(f[number], value)
	}
	return f
}

func (f fields) number(n protowire.Number) uint64 {
	if len(f[n]) == 0 {
		return 0
	}
	return f[n][0].(uint64)
}

func (f fields) bytes(n protowire.Number) []byte {
	if len(f[n]) == 0 {
		return nil
	}
	return f[n][0].([]byte)
}

func (f fields) numbers(n protowire.Number) []uint64 {
	var all []uint64
	for _, v := range f[n] {
		all = append(all, v.(uint64))
	}
	return all
}

// viewer holds what has been read of a trace.
type viewer struct {
	t        *testing.T
	tracks   map[uint64]trackOf
	open     map[uint64][]int // by track: indices of slices
	slices   []shown
	interned map[protowire.Number]map[uint64]string
}

type trackOf struct {
	thread int64
	name   string
}

// view reads a trace.
func view(t *testing.T, trace []byte) []shown {
	t.Helper()
	v := viewer{t: t, tracks: map[uint64]trackOf{}, open: map[uint64][]int{}, interned: map[protowire.Number]map[uint64]string{}}
	for _, packet := range parse(t, trace)[1] {
		v.packet(parse(t, packet.([]byte)))
	}
	for track, open := range v.open {
		if len(open) > 0 {
			t.Errorf("%d slices on track %d are never closed", len(open), track)
		}
	}
	return v.slices
}

func (v *viewer) packet(p fields) {
	v.t.Helper()
	if p.number(10) == 0 {
		v.t.Error("a packet without a sequence")
	}
	if p[12] != nil {
		for kind, entries := range parse(v.t, p.bytes(12)) {
			if v.interned[kind] == nil {
				v.interned[kind] = map[uint64]string{}
			}
			for _, e := range entries {
				entry := parse(v.t, e.([]byte))
				v.interned[kind][entry.number(1)] = string(entry.bytes(2))
			}
		}
	}
	if p[60] != nil {
		v.describe(parse(v.t, p.bytes(60)))
	}
	if p[11] != nil {
		v.event(p.number(8), parse(v.t, p.bytes(11)))
	}
}

func (v *viewer) describe(d fields) {
	v.t.Helper()
	uuid := d.number(1)
	if _, twice := v.tracks[uuid]; twice || uuid == 0 {
		v.t.Errorf("track %d is described twice, or is none", uuid)
	}
	track := trackOf{name: string(d.bytes(2))}
	if parent := d.number(5); parent != 0 {
		over, ok := v.tracks[parent]
		if !ok {
			v.t.Errorf("track %d has the parent %d, which there is not", uuid, parent)
		}
		track.thread = over.thread
	}
	if d[4] != nil {
		track = trackOf{thread: int64(parse(v.t, d.bytes(4)).number(2)), name: "stages"}
	}
	v.tracks[uuid] = track
}

func (v *viewer) text(kind protowire.Number, id uint64) string {
	v.t.Helper()
	text, ok := v.interned[kind][id]
	if !ok {
		v.t.Errorf("text %d of kind %d is not known", id, kind)
	}
	return text
}

func (v *viewer) event(time uint64, e fields) {
	v.t.Helper()
	uuid := e.number(11)
	track, ok := v.tracks[uuid]
	if !ok {
		v.t.Errorf("an event on track %d, which there is not", uuid)
	}
	open := v.open[uuid]
	if e.number(9) == 2 {
		if len(open) == 0 {
			v.t.Errorf("an end on track %d, on which nothing is open", uuid)
			return
		}
		s := &v.slices[open[len(open)-1]]
		if s.End = time; s.End < s.Begin {
			v.t.Errorf("%q ends before it begins", s.Name)
		}
		v.open[uuid] = open[:len(open)-1]
		return
	}
	s := shown{
		Thread: track.thread, Track: track.name, Name: v.text(2, e.number(10)), Begin: time, End: math.MaxUint64, Depth: len(open),
		Args: map[string]string{}, To: e.numbers(47), From: e.numbers(48),
	}
	for _, id := range e.numbers(3) {
		s.Categories = append(s.Categories, v.text(1, id))
	}
	for _, a := range e[4] {
		annotation := parse(v.t, a.([]byte))
		name := v.text(3, annotation.number(1))
		if annotation[17] != nil {
			s.Args[name] = v.text(29, annotation.number(17))
		} else {
			s.Args[name] = fmt.Sprint(annotation.number(3))
		}
	}
	v.open[uuid] = append(slices.Clone(open), len(v.slices))
	v.slices = append(v.slices, s)
}
