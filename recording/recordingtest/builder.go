// Package recordingtest builds Recordings by hand, so that the pure side can
// be tested without a kernel.
package recordingtest

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"stageprof/recording"
)

// Builder collects the rows of one Recording. Its methods that name a row
// return the row's ID and add the row on first use.
type Builder struct {
	r recording.Recording
}

// New starts a Recording of a Python target, pid 4242 and rank 0 of 8, with a
// window of 30 s. The executable and one driver library are mapped.
func New() *Builder {
	b := &Builder{r: recording.Recording{
		Format: recording.FormatVersion,
		Tool: recording.Tool{
			Version:   "0.1.0",
			Command:   []string{"stageprof", "record", "--pid", "4242", "--duration", "30s"},
			Kernel:    "6.8.0-45-generic",
			Arch:      "amd64",
			Mechanism: "uprobe-multi",
		},
		Target: recording.Target{
			PID: 4242, NSPID: 17,
			StartTime: time.Date(2025, 3, 4, 9, 0, 0, 0, time.UTC),
			Exe:       "/usr/bin/python3.11", Comm: "python3",
			Cmdline:   []string{"python3", "train.py", "--config", "drafter.yaml"},
			Python:    &recording.Python{Version: "3.11.7", Path: "/usr/bin/python3.11", GILMethod: "tls-static"},
			WorldSize: 8,
		},
		Window: recording.Window{
			Start:    time.Date(2025, 3, 4, 9, 30, 0, 0, time.UTC),
			StartNS:  1_800_000_000_000,
			Duration: 30 * time.Second,
			End:      recording.EndDuration,
		},
	}}
	b.Module("/usr/bin/python3.11", "aa11", 0x400000)
	b.Module(Driver, "bb22cc33", 0x7f0000000000)
	return b
}

// Driver is the path of the driver library that New maps as module 1.
const Driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"

// Recording returns the Recording built so far, which stays the Builder's own.
func (b *Builder) Recording() *recording.Recording { return &b.r }

// Module maps a file of 16 MiB at start.
func (b *Builder) Module(path, buildID string, start uint64) int {
	b.r.Modules = append(b.r.Modules, recording.Module{
		ID: len(b.r.Modules), Path: path, BuildID: buildID,
		Start: start, Limit: start + 16<<20, Offset: 0x1000,
	})
	return len(b.r.Modules) - 1
}

// Thread names a thread incarnation. It always adds a row.
func (b *Builder) Thread(tid int, name string) int {
	b.r.Threads = append(b.r.Threads, recording.Thread{ID: len(b.r.Threads), TID: tid, NTID: tid - 4225, Name: name})
	return len(b.r.Threads) - 1
}

// Path names a stage path by its stages joined with "/"; "" is outside any
// stage.
func (b *Builder) Path(joined string) int {
	if joined == "" {
		return b.PathOf()
	}
	return b.PathOf(strings.Split(joined, "/")...)
}

// PathOf names a stage path whose names may contain "/".
func (b *Builder) PathOf(names ...string) int {
	for _, p := range b.r.Paths {
		if slices.Equal(p.Names, names) {
			return p.ID
		}
	}
	b.r.Paths = append(b.r.Paths, recording.StagePath{ID: len(b.r.Paths), Names: names})
	return len(b.r.Paths) - 1
}

// Symbol names a function of the driver library of New, without bias.
func (b *Builder) Symbol(name string) int { return b.SymbolIn(1, name, 0) }

// SymbolIn names a function of the given module, whose probes add bias
// nanoseconds to each duration.
func (b *Builder) SymbolIn(module int, name string, bias float64) int {
	for _, s := range b.r.Symbols {
		if s.Module == module && s.Name == name {
			return s.ID
		}
	}
	id := len(b.r.Symbols)
	b.r.Symbols = append(b.r.Symbols, recording.Symbol{
		ID: id, Name: name, API: api(name), Group: "other", Module: module,
		Address:     b.r.Modules[module].Start + 0x10000 + uint64(id)*0x40,
		ProbeOffset: 10, Placement: "jump", BiasNS: bias,
	})
	return id
}

func api(symbol string) string {
	for _, suffix := range []string{"_ptsz", "_ptds", "_v2"} {
		symbol = strings.TrimSuffix(symbol, suffix)
	}
	return symbol
}

// Frame names a caller at an offset in a module; function may be empty.
func (b *Builder) Frame(module int, offset uint64, function string) int {
	b.r.Frames = append(b.r.Frames, recording.Frame{
		ID: len(b.r.Frames), Address: b.r.Modules[module].Start + offset,
		Module: module, Function: function, Offset: offset,
	})
	return len(b.r.Frames) - 1
}

