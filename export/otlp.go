package export

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// otlpPath is where OTLP/HTTP takes profiles, unless a URL names a path.
const otlpPath = "/v1development/profiles"

// OTLP posts to an OTLP/HTTP receiver.
type OTLP struct {
	URL  string
	Auth Auth
}

// Push sends a profile once.
func (r OTLP) Push(ctx context.Context, p Push) error {
	message, err := EncodeOTLP(p)
	if err != nil {
		return err
	}
	address, err := url.Parse(r.URL)
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if strings.Trim(address.Path, "/") == "" {
		address.Path = otlpPath
	}
	body, err := post(ctx, address.String(), "application/x-protobuf", message, r.Auth)
	if err != nil {
		return err
	}
	var answer collector.ExportProfilesServiceResponse
	if err := proto.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the answer of %s is not OTLP's: %w", address.Redacted(), err)
	}
	if n := answer.GetPartialSuccess().GetRejectedProfiles(); n > 0 {
		return fmt.Errorf("%s has rejected %d profiles: %s", address.Redacted(), n, answer.GetPartialSuccess().GetErrorMessage())
	}
	return nil
}

// EncodeOTLP returns an ExportProfilesServiceRequest, which is the same on the
// wire as a ProfilesData. It has one OTLP profile for each column of p, with the
// samples that are not 0 in it. The same Push gives the same bytes.
func EncodeOTLP(p Push) ([]byte, error) {
	raw, err := p.raw()
	if err != nil {
		return nil, err
	}
	d := newDictionary()
	columns := d.columns(p.Profile, sha256.Sum256(raw))
	attributes := []*common.KeyValue{stringAttribute("service.name", p.Service)}
	for _, l := range p.Labels {
		attributes = append(attributes, stringAttribute(l.Name, l.Value))
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&collector.ExportProfilesServiceRequest{
		ResourceProfiles: []*profiles.ResourceProfiles{{
			Resource: &resource.Resource{Attributes: attributes},
			ScopeProfiles: []*profiles.ScopeProfiles{{
				Scope:    &common.InstrumentationScope{Name: "stageprof", Version: p.Version},
				Profiles: columns,
			}},
		}},
		Dictionary: d.tables,
	})
}

func stringAttribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: stringValue(value)}
}

func stringValue(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

// dictionary collects the tables that OTLP's profiles refer to by index. Entry 0
// of each is empty and stands for "none".
type dictionary struct {
	tables     *profiles.ProfilesDictionary
	strings    map[string]int32
	mappings   map[*profile.Mapping]int32
	functions  map[*profile.Function]int32
	locations  map[*profile.Location]int32
	stacks     map[string]int32
	attributes map[attribute]int32
}

// attribute is a key with a number, or else with text.
type attribute struct {
	key, text, unit string
	number          int64
	numeric         bool
}

func newDictionary() *dictionary {
	return &dictionary{
		tables: &profiles.ProfilesDictionary{
			MappingTable: []*profiles.Mapping{{}}, LocationTable: []*profiles.Location{{}}, FunctionTable: []*profiles.Function{{}},
			LinkTable: []*profiles.Link{{TraceId: make([]byte, 16), SpanId: make([]byte, 8)}}, StringTable: []string{""},
			AttributeTable: []*profiles.KeyValueAndUnit{{}}, StackTable: []*profiles.Stack{{}},
		},
		strings: map[string]int32{"": 0}, mappings: map[*profile.Mapping]int32{nil: 0}, functions: map[*profile.Function]int32{nil: 0},
		locations: map[*profile.Location]int32{}, stacks: map[string]int32{"": 0}, attributes: map[attribute]int32{},
	}
}

// columns makes a profile of each column; id tells apart what is sent twice.
func (d *dictionary) columns(p *profile.Profile, id [sha256.Size]byte) []*profiles.Profile {
	var out []*profiles.Profile
	for i, column := range p.SampleType {
		id[0]++
		out = append(out, &profiles.Profile{
			SampleType: d.valueType(column), Samples: d.samples(p.Sample, i),
			TimeUnixNano: uint64(p.TimeNanos), DurationNano: uint64(p.DurationNanos),
			PeriodType: d.valueType(p.PeriodType), Period: p.Period, ProfileId: append([]byte(nil), id[:16]...),
			AttributeIndices: d.comments(p.Comments),
		})
	}
	return out
}

func (d *dictionary) samples(samples []*profile.Sample, column int) []*profiles.Sample {
	var out []*profiles.Sample
	for _, s := range samples {
		if value := s.Value[column]; value != 0 {
			out = append(out, &profiles.Sample{
				StackIndex: d.stack(s.Location), AttributeIndices: d.labels(s), Values: []int64{value},
			})
		}
	}
	return out
}

func (d *dictionary) valueType(v *profile.ValueType) *profiles.ValueType {
	if v == nil {
		return nil
	}
	return &profiles.ValueType{TypeStrindex: d.string(v.Type), UnitStrindex: d.string(v.Unit)}
}

func (d *dictionary) string(s string) int32 {
	return intern(d.strings, s, &d.tables.StringTable, func() string { return s })
}

// intern returns the index of a table's entry, which it appends if it is new.
func intern[K comparable, E any](known map[K]int32, key K, table *[]E, entry func() E) int32 {
	if i, ok := known[key]; ok {
		return i
	}
	e := entry() // it may use the dictionary, but makes no entry of the same table
	i := int32(len(*table))
	known[key] = i
	*table = append(*table, e)
	return i
}

// comments are one attribute, as OpenTelemetry's conventions have it.
func (d *dictionary) comments(lines []string) []int32 {
	if len(lines) == 0 {
		return nil
	}
	return []int32{intern(d.attributes, attribute{key: "pprof.profile.comment"}, &d.tables.AttributeTable, func() *profiles.KeyValueAndUnit {
		var values []*common.AnyValue
		for _, line := range lines {
			values = append(values, stringValue(line))
		}
		return &profiles.KeyValueAndUnit{
			KeyStrindex: d.string("pprof.profile.comment"),
			Value:       &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: values}}},
		}
	})}
}

