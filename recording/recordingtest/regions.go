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

// RegionParts is Regions with what threads did with their time, in regions and
// outside of them.
func RegionParts() *recording.Recording {
	r := Regions()
	us := func(n uint64) uint64 { return n * uint64(time.Microsecond) }
	forward, trim := &r.Stages[0], &r.Stages[1]
	forward.Parts = recording.Parts{
		CUDACPUNS: us(7150), CUDABlockedNS: us(460), RunningNS: us(80_000), GILWaitNS: us(5000), BlockedFutexNS: us(7390),
	}
	trim.Parts = recording.Parts{CUDACPUNS: us(4200), CUDABlockedNS: us(600), RunningNS: us(3200), BlockedFutexNS: us(2000)}
	outside := recording.Parts{CUDACPUNS: us(350), CUDABlockedNS: us(50), RunningNS: us(600), BlockedSleepNS: us(19_000)}
	none := r.RegionTimes[3]
	r.Stages = append(r.Stages, recording.Stage{Thread: none.Thread, Path: none.Path, WallNS: outside.Total(), Parts: outside})
	for i, parts := range []recording.Parts{
		{CUDACPUNS: us(150), CUDABlockedNS: us(60), RunningNS: us(1790)},
		{CUDACPUNS: us(2000), CUDABlockedNS: us(400), RunningNS: us(600)},
		{CUDACPUNS: us(4200), CUDABlockedNS: us(600), RunningNS: us(1200), BlockedFutexNS: us(2000)},
		{CUDACPUNS: us(350), CUDABlockedNS: us(50), RunningNS: us(100)},
	} {
		t := r.RegionTimes[i]
		r.RegionParts = append(r.RegionParts, recording.RegionParts{Thread: t.Thread, Path: t.Path, Region: t.Region, Parts: parts})
	}
	return r
}
