package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"stageprof/agent"
	"stageprof/agent/calibrate"
	"stageprof/agent/probe"
	"stageprof/report"
)

// functionOffer is a function that record could follow.
type functionOffer struct {
	Set     string   `json:"set"` // that --regions takes, or the pattern of --region
	Library string   `json:"library"`
	Name    string   `json:"name"`
	Symbol  string   `json:"symbol"`
	Exits   int      `json:"exits"`
	Refused string   `json:"refused,omitempty"` // why it can't be followed
	CostNS  *float64 `json:"cost_ns"`           // of one execution
}

// findFunctions lists what can be followed in a process, and what that would
// cost.
func (p *process) findFunctions(ctx context.Context, regions []string) error {
	offers, err := agent.InspectFunctions(p.PID, regions)
	if err != nil {
		return err
	}
	p.Allocations = offers.Allocations
	if len(offers.Functions) == 0 {
		return nil
	}
	cost, err := functionCost(ctx)
	if err != nil {
		p.CostNote = err.Error()
	}
	for _, f := range offers.Functions {
		offer := functionOffer{Set: f.Set, Library: f.Library, Name: f.Name, Symbol: f.Symbol, Exits: f.Exits}
		switch {
		case f.Refused != nil:
			offer.Refused = f.Refused.Error()
		case err != nil:
		case f.ByJump:
			offer.CostNS = &cost.ByJump
		default:
			offer.CostNS = &cost.ByReturn
		}
		p.Functions = append(p.Functions, offer)
	}
	return nil
}

// functionCost measures in a process of our own what following functions costs.
func functionCost(ctx context.Context) (calibrate.FunctionCost, error) {
	mechanism, err := probe.Choose(probe.Auto)
	if err != nil {
		return calibrate.FunctionCost{}, err
	}
	cost, err := calibrate.RunFunctions(ctx, mechanism, true)
	if errors.Is(err, calibrate.ErrProcessFilter) {
		cost, err = calibrate.RunFunctions(ctx, mechanism, false)
	}
	if err != nil {
		return cost, fmt.Errorf("measuring the cost of following functions: %w", err)
	}
	return cost, nil
}

func (p *process) writeFunctions(w io.Writer) {
	if len(p.Allocations) > 0 {
		fmt.Fprintf(w, "\nAllocations (--allocations): %s\n", report.Printable(strings.Join(p.Allocations, ", ")))
	}
	if len(p.Functions) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFunctions that can be followed (--regions, --region, --stages-from function:…): %d\n", len(p.Functions))
	p.writeRate(w)
	rows := [][]string{{"SET", "LIBRARY", "FUNCTION", "EXITS", "COST OF AN EXECUTION"}}
	shown := map[string]int{}
	for _, f := range p.Functions {
		if shown[f.Set]++; shown[f.Set] > mostOfASet {
			continue
		}
		exits, cost := fmt.Sprint(f.Exits), ""
		switch {
		case f.Refused != "":
			exits, cost = "-", "can't be followed: "+f.Refused
		case f.CostNS != nil:
			cost = fmt.Sprintf("%.2f µs", *f.CostNS/1e3)
		}
		rows = append(rows, []string{f.Set, path.Base(f.Library), f.Name, exits, cost})
	}
	columns(w, rows)
	for _, set := range slices.Sorted(maps.Keys(shown)) {
		if more := shown[set] - mostOfASet; more > 0 {
			fmt.Fprintf(w, "  %d more of %s: --format json\n", more, set)
		}
	}
}

// mostOfASet bounds the functions of one set that the text lists.
const mostOfASet = 25

// writeRate says why no function is followed unless asked for.
func (p *process) writeRate(w io.Writer) {
	var most float64
	for _, f := range p.Functions {
		if f.CostNS != nil {
			most = max(most, *f.CostNS)
		}
	}
	if most > 0 {
		const share, second = 0.01, 1e9
		fmt.Fprintf(w, "none is followed unless asked for: from %.0f executions a second on, one costs a thread more than 1 %% of its time\n", share*second/most)
	}
}
