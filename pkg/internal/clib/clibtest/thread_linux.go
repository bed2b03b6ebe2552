package clibtest

import "syscall"

// thread returns the ID of the calling thread. A context is current in one thread, and a
// goroutine that is not locked to its thread may continue in another one.
func thread() int { return syscall.Gettid() }
