// Package filelock locks files by open file description locks of Linux. The kernel releases such a lock when
// the last descriptor of the open file is closed, at the latest at the end of the process. Unlike the locks of
// flock, only a process that may write the file can hold its write lock, and others can see the lock without
// taking it.
package filelock
