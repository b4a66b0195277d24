package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

// regionSet is a built-in list of functions that are worth following, by library.
type regionSet []libraryFunctions

type libraryFunctions struct {
	library string
	symbols []string // patterns; versions of the library have some of them
}

// allocator is where PyTorch's CUDA allocator has its functions.
const allocator = "_ZN3c104cuda20CUDACachingAllocator6Native"

func allocatorMembers(names ...string) []string {
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, fmt.Sprintf("%s22DeviceCachingAllocator%d%sE*", allocator, len(name), name))
	}
	return patterns
}

func expandableSegment(names ...string) []string {
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, fmt.Sprintf("%s12_GLOBAL__N_117ExpandableSegment%d%sE*", allocator, len(name), name))
	}
	return patterns
}

// regionSets are the values of Config.RegionSets. The allocator's functions for
// every tensor are a set apart: they run so often that following them costs.
var regionSets = map[string]regionSet{
	"torch": {{"libc10_cuda.so", slices.Concat(
		allocatorMembers("alloc_block", "map_block", "unmap_block", "release_cached_blocks", "release_block", "release_blocks",
			"garbage_collect_cached_blocks", "synchronize_and_free_events"),
		expandableSegment("map", "unmap", "mapAndSetAccess", "unmapHandles"),
		[]string{allocator + "22NativeCachingAllocator10emptyCacheE*"},
	)}},
	"torch-malloc": {{"libc10_cuda.so", allocatorMembers("malloc", "free", "free_locked")}},
	"nccl": {{"libnccl.so", []string{
		"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclAllToAll", "ncclSend", "ncclRecv", "ncclGroupEnd",
	}}},
	// Of the two libraries' interfaces what computes, not what sets up.
	"cublas": {
		{"libcublas.so", []string{"cublas*gemm*", "cublas*Gemm*", "cublas*gemv*", "cublas*syrk*", "cublas*trsm*", "cublas*getrfBatched*", "cublas*getrsBatched*"}},
		{"libcublasLt.so", []string{"cublasLtMatmul"}},
	},
	"cudnn": {{"libcudnn.so", []string{
		"cudnnBackendExecute", "cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData",
		"cudnnConvolutionBackwardFilter", "cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8",
		"cudnnMultiHeadAttnForward", "cudnnCTCLoss", "cudnnCTCLoss_v8",
	}}},
}

// RegionSets lists what Config.RegionSets may name.
func RegionSets() []string { return slices.Sorted(maps.Keys(regionSets)) }

func (s regionSet) patterns(name string) []functionPattern {
	var patterns []functionPattern
	for _, of := range s {
		for _, symbol := range of.symbols {
			patterns = append(patterns, functionPattern{library: of.library, symbol: symbol, role: roleRegion, set: name})
		}
	}
	return patterns
}

