// Package target reads everything that stageprof knows about the process it attaches to, from
// outside and without stopping it: identity, memory mappings, threads, environment, memory, and
// the mapped files that matter (the CUDA driver and the marker library).
//
// # Vocabulary
//
//   - target: one process incarnation, pid + start time. A [Process] holds its /proc directory
//     and a pidfd open, so a later process that gets the same number is never taken for it.
//   - mapping: one line of /proc/PID/maps.
//   - mapped file: the inode behind a mapping, opened once and kept. What is *mapped* counts,
//     not what now lies at the path: libraries get replaced, and containers have their own paths.
//   - image: a mapped ELF file with all its mappings.
//   - driver: an image that defines the CUDA driver API, whatever its name.
//
// # Cost for the target
//
// The kernel produces /proc/PID/maps in pieces of a page (some forty mappings) per read call,
// whatever the size of the reader's buffer, and lets go of the target's mappings between the
// pieces. So a target with 20 000 mappings is held up a little several hundred times rather
// than once for long. Nothing here reads smaps, which walks page tables, and nothing sends
// signals or uses ptrace.
package target
