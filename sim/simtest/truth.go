package simtest

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
)

// Truth is what the simulated driver of one process counted.
type Truth struct {
	PID  int        `json:"pid"`
	Rows []TruthRow `json:"rows"`
}

// TruthRow counts the executions of one export on one thread under one tag.
type TruthRow struct {
	TID        int    `json:"tid"`
	Thread     int    `json:"thread"` // 1, 2, … : tells apart two threads that had one TID
	Name       string `json:"name"`   // of the thread
	Tag        string `json:"tag"`    // simcuda_tag: testers set the stage path
	Symbol     string `json:"symbol"`
	Calls      uint64 `json:"calls"`      // outermost executions that returned
	Unfinished uint64 `json:"unfinished"` // … and that did not: abandoned, or in progress when this was written
	Inner      uint64 `json:"inner"`      // executions inside another one
	Errors     uint64 `json:"errors"`     // calls that did not return CUDA_SUCCESS
	Bytes      uint64 `json:"bytes"`      // asked for by calls that succeeded
	WallNS     uint64 `json:"wall_ns"`
}

// ReadTruth reads a file that the simulated driver wrote.
func ReadTruth(t testing.TB, path string) Truth {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("simtest: reading truth: %v", err)
	}
	var truth Truth
	if err := json.Unmarshal(data, &truth); err != nil {
		t.Fatalf("simtest: reading truth %q: %v", path, err)
	}
	return truth
}

// Key names what is counted. A field that was summed over is zero.
type Key struct {
	TID    int
	Tag    string
	Symbol string
}

func (k Key) String() string { return fmt.Sprintf("tid %d, stage %q, %s", k.TID, k.Tag, k.Symbol) }

// Count is compared for equality with what an agent saw.
type Count struct {
	Calls, Errors, Bytes uint64
}

func (c Count) plus(d Count) Count {
	return Count{c.Calls + d.Calls, c.Errors + d.Errors, c.Bytes + d.Bytes}
}

// Counts is a table of counts.
type Counts map[Key]Count

// Add adds to one count; adding nothing leaves no trace.
func (c Counts) Add(k Key, n Count) {
	if n != (Count{}) {
		c[k] = c[k].plus(n)
	}
}

// Counts returns the calls per thread ID, tag and symbol.
func (t Truth) Counts() Counts {
	counts := Counts{}
	for _, r := range t.Rows {
		counts.Add(Key{r.TID, r.Tag, r.Symbol}, Count{r.Calls, r.Errors, r.Bytes})
	}
	return counts
}

// Unfinished returns how many calls began and never returned.
func (t Truth) Unfinished() uint64 {
	var n uint64
	for _, r := range t.Rows {
		n += r.Unfinished
	}
	return n
}

// By sums the counts whose keys a function maps to the same key.
func (c Counts) By(key func(Key) Key) Counts {
	sums := Counts{}
	for k, n := range c {
		sums.Add(key(k), n)
	}
	return sums
}

// Functions for By.
var (
	BySymbol          = func(k Key) Key { return Key{Symbol: k.Symbol} }
	ByTag             = func(k Key) Key { return Key{Tag: k.Tag} }
	ByTagAndSymbol    = func(k Key) Key { return Key{Tag: k.Tag, Symbol: k.Symbol} }
	ByThread          = func(k Key) Key { return Key{TID: k.TID} }
	ByThreadAndSymbol = func(k Key) Key { return Key{TID: k.TID, Symbol: k.Symbol} }
)

// Only keeps the counts whose keys a function accepts.
func (c Counts) Only(keep func(Key) bool) Counts {
	kept := Counts{}
	for k, n := range c {
		if keep(k) {
			kept[k] = n
		}
	}
	return kept
}

// Total is the sum of all counts.
func (c Counts) Total() Count {
	return c.By(func(Key) Key { return Key{} })[Key{}]
}

// maxDiffLines keeps a message readable when everything differs.
const maxDiffLines = 20

// Diff says where two tables differ, one key a line; "" if they are equal.
func Diff(want, got Counts) string {
	var lines []string
	for k := range want.union(got) {
		if want[k] != got[k] {
			lines = append(lines, fmt.Sprintf("%v: want %+v, got %+v", k, want[k], got[k]))
		}
	}
	sort.Strings(lines)
	if n := len(lines); n > maxDiffLines {
		lines = append(lines[:maxDiffLines], fmt.Sprintf("… and %d more of %d keys", n-maxDiffLines, len(want.union(got))))
	}
	return strings.Join(lines, "\n")
}

func (c Counts) union(d Counts) Counts {
	all := Counts{}
	for k := range c {
		all[k] = Count{}
	}
	for k := range d {
		all[k] = Count{}
	}
	return all
}

// expectedLine is a line that testers print (sim/testers/tester.h).
type expectedLine struct {
	TID    int     `json:"tid"`
	Tag    string  `json:"tag"`
	Symbol string  `json:"symbol"`
	Calls  uint64  `json:"calls"`
	Errors uint64  `json:"errors"`
	Bytes  uint64  `json:"bytes"`
	Spans  *uint64 `json:"spans"`
}

func parseExpected(t testing.TB, lines []string) Counts {
	t.Helper()
	counts := Counts{}
	for _, l := range expectedLines(t, lines) {
		if l.Spans == nil {
			counts.Add(Key{l.TID, l.Tag, l.Symbol}, Count{l.Calls, l.Errors, l.Bytes})
		}
	}
	return counts
}

func expectedLines(t testing.TB, lines []string) []expectedLine {
	t.Helper()
	var parsed []expectedLine
	for _, line := range lines {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var l expectedLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("simtest: reading the expectation %q: %v", line, err)
		}
		parsed = append(parsed, l)
	}
	return parsed
}

// SpanKey names the closed spans of one stage on one thread.
type SpanKey struct {
	TID int
	Tag string
}

// ExpectedSpans reads the numbers of closed spans that a tester printed.
func (p *Process) ExpectedSpans() map[SpanKey]uint64 {
	p.t.Helper()
	spans := map[SpanKey]uint64{}
	for _, l := range expectedLines(p.t, p.Lines()) {
		if l.Spans != nil {
			spans[SpanKey{l.TID, l.Tag}] += *l.Spans
		}
	}
	return spans
}
