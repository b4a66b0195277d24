package agent

import (
	"fmt"
	"time"

	"stageprof/bpf"

	"github.com/cilium/ebpf/features"
)

// A program on a tracepoint can be preempted from Linux 7.0 on, and the kernel skips
// it for another thread that comes to the tracepoint on that CPU meanwhile. So there
//
//   - markers are not announced: their probes are never skipped;
//   - the begins and ends of threads have five programs each: a thread is missed by
//     one only while another one is preempted in it, and by all only while five are,
//     on one CPU. With two a thread in some hundred was, where many end at a time and
//     the CPU is slow. Those that are missed are counted: the kernel side knows of the ones
//     that it has not seen begin, and those that end unseen are gone without a word;
//   - the name of a thread can be an earlier one;
//   - a thread may not be through with its own end when the window is over.
//
// Switches and wake-ups are never skipped: these tracepoints are passed with the
// scheduler's lock held, where nobody is preempted.

const firstThatSkips = 7 << 16 // 7.0, as the kernel writes versions

func kernelSkips() (bool, error) {
	version, err := features.LinuxVersionCode()
	if err != nil {
		return false, fmt.Errorf("asking for the kernel's version: %w", err)
	}
	return version >= firstThatSkips, nil
}

// endPatience is how long a preempted thread can take to be through with its end, with
// room for a busy machine. Only if the kernel has skipped one it is used up.
const endPatience = time.Second

// awaitEnds waits until no end is unseen, or for so long: a thread that was preempted
// while its end is noted is neither there any more nor known to have ended, and what
// it had open is in no row yet.
func (d *drain) awaitEnds(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := d.readThreads(); err != nil {
			return err
		}
		if d.unseenEnds() == 0 || time.Now().After(deadline) {
			return nil
		}
	}
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
	if d.complete {
		d.addLoss(reasonEndUnseen, "other", d.unseenEnds(),
			"the kernel skipped the program that notes the ends of threads: what the threads had open, and their time outside any stage, is missing")
	}
}
