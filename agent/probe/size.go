package probe

import (
	"strings"

	"stageprof/bpf"
)

// size says where a call's number of bytes is: in argument number `argument`
// (from 1), in units of 1<<shift bytes, or in the parameter structure of a
// two- or three-dimensional copy.
type size struct {
	kind     bpf.ProbeSizeKind
	argument uint8
	shift    uint8
	narrow   bool // the argument is an unsigned int
}

func inArgument(n uint8) size { return size{kind: bpf.ProbeSizeKindSIZE_ARGUMENT, argument: n} }

func elements(n, shift uint8) size {
	return size{kind: bpf.ProbeSizeKindSIZE_ARGUMENT, argument: n, shift: shift}
}

// sizes holds the functions that have a size, from the public header cuda.h.
// Functions whose size can't be read with certainty (arrays, pitched
// allocations, batches) are left out: no size rather than a wrong one.
var sizes = map[string]size{
	"cuMemAlloc":              inArgument(2),
	"cuMemAllocHost":          inArgument(2),
	"cuMemAllocManaged":       inArgument(2),
	"cuMemAllocAsync":         inArgument(2),
	"cuMemAllocFromPoolAsync": inArgument(2),
	"cuMemHostAlloc":          inArgument(2),
	"cuMemHostRegister":       inArgument(2),

	"cuMemCreate":         inArgument(2),
	"cuMemAddressReserve": inArgument(2),
	"cuMemAddressFree":    inArgument(2),
	"cuMemMap":            inArgument(2),
	"cuMemUnmap":          inArgument(2),
	"cuMemSetAccess":      inArgument(2),

	"cuMemcpy":           inArgument(3),
	"cuMemcpyAsync":      inArgument(3),
	"cuMemcpyHtoD":       inArgument(3),
	"cuMemcpyHtoDAsync":  inArgument(3),
	"cuMemcpyDtoH":       inArgument(3),
	"cuMemcpyDtoHAsync":  inArgument(3),
	"cuMemcpyDtoD":       inArgument(3),
	"cuMemcpyDtoDAsync":  inArgument(3),
	"cuMemcpyPeer":       inArgument(5),
	"cuMemcpyPeerAsync":  inArgument(5),
	"cuMemPrefetchAsync": inArgument(2),

	"cuMemcpy2D":          {kind: bpf.ProbeSizeKindSIZE_COPY_2D},
	"cuMemcpy2DUnaligned": {kind: bpf.ProbeSizeKindSIZE_COPY_2D},
	"cuMemcpy2DAsync":     {kind: bpf.ProbeSizeKindSIZE_COPY_2D},
	"cuMemcpy3D":          {kind: bpf.ProbeSizeKindSIZE_COPY_3D},
	"cuMemcpy3DAsync":     {kind: bpf.ProbeSizeKindSIZE_COPY_3D},

	"cuMemsetD8":       inArgument(3),
	"cuMemsetD16":      elements(3, 1),
	"cuMemsetD32":      elements(3, 2),
	"cuMemsetD8Async":  inArgument(3),
	"cuMemsetD16Async": elements(3, 1),
	"cuMemsetD32Async": elements(3, 2),
}

// narrowFirst names the functions whose first version, exported without a
// suffix, is of the 32-bit device address era: sizes are unsigned int there,
// and copy structures have another layout.
var narrowFirst = map[string]bool{
	"cuMemAlloc": true, "cuMemAllocHost": true,
	"cuMemcpyHtoD": true, "cuMemcpyHtoDAsync": true,
	"cuMemcpyDtoH": true, "cuMemcpyDtoHAsync": true,
	"cuMemcpyDtoD": true, "cuMemcpyDtoDAsync": true,
	"cuMemcpy2D": true, "cuMemcpy2DUnaligned": true, "cuMemcpy2DAsync": true,
	"cuMemcpy3D": true, "cuMemcpy3DAsync": true,
	"cuMemsetD8": true, "cuMemsetD16": true, "cuMemsetD32": true,
}

// sizeOf returns where the size of a call to symbol is.
func sizeOf(symbol string) size {
	api := API(symbol)
	s := sizes[api]
	if narrowFirst[api] && !strings.HasPrefix(strings.TrimPrefix(symbol, api), "_v") {
		if s.kind != bpf.ProbeSizeKindSIZE_ARGUMENT {
			return size{}
		}
		s.narrow = true
	}
	return s
}

// cookie packs what the kernel side must know of a probed symbol; the layout is
// that of the COOKIE_ macros in bpf/types.h.
func cookie(symbol uint16, s size) uint64 {
	c := uint64(symbol) | uint64(s.kind)<<16 | uint64(s.argument)<<24 | uint64(s.shift)<<32
	if s.narrow {
		c |= 1 << 40
	}
	return c
}
