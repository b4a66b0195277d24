package simtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	a := Key{TID: 1, Tag: "forward", Symbol: "cuLaunchKernel"}
	b := Key{TID: 2, Symbol: "cuMemAlloc_v2"}
	want := Counts{a: {Calls: 3}, b: {Calls: 1, Bytes: 64}}
	if diff := Diff(want, Counts{b: {Calls: 1, Bytes: 64}, a: {Calls: 3}}); diff != "" {
		t.Errorf("equal tables differ:\n%s", diff)
	}
	for name, got := range map[string]Counts{
		"a key less":  {a: {Calls: 3}},
		"a key more":  {a: {Calls: 3}, b: {Calls: 1, Bytes: 64}, Key{TID: 3}: {Calls: 1}},
		"other calls": {a: {Calls: 4}, b: {Calls: 1, Bytes: 64}},
		"other bytes": {a: {Calls: 3}, b: {Calls: 1, Bytes: 65}},
		"an error":    {a: {Calls: 3, Errors: 1}, b: {Calls: 1, Bytes: 64}},
	} {
		if diff := Diff(want, got); strings.Count(diff, "\n") != 0 || diff == "" {
			t.Errorf("%s: want one line, got %q", name, diff)
		}
	}
}

func TestDiffStaysReadable(t *testing.T) {
	want := Counts{}
	for tid := range 100 {
		want.Add(Key{TID: tid}, Count{Calls: 1})
	}
	lines := strings.Split(Diff(want, Counts{}), "\n")
	if len(lines) != maxDiffLines+1 || !strings.Contains(lines[maxDiffLines], "80 more") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestCountsOfTruth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "truth.json")
	const file = `{"pid":7,"rows":[
		{"tid":1,"thread":1,"name":"a","tag":"x","symbol":"cuInit","calls":2,"unfinished":1,"inner":5,"errors":1,"bytes":0,"wall_ns":9},
		{"tid":1,"thread":2,"name":"b","tag":"x","symbol":"cuInit","calls":3,"unfinished":0,"inner":0,"errors":0,"bytes":8,"wall_ns":9},
		{"tid":2,"thread":3,"name":"c","tag":"","symbol":"cuInit","calls":0,"unfinished":0,"inner":4,"errors":0,"bytes":0,"wall_ns":0}]}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	truth := ReadTruth(t, path)
	want := Counts{Key{TID: 1, Tag: "x", Symbol: "cuInit"}: {Calls: 5, Errors: 1, Bytes: 8}}
	if diff := Diff(want, truth.Counts()); diff != "" {
		t.Error(diff)
	}
	if truth.PID != 7 || truth.Unfinished() != 1 {
		t.Errorf("pid %d, %d unfinished", truth.PID, truth.Unfinished())
	}
	if total := truth.Counts().Total(); total != (Count{Calls: 5, Errors: 1, Bytes: 8}) {
		t.Errorf("total %+v", total)
	}
	if got := truth.Counts().By(BySymbol); got[Key{Symbol: "cuInit"}].Calls != 5 || len(got) != 1 {
		t.Errorf("by symbol: %v", got)
	}
}
