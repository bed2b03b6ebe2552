package clibtest

import "syscall"

// thread is the operating system's number of the calling thread: a context is
// current in a thread, and a goroutine that does not hold its thread may wake up
// in another.
func thread() int { return syscall.Gettid() }
