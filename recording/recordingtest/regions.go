package recordingtest

import (
	"time"

	"stageprof/recording"
)

// Regions is a Recording of an allocator that maps and releases memory inside
// two stages, with functions that were left by an exception.
func Regions() *recording.Recording {
	const (
		malloc  = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc"
		block   = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::map_block"
		release = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::release_cached_blocks"
	)
	b := New()
	main := b.Thread(4242, "python3")
	memMap, unmap, launch := b.Symbol("cuMemMap"), b.Symbol("cuMemUnmap"), b.Symbol("cuLaunchKernel")
	b.Spans(main, "forward", 10, 10*time.Millisecond, 0)
	b.Spans(main, "trim", 2, 5*time.Millisecond, 0)
	b.Call(main, "forward", launch, 1000, 5*time.Microsecond, 5*time.Microsecond)
	c := b.Call(main, "forward", memMap, 40, 60*time.Microsecond, 50*time.Microsecond)
	c.Region, c.Caller = b.Region(malloc, block), b.Frame(0, 0x1180, block)
	c = b.Call(main, "forward", memMap, 3, 70*time.Microsecond, 50*time.Microsecond)
	c.Region = b.Region(malloc)
	c = b.Call(main, "trim", unmap, 60, 80*time.Microsecond, 70*time.Microsecond)
	c.Region, c.Caller = b.Region(release), b.Frame(0, 0x9000, "cudaFree")
	c = b.Call(main, "", unmap, 5, 80*time.Microsecond, 70*time.Microsecond)
	c.Region = b.Region(release)
	b.RegionTime(main, "forward", b.Region(malloc), 50, 100*time.Microsecond, 60*time.Microsecond).PartialCount = 2
	b.RegionTime(main, "forward", b.Region(malloc, block), 40, 75*time.Microsecond, 0)
	b.RegionTime(main, "trim", b.Region(release), 2, 4*time.Millisecond, 0)
	b.RegionTime(main, "", b.Region(release), 1, 500*time.Microsecond, 0)
	r := b.Recording()
	r.Allocations = []recording.Allocation{
		{Thread: main, Path: b.Path("forward"), Attribution: recording.AttributionOwn, Region: b.Region(malloc), Count: 50, Bytes: 50 << 20},
		{Thread: main, Path: b.Path("forward"), Attribution: recording.AttributionOwn, Freed: 10, FreedBytes: 8 << 20, FreedUnknown: 2},
		{Thread: main, Path: b.Path("trim"), Attribution: recording.AttributionAutograd, Freed: 40, FreedBytes: 40 << 20},
	}
	r.Overhead.Calibrated, r.Overhead.Followed, r.Overhead.FollowedNS = true, 95, 540_000
	return r
}
