package agent

import "stageprof/bpf"

// A program on a tracepoint can be preempted from Linux 7.0 on, and the kernel skips
// it for another thread that comes to the tracepoint on that CPU meanwhile. What it
// has not seen then:
//
//   - A switch or a wake-up: never. These tracepoints are passed with the scheduler's
//     lock held, where nobody is preempted.
//   - The begin of a thread. The kernel side counts threads that it does not know.
//   - The end of a thread. The thread is gone, and nothing says that it has ended.
//   - The name of a thread, which is then an earlier one.
//   - An announced marker. If both of a span's are skipped nothing shows it, so the
//     kernel's own count of skips is told.

// skippedMarkers is how often the kernel has skipped the program of announced markers
// so far. Some of these can have been markers of another process that is recorded.
func (s *Session) skippedMarkers() uint64 {
	if s.objects.MarkerAnnounced == nil {
		return 0
	}
	stats, err := s.objects.MarkerAnnounced.Stats()
	if err != nil { // a kernel that keeps no count skips nothing
		return 0
	}
	return stats.RecursionMisses
}

// unseenEnds is how many threads are gone without their end having been seen.
func (d *drain) unseenEnds() (n uint64) {
	there := map[uint32]bool{}
	for i := range d.states {
		there[d.states[i].Serial] = true
	}
	for serial, info := range d.info {
		if bpf.ProbeThreadEnd(info.Ended) == bpf.ProbeThreadEndTHREAD_RUNS && !there[serial] {
			n++
		}
	}
	return n
}

func (d *drain) addSkipped() {
	d.addLoss(reasonMarkersSkipped, "other", d.skippedMarkers()-d.skippedBefore,
		"the kernel skipped the program that notes announced markers: at most so many begins and ends of stages were not seen")
	if d.complete {
		d.addLoss(reasonEndUnseen, "other", d.unseenEnds(),
			"the kernel skipped the program that notes the ends of threads: what the threads had open, and their time outside any stage, is missing")
	}
}
