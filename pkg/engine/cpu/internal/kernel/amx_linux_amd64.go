package kernel

import "syscall"

// requestAMXPermission asks Linux to let the threads of this process use the tile registers, which
// enlarge the state of a thread by 8 KiB, and reports whether they may. See "Using XSTATE
// features in user space applications" in the documentation of Linux.
func requestAMXPermission() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
}
