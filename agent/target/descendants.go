package target

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Descendant is a process below another one.
type Descendant struct {
	PID        int
	Parent     int
	StartTicks uint64 // in clock ticks since boot: with the pid, the incarnation
	// Copy: it runs the program of its parent still, since it was forked and has
	// executed none. What it has mapped may be all its parent's doing.
	Copy bool
}

// Descendants returns the processes below some others, parents before their children, children
// in the order in which they were started. Those that come or go meanwhile may be missing, and
// so are zombies. A process whose parent has ended is a descendant of whoever has adopted it:
// those who want to keep it in sight name it among the others the next time.
func Descendants(of ...int) ([]Descendant, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	stats := map[int]statLine{}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		stat, err := parseStat(b)
		if err != nil || stat.state == 'Z' || stat.state == 'X' {
			continue
		}
		stats[pid] = stat
		children[int(stat.parent)] = append(children[int(stat.parent)], pid)
	}
	return below(of, stats, children), nil
}

func below(roots []int, stats map[int]statLine, children map[int][]int) (found []Descendant) {
	seen := map[int]bool{}
	for _, root := range roots {
		seen[root] = true
	}
	for queue := slices.Clone(roots); len(queue) > 0; queue = queue[1:] {
		parent := queue[0]
		list := children[parent]
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(cmp.Compare(stats[a].startTicks, stats[b].startTicks), cmp.Compare(a, b))
		})
		for _, pid := range list {
			if seen[pid] { // also what a torn look makes a circle of
				continue
			}
			seen[pid] = true
			stat := stats[pid]
			found = append(found, Descendant{
				PID: pid, Parent: parent, StartTicks: stat.startTicks,
				Copy: stat.startStack != 0 && stat.startStack == stats[parent].startStack,
			})
			queue = append(queue, pid)
		}
	}
	return found
}
