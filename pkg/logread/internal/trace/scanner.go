package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// scanner reads JSON of any length with a buffer of bounded length.
type scanner struct {
	r      io.Reader
	buf    []byte
	pos    int
	offset int64 // of buf[0] in the file
	err    error // of r, io.EOF at the end
}

// fill reads more after the bytes from pos on. It returns false at the end of
// the file.
func (s *scanner) fill() bool {
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
	for range 100 { // a reader may return nothing sometimes, but not forever
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf, s.err = s.buf[:len(s.buf)+n], err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// peek returns up to n bytes that come next.
func (s *scanner) peek(n int) []byte {
	for len(s.buf)-s.pos < n && s.fill() {
	}
	return s.buf[s.pos:min(len(s.buf), s.pos+n)]
}

// next reads the next byte that is not white space. It returns 0 at the end.
func (s *scanner) next() byte {
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

// whole returns the value that begins at pos. end returns its length, 0 if it
// needs more bytes, or a negative number if the value is malformed.
func (s *scanner) whole(most int, end func([]byte) int) ([]byte, error) {
	for ended := false; ; {
		// At most this many bytes are looked at, so that the result does not
		// depend on the pieces in which the file is read.
		there := s.buf[s.pos:]
		n := end(there[:min(len(there), most+1)])
		switch {
		case n > 0:
			return there[:n], nil
		case n < 0:
			return nil, errors.New("expected JSON")
		case len(there) > most:
			return nil, fmt.Errorf("a value is longer than %d bytes", most)
		case ended:
			return nil, errFileEnds
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

// text reads a string of at most limit bytes, whose opening quote has been read.
func (s *scanner) text(limit int) ([]byte, error) {
	b, err := s.whole(limit, stringEnd)
	if err != nil {
		return nil, err
	}
	s.pos += len(b)
	return b[:len(b)-1], nil
}

// skip skips a value whose first byte c has been read. The value may be longer
// than any buffer.
func (s *scanner) skip(c byte) error {
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
			return errFileEnds
		default: // a number, a word, a comma, a colon
			if depth == 0 {
				return s.skipWord()
			}
		}
		if depth == 0 {
			return nil
		}
		c = s.next()
	}
}

// skipWord skips the rest of a number or a word.
func (s *scanner) skipWord() error {
	for {
		for s.pos < len(s.buf) {
			switch s.buf[s.pos] {
			case ',', '}', ']', ' ', '\n', '\r', '\t':
				return nil
			}
			s.pos++
		}
		if !s.fill() {
			return errFileEnds
		}
	}
}

// skipString skips the rest of a string.
func (s *scanner) skipString() error {
	for {
		for s.pos < len(s.buf) {
			c := s.buf[s.pos]
			s.pos++
			if c == '"' {
				return nil
			}
			if c == '\\' {
				if len(s.peek(1)) == 0 {
					return errFileEnds
				}
				s.pos++
			}
		}
		if !s.fill() {
			return errFileEnds
		}
	}
}

// stringEnd returns the length of the rest of a string with its closing quote,
// or 0 if it does not end in b.
func stringEnd(b []byte) int {
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

// jsonEnd returns the length of the object or array at the beginning of b, 0 if
// it does not end in b, or -1 if it is nested too deeply.
func jsonEnd(b []byte) int {
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
			n := stringEnd(b[i+1:])
			if n == 0 {
				return 0
			}
			i += n
		}
	}
	return 0
}

// event is an event of the trace. Its texts are slices of the buffer from which
// it was parsed, with escapes as written.
type event struct {
	ph                byte
	cat, name         []byte
	pid, tid          []byte
	args              []byte
	ts, dur           int64 // nanoseconds
	timed, hasSeconds bool  // ts and dur are set
}

// parse parses the event at the beginning of b and returns its length, 0 if it
// does not end in b, or -1 if it is malformed.
func (e *event) parse(b []byte) int {
	*e = event{}
	i := 1 // after the brace
	for {
		i = space(b, i)
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
		n := stringEnd(b[i:])
		if n == 0 {
			return 0
		}
		key := b[i : i+n-1]
		i = space(b, i+n)
		if i >= len(b) {
			return 0
		}
		if b[i] != ':' {
			return -1
		}
		i = space(b, i+1)
		value, next := valueAt(b, i)
		if next <= 0 {
			return next
		}
		e.set(key, value)
		i = next
	}
}

// set sets the field for a key.
func (e *event) set(key, value []byte) {
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
		e.ts, e.timed = nanoseconds(value)
	case "dur":
		e.dur, e.hasSeconds = nanoseconds(value)
	case "args":
		e.args = value
	}
}

// space returns the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// valueAt returns the value at b[i:], a string without its quotes, and the
// index after it. The index is 0 if the value does not end in b, or -1 if it is
// malformed.
func valueAt(b []byte, i int) (value []byte, next int) {
	if i >= len(b) {
		return nil, 0
	}
	switch b[i] {
	case '"':
		n := stringEnd(b[i+1:])
		if n == 0 {
			return nil, 0
		}
		return b[i+1 : i+n], i + 1 + n
	case '{', '[':
		n := jsonEnd(b[i:])
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

// maxMicroseconds keeps nanoseconds, and sums of two of them, within an int64.
const maxMicroseconds = math.MaxInt64 / 4000

// nanoseconds parses a number of microseconds. A float64 would lose the
// fraction of a time since 1970.
func nanoseconds(b []byte) (ns int64, ok bool) {
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
