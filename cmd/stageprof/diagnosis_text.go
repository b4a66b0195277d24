package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"stageprof/agent"
	"stageprof/report"
)

func (d *diagnosis) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// writeText prints the diagnosis for people: a block for the machine, one for
// its GPUs, one for the process, and a verdict.
func (d *diagnosis) writeText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "stageprof %s on Linux %s %s\n\n", d.Version, d.Kernel, d.Arch)
	d.writeFeatures(&b)
	d.writeGPUs(&b)
	if d.Process != nil {
		d.Process.writeText(&b)
	}
	d.writeVerdict(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// columns prints rows of cells below each other, indented. Cells may hold texts
// that the target chose.
func columns(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = report.Printable(cell)
		}
		fmt.Fprintln(t, "  "+strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	t.Flush()
}

func (d *diagnosis) writeFeatures(w io.Writer) {
	var privileges, kernel [][]string
	for _, f := range d.Features {
		state := "ok"
		switch {
		case f.Present:
		case f.Required:
			state = "MISSING"
		default:
			state = "absent"
		}
		row := []string{state, f.Name, f.Detail}
		if f.Privilege {
			privileges = append(privileges, row)
		} else {
			kernel = append(kernel, row)
		}
	}
	fmt.Fprintln(w, "Privileges")
	columns(w, privileges)
	fmt.Fprintln(w, "\nKernel")
	columns(w, kernel)
}

func (d *diagnosis) writeGPUs(w io.Writer) {
	fmt.Fprintln(w, "\nGPUs")
	if d.GPUNote != "" {
		fmt.Fprintf(w, "  %s\n", d.GPUNote)
	}
	if d.GPU == nil {
		return
	}
	fmt.Fprintf(w, "  driver %s\n", d.GPU.Driver)
	var rows [][]string
	for _, g := range d.GPU.Devices {
		rows = append(rows, []string{fmt.Sprint(g.Index), g.Name, g.UUID, gibibytes(g.MemoryTotal)})
	}
	columns(w, rows)
}

func (d descendant) String() string {
	u := agent.User{PID: d.PID, Rank: -1, Command: d.Command, Copy: d.Copy}
	if d.Rank != nil {
		u.Rank = *d.Rank
	}
	return u.String()
}

func gibibytes(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func (p *process) writeText(w io.Writer) {
	fmt.Fprintf(w, "\nProcess %d (%s)\n", p.PID, report.Printable(p.Comm))
	rows := [][]string{
		{"executable", p.Exe},
		{"command", strings.Join(p.Cmdline, " ")},
	}
	if p.NSPID != p.PID {
		rows = append(rows, []string{"pid inside", fmt.Sprintf("%d, in its own pid namespace", p.NSPID)})
	}
	if p.WorldSize > 1 {
		rows = append(rows, []string{"rank", fmt.Sprintf("%d of %d", p.Rank, p.WorldSize)})
	}
	rows = append(rows, []string{"Python", p.Python.String()})
	if p.Python != nil {
		rows = append(rows, []string{"Python stacks", cmp.Or(p.Python.StacksReason, "can be read")})
		rows = append(rows, []string{"mark", cmp.Or(p.Python.MarkReason, "can mark functions while it runs, if it can import the marker package")})
	}
	if len(p.Markers) == 0 {
		rows = append(rows, []string{"markers", "none"})
	}
	for _, m := range p.Markers {
		rows = append(rows, []string{"markers", m.String()})
	}
	for _, source := range slices.Sorted(maps.Keys(p.Sources)) {
		for _, offered := range p.Sources[source] {
			rows = append(rows, []string{source, offered})
		}
	}
	if len(p.Drivers) > 0 {
		rows = append(rows, []string{"sync debt", p.SyncDebt.String()})
	}
	for _, d := range p.Descendants {
		rows = append(rows, []string{"child with a driver", d.String()})
	}
	for _, warning := range p.Warnings {
		rows = append(rows, []string{"warning", warning})
	}
	columns(w, rows)
	p.writeFunctions(w)
	for _, d := range p.Drivers {
		d.writeText(w)
	}
	if p.CostNote != "" {
		fmt.Fprintf(w, "\nThe cost of a call is not known: %s\n", report.Printable(p.CostNote))
	}
	if len(p.Absent) > 0 {
		fmt.Fprintf(w, "\nSelected, but not in the driver: %s\n", report.Printable(strings.Join(p.Absent, " ")))
	}
}

// String says in one line which interpreter it is and how its GIL is read.
func (p *python) String() string {
	if p == nil {
		return "none: no call can hold a GIL"
	}
	line := strings.TrimSpace(p.Version+" "+p.Path) + ", "
	if p.GILReason != "" {
		return line + "the GIL's state can't be read: " + p.GILReason
	}
	return line + "GIL read by " + p.GILMethod
}

// String says what can be known of whose work waits are for.
func (d syncDebt) String() string {
	switch {
	case d.Wait == 0:
		return "none: no function is probed that waits for the device"
	case d.Give == 0:
		return "none: no function is probed that gives work to the device"
	}
	return fmt.Sprintf("known from %d functions that give work to the device and %d that wait for it", d.Give, d.Wait)
}

func (l library) String() string {
	line := l.Path
	if l.BuildID != "" {
		line += ", build id " + l.BuildID
	}
	if l.Deleted {
		line += ", file replaced or removed since (the mapped one is used)"
	}
	return line
}

func (d *driver) writeText(w io.Writer) {
	fmt.Fprintf(w, "\nDriver %s", report.Printable(d.library.String()))
	if d.Version != "" {
		fmt.Fprintf(w, ", version %s", d.Version)
	}
	if d.Static {
		fmt.Fprint(w, ", linked in and not exported")
	}
	fmt.Fprintf(w, ": %d functions\n", len(d.Sites))
	rows := [][]string{{"FUNCTION", "GROUP", "OFFSET", "PROBE", "CODE", "COST OF A CALL"}}
	for _, s := range d.Sites {
		rows = append(rows, []string{
			strings.Join(append([]string{s.Symbol}, s.Aliases...), " = "),
			s.Group, fmt.Sprintf("%#x", s.Entry), fmt.Sprintf("+%d", s.Probe), s.Class, s.cost(),
		})
	}
	columns(w, rows)
}

func (s *site) cost() string {
	if s.CostNS == nil {
		return ""
	}
	return fmt.Sprintf("%.2f µs", *s.CostNS/1e3)
}

func (d *diagnosis) writeVerdict(w io.Writer) {
	fmt.Fprintln(w)
	switch {
	case !d.Works:
		for _, problem := range d.Problems {
			fmt.Fprintf(w, "Problem: %s\n", printableLines(problem))
		}
	case d.Process == nil:
		fmt.Fprintln(w, "record can work here; --pid says what it would do to a process")
	default:
		fmt.Fprintf(w, "record can work: %d functions of process %d would be probed\n", d.Process.sites(), d.Process.PID)
	}
}