// regionPatterns lists the functions that the configuration wants as regions.
func (c *Config) regionPatterns() ([]functionPattern, error) {
	var patterns []functionPattern
	for _, name := range c.RegionSets {
		set, ok := regionSets[name]
		if !ok {
			return nil, fmt.Errorf("%w: regions %q are none of %v", ErrUsage, name, RegionSets())
		}
		patterns = append(patterns, set.patterns(name)...)
	}
	for _, text := range c.Regions {
		p, err := parseFunctionPattern(text, roleRegion)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// roomForRegionParts is how many rows the table of region_parts has, of a thread,
// a stage and a stack of regions each.
const roomForRegionParts = 16384

// prepareRegions splits the ledger by region, if there are any.
func (s *Session) prepareRegions(spec *ebpf.CollectionSpec) error {
	followed := slices.ContainsFunc(s.functionPatterns, func(p functionPattern) bool { return p.role&roleRegion != 0 })
	if !followed {
		spec.Maps["region_parts"].MaxEntries = 1
		return nil
	}
	spec.Maps["region_parts"].MaxEntries = uint32(s.ownShare(roomForRegionParts))
	if err := spec.Variables["regions_followed"].Set(true); err != nil {
		return fmt.Errorf("splitting the ledger by region: %w", err)
	}
	return nil
}

// regionTable turns the kernel side's numbers of regions and their paths into
// those of the Recording.
type regionTable struct {
	drain *drain
	ids   map[int]int    // of regions, by the function's number
	paths map[uint32]int // of region paths, by the kernel side's number
}

func (d *drain) newRegionTable() regionTable {
	t := regionTable{drain: d, ids: map[int]int{}, paths: map[uint32]int{pathNone: 0}}
	for number, f := range d.functions {
		if f.role&roleRegion == 0 {
			continue
		}
		t.ids[number] = len(d.r.Regions)
		address, module := d.functionAddress(f)
		d.r.Regions = append(d.r.Regions, recording.Region{
			ID: len(d.r.Regions), Name: f.name, Symbol: f.symbol, Module: module, Address: address,
		})
	}
	if len(d.r.Regions) > 0 {
		d.r.RegionPaths = []recording.RegionPath{{ID: 0, Regions: []int{}}}
	}
	return t
}

// functionAddress finds a function in the target's address space.
func (d *drain) functionAddress(f followed) (address uint64, module int) {
	offset := f.offset()
	for i := range d.names.spans {
		m := &d.names.spans[i]
		if m.file == f.file && offset >= m.Offset && offset-m.Offset < m.End-m.Start {
			return m.Start + offset - m.Offset, d.modules.module(m)
		}
	}
	return f.address, d.modules.module(nil)
}

// path returns the id of a region path, adding it at its first use.
func (t *regionTable) path(number uint32) int {
	id, ok := t.paths[number]
	if ok {
		return id
	}
	var regions []int
	for at := number; at != pathNone && len(regions) < maxPath; {
		key, known := t.drain.parents[at]
		region, named := t.ids[int(key.Name&^functionName)]
		if !known || !named { // pathOther
			regions = append(regions, -1)
			break
		}
		regions = append(regions, region)
		at = key.Parent
	}
	slices.Reverse(regions)
	id = len(t.drain.r.RegionPaths)
	t.paths[number] = id
	t.drain.r.RegionPaths = append(t.drain.r.RegionPaths, recording.RegionPath{ID: id, Regions: regions})
	return id
}

func (d *drain) addRegionTimes() error {
	for _, table := range []map[bpf.ProbeRegionKey]bpf.ProbeRegionRow{d.regionTimes, d.retired.regions.rows} {
		for key, row := range table {
			d.addRegionTime(key, &row)
		}
	}
	return nil
}

func wholeRegion(row *bpf.ProbeRegionRow) bool { return row.Done == row.Count+row.PartialCount }

func (d *drain) addRegionTime(key bpf.ProbeRegionKey, row *bpf.ProbeRegionRow) {
	t := recording.RegionTime{
		Thread: d.thread(key.Thread), Path: d.path(key.Path), Region: d.regions.path(key.Region),
		Attribution: attributions[bpf.ProbeAttribution(key.Attribution)],
		Count:       row.Count, WallNS: row.Wall, ChildNS: row.Child, MaxNS: row.Max,
		PartialCount: row.PartialCount, PartialWallNS: row.PartialWall, PartialChildNS: row.PartialChild,
	}
	if row.Count > 0 {
		t.MinNS = min(row.Min, row.Max) // not whole after all: no time yet
	}
	d.r.RegionTimes = append(d.r.RegionTimes, t)
	if function := d.innermostFunction(key.Region); function >= 0 {
		d.hits.add(function, key.Thread, row.Count+row.PartialCount)
	}
}

// regionPartsID is a key of the Recording's parts of regions.
type regionPartsID struct{ thread, path, region int }

// addRegionParts adds what the time in regions consists of. A snapshot has what
// was charged to threads since their regions, or the stage, last changed as well.
func (d *drain) addRegionParts() error {
	sums := map[regionPartsID]recording.Parts{}
	add := func(key bpf.ProbeRegionPartsKey, parts [bpf.ProbePartPARTS]uint64) {
		id := regionPartsID{d.thread(key.Thread), d.path(key.Path), d.regions.path(key.Region)}
		sums[id] = sums[id].Plus(partsOf(parts))
	}
	for _, table := range []map[bpf.ProbeRegionPartsKey]bpf.ProbeRegionPartsRow{d.regionParts, d.retired.regionParts.rows} {
		for key, row := range table {
			add(key, row.Parts)
		}
	}
	for i := range d.states {
		s := (*threadState)(&d.states[i])
		key := s.regionParts()
		// Unless it is in the row already, as it is if that was changed since.
		if row := d.regionParts[key]; d.live && key.Region != pathNone && row.Last <= s.RegionSince {
			add(key, s.RegionParts)
		}
	}
	for id, parts := range sums {
		if parts.Total() > 0 {
			d.r.RegionParts = append(d.r.RegionParts, recording.RegionParts{Thread: id.thread, Path: id.path, Region: id.region, Parts: parts})
		}
	}
	return nil
}

func wholeRegionParts(row *bpf.ProbeRegionPartsRow) bool { return row.First == row.Last }

// regionParts is the row to which the time in the thread's open regions will be
// added, in the region pathNone if it is in none.
func (s *threadState) regionParts() bpf.ProbeRegionPartsKey {
	key := bpf.ProbeRegionPartsKey{Thread: s.Serial, Region: s.Region}
	if s.Sp != 0 {
		key.Region = s.CallRegion
	}
	if n := len(s.open()); n > 0 {
		key.Path = s.Open[n-1].Path
	}
	return key
}

func addRegionPartsRow(to, from *bpf.ProbeRegionPartsRow) { addTo(to.Parts[:], from.Parts[:]) }

// addRegionRow adds up the rows of ended threads.
func addRegionRow(to, from *bpf.ProbeRegionRow) {
	to.Count += from.Count
	to.Wall += from.Wall
	to.Child += from.Child
	to.Min, to.Max = min(to.Min, from.Min), max(to.Max, from.Max)
	to.PartialCount += from.PartialCount
	to.PartialWall += from.PartialWall
	to.PartialChild += from.PartialChild
	to.Done += from.Done
}

// innermostFunction is the number of the function that ends a path, -1 if the
// path ends with something else.
func (d *drain) innermostFunction(path uint32) int {
	key, known := d.parents[path]
	if !known || key.Name&functionName != functionName {
		return -1
	}
	return int(key.Name &^ functionName)
}

// hits counts how often functions were executed, by function and thread.
type hits map[hitKey]uint64

type hitKey struct {
	function int
	thread   uint32
}

func (h hits) add(function int, thread uint32, n uint64) { h[hitKey{function, thread}] += n }

// mostShare is the part of a thread's time from which on the cost of following
// a function is worth a warning.
const mostShare = 0.01

// addFollowed says what following functions has cost, and warns of those that
// were executed too often for it.
func (d *drain) addFollowed() {
	var cost float64
	worst := map[int]float64{} // by function: the largest share of a thread's time
	for key, n := range d.hits {
		d.r.Overhead.Followed += n
		ns := float64(n) * d.executionCost(d.functions[key.function])
		cost += ns
		worst[key.function] = max(worst[key.function], ns/float64(max(d.r.Window.Duration, 1)))
	}
	d.r.Overhead.FollowedNS = uint64(cost)
	for _, function := range slices.Sorted(maps.Keys(worst)) {
		if share := worst[function]; share > mostShare {
			f := d.functions[function]
			d.r.Warnings = append(d.r.Warnings, fmt.Sprintf("following %q costs a thread %.0f%% of its time: %.2f µs for each execution",
				f.name, 100*share, d.executionCost(f)/1e3))
		}
	}
}

// executionCost is what following one execution of a function adds, in
// nanoseconds; 0 if that was not measured.
func (s *Session) executionCost(f followed) float64 {
	if f.endsWithJump() {
		return s.functionCost.ByJump
	}
	return s.functionCost.ByReturn
}
