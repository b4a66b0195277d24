// Package agent records a running process: it attaches probes to the CUDA
// driver and the stage markers that the process has mapped, lets the kernel
// side (package bpf) count for the length of a window, takes the probes off
// and yields a recording.Recording.
//
// The data flows one way:
//
//	target.Process -> Plan -> attached probes -> BPF maps -> Recording
//
// The target is only ever read: it is not stopped, traced or injected into,
// and it sees no file of ours.
//
// Record does all of it. For a window that is open for long, Open gives a
// Session, whose Snapshot says what was seen so far, as often as wanted, while
// one goroutine is in Wait:
//
//	session, err := agent.Open(ctx, agent.Config{PID: pid, Live: true})
//	…
//	go func() { final, err = session.Wait(ctx); close(done) }()
//	before, err := session.Snapshot()
//	…
//	after, err := session.Snapshot()
//	interval, err := correlate.Since(before, after)
//	…
//	<-done
//	err = session.Close()
//
// Both execute this program twice more: as a child that the probes' cost is measured on, and
// as the keeper that puts them in and takes them off. So main begins with
//
//	if calibrate.Target() || keeper.Run() {
//		return
//	}
//
// A Snapshot holds totals since the window's start, as if it had ended now. In
// Live mode memory is bounded however long the window is: the latest 16,384
// spans are kept one by one; the rows of threads that have ended leave the
// kernel's tables within a second, and once there are more than 2,048 of them
// those of the oldest half are added up in one row per stage and function, of
// the thread that is Folded. In other windows the rows are taken once some
// hundred to two thousand threads have begun, and added up when there are more than 65,536.
package agent
