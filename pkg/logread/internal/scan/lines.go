package scan

import (
	"bytes"
	"errors"
	"io"
)

const (
	// MaxLine is the length in bytes after which the rest of a line is skipped.
	MaxLine = 1 << 20
	// chunk is the number of bytes read at once.
	chunk = 1 << 18
)

// Lines reads a text line by line, without copies and in bounded memory.
// Readers of usual lines may also take bytes from Buf[Start:End] themselves.
type Lines struct {
	Source    io.Reader
	Buf       []byte
	Start     int // where the next line begins in Buf
	End       int
	Number    int  // of the line that Next returned, from 1
	Ended     bool // the line had a line end
	TooLong   bool // the line was longer than MaxLine
	eof       bool
	Err       error // of reading, not of the content
	HasCR     bool  // the text searched so far has a \r
	looked    int   // end in Buf of the text searched for \r
	size      int64 // of the whole text; 0 if unknown
	BytesRead int64 // from Source
}

// NewLines returns a reader of the lines of r. size is the length of the text,
// or 0 if it is unknown.
func NewLines(r io.Reader, size int64) *Lines {
	n := int64(chunk)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	return &Lines{Source: r, Buf: make([]byte, n), size: size}
}

// Next returns the next line without its end (\n or \r\n), or false at the end
// of the text. The line is valid until the next call.
func (l *Lines) Next() ([]byte, bool) {
	if l.looked < l.End {
		l.look()
	}
	if i := bytes.IndexByte(l.Buf[l.Start:l.End], '\n'); i >= 0 { // usually
		line := l.Buf[l.Start : l.Start+i]
		l.Start += i + 1
		return l.line(line, true, false), true
	}
	return l.last()
}

// Continue continues with r after everything that was read.
func (l *Lines) Continue(r io.Reader) { l.Source, l.eof = r, false }

// look searches the text that was not searched yet for \r. It skips what
// another reader has taken from Buf, since that has none.
func (l *Lines) look() {
	l.HasCR = l.HasCR || bytes.IndexByte(l.Buf[max(l.Start, l.looked):l.End], '\r') >= 0
	l.looked = l.End
}

// last returns a line that ends after what is in Buf.
func (l *Lines) last() ([]byte, bool) {
	searched := l.End
	for {
		if i := bytes.IndexByte(l.Buf[searched:l.End], '\n'); i >= 0 {
			line := l.Buf[l.Start : searched+i]
			l.Start = searched + i + 1
			return l.line(line, true, false), true
		}
		searched = l.End
		if l.End-l.Start >= MaxLine {
			line := l.Buf[l.Start:l.End]
			l.Start = l.End
			return l.line(line, l.skip(), true), true
		}
		if l.eof {
			line := l.Buf[l.Start:l.End]
			l.Start = l.End
			if len(line) == 0 {
				return nil, false
			}
			return l.line(line, false, false), true
		}
		searched -= l.fill()
		l.look()
	}
}

// line counts a line and returns it without \r.
func (l *Lines) line(text []byte, ended, cut bool) []byte {
	l.Number++
	l.Ended, l.TooLong = ended, cut
	if n := len(text); l.HasCR && n > 0 && text[n-1] == '\r' {
		text = text[:n-1]
	}
	return text
}

// Room returns for how many more values to allocate memory after n values have been read.
// It extrapolates from the bytes read to the size of the text. The size may be wrong, so
// the result is at most 15 n for small n and 255 n for large n. If the size is unknown, it
// returns n.
func (l *Lines) Room(n int) int {
	more := n
	if taken := l.BytesRead - int64(l.End-l.Start); l.size > taken && taken > 0 {
		rest := float64(n) * 1.05 * float64(l.size-taken) / float64(taken)
		most := 15 * float64(n)
		if n >= 4096 {
			most = 255 * float64(n)
		}
		more = int(min(max(rest, float64(n)/2), most))
	}
	return max(more, 16)
}

// fill reads more text. It returns by how many bytes the content of Buf moved
// to the front.
func (l *Lines) fill() int {
	moved := 0
	if l.End == len(l.Buf) {
		if l.Start > 0 {
			moved = l.Start
			copy(l.Buf, l.Buf[l.Start:l.End])
		} else {
			grown := make([]byte, min(2*len(l.Buf), MaxLine+chunk))
			copy(grown, l.Buf[:l.End])
			l.Buf = grown
		}
		l.End -= moved
		l.Start -= moved
		l.looked = max(0, l.looked-moved)
	}
	l.read(l.End)
	return moved
}

// read reads once into Buf, from index at on.
func (l *Lines) read(at int) {
	for range 100 { // a reader that keeps returning nothing is broken
		n, err := l.Source.Read(l.Buf[at:])
		l.End = at + n
		l.BytesRead += int64(n)
		l.looked = min(l.looked, at)
		if err != nil {
			l.eof = true
			if !errors.Is(err, io.EOF) {
				l.Err = err
			}
			return
		}
		if n > 0 {
			return
		}
	}
	l.eof, l.Err = true, io.ErrNoProgress
}

// skip skips the rest of a line that is too long, and reports whether it had an
// end. The bytes of the line in Buf stay unchanged.
func (l *Lines) skip() bool {
	at := l.End
	if at == len(l.Buf) { // room to read into after the line
		grown := make([]byte, at+chunk)
		copy(grown, l.Buf)
		l.Buf = grown
	}
	for !l.eof {
		l.read(at)
		if i := bytes.IndexByte(l.Buf[at:l.End], '\n'); i >= 0 {
			l.Start = at + i + 1
			return true
		}
	}
	l.Start = l.End
	return false
}
