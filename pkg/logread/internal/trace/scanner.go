package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// jsonScanner reads a JSON file of any length with a bounded buffer.
type jsonScanner struct {
	r      io.Reader
	buf    []byte // content that was read
	pos    int    // index in buf of the next byte to scan
	offset int64  // offset of buf[0] in the file
	err    error  // error of r; io.EOF at the end
}

// fill discards the bytes before pos and reads more bytes. It returns false at
// the end of the file.
func (s *jsonScanner) fill() bool {
	if s.err != nil {
		return false
	}
	if s.pos > 0 {
		n := copy(s.buf, s.buf[s.pos:])
		s.buf, s.offset, s.pos = s.buf[:n], s.offset+int64(s.pos), 0
	}
	if len(s.buf) == cap(s.buf) {
		s.buf = append(s.buf, 0)[:len(s.buf)]
	}
	for range 100 { // a reader that returns nothing a hundred times is broken
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf, s.err = s.buf[:len(s.buf)+n], err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// peek returns the next n bytes without consuming them, or fewer at the end of
// the file.
func (s *jsonScanner) peek(n int) []byte {
	for len(s.buf)-s.pos < n && s.fill() {
	}
	return s.buf[s.pos:min(len(s.buf), s.pos+n)]
}

// nextByte consumes the next byte that is not white space and returns it. It
// returns 0 at the end.
func (s *jsonScanner) nextByte() byte {
	for {
		for s.pos < len(s.buf) {
			c := s.buf[s.pos]
			s.pos++
			if c > ' ' {
				return c
			}
			if c == 0 {
				return 1 // not a byte of JSON, so that every caller reports an error
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// peekValue returns the complete value that begins at pos, without consuming
// it. The function length returns the length of the value at the beginning of
// its argument, 0 if the value is incomplete, or a negative number if it is
// malformed. It is an error if the value is longer than maxBytes.
func (s *jsonScanner) peekValue(maxBytes int, length func([]byte) int) ([]byte, error) {
	for ended := false; ; {
		// At most maxBytes+1 bytes are examined, so that the result does not
		// depend on the sizes of the reads.
		there := s.buf[s.pos:]
		n := length(there[:min(len(there), maxBytes+1)])
		switch {
		case n > 0:
			return there[:n], nil
		case n < 0:
			return nil, errors.New("malformed JSON value")
		case len(there) > maxBytes:
			return nil, fmt.Errorf("a JSON value is longer than %d bytes", maxBytes)
		case ended:
			return nil, errTruncated
		}
		// The buffer doubles each time, so that searching again from the start
		// costs at most twice the length.
		have := len(s.buf) - s.pos
		for len(s.buf)-s.pos < 2*have || len(s.buf)-s.pos == have {
			if ended = !s.fill(); ended {
				break
			}
		}
	}
}

// readString reads the rest of a string whose opening quote has been read, and
// returns its content. It is an error if the string is longer than limit bytes.
func (s *jsonScanner) readString(limit int) ([]byte, error) {
	b, err := s.peekValue(limit, findStringEnd)
	if err != nil {
		return nil, err
	}
	s.pos += len(b)
	return b[:len(b)-1], nil
}

// skipValue skips a value whose first byte c has been read. The value may be
// longer than the buffer.
func (s *jsonScanner) skipValue(c byte) error {
	depth := 0
	for {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return fmt.Errorf("unexpected %q", c)
			}
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
		case 0:
			return errTruncated
		default: // a number, a word, a comma, a colon
			if depth == 0 {
				return s.skipWord()
			}
		}
		if depth == 0 {
			return nil
		}
		c = s.nextByte()
	}
}

// skipWord skips the rest of a number, true, false or null.
func (s *jsonScanner) skipWord() error {
	for {
		for s.pos < len(s.buf) {
			switch s.buf[s.pos] {
			case ',', '}', ']', ' ', '\n', '\r', '\t':
				return nil
			}
			s.pos++
		}
		if !s.fill() {
			return errTruncated
		}
	}
}

// skipString skips the rest of a string whose opening quote has been read.
func (s *jsonScanner) skipString() error {
	for {
		for s.pos < len(s.buf) {
			c := s.buf[s.pos]
			s.pos++
			if c == '"' {
				return nil
			}
			if c == '\\' {
				if len(s.peek(1)) == 0 {
					return errTruncated
				}
				s.pos++
			}
		}
		if !s.fill() {
			return errTruncated
		}
	}
}

// findStringEnd returns the length of the rest of a string including its
// closing quote, or 0 if b does not contain the closing quote.
func findStringEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// findJSONEnd returns the length of the object or array at the beginning of b,
// 0 if it is incomplete, or -1 if it is nested too deeply.
func findJSONEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return -1
			}
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			n := findStringEnd(b[i+1:])
			if n == 0 {
				return 0
			}
			i += n
		}
	}
	return 0
}

