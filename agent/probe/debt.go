package probe

import (
	"strings"

	"stageprof/bpf"
)

// debt says what a function means for the work that streams have before them,
// and where its stream is: the number of the argument (from 1), noStream or
// inConfig.
type debt struct {
	role      bpf.ProbeDebtRole
	stream    uint8
	perThread bool // its default stream is the calling thread's own
}

// Where a stream can be, besides in an argument; bpf/types.h's STREAM_DEFAULT
// and STREAM_CONFIG.
const (
	noStream = 0  // there is no argument for it: the default stream
	inConfig = 15 // in the CUlaunchConfig that the first argument points to
)

func enqueues(stream uint8) debt { return debt{role: bpf.ProbeDebtRoleDEBT_ENQUEUE, stream: stream} }

// Shorthands for the table of debts.
var (
	toDefault = enqueues(noStream)
	waitsToo  = debt{role: bpf.ProbeDebtRoleDEBT_WAIT_COPY} // a copy that has ended when it returns
)

// debts holds the functions that give work to a stream, wait for it, or tell
// how far it has got, from the public header cuda.h. Allocating and freeing in
// stream order is left out: it takes the device no time. So is what has several
// streams (cooperative launches on several devices, batches).
var debts = map[string]debt{
	"cuLaunch":                  toDefault,
	"cuLaunchGrid":              toDefault,
	"cuLaunchGridAsync":         enqueues(4),
	"cuLaunchKernel":            enqueues(9),
	"cuLaunchCooperativeKernel": enqueues(9),
	"cuLaunchKernelEx":          enqueues(inConfig),
	"cuLaunchHostFunc":          enqueues(1),
	"cuStreamAddCallback":       enqueues(1),
	"cuGraphLaunch":             enqueues(2),

	"cuMemcpyAsync":       enqueues(4),
	"cuMemcpyHtoDAsync":   enqueues(4),
	"cuMemcpyDtoHAsync":   enqueues(4),
	"cuMemcpyDtoDAsync":   enqueues(4),
	"cuMemcpyHtoAAsync":   enqueues(5),
	"cuMemcpyAtoHAsync":   enqueues(5),
	"cuMemcpy2DAsync":     enqueues(2),
	"cuMemcpy3DAsync":     enqueues(2),
	"cuMemcpy3DPeerAsync": enqueues(2),
	"cuMemcpyPeerAsync":   enqueues(6),

	"cuMemsetD8Async":    enqueues(4),
	"cuMemsetD16Async":   enqueues(4),
	"cuMemsetD32Async":   enqueues(4),
	"cuMemsetD2D8Async":  enqueues(6),
	"cuMemsetD2D16Async": enqueues(6),
	"cuMemsetD2D32Async": enqueues(6),
	"cuMemPrefetchAsync": enqueues(4), // its second version has one more argument: debtOf

	// The device does these by itself: they return before they are over.
	"cuMemsetD8":     toDefault,
	"cuMemsetD16":    toDefault,
	"cuMemsetD32":    toDefault,
	"cuMemsetD2D8":   toDefault,
	"cuMemsetD2D16":  toDefault,
	"cuMemsetD2D32":  toDefault,
	"cuMemcpyDtoD":   toDefault,
	"cuMemcpyDtoA":   toDefault,
	"cuMemcpyAtoD":   toDefault,
	"cuMemcpyAtoA":   toDefault,
	"cuMemcpyPeer":   toDefault,
	"cuMemcpy3DPeer": toDefault,

	"cuMemcpy":            waitsToo,
	"cuMemcpyHtoD":        waitsToo,
	"cuMemcpyDtoH":        waitsToo,
	"cuMemcpyHtoA":        waitsToo,
	"cuMemcpyAtoH":        waitsToo,
	"cuMemcpy2D":          waitsToo,
	"cuMemcpy2DUnaligned": waitsToo,
	"cuMemcpy3D":          waitsToo,

	"cuStreamSynchronize": {role: bpf.ProbeDebtRoleDEBT_WAIT_STREAM, stream: 1},
	"cuEventSynchronize":  {role: bpf.ProbeDebtRoleDEBT_WAIT_EVENT},
	"cuCtxSynchronize":    {role: bpf.ProbeDebtRoleDEBT_WAIT_CONTEXT},

	"cuEventRecord":          {role: bpf.ProbeDebtRoleDEBT_RECORD_EVENT, stream: 2},
	"cuEventRecordWithFlags": {role: bpf.ProbeDebtRoleDEBT_RECORD_EVENT, stream: 2},
	"cuStreamWaitEvent":      {role: bpf.ProbeDebtRoleDEBT_FOLLOW_EVENT, stream: 1},
	"cuStreamQuery":          {role: bpf.ProbeDebtRoleDEBT_ASK_STREAM, stream: 1},
	"cuEventQuery":           {role: bpf.ProbeDebtRoleDEBT_ASK_EVENT},
	"cuEventDestroy":         {role: bpf.ProbeDebtRoleDEBT_DESTROY_EVENT},

	"cuStreamBeginCapture":        {role: bpf.ProbeDebtRoleDEBT_BEGIN_CAPTURE, stream: 1},
	"cuStreamBeginCaptureToGraph": {role: bpf.ProbeDebtRoleDEBT_BEGIN_CAPTURE, stream: 1},
	"cuStreamEndCapture":          {role: bpf.ProbeDebtRoleDEBT_END_CAPTURE, stream: 1},
}

