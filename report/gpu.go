package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
)

// GPU lists what NVML said of each device, below a title; nothing when there
// is nothing to say.
func GPU(l *correlate.Ledger) (title string, notes [][]string) {
	r := l.Source
	if r.GPU == nil {
		if r.GPUNote != "" {
			notes = [][]string{{"not read: " + printable(r.GPUNote)}}
		}
		return "GPU", notes
	}
	for _, d := range r.GPU.Devices {
		items := []string{
			fmt.Sprintf("%.0f%% busy", d.UtilizationPct),
			fmt.Sprintf("%s of %s used", size(d.MemoryUsed), size(d.MemoryTotal)),
			fmt.Sprintf("%.0f W", d.PowerW),
		}
		if d.EnergyJ > 0 {
			items = append(items, joules(d.EnergyJ))
		}
		notes = append(notes, []string{fmt.Sprintf("%d %s", d.Index, printable(d.Name)), strings.Join(items, ", ")})
		notes = append(notes, deviceNotes(&d)...)
	}
	if r.GPUNote != "" {
		notes = append(notes, []string{"note", printable(r.GPUNote)})
	}
	return fmt.Sprintf("GPU (by NVML, driver %s)", printable(r.GPU.Driver)), notes
}

// deviceNotes say what not every device tells.
func deviceNotes(d *recording.Device) (notes [][]string) {
	add := func(name string, items []string) {
		if len(items) > 0 {
			notes = append(notes, []string{name, strings.Join(items, ", ")})
		}
	}
	var clocks, limits, target []string
	for _, c := range []struct {
		name string
		mhz  float64
	}{{"graphics", d.GraphicsClockMHz}, {"SM", d.SMClockMHz}, {"memory", d.MemoryClockMHz}} {
		if c.mhz > 0 {
			clocks = append(clocks, fmt.Sprintf("%s %.0f MHz", c.name, c.mhz))
		}
	}
	for _, l := range d.ClockLimits {
		share := 100 * float64(l.Samples) / float64(max(d.Samples, 1))
		limits = append(limits, fmt.Sprintf("%s in %.0f%% of the readings", printable(strings.ReplaceAll(l.Reason, "_", " ")), share))
	}
	if p := d.Process; p != nil && p.UtilizationPct != nil {
		target = append(target, fmt.Sprintf("%.0f%% busy", *p.UtilizationPct))
	}
	if p := d.Process; p != nil && p.MemoryUsed != nil {
		target = append(target, size(*p.MemoryUsed)+" used")
	}
	add("  clocks", clocks)
	add("  lower because of", limits)
	add("  this process", target)
	return notes
}

func joules(j float64) string {
	return threeDigits(j, []unit{{"J", 1, 9999.5}, {"kJ", 1e3, 9999.5}, {"MJ", 1e6, math.Inf(1)}})
}

func (t *text) writeGPU() {
	title, notes := GPU(t.ledger)
	if len(notes) > 0 {
		t.printf("\n%s\n", title)
		t.writeNotes(notes)
	}
	t.writeDeviceStages()
}

// writeDeviceStages writes what the devices did while each stage was open. All
// of them together make one row; with --full each has one of its own below it.
func (t *text) writeDeviceStages() {
	l := t.ledger
	if len(l.Devices) == 0 {
		return
	}
	devices := &table{titles: []string{"GPU WHILE A STAGE IS OPEN", "OPEN", "BUSY", "POWER", "ENERGY"}}
	for rest := l.Devices; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Path.Joined == rest[0].Path.Joined {
			n++
		}
		devices.rows = append(devices.rows, deviceRow(printable(rest[0].Path.Joined), 0, together(rest[:n])))
		for i := range rest[:n] {
			if n > 1 && t.full {
				devices.rows = append(devices.rows, deviceRow(fmt.Sprintf("GPU %d", rest[i].Device), 1, rest[i]))
			}
		}
		rest = rest[n:]
	}
	t.printf("\n")
	devices.write(&t.Builder, t.width)
	writeWords(&t.Builder, deviceStagesNote(l), "", "", t.width)
}

func deviceRow(name string, depth int, s correlate.DeviceStage) row {
	energy := missing
	if s.EnergyJ > 0 {
		energy = joules(s.EnergyJ)
	}
	return row{depth: depth, cells: []string{
		name, duration(s.OpenNS), fmt.Sprintf("%.0f%%", s.UtilizationPct), fmt.Sprintf("%.0f W", s.PowerW), energy,
	}}
}

// together is several devices as one: busy as they are in the mean, with the
// power and the energy of all.
func together(devices []correlate.DeviceStage) (all correlate.DeviceStage) {
	for i := range devices {
		d := &devices[i]
		all.OpenNS = max(all.OpenNS, d.OpenNS)
		all.UtilizationPct += d.UtilizationPct / float64(len(devices))
		all.PowerW += d.PowerW
		all.EnergyJ += d.EnergyJ
	}
	return all
}

func deviceStagesNote(l *correlate.Ledger) string {
	note := "Joined by time only, in NVML's own periods, a fraction of a second or more each: it is what the devices did meanwhile, for whomever. Stages that were open at the same time have the same busy time and energy."
	if slices.ContainsFunc(l.Losses, func(loss recording.Loss) bool { return loss.Reason == recording.LossSpansNotKept }) {
		note += " OPEN is of those spans only that were kept one by one."
	}
	return note
}