// traceEvent is one event of the trace. Its texts are slices of the scanner's
// buffer; escape sequences are not decoded.
type traceEvent struct {
	ph                byte
	cat, name         []byte
	pid, tid          []byte
	args              []byte
	ts, dur           int64 // nanoseconds
	timed, hasSeconds bool  // ts and dur are set
}

// parse parses the event at the beginning of b and returns its length, 0 if it
// is incomplete, or -1 if it is malformed.
func (e *traceEvent) parse(b []byte) int {
	*e = traceEvent{}
	i := 1 // after the brace
	for {
		i = skipSpace(b, i)
		if i >= len(b) {
			return 0
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i++
			continue
		case '"':
		default:
			return -1
		}
		i++
		n := findStringEnd(b[i:])
		if n == 0 {
			return 0
		}
		key := b[i : i+n-1]
		i = skipSpace(b, i+n)
		if i >= len(b) {
			return 0
		}
		if b[i] != ':' {
			return -1
		}
		i = skipSpace(b, i+1)
		value, next := parseValue(b, i)
		if next <= 0 {
			return next
		}
		e.setField(key, value)
		i = next
	}
}

// setField sets the field that belongs to a JSON key.
func (e *traceEvent) setField(key, value []byte) {
	switch string(key) {
	case "ph":
		if len(value) == 1 {
			e.ph = value[0]
		}
	case "cat":
		e.cat = value
	case "name":
		e.name = value
	case "pid":
		e.pid = value
	case "tid":
		e.tid = value
	case "ts":
		e.ts, e.timed = parseMicroseconds(value)
	case "dur":
		e.dur, e.hasSeconds = parseMicroseconds(value)
	case "args":
		e.args = value
	}
}

// skipSpace returns the index of the first byte of b[i:] that is not white
// space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// parseValue returns the value at the beginning of b[i:], a string without its
// quotes, and the index after it. next is 0 if the value is incomplete, or -1
// if it is malformed.
func parseValue(b []byte, i int) (value []byte, next int) {
	if i >= len(b) {
		return nil, 0
	}
	switch b[i] {
	case '"':
		n := findStringEnd(b[i+1:])
		if n == 0 {
			return nil, 0
		}
		return b[i+1 : i+n], i + 1 + n
	case '{', '[':
		n := findJSONEnd(b[i:])
		if n <= 0 {
			return nil, n
		}
		return b[i : i+n], i + n
	}
	for k := i; k < len(b); k++ {
		switch b[k] {
		case ',', '}', ' ', '\n', '\r', '\t':
			if k == i {
				return nil, -1
			}
			return b[i:k], k
		case '"', '{', '[', ']', ':':
			return nil, -1
		}
	}
	return nil, 0
}

// maxMicroseconds is the largest accepted time. It is chosen so that the sum of
// two times in nanoseconds fits into an int64.
const maxMicroseconds = math.MaxInt64 / 4000

// parseMicroseconds parses a number of microseconds and returns it in
// nanoseconds. A float64 would lose the fraction of a time since 1970.
func parseMicroseconds(b []byte) (ns int64, ok bool) {
	i, sign := 0, int64(1)
	if len(b) > 0 && b[0] == '-' {
		i, sign = 1, -1
	}
	digits := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if ns = 10*ns + int64(b[i]-'0'); ns > maxMicroseconds {
			return 0, false
		}
		digits++
	}
	ns *= 1000
	if i < len(b) && b[i] == '.' {
		unit := int64(100)
		for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			ns += unit * int64(b[i]-'0')
			unit /= 10
			digits++
		}
	}
	if digits > 0 && i == len(b) {
		return sign * ns, true
	}
	v, err := strconv.ParseFloat(string(b), 64) // with an exponent
	if err != nil || math.IsNaN(v) || math.Abs(v) > maxMicroseconds {
		return 0, false
	}
	return int64(math.Round(v * 1000)), true
}
