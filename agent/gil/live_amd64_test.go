package gil

import "golang.org/x/sys/unix"

// threadRegister reads the thread pointer of a thread that this one traces and that is stopped.
func threadRegister(tid int) (uint64, error) {
	var regs unix.PtraceRegs
	err := unix.PtraceGetRegs(tid, &regs)
	return regs.Fs_base, err
}
