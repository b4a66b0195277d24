package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"stageprof/agent/probe"
	"stageprof/bpf"
)

// FunctionCost is what following one execution of a function costs the calling
// thread, in nanoseconds: entry, exit and everything in between.
type FunctionCost struct {
	ByReturn float64 // of a function that returns: the kernel single-steps that
	ByJump   float64 // of one that ends with a jump to another
}

// RunFunctions measures what following functions costs. It takes some tens of
// milliseconds.
func RunFunctions(ctx context.Context, mechanism probe.Mechanism, filter bool) (FunctionCost, error) {
	if len(functionStubs) == 0 {
		return FunctionCost{}, ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := start(ctx)
	if err != nil {
		return FunctionCost{}, err
	}
	c.filter(filter)
	cost, err := c.measureFunctions(mechanism)
	return cost, errors.Join(err, c.stop())
}

func (c *child) measureFunctions(mechanism probe.Mechanism) (FunctionCost, error) {
	var plain, added [2]float64
	for i := range functionStubs {
		var err error
		if plain[i], err = c.quietest(len(stubs)+i, plainCalls); err != nil {
			return FunctionCost{}, err
		}
	}
	objects, err := c.load(mechanism, "function_entry", "function_exit")
	if err != nil {
		return FunctionCost{}, err
	}
	defer objects.Close()
	links, err := c.attachFunctions(objects, mechanism)
	if err != nil {
		return FunctionCost{}, err
	}
	if err := c.open(objects); err != nil {
		return FunctionCost{}, errors.Join(err, links.Close())
	}
	for i := range functionStubs {
		if added[i], err = c.followed(objects, i); err != nil {
			return FunctionCost{}, errors.Join(err, links.Close())
		}
		added[i] = max(0, added[i]-plain[i])
	}
	return FunctionCost{ByReturn: added[returning], ByJump: added[jumping]}, links.Close()
}

func (c *child) attachFunctions(objects *bpf.ProbeObjects, mechanism probe.Mechanism) (*probe.Links, error) {
	attacher := c.attacher(mechanism)
	var entries, exits []probe.Point
	for i, s := range functionStubs {
		at := stubAt(len(stubs) + i)
		cookie := uint64(i) | uint64(bpf.ProbeRoleROLE_REGION)<<16
		entries = append(entries, probe.Point{Offset: at, Cookie: cookie})
		exits = append(exits, probe.Point{Offset: at + s.exit, Cookie: cookie})
		if err := objects.Functions.Put(uint32(i), bpf.ProbeFunction{Size: s.exit}); err != nil {
			return nil, fmt.Errorf("calibrating: %w", err)
		}
		if err := objects.Names.Put(uint64(3)<<62|uint64(i), bpf.ProbeStageName{}); err != nil {
			return nil, fmt.Errorf("calibrating: %w", err)
		}
	}
	if err := objects.Tracking.Set(uint32(1)); err != nil {
		return nil, err
	}
	links := &probe.Links{}
	l, err := attacher.Entry(c.path(), objects.FunctionExit, exits)
	if err != nil {
		return nil, err
	}
	links.Add(l)
	if l, err = attacher.Entry(c.path(), objects.FunctionEntry, entries); err != nil {
		return nil, errors.Join(err, links.Close())
	}
	links.Add(l)
	return links, nil
}

// followed measures a function with probes on it.
func (c *child) followed(objects *bpf.ProbeObjects, i int) (float64, error) {
	best := math.Inf(1)
	var before uint64
	for range batches {
		perCall, err := c.call(len(stubs)+i, singleStepping)
		if err != nil {
			return 0, err
		}
		after, err := regionTotal(objects)
		if err != nil {
			return 0, err
		}
		if before > 0 && after-before != singleStepping {
			return 0, fmt.Errorf("calibrating: %d calls made, %d followed", singleStepping, after-before)
		}
		before = after
		best = min(best, perCall)
	}
	if before == 0 {
		return 0, ErrProcessFilter
	}
	return best, nil
}

// regionTotal is how often any function was entered and left.
func regionTotal(objects *bpf.ProbeObjects) (uint64, error) {
	var key bpf.ProbeRegionKey
	var row bpf.ProbeRegionRow
	var sum uint64
	rows := objects.Regions.Iterate()
	for rows.Next(&key, &row) {
		sum += row.Count
	}
	return sum, rows.Err()
}
