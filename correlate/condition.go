package correlate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"stageprof/recording"
)

// Condition is a limit on a change, in this grammar, where blanks separate and
// are free around the operator:
//
//	condition = [ "stage=" stage ] metric ( ">" | "<" ) limit [ "p=" level ]
//	stage     = a stage path, in double quotes where it has blanks; "*" is every
//	            stage that ran on both sides, and so is none
//	metric    = as Metric writes it: wall, cuda, calls, "gil wait", "cuda: cuMemMap" …;
//	            "blocked" is all of its kinds
//	limit     = [ "+" | "-" ] number ( "%" | "ns" | "us" | "µs" | "ms" | "s" | "" )
//	level     = "any" | number
//
// It is met when the change of the metric's mean per iteration, relative to the
// mean before with "%", is beyond the limit, and significant: at the
// comparison's level, or at that of "p=". With "p=any" chance is not asked for.
type Condition struct {
	Text   string // as written
	stage  string // "" for every stage
	metric Metric
	above  bool
	limit  float64 // share with relative, else ns or calls
	share  bool
	level  float64 // 0: the comparison's
	any    bool
}

// Verdict is what a Condition found in a Comparison.
type Verdict struct {
	Text string
	Met  []Met // empty when the condition is not met
}

// Met is a change that met a Condition.
type Met struct {
	Path Path
	Change
}

// ParseCondition reads a Condition.
func ParseCondition(text string) (*Condition, error) {
	c := &Condition{Text: text}
	rest, err := c.takeStage(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	at := strings.IndexAny(rest, "<>")
	if at < 0 {
		return nil, errors.New(`there is no ">" or "<" in it`)
	}
	c.above = rest[at] == '>'
	if c.metric, err = parseMetric(strings.TrimSpace(rest[:at])); err != nil {
		return nil, err
	}
	fields := strings.Fields(rest[at+1:])
	switch {
	case strings.HasPrefix(rest[at+1:], "="):
		return nil, fmt.Errorf("%q is no operator, only %q is", rest[at:at+2], rest[at:at+1])
	case len(fields) == 0:
		return nil, fmt.Errorf("no limit follows %q", rest[at:at+1])
	case len(fields) > 2:
		return nil, fmt.Errorf("unexpected %q after the limit", strings.Join(fields[2:], " "))
	case len(fields) == 2:
		if err := c.parseLevel(fields[1]); err != nil {
			return nil, err
		}
	}
	if err := c.parseLimit(fields[0]); err != nil {
		return nil, err
	}
	return c, nil
}

// takeStage takes the selector off the text.
func (c *Condition) takeStage(text string) (rest string, err error) {
	const prefix = "stage="
	if !strings.HasPrefix(text, prefix) {
		return text, nil
	}
	text = text[len(prefix):]
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", errors.New("the quotes of the stage are not closed")
		}
		c.stage, err = strconv.Unquote(quoted)
		if err != nil {
			return "", fmt.Errorf("the stage %s: %w", quoted, err)
		}
		rest = text[len(quoted):]
	} else {
		c.stage, rest, _ = strings.Cut(text, " ")
	}
	switch c.stage {
	case "":
		return "", errors.New(`no stage follows "stage="`)
	case "*":
		c.stage = ""
	}
	return rest, nil
}

// parseMetric accepts every metric that Metric.String can write of what is
// known to exist: kinds, kinds of part, and any function.
func parseMetric(text string) (Metric, error) {
	kind, of, qualified := strings.Cut(text, ": ")
	switch {
	case text == "":
		return Metric{}, errors.New("no metric is named before the operator")
	case slices.Contains(PartKinds, PartKind(text)):
		return Metric{MetricPart, text}, nil
	case !qualified && slices.Contains([]MetricKind{MetricWall, MetricBlocked, MetricCUDA, MetricCalls}, MetricKind(text)):
		return Metric{Kind: MetricKind(text)}, nil
	case qualified && of != "" && slices.Contains([]MetricKind{MetricCUDA, MetricCalls}, MetricKind(kind)):
		return Metric{MetricKind(kind), of}, nil
	}
	return Metric{}, fmt.Errorf("unknown metric %q: there are wall, cuda, calls, \"cuda: FUNCTION\", \"calls: FUNCTION\", blocked, and the parts %s",
		text, partNames())
}

