package probe

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

// Group says what a driver function is for.
type Group string

// The groups. Everything but Other is probed by default: Other holds queries
// and set-up (building graphs among it), which frameworks call in great number
// and which cost little.
const (
	Launch    Group = "launch"
	Sync      Group = "sync"
	MemoryMap Group = "memory-map"
	Memory    Group = "memory"
	Copy      Group = "copy"
	Event     Group = "event"
	Graph     Group = "graph"
	Other     Group = "other"
)

// Groups lists all groups.
func Groups() []Group {
	return []Group{Launch, Sync, MemoryMap, Memory, Copy, Event, Graph, Other}
}

// exports is every name that the drivers 470, 535 and 550 export, one a line.
//
//go:embed exports.txt
var exports string

// Known lists every driver export that is known from real drivers, sorted.
func Known() []string { return strings.Fields(exports) }

// IsDriverName tells whether a symbol can be a driver function. It also holds
// for names that newer drivers may add.
func IsDriverName(symbol string) bool {
	return len(symbol) > 2 && strings.HasPrefix(symbol, "cu") && symbol[2] >= 'A' && symbol[2] <= 'Z'
}

var spelling = regexp.MustCompile(`(_v[0-9]+)?(_ptsz|_ptds)?$`)

// API returns the name of the function that a symbol spells.
func API(symbol string) string {
	return strings.TrimSuffix(symbol, spelling.FindString(symbol))
}

// rule assigns the functions that match one of its patterns to a group. A
// pattern is a name, or a prefix followed by "*".
type rule struct {
	group    Group
	patterns []string
}

// rules are tried in order. They are patterns rather than a list of names so
// that a function that a newer driver adds finds its group.
var rules = []rule{
	{Launch, []string{"cuLaunch*"}},
	{Graph, []string{
		"cuGraphLaunch", "cuGraphUpload", "cuGraphInstantiate*", "cuGraphExecUpdate", "cuGraphExecDestroy",
		"cuStreamBeginCapture*", "cuStreamEndCapture",
	}},
	{Sync, []string{
		"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize",
		"cuStreamWaitEvent", "cuStreamWaitValue*",
	}},
	{Event, []string{"cuEvent*", "cuStreamQuery"}},
	{MemoryMap, []string{
		"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
		"cuMemMap*", "cuMemUnmap", "cuMemSetAccess",
		"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
		"cuMulticastCreate", "cuMulticastBind*", "cuMulticastUnbind",
	}},
	{Copy, []string{"cuMemcpy*", "cuMemset*", "cuMemPrefetch*", "cuMemBatch*"}},
	{Memory, []string{
		"cuMemAlloc*", "cuMemFree*", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister",
		"cuMemGetInfo", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo",
		"cuArrayCreate", "cuArray3DCreate", "cuArrayDestroy",
		"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy",
		"cuIpcOpenMemHandle", "cuIpcCloseMemHandle",
	}},
}

// GroupOf returns the group of an API.
func GroupOf(api string) Group {
	for _, r := range rules {
		if slices.ContainsFunc(r.patterns, func(p string) bool { return matches(p, api) }) {
			return r.group
		}
	}
	return Other
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
