package main

import (
	"fmt"
	"io"
	"slices"
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

// rankless stands for the rank of a process that has none, among others that have
// one: a launcher's file does not take rank 0's name.
const rankless = "none"

// nameFor is the name of one process's file. What tells those apart that would
// have the same name is put behind the rank, or the pid where there is none.
func nameFor(name, rank string, pid int, apart string) string {
	of := strings.NewReplacer(rankInName, rank+apart, pidInName, strconv.Itoa(pid))
	if !strings.Contains(name, rankInName) {
		of = strings.NewReplacer(pidInName, strconv.Itoa(pid)+apart)
	}
	return of.Replace(name)
}

// namesFor are the names of the files of some processes, all different: several
// can have one rank, or one pid, one after the other.
func namesFor(name string, ledgers []*correlate.Ledger) []string {
	names := make([]string, len(ledgers))
	ranks := ranksInNames(ledgers)
	number := map[string]int{} // of processes by the name that they would have
	for i, l := range ledgers {
		number[nameFor(name, ranks[i], l.Source.Target.PID, "")]++
	}
	taken := map[string]bool{}
	for i, l := range ledgers {
		pid := l.Source.Target.PID
		names[i] = nameFor(name, ranks[i], pid, "")
		if number[names[i]] > 1 {
			names[i] = nameFor(name, ranks[i], pid, fmt.Sprintf("-%d", pid))
		}
		for again := 2; taken[names[i]]; again++ {
			names[i] = nameFor(name, ranks[i], pid, fmt.Sprintf("-%d-%d", pid, again))
		}
		taken[names[i]] = true
	}
	return names
}

func ranksInNames(ledgers []*correlate.Ledger) []string {
	hasRank := func(l *correlate.Ledger) bool { return l.Source.Target.WorldSize > 1 }
	some := slices.ContainsFunc(ledgers, hasRank)
	ranks := make([]string, len(ledgers))
	for i, l := range ledgers {
		ranks[i] = strconv.Itoa(l.Source.Target.Rank)
		if some && !hasRank(l) {
			ranks[i] = rankless
		}
	}
	return ranks
}

// tryOutput finds out whether files of that name could be written.
func tryOutput(name string) error {
	out, err := newOutput(nameFor(name, "0", 0, ""))
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
