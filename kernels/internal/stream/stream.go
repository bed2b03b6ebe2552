// Package stream carries what a cell prints to the notebook, live and in order.
//
// A Pipe stands in place of os.Stdout or os.Stderr for the kernel's whole life,
// so that a goroutine that outlives its cell, a logger that was made in one
// cell and used in another and a child process all keep a file that works. What
// is written to it goes to the Pipe's writer at once; Flush waits until that
// has happened, so that a figure shown after a line of text stands after it.
package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"unicode/utf8"
)

// A Pipe copies what is written to its File to a writer.
type Pipe struct {
	r, w *os.File
	conn syscall.RawConn

	mu   sync.Mutex // held from reading a piece until it was passed on
	out  io.Writer
	part []byte // first bytes of a character whose rest was not written yet
	buf  []byte
}

// Open returns a Pipe that passes on to out. It copies until the last holder of
// the write end has closed it.
func Open(out io.Writer) (*Pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open output pipe: %w", err)
	}
	conn, err := r.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open output pipe: %w", err), r.Close(), w.Close())
	}
	p := &Pipe{r: r, w: w, conn: conn, out: out, buf: make([]byte, 64<<10)}
	go p.copy()
	return p, nil
}

// File is what to print to.
func (p *Pipe) File() *os.File { return p.w }

// SetOutput makes what is printed from now on go to out. What was printed
// before goes where it belongs first.
func (p *Pipe) SetOutput(out io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	p.out = out
}

// Flush returns when everything that was printed before the call was passed on.
func (p *Pipe) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
}

// Close closes the write end. What is still in the pipe is passed on first.
func (p *Pipe) Close() error {
	p.Flush()
	return p.w.Close()
}

// copy passes on whatever comes until the end of the file.
func (p *Pipe) copy() {
	for end := false; !end; {
		// The function is called when there is something to read, and asked
		// again when it says that there was nothing.
		err := p.conn.Read(func(fd uintptr) (done bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			n, err := syscall.Read(int(fd), p.buf)
			switch {
			case errors.Is(err, syscall.EAGAIN):
				return false
			case errors.Is(err, syscall.EINTR):
				return true
			case n <= 0:
				end = true
				return true
			}
			p.pass(p.buf[:n])
			return true
		})
		if err != nil {
			end = true
		}
	}
	_ = p.r.Close() // nothing can be done about it, and nothing is lost
}

// drain passes on what lies in the pipe now. The caller holds mu, so that no
// piece is between the pipe and the writer.
func (p *Pipe) drain() {
	// An error means that the pipe is closed, and then it is empty.
	_ = p.conn.Control(func(fd uintptr) {
		for {
			n, err := syscall.Read(int(fd), p.buf)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			p.pass(p.buf[:n])
		}
	})
}

// pass writes b to the output, but for the first bytes of a character that is
// not complete: they wait for the rest, since a message of its own would show
// them as garbage.
func (p *Pipe) pass(b []byte) {
	b = append(p.part, b...)
	cut := len(b) - incomplete(b)
	p.part = append([]byte(nil), b[cut:]...)
	if cut > 0 {
		// The notebook is gone if this fails; the cell goes on without it.
		_, _ = p.out.Write(b[:cut])
	}
}

// incomplete returns how many bytes at the end of b begin a character that is
// not complete.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
