package wire

import (
	"bufio"
	"errors"
	"net"
	"os"
	"time"
)

// WaitCheckInterval is the time between two checks of the context, the time-out and the sender. It
// is the same as for shared memory.
const WaitCheckInterval = 50 * time.Millisecond

// ReaderBufferBytes is the size of the buffer from which frames are read. Larger reads bypass it.
const ReaderBufferBytes = 4096

// GrowBuffers enlarges a unix socket's buffers, so that several pieces fit. TCP adapts
// its buffers itself.
func GrowBuffers(c net.Conn) error {
	u, ok := unwrapTLS(c).(*net.UnixConn)
	if !ok {
		return nil
	}
	const bufferBytes = 1 << 20 // the kernel may limit it
	return errors.Join(u.SetReadBuffer(bufferBytes), u.SetWriteBuffer(bufferBytes))
}

// The kernels of two neighbors exchange keep-alive probes on an idle TCP connection. If a
// host is gone, its connections end after keepAliveInterval × (1 + keepAliveCount), less
// than 10 s (environment/adr/008). The kernel also answers for a process that is stopped or
// busy; such a process is reported as missing after Options.Timeout.
const (
	keepAliveInterval = time.Second
	keepAliveCount    = 7
)

// EnableKeepAlive makes the kernel notice when the host at the other end of c is gone.
func EnableKeepAlive(c net.Conn) error {
	t, ok := unwrapTLS(c).(*net.TCPConn)
	if !ok {
		return nil // both ends are on this host
	}
	return t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAliveInterval, Interval: keepAliveInterval, Count: keepAliveCount})
}

// unwrapTLS returns the connection below c if c is encrypted, and otherwise c.
func unwrapTLS(c net.Conn) net.Conn {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok { // such as *tls.Conn
		return s.NetConn()
	}
	return c
}

// ErrConnectionEnded is the error of ReadFull for a connection that has ended.
var ErrConnectionEnded = errors.New("the connection has ended")

// ReadFull receives len(p) bytes into p. reader reads from conn. It calls progressed when bytes
// have arrived, and check every WaitCheckInterval while none arrive; an error of check ends the
// wait.
func ReadFull(conn net.Conn, reader *bufio.Reader, p []byte, progressed func(), check func() error) error {
	for len(p) > 0 {
		n, err := reader.Read(p)
		p = p[n:]
		if n > 0 {
			progressed()
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := check(); err != nil {
				return err
			}
			if err := conn.SetReadDeadline(time.Now().Add(WaitCheckInterval)); err != nil {
				return ErrConnectionEnded
			}
		default:
			return ErrConnectionEnded
		}
	}
	return nil
}
