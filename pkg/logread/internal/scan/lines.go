package scan

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// MaxLine is the length in bytes after which the rest of a line is skipped.
	MaxLine   = 1 << 20
	readBytes = 1 << 18
)

// LineReader reads a text line by line in bounded memory, usually without copying the lines.
type LineReader struct {
	Number  int  // number of the line that Next returned, from 1
	Ended   bool // the line ended with a newline
	TooLong bool // the line was longer than MaxLine
	// KeepLast is set if only the text after a line's last \r or \b is used, as a terminal shows a
	// progress bar. Such a line may be longer than MaxLine, since its beginning is dropped. The
	// caller sets it before the first call of Next.
	KeepLast bool
	// Overwritten, if not nil, is called with each beginning of a line that KeepLast drops. The
	// text is valid until the next call of Next.
	Overwritten func(text []byte)
	Err         error // error of the reader, except io.EOF
	HasCR       bool  // the text read so far contains a \r

	buffer    *bufio.Reader
	ahead     []byte // the content of the buffer after the current line
	read      int    // length of the content of the buffer before ahead
	long      []byte // the current line, if it is longer than the buffer
	size      int64  // length of the complete text; 0 if unknown
	bytesRead int64  // number of bytes read into the buffer
}

// NewLineReader returns a reader of the lines of r. size is the length of the text in bytes, or 0
// if unknown.
func NewLineReader(r io.Reader, size int64) *LineReader {
	n := int64(readBytes)
	if size > 0 {
		n = min(max(size+1, 1<<12), n)
	}
	l := &LineReader{size: size}
	l.buffer = bufio.NewReaderSize(&lineSource{r, l}, int(n))
	return l
}

// lineSource is the underlying reader of a LineReader's buffer.
type lineSource struct {
	io.Reader
	l *LineReader
}

func (s *lineSource) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.l.bytesRead += int64(n)
	s.l.HasCR = s.l.HasCR || bytes.IndexByte(p[:n], '\r') >= 0
	return n, err
}

// Next returns the next line without \n or \r\n, or false at the end of the text. The line is valid
// until the next call.
func (l *LineReader) Next() ([]byte, bool) {
	if l.Err != nil {
		return nil, false
	}
	l.TooLong, l.Ended = false, true
	var line []byte
	if i := bytes.IndexByte(l.ahead, '\n'); i >= 0 { // usually
		line = l.ahead[:i]
		l.ahead, l.read = l.ahead[i+1:], l.read+i+1
	} else {
		var err error
		l.discardReturnedText()
		if line, err = l.buffer.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull) {
			line, err = l.readLong(line)
		}
		if l.Ended = err == nil; err != nil && !errors.Is(err, io.EOF) {
			l.Err = err
		}
		if len(line) == 0 && !l.Ended {
			return nil, false
		}
		if l.Ended && !l.TooLong {
			line = line[:len(line)-1]
		}
		l.ahead, _ = l.buffer.Peek(l.buffer.Buffered())
	}
	l.Number++
	if n := len(line); l.HasCR && n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, true
}

// discardReturnedText discards from the buffer the text that Next has returned.
func (l *LineReader) discardReturnedText() {
	_, _ = l.buffer.Discard(l.read)
	l.ahead, l.read = nil, 0
}

// readLong reads a line that is longer than the buffer. begin is the part of it that the buffer
// contains.
func (l *LineReader) readLong(begin []byte) (line []byte, err error) {
	l.long = append(l.long[:0], begin...)
	for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		l.TooLong = l.TooLong || len(l.long) >= MaxLine && !l.dropOverwritten()
		if begin, err = l.buffer.ReadSlice('\n'); !l.TooLong {
			l.long = append(l.long, begin...)
		}
	}
	return l.long, err
}

// dropOverwritten drops the beginning of the current line, up to its last \r or else its last \b,
// and reports whether it did. It keeps the last byte read, which may be the \r of a line end.
func (l *LineReader) dropOverwritten() bool {
	if !l.KeepLast {
		return false
	}
	text := l.long[:len(l.long)-1]
	i := bytes.LastIndexByte(text, '\r')
	if i < 0 {
		i = bytes.LastIndexByte(text, '\b')
	}
	if i >= 0 && l.Overwritten != nil {
		l.Overwritten(text[:i])
	}
	l.long = l.long[:copy(l.long, l.long[i+1:])]
	return i >= 0
}

// Peek returns up to n bytes of the text after the current line, without consuming them. It makes
// the current line invalid.
func (l *LineReader) Peek(n int) []byte {
	l.discardReturnedText()
	text, _ := l.buffer.Peek(n) // the error is returned again by the next read
	return text
}

// EstimateRemainingValues estimates how many values follow, if the bytes read so far contained n values.
// The caller allocates memory for this number. Because the stated size of the text may be wrong,
// the result is limited to 15 n for small n and 255 n for large n. It is n if the size is unknown,
// and always at least 16.
func (l *LineReader) EstimateRemainingValues(n int) int {
	more := n
	if taken := l.bytesRead - int64(l.buffer.Buffered()-l.read); l.size > taken && taken > 0 {
		rest := float64(n) * 1.05 * float64(l.size-taken) / float64(taken)
		most := 15 * float64(n)
		if n >= 4096 {
			most = 255 * float64(n)
		}
		more = int(min(max(rest, float64(n)/2), most))
	}
	return max(more, 16)
}
