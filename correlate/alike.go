package correlate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"stageprof/recording"
)

// warnings say what makes a comparison's sides unlike beside their stages.
func warnings(before, after []Run, sides Pair[*side]) (list []string) {
	runs := slices.Concat(before, after)
	first := runs[0]
	for _, run := range runs[1:] {
		if a, b := Program(&first.Ledger.Source.Target), Program(&run.Ledger.Source.Target); a != b {
			list = append(list, fmt.Sprintf("these are different programs: %q recorded %q, %q recorded %q", first.Name, a, run.Name, b))
			break
		}
	}
	for _, run := range runs[1:] {
		if only := timedApart(first.Ledger.Source, run.Ledger.Source); len(only) > 0 {
			list = append(list, fmt.Sprintf("%q and %q timed different driver functions (%s): compare calls and driver time with care",
				first.Name, run.Name, some(only)))
			break
		}
	}
	for _, name := range slices.Concat(sides.Before.few, sides.After.few) {
		list = append(list, fmt.Sprintf("%q has no single spans: its means are known, but not whether a difference is significant", name))
	}
	return list
}

// Program names what a target runs: of an interpreter of Python the script or
// module, else the executable.
func Program(t *recording.Target) string {
	exe := path.Base(t.Exe)
	if len(t.Cmdline) > 0 && (t.Exe == "" || t.Exe == "/") {
		exe = path.Base(t.Cmdline[0])
	}
	if t.Python == nil || len(t.Cmdline) < 2 {
		return exe
	}
	for i, arg := range t.Cmdline[1:] {
		switch {
		case (arg == "-m" || arg == "-c") && i+2 < len(t.Cmdline):
			return t.Cmdline[i+2]
		case arg == "-X" || arg == "-W":
			return exe // its value follows: which argument is the script is not worth a parser
		case !strings.HasPrefix(arg, "-"):
			return path.Base(arg)
		}
	}
	return exe
}

// timedApart are the functions that only one of the two was asked to time.
// Functions that one of the two drivers lacks don't count.
func timedApart(a, b *recording.Recording) (only []string) {
	known := func(r *recording.Recording) (timed, absent map[string]bool) {
		timed, absent = map[string]bool{}, map[string]bool{}
		for _, s := range r.Symbols {
			timed[s.Name] = true
		}
		for _, name := range r.Absent {
			absent[name] = true
		}
		return timed, absent
	}
	timedA, absentA := known(a)
	timedB, absentB := known(b)
	for name := range timedA {
		if !timedB[name] && !absentB[name] {
			only = append(only, name)
		}
	}
	for name := range timedB {
		if !timedA[name] && !absentA[name] {
			only = append(only, name)
		}
	}
	slices.Sort(only)
	return only
}

// some names the first of many.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
