package correlate

import (
	"strings"
	"testing"

	"stageprof/recording"
)

func TestParseCondition(t *testing.T) {
	good := map[string]Condition{
		"wall > 5%":                              {metric: Metric{Kind: MetricWall}, above: true, limit: 0.05, share: true},
		"stage=target_forward wall > 5%":         {stage: "target_forward", metric: Metric{Kind: MetricWall}, above: true, limit: 0.05, share: true},
		"  stage=* wall>5%  ":                    {metric: Metric{Kind: MetricWall}, above: true, limit: 0.05, share: true},
		`stage="my stage/a\"b" gil wait > 200us`: {stage: `my stage/a"b`, metric: Metric{MetricPart, "gil wait"}, above: true, limit: 200e3},
		"cuda: cuMemMap < -1.5ms p=0.01":         {metric: Metric{MetricCUDA, "cuMemMap"}, limit: -1.5e6, level: 0.01},
		"calls > 0":                              {metric: Metric{Kind: MetricCalls}, above: true},
		"calls: cuLaunchKernel > +10%":           {metric: Metric{MetricCalls, "cuLaunchKernel"}, above: true, limit: 0.1, share: true},
		"blocked > 1s p=any":                     {metric: Metric{Kind: MetricBlocked}, above: true, limit: 1e9, any: true},
		"blocked: futex > 1µs":                   {metric: Metric{MetricPart, "blocked: futex"}, above: true, limit: 1e3},
		"running < 5ns":                          {metric: Metric{MetricPart, "running"}, limit: 5},
	}
	for text, want := range good {
		got, err := ParseCondition(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		want.Text = text
		if got.limit = want.limit * ratioOf(got.limit, want.limit); *got != want {
			t.Errorf("%q: got %+v, want %+v", text, *got, want)
		}
	}
	bad := map[string]string{
		"":                       `no ">" or "<"`,
		"wall 5%":                `no ">" or "<"`,
		"> 5%":                   "no metric",
		"wal > 5%":               `unknown metric "wal"`,
		"stage=x y wall > 5%":    `unknown metric "y wall"`,
		"cuda:  > 5%":            `unknown metric "cuda:"`,
		"wall >":                 `no limit follows ">"`,
		"wall > 5":               "has no unit",
		"wall > five%":           "is no number",
		"wall > NaN%":            "is no number",
		"wall > Inf%":            "is no number",
		"wall >= 5%":             `">=" is no operator`,
		"calls > 5ms":            "is a time, but calls is a number",
		"wall > 5% p=2":          `level "2"`,
		"wall > 5% p=0":          `level "0"`,
		"wall > 5% p=":           `level ""`,
		"wall > 5% always":       `unexpected "always"`,
		"wall > 5% p=any now":    `unexpected "now"`,
		`stage="x wall > 5%`:     "quotes of the stage are not closed",
		"stage= wall > 5%":       `no stage follows`,
		`stage="" wall > 5%`:     `no stage follows`,
		"stage=x":                `no ">" or "<"`,
		"adopted: autograd > 5%": "unknown metric",
		"wall: x > 5%":           "unknown metric",
	}
	for text, want := range bad {
		if _, err := ParseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one about %q", text, err, want)
		}
	}
}

// ratioOf is 1 for numbers that differ by rounding alone.
func ratioOf(a, b float64) float64 {
	if near(a, b) {
		return 1
	}
	return a / b
}

func TestCheckCondition(t *testing.T) {
	a, b := training(1, 100, 10*ms, 5*ms), training(2, 100, 12*ms, 5*ms)
	b.Paths = append(b.Paths, recording.StagePath{ID: len(b.Paths), Names: []string{"new"}})
	spanOf(b, 0, len(b.Paths)-1, ms)
	c := compare(t, []Run{run("a", a)}, []Run{run("b", b)}, options)
	cases := map[string]struct {
		met int
		err string
	}{
		"stage=forward wall > 5%":               {1, ""},
		"stage=forward wall > 50%":              {0, ""},
		"stage=forward wall < 5%":               {0, ""},
		"stage=forward wall > 1.5ms":            {1, ""},
		"stage=forward wall > 3ms":              {0, ""},
		"wall > 5%":                             {1, ""},
		"stage=step wall > -5%":                 {0, ""}, // not significant
		"stage=step wall > -5% p=any":           {1, ""},
		"stage=step wall < 0.1ms p=0.999999999": {1, ""},
		"stage=step wall > -5% p=0.0001":        {0, ""},
		"stage=forward calls > 0":               {0, ""},
		"stage=forward gil wait > 0% p=any":     {0, ""},
		"stage=forward running > 0%":            {1, ""},
		"stage=forward blocked > 0%":            {1, ""},
		"cuda: cuLaunchKernel > 0%":             {0, ""},
		"cuda: cuLaunchKernal > 0%":             {0, `no function "cuLaunchKernal" was timed`},
		"stage=froward wall > 5%":               {0, `no stage "froward"; there are "forward", "new", "step"`},
		"stage=new wall > 5%":                   {0, `stage "new" ran only after`},
	}
	for text, want := range cases {
		condition, err := ParseCondition(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		v, err := condition.Check(c)
		if (err == nil) != (want.err == "") || (err != nil && !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%q: error %v, want %q", text, err, want.err)
		}
		if len(v.Met) != want.met || v.Text != text {
			t.Errorf("%q: met by %d, want %d", text, len(v.Met), want.met)
		}
	}
}

// What can't be tested is an error for the stage that was asked for, not a
// condition that is quietly not met.
func TestConditionThatCannotBeTested(t *testing.T) {
	c := compare(t, []Run{run("a", training(1, 1, 10*ms, ms))}, []Run{run("b", training(2, 1, 20*ms, ms))}, options)
	for text, want := range map[string]struct {
		met    int
		failed bool
	}{
		"stage=forward wall > 5%":       {0, true},
		"stage=forward wall > 5% p=any": {1, false},
		"wall > 5% p=any":               {1, false},
	} {
		condition, err := ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := condition.Check(c)
		if (err != nil) != want.failed || len(v.Met) != want.met {
			t.Errorf("%q: met by %d, error %v", text, len(v.Met), err)
		}
	}
}

func FuzzParseCondition(f *testing.F) {
	for _, text := range []string{
		"wall > 5%", `stage="a b" gil wait < -1ms p=0.01`, "calls: cuMemMap > 3 p=any", "stage=* cuda > 1e3us", `stage="\x00" >`, "p=",
	} {
		f.Add(text)
	}
	c, err := Compare([]Run{run("a", training(1, 12, ms, ms))}, []Run{run("b", training(2, 12, ms, ms))}, options)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		condition, err := ParseCondition(text)
		if err != nil {
			if condition != nil {
				t.Error("an error and a condition")
			}
			return
		}
		v, err := condition.Check(c)
		if err == nil && v.Text != text {
			t.Errorf("the verdict is about %q, want %q", v.Text, text)
		}
		if again, err := ParseCondition(text); err != nil || *again != *condition {
			t.Errorf("parsed again: %v, %v", again, err)
		}
	})
}
