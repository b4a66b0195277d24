// Package elfsym reads the few things stageprof needs from the ELF files that a target has
// mapped: symbols, build ids, notes, address translation, and the best place for a probe.
//
// The files belong to the target, so nothing in them is trusted: every table, string, count
// and offset is bounded by the file's size and by the limits below, arithmetic is checked for
// overflow, and a malformed file yields [ErrBadELF], never a panic, a loop or a large
// allocation. Reads go through a small page cache, so looking one symbol up by hash touches a
// handful of pages even in a library of more than a gigabyte.
//
// Only 64-bit little-endian files are read: the CUDA driver exists for nothing else.
//
// # Vocabulary
//
//   - vaddr: an address as the file states it, before the loader adds its bias
//   - offset: a position in the file; what the kernel wants for a uprobe
//   - entry: the first instruction of a function
//   - site: the instruction the probe sits on; entry + skip
//   - class: how the kernel executes the instruction under the probe (see [Class])
package elfsym
