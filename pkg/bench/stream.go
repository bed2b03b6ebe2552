package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"unsafe"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// tcpStream is one end of a TCP connection between two processes, which measures the limit of an all-reduce over
// TCP. To add up a buffer, each of two ranks must send and receive as many bytes as it has. A stream does so
// with one large blocking read and one write at a time, and does nothing else.
type tcpStream struct {
	file *os.File
	got  []float32 // receives the numbers of the other rank
}

// connectStream connects the two ranks of group by TCP. Rank 0 listens, and sends its port through group.
func connectStream(ctx context.Context, group collective.Group) (_ *tcpStream, err error) {
	if group.Size() != 2 {
		return nil, fmt.Errorf("connect stream: got %d workers, want 2", group.Size())
	}
	var conn net.Conn
	port := device.Buffer{F64: []float64{0}}
	if group.Rank() == 0 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("connect stream: %w", err)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		port.F64[0] = float64(l.Addr().(*net.TCPAddr).Port)
		if err := group.Broadcast(ctx, port, 0); err != nil {
			return nil, err
		}
		conn, err = l.Accept()
		if err != nil {
			return nil, fmt.Errorf("connect stream: %w", err)
		}
	} else {
		if err := group.Broadcast(ctx, port, 0); err != nil {
			return nil, err
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port.F64[0]))))
		if err != nil {
			return nil, fmt.Errorf("connect stream: %w", err)
		}
	}
	file, err := conn.(*net.TCPConn).File()
	if err = errors.Join(err, conn.Close()); err != nil {
		return nil, fmt.Errorf("connect stream: %w", err)
	}
	file.Fd() // makes reads and writes block
	return &tcpStream{file: file}, nil
}

// exchange sends b to the other rank and receives as many numbers. If add is true, it adds them to b.
func (s *tcpStream) exchange(b []float32, add bool) error {
	if len(s.got) != len(b) {
		s.got = make([]float32, len(b))
	}
	sent := make(chan error)
	go func() {
		_, err := s.file.Write(float32Bytes(b))
		sent <- err
	}()
	_, err := io.ReadFull(s.file, float32Bytes(s.got))
	if err = errors.Join(err, <-sent); err != nil {
		return fmt.Errorf("exchange %d bytes: %w", len(float32Bytes(b)), err)
	}
	if add {
		for i, v := range s.got {
			b[i] += v
		}
	}
	return nil
}

func float32Bytes(b []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b))), 4*len(b))
}