func partNames() string {
	var names []string
	for _, kind := range PartKinds {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

var limitUnits = []struct {
	name string
	of   time.Duration
}{{"ns", 1}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}}

func (c *Condition) parseLimit(text string) error {
	number, unit := text, float64(1)
	timed := false
	if rest, ok := strings.CutSuffix(text, "%"); ok {
		number, unit, c.share = rest, 0.01, true
	} else {
		for _, u := range limitUnits {
			if rest, ok := strings.CutSuffix(text, u.name); ok {
				number, unit, timed = rest, float64(u.of), true
				break
			}
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		return fmt.Errorf("the limit %q is no number with %% or a unit of time", text)
	case !c.share && c.metric.Count() && timed:
		return fmt.Errorf("the limit %q is a time, but %s is a number", text, c.metric)
	case !c.share && !c.metric.Count() && !timed:
		return fmt.Errorf("the limit %q has no unit: %% or ns, us, ms, s", text)
	}
	c.limit = value * unit
	return nil
}

func (c *Condition) parseLevel(text string) error {
	value, ok := strings.CutPrefix(text, "p=")
	if !ok {
		return fmt.Errorf("unexpected %q after the limit", text)
	}
	if value == "any" {
		c.any = true
		return nil
	}
	level, err := strconv.ParseFloat(value, 64)
	if err != nil || !(level > 0 && level < 1) {
		return fmt.Errorf("the level %q is neither \"any\" nor a number between 0 and 1", value)
	}
	c.level = level
	return nil
}

// Check looks for changes that meet the condition. It is an error when that
// can't be known: the named stage did not run on both sides, or what is asked
// for can't be tested for significance.
func (c *Condition) Check(of *Comparison) (Verdict, error) {
	v := Verdict{Text: c.Text}
	if !c.timed(of) {
		return v, fmt.Errorf("checking %q: no function %q was timed on either side", c.Text, c.metric.Of)
	}
	stages, err := c.stages(of)
	if err != nil {
		return v, err
	}
	for _, s := range stages {
		change := s.Find(c.metric)
		if change.Before == nil || change.After == nil || !(change.Tested || c.any) {
			if c.stage == "" {
				continue // the others decide
			}
			return v, fmt.Errorf("checking %q: too little is known of %q in stage %q to tell a change from chance", c.Text, c.metric, s.Path.Joined)
		}
		if c.beyond(&change) && c.significant(&change, of.Options.Alpha) {
			v.Met = append(v.Met, Met{s.Path, change})
		}
	}
	return v, nil
}

// timed reports whether the function that the condition names, if any, is one
// that any of the runs would have seen.
func (c *Condition) timed(of *Comparison) bool {
	if c.metric.Of == "" || c.metric.Kind == MetricPart {
		return true
	}
	return slices.ContainsFunc(slices.Concat(of.Before, of.After), func(r Run) bool {
		return slices.ContainsFunc(r.Ledger.Source.Symbols, func(s recording.Symbol) bool { return s.API == c.metric.Of })
	})
}

// stages are those that the condition is about.
func (c *Condition) stages(of *Comparison) ([]*StageChange, error) {
	var stages []*StageChange
	for i := range of.Stages {
		s := &of.Stages[i]
		switch {
		case c.stage == "" && s.Sides == BothSides:
			stages = append(stages, s)
		case c.stage == "" || s.Path.Joined != c.stage:
		case s.Sides != BothSides:
			return nil, fmt.Errorf("checking %q: stage %q ran only %s", c.Text, c.stage, s.Sides)
		default:
			stages = append(stages, s)
		}
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("checking %q: there is no stage %q; there are %s", c.Text, c.stage, stageNames(of))
	}
	return stages, nil
}

func stageNames(of *Comparison) string {
	var names []string
	for i := range of.Stages {
		names = append(names, strconv.Quote(of.Stages[i].Path.Joined))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// beyond takes any change from 0 as infinite in relation.
func (c *Condition) beyond(change *Change) bool {
	value := change.Delta()
	if c.share {
		ratio, ok := change.Ratio()
		if !ok && value != 0 {
			ratio = math.Inf(1)
		}
		value = ratio
	}
	if c.above {
		return value > c.limit
	}
	return value < c.limit
}

func (c *Condition) significant(change *Change, alpha float64) bool {
	switch {
	case c.any:
		return true
	case c.level > 0:
		return change.Tested && change.P < c.level
	default:
		return change.Tested && change.P < alpha
	}
}
