package clibtest

import "syscall"

// threadID returns the ID of the calling thread. A CUDA context is current in one thread, but a
// goroutine that is not locked to its thread may move to another one.
func threadID() int { return syscall.Gettid() }
