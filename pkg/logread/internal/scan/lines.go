package scan

import (
	"bytes"
	"errors"
	"io"
)

const (
	// MaxLine bounds a line that a reader sees: what follows is skipped.
	MaxLine = 1 << 20
	// chunk is how much is read at once.
	chunk = 1 << 18
)

// Lines gives a text line by line, without a copy and in bounded memory.
type Lines struct {
	Source    io.Reader
	Buf       []byte
	Start     int // of what is not handed out yet, in buf
	End       int
	Number    int  // of the line that next returned, from 1
	Ended     bool // whether it had its line end
	TooLong   bool // whether it was longer than maxLine
	eof       bool
	Err       error // of reading, not of what was read
	HasCR     bool  // a \r is in what was looked at
	looked    int   // up to where in buf was looked for one
	size      int64 // of the whole text, 0 where it is not known
	BytesRead int64 // bytes that were read
}

// NewLines reads r in chunks; size is what is known of its length, or 0.
func NewLines(r io.Reader, size int64) *Lines {
	n := int64(chunk)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	return &Lines{Source: r, Buf: make([]byte, n), size: size}
}

// Next returns the next line without its end (\n or \r\n). It is good until
// the next call.
func (l *Lines) Next() ([]byte, bool) {
	if l.looked < l.End {
		l.look()
	}
	if i := bytes.IndexByte(l.Buf[l.Start:l.End], '\n'); i >= 0 { // as a rule
		line := l.Buf[l.Start : l.Start+i]
		l.Start += i + 1
		return l.line(line, true, false), true
	}
	return l.last()
}

// Continue goes on with r, behind all that was read.
func (l *Lines) Continue(r io.Reader) { l.Source, l.eof = r, false }

// look looks for a \r where it was not looked for yet. What epochLines has taken
// from buf, which has none, is passed over.
func (l *Lines) look() {
	l.HasCR = l.HasCR || bytes.IndexByte(l.Buf[max(l.Start, l.looked):l.End], '\r') >= 0
	l.looked = l.End
}

// last returns the line that ends beyond what has been read.
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

func (l *Lines) line(text []byte, ended, cut bool) []byte {
	l.Number++
	l.Ended, l.TooLong = ended, cut
	if n := len(text); l.HasCR && n > 0 && text[n-1] == '\r' {
		text = text[:n-1]
	}
	return text
}

// Room is for how many more values to make room where the text has given n so
// far: as many as its rest gives if it goes on so, but at first not more than
// fifteen times n, for the size may be wrong, and 255 times where n says more;
// twice as many in all where it is not known.
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

// fill reads more; it returns by how much what is in buf moved to the front.
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

// read reads once into buf from at on.
func (l *Lines) read(at int) {
	for range 100 { // a reader that gives nothing forever is broken
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

// skip leaves out the rest of a line that is too long; the line's own bytes at
// the front of buf stay as they are. It says whether a line end was there.
func (l *Lines) skip() bool {
	at := l.End
	if at == len(l.Buf) { // room to read into behind the line
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
