package serve

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"stageprof/correlate"
	"stageprof/export"
	"stageprof/recording"
	"stageprof/report"
)

// described is a family's name, help and label names.
type described struct {
	name, help string
	labels     []string
}

var callLabels = []string{"stage", "symbol", "gil", "attribution"}

var counters = [families]described{
	driverCalls:      {"stageprof_driver_calls_total", "CUDA driver calls that have returned.", callLabels},
	driverSeconds:    {"stageprof_driver_seconds_total", "Host time inside CUDA driver calls, without the probes' own.", callLabels},
	driverCPUSeconds: {"stageprof_driver_cpu_seconds_total", "The part of stageprof_driver_seconds_total that the thread was on a CPU.", callLabels},
	driverErrors:     {"stageprof_driver_errors_total", "CUDA driver calls that returned an error.", callLabels},
	driverBytes:      {"stageprof_driver_requested_bytes_total", "Bytes that successful CUDA driver calls asked for.", callLabels},
	gilWaitCaused:    {"stageprof_gil_wait_caused_seconds_total", "Time of other threads waiting for the GIL, while CUDA driver calls had it held.", []string{"stage", "symbol", "attribution"}},
	stagePartSeconds: {"stageprof_stage_part_seconds_total", "Time of threads in a stage, outside the stages inside it, by what they did.", []string{"stage", "part"}},
	stageSeconds:     {"stageprof_stage_seconds_total", "Wall time of spans of a stage, the stages inside it included.", []string{"stage"}},
	stageSpans:       {"stageprof_stage_spans_total", "Spans of a stage that have ended.", []string{"stage"}},
	callsSeen:        {"stageprof_driver_calls_seen_total", "CUDA driver calls that have begun.", nil},
	lost:             {"stageprof_lost_total", "What was seen and could not be accounted.", []string{"kind", "reason"}},
	probeSeconds:     {"stageprof_probe_seconds_total", "Time that the probes have cost the target, by calibration.", nil},
	recordedSeconds:  {"stageprof_recorded_seconds_total", "Time during which a target was recorded.", nil},
}

// The metrics that are no sums over targets.
var (
	targetUp   = desc("stageprof_target_up", "Whether a process is being recorded.")
	targetInfo = desc("stageprof_target_info", "The process that is being recorded.", "pid", "comm", "rank")
	targets    = desc("stageprof_targets_total", "Processes that were recorded, the present one included.")
	inFlight   = desc("stageprof_driver_calls_in_flight", "CUDA driver calls that are running.")
	kernel     = desc("stageprof_kernel_memory_bytes", "Memory of the kernel's tables.")
	build      = desc("stageprof_build_info", "The version of stageprof.", "version")

	exported       = desc("stageprof_export_profiles_total", "Profiles of intervals by what became of them: sent, refused by the receiver, or dropped before they arrived.", "result")
	exportWaiting  = desc("stageprof_export_profiles_waiting", "Profiles that wait to be sent, the one being sent included.")
	exportFailures = desc("stageprof_export_failures_total", "Tries to send a profile that did not work.")
	exportLastSent = desc("stageprof_export_last_sent_timestamp_seconds", "When a profile arrived last.")

	gpuLabels      = []string{"gpu", "uuid", "name"}
	gpuUtilization = desc("stageprof_gpu_utilization_ratio", "Share of NVML's sampling period in which some kernel of any process ran.", gpuLabels...)
	gpuMemoryUsed  = desc("stageprof_gpu_memory_used_bytes", "Memory allocated on the device, by any process.", gpuLabels...)
	gpuMemory      = desc("stageprof_gpu_memory_bytes", "Memory of the device.", gpuLabels...)
	gpuPower       = desc("stageprof_gpu_power_watts", "The board's draw.", gpuLabels...)
	gpuClock       = desc("stageprof_gpu_clock_hertz", "A clock of the device at NVML's last reading: sm, graphics, memory.", append([]string{"clock"}, gpuLabels...)...)
	gpuLimited     = desc("stageprof_gpu_clock_limited", "Whether the driver gave this reason for lower clocks at NVML's last reading.", append([]string{"reason"}, gpuLabels...)...)
	gpuTargetUsed  = desc("stageprof_gpu_target_memory_used_bytes", "Memory that the process that is being recorded has allocated on the device.", gpuLabels...)
	gpuTargetBusy  = desc("stageprof_gpu_target_utilization_ratio", "Utilization of the device's multiprocessors by the process that is being recorded, by NVML's sampling.", gpuLabels...)
	gpuEnergy      = desc("stageprof_gpu_energy_joules_total", "Energy since the server began.", gpuLabels...)
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector makes a scrape of what the follower knows.
type collector struct {
	*Server
	families [families]*prometheus.Desc
}

func newCollector(s *Server) *collector {
	c := &collector{Server: s}
	for f, d := range counters {
		c.families[f] = desc(d.name, d.help, d.labels...)
	}
	return c
}

// Describe announces nothing: what there is depends on the target and on NVML.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
		}
		m, err := prometheus.NewConstMetric(d, kind, v, labels...)
		if err != nil {
			m = prometheus.NewInvalidMetric(d, err)
		}
		ch <- m
	}
	send(build, prometheus.GaugeValue, 1, c.config.Version)
	pid := -1 // of nobody
	err := c.follower.counters(func(s *sums, l *correlate.Ledger, up bool, n int) {
		s.each(func(f family, key labels, v float64) {
			send(c.families[f], prometheus.CounterValue, v, append([]string(nil), key[:len(counters[f].labels)]...)...)
		})
		send(targets, prometheus.CounterValue, float64(n))
		send(targetUp, prometheus.GaugeValue, truth(up))
		if l != nil {
			collectTarget(send, l.Source, up)
		}
		if up && l != nil {
			pid = l.Source.Target.PID
		}
	})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(targetUp, err)
	}
	if c.config.Export != nil {
		collectExport(send, c.config.Export.Sender.Counts())
	}
	if c.config.GPU != nil {
		collectGPU(send, c.config.GPU.Latest(pid))
	}
}

