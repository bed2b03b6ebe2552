package clibtest

import "syscall"

// thread returns the operating system's number of the calling thread. A context is current
// in one thread, and a goroutine that is not locked to its thread may continue in another.
func thread() int { return syscall.Gettid() }