// notices holds the functions that matter for streams without waiting or
// giving work. They are seen at their entry, whether or not they are timed.
var notices = map[string]debt{
	"cuStreamDestroy":  {role: bpf.ProbeDebtRoleDEBT_DESTROY_STREAM},
	"cuCtxSetCurrent":  {role: bpf.ProbeDebtRoleDEBT_SET_CONTEXT},
	"cuCtxPushCurrent": {role: bpf.ProbeDebtRoleDEBT_PUSH_CONTEXT},
	"cuCtxPopCurrent":  {role: bpf.ProbeDebtRoleDEBT_POP_CONTEXT},
}

// debtOf returns what a call to symbol means for streams.
func debtOf(symbol string) debt {
	api := API(symbol)
	d := debts[api]
	d.perThread = d.role != bpf.ProbeDebtRoleDEBT_NONE &&
		(strings.HasSuffix(symbol, "_ptsz") || strings.HasSuffix(symbol, "_ptds"))
	if api == "cuMemPrefetchAsync" && strings.HasPrefix(symbol, api+"_v2") {
		d.stream++
	}
	return d
}

// OfStreams tells what sync debt learns from a site: that it gives work to a stream,
// or waits for one.
func (s Site) OfStreams() (gives, waits bool) {
	switch debtOf(s.Symbol).role {
	case bpf.ProbeDebtRoleDEBT_ENQUEUE:
		return true, false
	case bpf.ProbeDebtRoleDEBT_WAIT_STREAM, bpf.ProbeDebtRoleDEBT_WAIT_EVENT, bpf.ProbeDebtRoleDEBT_WAIT_CONTEXT,
		bpf.ProbeDebtRoleDEBT_WAIT_COPY:
		return false, true
	}
	return false, false
}

// bits packs a debt; the layout is that of COOKIE_DEBT in bpf/types.h.
func (d debt) bits() uint64 {
	b := uint64(d.role) | uint64(d.stream)<<5
	if d.perThread {
		b |= 1 << 9
	}
	return b << 48
}

// Notices is the selection of the functions that NoticePoints takes.
func Notices() Selector {
	s := Selector{names: map[string]bool{}}
	for api := range notices {
		s.names[api] = true
	}
	return s
}

// NoticePoints returns the points of sites that Notices has selected.
func NoticePoints(sites []Site) []Point {
	points := make([]Point, len(sites))
	for i, s := range sites {
		points[i] = Point{Offset: s.Offset(), Cookie: notices[s.API].bits()}
	}
	return points
}
