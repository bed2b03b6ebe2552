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
// memory. Fast parsers may also take bytes directly from Buf[Start:End] and
// advance Start.
type LineReader struct {
	Source  io.Reader
	Buf     []byte
	Start   int  // index in Buf of the next line
	End     int  // index in Buf after the last byte read
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
	Err         error // error of Source, except io.EOF
	HasCR       bool  // the text searched so far contains a \r
	searched    int   // index in Buf up to which the text was searched for \r
	size        int64 // length of the complete text; 0 if unknown
	BytesRead   int64 // number of bytes read from Source
}

// NewLineReader returns a reader of the lines of r. size is the length of the
// text in bytes, or 0 if it is unknown.
func NewLineReader(r io.Reader, size int64) *LineReader {
	n := int64(readBytes)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	return &LineReader{Source: r, Buf: make([]byte, n), size: size}
}

// Next returns the next line without its line end (\n or \r\n), or false at the
// end of the text. The line is valid until the next call.
func (l *LineReader) Next() ([]byte, bool) {
	if l.searched < l.End {
		l.searchCarriageReturn()
	}
	if i := bytes.IndexByte(l.Buf[l.Start:l.End], '\n'); i >= 0 { // usually
		line := l.Buf[l.Start : l.Start+i]
		l.Start += i + 1
		return l.finishLine(line, true, false), true
	}
	return l.nextAcrossReads()
}

// Ahead returns the text after the current line, up to n bytes of it, without consuming it.
// It makes the current line invalid.
func (l *LineReader) Ahead(n int) []byte {
	for l.End-l.Start < n && !l.eof {
		l.fill()
	}
	return l.Buf[l.Start:min(l.End, l.Start+n)]
}

// ContinueWith makes r the source of the following text, once the previous
// source has ended.
func (l *LineReader) ContinueWith(r io.Reader) { l.Source, l.eof = r, false }

// searchCarriageReturn searches the text that was not searched yet for \r. Bytes
// that a fast parser has taken from Buf are not searched: these parsers take no
// line with \r.
func (l *LineReader) searchCarriageReturn() {
	l.HasCR = l.HasCR || bytes.IndexByte(l.Buf[max(l.Start, l.searched):l.End], '\r') >= 0
	l.searched = l.End
}

// nextAcrossReads returns the next line if its end is not in Buf yet: it reads
// more text until the line is complete or too long.
func (l *LineReader) nextAcrossReads() ([]byte, bool) {
	searched := l.End
	for {
		if i := bytes.IndexByte(l.Buf[searched:l.End], '\n'); i >= 0 {
			line := l.Buf[l.Start : searched+i]
			l.Start = searched + i + 1
			return l.finishLine(line, true, false), true
		}
		searched = l.End
		if l.End-l.Start >= MaxLine && !l.dropOverwritten() {
			line := l.Buf[l.Start:l.End]
			l.Start = l.End
			return l.finishLine(line, l.skipLongLine(), true), true
		}
		if l.eof {
			line := l.Buf[l.Start:l.End]
			l.Start = l.End
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

// fill reads more text into Buf. It returns the number of bytes by which it
// moved the unread text towards the front of Buf.
func (l *LineReader) fill() int {
	moved := 0
	if l.End == len(l.Buf) {
		if l.Start > 0 {
			moved = l.Start
			copy(l.Buf, l.Buf[l.Start:l.End])
		} else {
			grown := make([]byte, min(2*len(l.Buf), MaxLine+readBytes))
			copy(grown, l.Buf[:l.End])
			l.Buf = grown
		}
		l.End -= moved
		l.Start -= moved
		l.searched = max(0, l.searched-moved)
	}
	l.readSource(l.End)
	return moved
}

// readSource calls Source.Read once, into Buf[offset:].
func (l *LineReader) readSource(offset int) {
	for range 100 { // a reader that keeps returning nothing is broken
		n, err := l.Source.Read(l.Buf[offset:])
		l.End = offset + n
		l.BytesRead += int64(n)
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
	text := l.Buf[l.Start : l.End-1]
	i := bytes.LastIndexByte(text, '\r')
	if i < 0 {
		i = bytes.LastIndexByte(text, '\b')
	}
	if i >= 0 && l.Overwritten != nil {
		l.Overwritten(text[:i])
	}
	l.Start += i + 1
	return i >= 0
}

// skipLongLine skips the rest of a line that is too long, and reports whether
// the line ended with a newline. It does not change the bytes of the line in
// Buf.
func (l *LineReader) skipLongLine() bool {
	at := l.End
	if at == len(l.Buf) { // make space to read into after the line
		grown := make([]byte, at+readBytes)
		copy(grown, l.Buf)
		l.Buf = grown
	}
	for !l.eof {
		l.readSource(at)
		if i := bytes.IndexByte(l.Buf[at:l.End], '\n'); i >= 0 {
			l.Start = at + i + 1
			return true
		}
	}
	l.Start = l.End
	return false
}
