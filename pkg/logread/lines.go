package logread

import (
	"bytes"
	"errors"
	"io"
)

const (
	// maxLine bounds a line that a reader sees: what follows is skipped.
	maxLine = 1 << 20
	// chunk is how much is read at once.
	chunk = 1 << 18
)

// lines gives a text line by line, without a copy and in bounded memory.
type lines struct {
	r      io.Reader
	buf    []byte
	start  int // of what is not handed out yet, in buf
	end    int
	number int  // of the line that next returned, from 1
	ended  bool // whether it had its line end
	cut    bool // whether it was longer than maxLine
	eof    bool
	err    error // of reading, not of what was read
	back   bool  // a \r is in what was looked at
	looked int   // up to where in buf was looked for one
	size   int64 // of the whole text, 0 where it is not known
	got    int64 // bytes that were read
}

// newLines reads r in chunks; size is what is known of its length, or 0.
func newLines(r io.Reader, size int64) *lines {
	n := int64(chunk)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	return &lines{r: r, buf: make([]byte, n), size: size}
}

// next returns the next line without its end (\n or \r\n). It is good until
// the next call.
func (l *lines) next() ([]byte, bool) {
	if l.looked < l.end {
		l.look()
	}
	if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 { // as a rule
		line := l.buf[l.start : l.start+i]
		l.start += i + 1
		return l.line(line, true, false), true
	}
	return l.last()
}

// goOn goes on with r, behind all that was read.
func (l *lines) goOn(r io.Reader) { l.r, l.eof = r, false }

// look looks for a \r where it was not looked for yet. What epochLines has taken
// from buf, which has none, is passed over.
func (l *lines) look() {
	l.back = l.back || bytes.IndexByte(l.buf[max(l.start, l.looked):l.end], '\r') >= 0
	l.looked = l.end
}

// last returns the line that ends beyond what has been read.
func (l *lines) last() ([]byte, bool) {
	searched := l.end
	for {
		if i := bytes.IndexByte(l.buf[searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : searched+i]
			l.start = searched + i + 1
			return l.line(line, true, false), true
		}
		searched = l.end
		if l.end-l.start >= maxLine {
			line := l.buf[l.start:l.end]
			l.start = l.end
			return l.line(line, l.skip(), true), true
		}
		if l.eof {
			line := l.buf[l.start:l.end]
			l.start = l.end
			if len(line) == 0 {
				return nil, false
			}
			return l.line(line, false, false), true
		}
		searched -= l.fill()
		l.look()
	}
}

func (l *lines) line(text []byte, ended, cut bool) []byte {
	l.number++
	l.ended, l.cut = ended, cut
	if n := len(text); l.back && n > 0 && text[n-1] == '\r' {
		text = text[:n-1]
	}
	return text
}

// room is for how many more values to make room where the text has given n so
// far: as many as its rest gives if it goes on so, but at first not more than
// fifteen times n, for the size may be wrong, and 255 times where n says more;
// twice as many in all where it is not known.
func (l *lines) room(n int) int {
	more := n
	if taken := l.got - int64(l.end-l.start); l.size > taken && taken > 0 {
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
func (l *lines) fill() int {
	moved := 0
	if l.end == len(l.buf) {
		if l.start > 0 {
			moved = l.start
			copy(l.buf, l.buf[l.start:l.end])
		} else {
			grown := make([]byte, min(2*len(l.buf), maxLine+chunk))
			copy(grown, l.buf[:l.end])
			l.buf = grown
		}
		l.end -= moved
		l.start -= moved
		l.looked = max(0, l.looked-moved)
	}
	l.read(l.end)
	return moved
}

// read reads once into buf from at on.
func (l *lines) read(at int) {
	for range 100 { // a reader that gives nothing forever is broken
		n, err := l.r.Read(l.buf[at:])
		l.end = at + n
		l.got += int64(n)
		l.looked = min(l.looked, at)
		if err != nil {
			l.eof = true
			if !errors.Is(err, io.EOF) {
				l.err = err
			}
			return
		}
		if n > 0 {
			return
		}
	}
	l.eof, l.err = true, io.ErrNoProgress
}

// skip leaves out the rest of a line that is too long; the line's own bytes at
// the front of buf stay as they are. It says whether a line end was there.
func (l *lines) skip() bool {
	at := l.end
	if at == len(l.buf) { // room to read into behind the line
		grown := make([]byte, at+chunk)
		copy(grown, l.buf)
		l.buf = grown
	}
	for !l.eof {
		l.read(at)
		if i := bytes.IndexByte(l.buf[at:l.end], '\n'); i >= 0 {
			l.start = at + i + 1
			return true
		}
	}
	l.start = l.end
	return false
}