// Call adds a row of count calls that each lasted the same wall and cpu time,
// made by the thread's own stage with the GIL free, and returns the row to be
// changed further. The pointer is valid until the next Call.
func (b *Builder) Call(thread int, path string, symbol int, count uint64, wall, cpu time.Duration) *recording.Call {
	c := recording.Call{
		Thread: thread, Path: b.Path(path), Symbol: symbol, Caller: -1,
		GIL: recording.GILFree, Attribution: recording.AttributionOwn,
		Count: count, WallNS: count * uint64(wall), CPUNS: count * uint64(cpu),
		MinNS: uint64(wall), MaxNS: uint64(wall),
	}
	if path == "" {
		c.Attribution = recording.AttributionNone
	}
	c.Hist[Bucket(wall)] = count
	b.r.Calls = append(b.r.Calls, c)
	return &b.r.Calls[len(b.r.Calls)-1]
}

// Debt adds what one thread owes to a stage for its waits in one function. The
// pointer is valid until the next Debt.
func (b *Builder) Debt(thread int, path string, symbol int, owner string, waits uint64, wall time.Duration, operations uint64) *recording.Debt {
	b.r.Debts = append(b.r.Debts, recording.Debt{
		Thread: thread, Path: b.Path(path), Symbol: symbol, Kind: recording.DebtStage, Owner: b.Path(owner),
		Waits: waits, WallNS: uint64(wall), Operations: operations,
	})
	return &b.r.Debts[len(b.r.Debts)-1]
}

// Spans adds a row of count complete spans that each lasted the same wall
// time, child of it inside child stages, half of it running. The pointer is
// valid until the next Spans. Thread -1 is the whole process.
func (b *Builder) Spans(thread int, path string, count uint64, wall, child time.Duration) *recording.Stage {
	s := recording.Stage{
		Thread: thread, Path: b.Path(path),
		Count: count, WallNS: count * uint64(wall), ChildNS: count * uint64(child), CPUNS: count * uint64(wall) / 2,
		MinNS: uint64(wall), MaxNS: uint64(wall),
	}
	s.Hist[Bucket(wall)] = count
	b.r.Stages = append(b.r.Stages, s)
	return &b.r.Stages[len(b.r.Stages)-1]
}

// Region returns the region path of these functions, outermost first, adding
// what is new of it. Functions lie in module 0, 256 bytes apart.
func (b *Builder) Region(names ...string) int {
	if len(b.r.RegionPaths) == 0 {
		b.r.RegionPaths = []recording.RegionPath{{}}
	}
	var path []int
	for _, name := range names {
		id := slices.IndexFunc(b.r.Regions, func(r recording.Region) bool { return r.Name == name })
		if id < 0 {
			id = len(b.r.Regions)
			b.r.Regions = append(b.r.Regions, recording.Region{
				ID: id, Name: name, Symbol: name, Address: b.r.Modules[0].Start + 0x1000 + 0x100*uint64(id),
			})
		}
		path = append(path, id)
	}
	id := slices.IndexFunc(b.r.RegionPaths, func(p recording.RegionPath) bool { return slices.Equal(p.Regions, path) })
	if id < 0 {
		id = len(b.r.RegionPaths)
		b.r.RegionPaths = append(b.r.RegionPaths, recording.RegionPath{ID: id, Regions: path})
	}
	return id
}

// RegionTime adds a row of count complete executions that each lasted the same
// wall time, child of it inside regions inside. The pointer is valid until the
// next RegionTime.
func (b *Builder) RegionTime(thread int, path string, region int, count uint64, wall, child time.Duration) *recording.RegionTime {
	t := recording.RegionTime{
		Thread: thread, Path: b.Path(path), Attribution: recording.AttributionOwn, Region: region,
		Count: count, WallNS: count * uint64(wall), ChildNS: count * uint64(child), MinNS: uint64(wall), MaxNS: uint64(wall),
	}
	if path == "" {
		t.Attribution = recording.AttributionNone
	}
	b.r.RegionTimes = append(b.r.RegionTimes, t)
	return &b.r.RegionTimes[len(b.r.RegionTimes)-1]
}

// Loss adds a loss.
func (b *Builder) Loss(kind, reason string, count uint64, help string) {
	b.r.Losses = append(b.r.Losses, recording.Loss{Kind: kind, Reason: reason, Count: count, Help: help})
}

// Bucket returns the bucket of a Hist that counts a duration.
func Bucket(d time.Duration) int {
	return min(max(bits.Len64(uint64(d))-1, 0), recording.HistBuckets-1)
}
