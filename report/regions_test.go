package report

import (
	"testing"

	"stageprof/recording"
)

func TestShortFunction(t *testing.T) {
	for name, want := range map[string]string{
		"plain": "plain",
		"a::b":  "a::b",
		"c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::ExpandableSegment::map": "ExpandableSegment::map",
		"ns::Class<a::b, c::d>::method":   "Class<a::b, c::d>::method",
		"ns::(anonymous namespace)::free": "(anonymous namespace)::free",
		"x::operator()":                   "x::operator()",
		"::global":                        "::global",
		"":                                "",
	} {
		if got := shortFunction(name); got != want {
			t.Errorf("%q is shortened to %q, want %q", name, got, want)
		}
	}
}

func TestRegionTitles(t *testing.T) {
	title := regionTitles(&recording.Recording{Regions: []recording.Region{
		{Name: "ns::A::map"}, {Name: "ns::B::map"}, {Name: "ns::A::unmap"}, {Name: "plain"}, {Name: "ns::A::unmap"}, {Name: "a::C::map"},
	}})
	for name, want := range map[string]string{
		"ns::A::map": "A::map", "ns::B::map": "B::map", "a::C::map": "C::map", "ns::A::unmap": "unmap", "plain": "plain",
		"": outsideRegions, "(other regions)": "(other regions)",
	} {
		if got := title(name); got != want {
			t.Errorf("%q is titled %q, want %q", name, got, want)
		}
	}
}
