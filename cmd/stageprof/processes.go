package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// The parts of a file's name that stand for a process, and ask for a file of each.
const (
	rankInName = "{rank}"
	pidInName  = "{pid}"
)

// perProcess reports whether a name asks for one file of each process.
func perProcess(name string) bool {
	return strings.Contains(name, rankInName) || strings.Contains(name, pidInName)
}

// nameFor is the name of one process's file. What tells those apart that would
// have the same name is put behind the rank, or the pid where there is none.
func nameFor(name string, rank, pid int, apart string) string {
	of := strings.NewReplacer(rankInName, strconv.Itoa(rank)+apart, pidInName, strconv.Itoa(pid))
	if !strings.Contains(name, rankInName) {
		of = strings.NewReplacer(pidInName, strconv.Itoa(pid)+apart)
	}
	return of.Replace(name)
}

// namesFor are the names of the files of some processes, all different: several
// can have one rank, or one pid, one after the other.
func namesFor(name string, ledgers []*correlate.Ledger) []string {
	names := make([]string, len(ledgers))
	number := map[string]int{} // of processes by the name that they would have
	for _, l := range ledgers {
		number[nameFor(name, l.Source.Target.Rank, l.Source.Target.PID, "")]++
	}
	taken := map[string]bool{}
	for i, l := range ledgers {
		t := &l.Source.Target
		names[i] = nameFor(name, t.Rank, t.PID, "")
		if number[names[i]] > 1 {
			names[i] = nameFor(name, t.Rank, t.PID, fmt.Sprintf("-%d", t.PID))
		}
		for again := 2; taken[names[i]]; again++ {
			names[i] = nameFor(name, t.Rank, t.PID, fmt.Sprintf("-%d-%d", t.PID, again))
		}
		taken[names[i]] = true
	}
	return names
}

// tryOutput finds out whether files of that name could be written.
func tryOutput(name string) error {
	out, err := newOutput(nameFor(name, 0, 0, ""))
	if err != nil {
		return err
	}
	out.discard()
	return nil
}

// writeRecording saves the Recording of one process.
func writeRecording(w io.Writer, ledgers []*correlate.Ledger) error {
	return recording.Write(w, ledgers[0].Source)
}

// printProcesses prints the tables of processes that were recorded together, and
// names those that were not.
func printProcesses(w io.Writer, ledgers []*correlate.Ledger, missed []string, format string, full bool) error {
	if format == formatJSON {
		return report.JSONOfSeveral(w, ledgers, missed)
	}
	return report.TextOfSeveral(w, ledgers, missed, report.TextOptions{Width: terminalWidth(w), Full: full})
}
