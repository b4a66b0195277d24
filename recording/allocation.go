package recording

import "fmt"

// Allocation sums the memory that PyTorch's CUDA allocator gave out to tensors,
// and got back, on one thread in one stage, below the same regions. Bytes are
// what was asked for.
type Allocation struct {
	Thread       int         `json:"thread"`
	Path         int         `json:"path"`
	Attribution  Attribution `json:"attribution"`      // of Path
	Region       int         `json:"region,omitempty"` // RegionPath; 0: none was open
	Count        uint64      `json:"count"`
	Bytes        uint64      `json:"bytes"`
	Freed        uint64      `json:"freed"`
	FreedBytes   uint64      `json:"freed_bytes"`   // of those whose allocation was seen
	FreedUnknown uint64      `json:"freed_unknown"` // of Freed: allocated before the recording
}

func (r *Recording) checkAllocations() error {
	for i, a := range r.Allocations {
		if !within(a.Thread, len(r.Threads)) || !within(a.Path, len(r.Paths)) || a.Region != 0 && !within(a.Region, len(r.RegionPaths)) {
			return fmt.Errorf("allocation row %d names a row that does not exist", i)
		}
	}
	return nil
}
