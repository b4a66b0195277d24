package gil

import "golang.org/x/sys/unix"

// threadRegister reads the thread pointer of a thread that this one traces and that is stopped.
func threadRegister(tid int) (uint64, error) {
	var regs unix.PtraceRegsArm64
	err := unix.PtraceGetRegSetArm64(tid, unix.NT_ARM_TLS, &regs)
	return regs.Regs[0], err
}
