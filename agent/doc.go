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
package agent
