//go:build unix

package wire

import (
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerHasEnded reports whether the process at the other end of c no longer sends: it has closed the
// connection, or the kernel has given the connection up. Data may still be left to read.
func PeerHasEnded(c net.Conn) bool {
	s, ok := unwrapTLS(c).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var events int16
	if runtime.GOOS == "linux" {
		events = 0x2000 // POLLRDHUP of poll(2); other systems report POLLHUP, unasked
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(fds, 0)
		ended = err == nil && n > 0 && fds[0].Revents&(events|unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && ended
}
