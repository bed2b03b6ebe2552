// Package stream passes on what a cell prints to the notebook, immediately and in order.
//
// A Pipe replaces os.Stdout or os.Stderr as long as the kernel runs. Its file therefore stays valid for a
// goroutine that outlives its cell, for a logger in several cells and for child processes. The Pipe passes
// data on at once. Flush waits until this is done, so that a figure appears after the text that was printed
// before it.
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

// A Pipe passes data from its File on to an io.Writer.
type Pipe struct {
	r, w *os.File
	conn syscall.RawConn

	mu   sync.Mutex // held while data is read and passed on
	out  io.Writer
	part []byte // first bytes of an incomplete character
	buf  []byte
}

// Open returns a Pipe to out. It ends when its File, and every copy of it in a child process, is closed.
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
	go p.copyToOutput()
	return p, nil
}

// File returns the file to print to.
func (p *Pipe) File() *os.File { return p.w }

// SetOutput changes the writer for data that is printed after the call.
func (p *Pipe) SetOutput(out io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	p.out = out
}

// Flush waits until all data that was printed before the call has been passed on.
func (p *Pipe) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
}

// Close closes the File, after passing on the data in the pipe.
func (p *Pipe) Close() error {
	p.Flush()
	return p.w.Close()
}

func (p *Pipe) copyToOutput() {
	for end := false; !end; {
		// Read calls the function when data is available, and again after it has returned
		// false.
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
			p.writeCompleteCharacters(p.buf[:n])
			return true
		})
		if err != nil {
			end = true
		}
	}
	_ = p.r.Close() // nothing is lost if this fails
}

// drain passes on the data in the pipe. The caller must hold mu, so that no data is between the pipe and the
// writer.
func (p *Pipe) drain() {
	// An error means that the pipe is closed, and then it contains no data.
	_ = p.conn.Control(func(fd uintptr) {
		for {
			n, err := syscall.Read(int(fd), p.buf)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			p.writeCompleteCharacters(p.buf[:n])
		}
	})
}

// writeCompleteCharacters writes b, but keeps the bytes of an incomplete character at the end, which the
// notebook would show as garbage, until the character is complete.
func (p *Pipe) writeCompleteCharacters(b []byte) {
	b = append(p.part, b...)
	cut := len(b) - incompleteSuffixLength(b)
	p.part = append([]byte(nil), b[cut:]...)
	if cut > 0 {
		// A write fails if the notebook is closed; the cell continues without it.
		_, _ = p.out.Write(b[:cut])
	}
}

// incompleteSuffixLength returns how many bytes at the end of b begin an incomplete character.
func incompleteSuffixLength(b []byte) int {
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