type sender func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string)

func collectTarget(send sender, r *recording.Recording, up bool) {
	running := uint64(0)
	for _, loss := range r.Losses {
		if up && loss.Reason == recording.LossInFlight {
			running = loss.Count
		}
	}
	send(inFlight, prometheus.GaugeValue, float64(running))
	if up {
		send(targetInfo, prometheus.GaugeValue, 1, strconv.Itoa(r.Target.PID), report.Printable(r.Target.Comm), strconv.Itoa(r.Target.Rank))
		send(kernel, prometheus.GaugeValue, float64(r.Overhead.KernelBytes))
	}
}

func collectExport(send sender, c export.Counts) {
	for result, n := range map[string]uint64{"sent": c.Sent, "refused": c.Refused, "dropped": c.Dropped} {
		send(exported, prometheus.CounterValue, float64(n), result)
	}
	send(exportWaiting, prometheus.GaugeValue, float64(c.Waiting))
	send(exportFailures, prometheus.CounterValue, float64(c.Failures))
	if !c.LastSent.IsZero() {
		send(exportLastSent, prometheus.GaugeValue, float64(c.LastSent.UnixMilli())/1e3)
	}
}

func collectGPU(send sender, g *recording.GPU) {
	for _, d := range g.Devices {
		id := []string{strconv.Itoa(d.Index), d.UUID, d.Name}
		gauge := func(desc *prometheus.Desc, v float64, first ...string) {
			send(desc, prometheus.GaugeValue, v, append(first, id...)...)
		}
		gauge(gpuMemory, float64(d.MemoryTotal))
		if d.Samples == 0 {
			continue
		}
		gauge(gpuUtilization, d.UtilizationPct/100)
		gauge(gpuMemoryUsed, float64(d.MemoryUsed))
		gauge(gpuPower, d.PowerW)
		send(gpuEnergy, prometheus.CounterValue, d.EnergyJ, append([]string(nil), id...)...)
		for clock, mhz := range map[string]float64{"graphics": d.GraphicsClockMHz, "sm": d.SMClockMHz, "memory": d.MemoryClockMHz} {
			if mhz > 0 {
				gauge(gpuClock, mhz*1e6, clock)
			}
		}
		for _, l := range d.ClockLimits {
			gauge(gpuLimited, float64(l.Samples), l.Reason)
		}
		if p := d.Process; p != nil && p.MemoryUsed != nil {
			gauge(gpuTargetUsed, float64(*p.MemoryUsed))
		}
		if p := d.Process; p != nil && p.UtilizationPct != nil {
			gauge(gpuTargetBusy, *p.UtilizationPct/100)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