func (d *dictionary) labels(s *profile.Sample) []int32 {
	var out []int32
	for _, key := range sortedKeys(s.Label) {
		out = append(out, d.attribute(attribute{key: key, text: s.Label[key][0]}))
	}
	for _, key := range sortedKeys(s.NumLabel) {
		a := attribute{key: key, number: s.NumLabel[key][0], numeric: true}
		if units := s.NumUnit[key]; len(units) > 0 {
			a.unit = units[0]
		}
		out = append(out, d.attribute(a))
	}
	return out
}

func (d *dictionary) attribute(a attribute) int32 {
	return intern(d.attributes, a, &d.tables.AttributeTable, func() *profiles.KeyValueAndUnit {
		value := stringValue(a.text)
		if a.numeric {
			value = &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: a.number}}
		}
		return &profiles.KeyValueAndUnit{KeyStrindex: d.string(a.key), Value: value, UnitStrindex: d.string(a.unit)}
	})
}

func (d *dictionary) stack(locations []*profile.Location) int32 {
	var indices []int32
	var key []byte
	for _, l := range locations {
		indices = append(indices, d.location(l))
		key = binary.AppendVarint(key, int64(l.ID))
	}
	return intern(d.stacks, string(key), &d.tables.StackTable, func() *profiles.Stack {
		return &profiles.Stack{LocationIndices: indices}
	})
}

func (d *dictionary) location(l *profile.Location) int32 {
	return intern(d.locations, l, &d.tables.LocationTable, func() *profiles.Location {
		out := &profiles.Location{MappingIndex: d.mapping(l.Mapping), Address: l.Address}
		for _, line := range l.Line {
			out.Lines = append(out.Lines, &profiles.Line{FunctionIndex: d.function(line.Function), Line: line.Line})
		}
		return out
	})
}

func (d *dictionary) function(f *profile.Function) int32 {
	return intern(d.functions, f, &d.tables.FunctionTable, func() *profiles.Function {
		return &profiles.Function{
			NameStrindex: d.string(f.Name), SystemNameStrindex: d.string(f.SystemName),
			FilenameStrindex: d.string(f.Filename), StartLine: f.StartLine,
		}
	})
}

func (d *dictionary) mapping(m *profile.Mapping) int32 {
	return intern(d.mappings, m, &d.tables.MappingTable, func() *profiles.Mapping {
		out := &profiles.Mapping{
			MemoryStart: m.Start, MemoryLimit: m.Limit, FileOffset: m.Offset, FilenameStrindex: d.string(m.File),
		}
		if m.BuildID != "" {
			out.AttributeIndices = []int32{d.attribute(attribute{key: "process.executable.build_id.gnu", text: m.BuildID})}
		}
		return out
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
