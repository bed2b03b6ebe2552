package clibtest

import "syscall"

// threadID returns the ID of the calling thread. A context is current in one thread, and a
// goroutine that is not locked to its thread may continue in another one.
func threadID() int { return syscall.Gettid() }
