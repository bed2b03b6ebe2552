package scan

import (
	"bytes"
	"errors"
	"io"
)

const (
	// MaxLine is the length in bytes after which the rest of a line is skipped.
	MaxLine = 1 << 20
	// readBytes is the number of bytes read at once.
	readBytes = 1 << 18
)

// LineReader reads a text line by line, without copying the lines and in bounded
// memory.
type LineReader struct {
	source  io.Reader
	buf     []byte
	start   int  // index in buf of the next line
	end     int  // index in buf after the last byte read
	Number  int  // number of the line that Next returned, from 1
	Ended   bool // the line ended with a newline
	TooLong bool // the line was longer than MaxLine
	// KeepLast is set by the caller if only the text after the last \r or \b of a
	// line counts, which is what a terminal shows of a progress bar. Such a line
	// may be longer than MaxLine: its beginning is dropped.
	KeepLast bool
	// Overwritten is called with each beginning of a line that KeepLast drops, unless it is
	// nil. The text is valid until the next call of Next.
	Overwritten func(text []byte)
	eof         bool
	Err         error // error of the reader, except io.EOF
	HasCR       bool  // the text searched so far contains a \r
	searched    int   // index in buf up to which the text was searched for \r
	size        int64 // length of the complete text; 0 if unknown
	bytesRead   int64 // number of bytes read from source
}

// NewLineReader returns a reader of the lines of r. size is the length of the
// text in bytes, or 0 if it is unknown.
func NewLineReader(r io.Reader, size int64) *LineReader {
	n := int64(readBytes)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	return &LineReader{source: r, buf: make([]byte, n), size: size}
}

// Next returns the next line without its line end (\n or \r\n), or false at the
// end of the text. The line is valid until the next call.
func (l *LineReader) Next() ([]byte, bool) {
	if l.searched < l.end {
		l.searchCarriageReturn()
	}
	if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 { // usually
		line := l.buf[l.start : l.start+i]
		l.start += i + 1
		return l.finishLine(line, true, false), true
	}
	return l.nextAcrossReads()
}

// Ahead returns the text after the current line, up to n bytes of it, without consuming it.
// It makes the current line invalid.
func (l *LineReader) Ahead(n int) []byte {
	for l.end-l.start < n && !l.eof {
		l.fill()
	}
	return l.buf[l.start:min(l.end, l.start+n)]
}

// searchCarriageReturn searches the text that was not searched yet for \r.
func (l *LineReader) searchCarriageReturn() {
	l.HasCR = l.HasCR || bytes.IndexByte(l.buf[max(l.start, l.searched):l.end], '\r') >= 0
	l.searched = l.end
}

// nextAcrossReads returns the next line if its end is not in buf yet: it reads
// more text until the line is complete or too long.
func (l *LineReader) nextAcrossReads() ([]byte, bool) {
	searched := l.end
	for {
		if i := bytes.IndexByte(l.buf[searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : searched+i]
			l.start = searched + i + 1
			return l.finishLine(line, true, false), true
		}
		searched = l.end
		if l.end-l.start >= MaxLine && !l.dropOverwritten() {
			line := l.buf[l.start:l.end]
			l.start = l.end
			return l.finishLine(line, l.skipLongLine(), true), true
		}
		if l.eof {
			line := l.buf[l.start:l.end]
			l.start = l.end
			if len(line) == 0 {
				return nil, false
			}
			return l.finishLine(line, false, false), true
		}
		searched -= l.fill()
		l.searchCarriageReturn()
	}
}

// finishLine sets the properties of the current line and returns it without \r.
func (l *LineReader) finishLine(text []byte, ended, cut bool) []byte {
	l.Number++
	l.Ended, l.TooLong = ended, cut
	if n := len(text); l.HasCR && n > 0 && text[n-1] == '\r' {
		text = text[:n-1]
	}
	return text
}

// EstimateRemaining estimates how many more values the text contains after n
// values have been read, so that the caller can allocate memory for them. It
// extrapolates from the bytes read to the size of the text. The size may be
// wrong, so the result is at most 15 n for small n and 255 n for large n. If
// the size is unknown, the result is n. In all cases, the result is at least
// 16.
func (l *LineReader) EstimateRemaining(n int) int {
	more := n
	if taken := l.bytesRead - int64(l.end-l.start); l.size > taken && taken > 0 {
		rest := float64(n) * 1.05 * float64(l.size-taken) / float64(taken)
		most := 15 * float64(n)
		if n >= 4096 {
			most = 255 * float64(n)
		}
		more = int(min(max(rest, float64(n)/2), most))
	}
	return max(more, 16)
}

// fill reads more text into buf. It returns the number of bytes by which it
// moved the unread text towards the front of buf.
func (l *LineReader) fill() int {
	moved := 0
	if l.end == len(l.buf) {
		if l.start > 0 {
			moved = l.start
			copy(l.buf, l.buf[l.start:l.end])
		} else {
			grown := make([]byte, min(2*len(l.buf), MaxLine+readBytes))
			copy(grown, l.buf[:l.end])
			l.buf = grown
		}
		l.end -= moved
		l.start -= moved
		l.searched = max(0, l.searched-moved)
	}
	l.readSource(l.end)
	return moved
}

// readSource calls source.Read once, into buf[offset:].
func (l *LineReader) readSource(offset int) {
	for range 100 { // a reader that keeps returning nothing is broken
		n, err := l.source.Read(l.buf[offset:])
		l.end = offset + n
		l.bytesRead += int64(n)
		l.searched = min(l.searched, offset)
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

// dropOverwritten drops the beginning of the current line, up to its last \r, or
// its last \b if it has no \r. It returns false if it drops nothing. The last
// byte read is kept, since it may be the \r of a line end.
func (l *LineReader) dropOverwritten() bool {
	if !l.KeepLast {
		return false
	}
	text := l.buf[l.start : l.end-1]
	i := bytes.LastIndexByte(text, '\r')
	if i < 0 {
		i = bytes.LastIndexByte(text, '\b')
	}
	if i >= 0 && l.Overwritten != nil {
		l.Overwritten(text[:i])
	}
	l.start += i + 1
	return i >= 0
}

// skipLongLine skips the rest of a line that is too long, and reports whether
// the line ended with a newline. It does not change the bytes of the line in
// buf.
func (l *LineReader) skipLongLine() bool {
	at := l.end
	if at == len(l.buf) { // make space to read into after the line
		grown := make([]byte, at+readBytes)
		copy(grown, l.buf)
		l.buf = grown
	}
	for !l.eof {
		l.readSource(at)
		if i := bytes.IndexByte(l.buf[at:l.end], '\n'); i >= 0 {
			l.start = at + i + 1
			return true
		}
	}
	l.start = l.end
	return false
}
