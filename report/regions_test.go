package report

import "testing"

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
