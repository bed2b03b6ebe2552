package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// traceScanner goes through JSON of any length with a buffer of bounded length.
type scanner struct {
	r      io.Reader
	buf    []byte
	pos    int
	offset int64 // of buf[0] in the file
	err    error // of r, io.EOF at the end
}

// fill reads more behind what is in the buffer from pos on; false at the end.
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
	for range 100 { // readers may return nothing now and then, but not for ever
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

// next takes the next byte that is no white space; 0 at the end.
func (s *scanner) next() byte {
	for {
		for s.pos < len(s.buf) {
			c := s.buf[s.pos]
			s.pos++
			if c > ' ' {
				return c
			}
			if c == 0 {
				return 1 // no byte of JSON: an error to whoever asked
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// whole returns the value that begins at pos, whose length end tells: 0 where
// more bytes are needed, negative where it is none.
func (s *scanner) whole(most int, end func([]byte) int) ([]byte, error) {
	for ended := false; ; {
		// No more than most bytes are looked at, so that what is said does not
		// depend on the pieces in which the file comes.
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
		// Each time twice as much, so that looking again from the start costs
		// no more than twice the whole.
		have := len(s.buf) - s.pos
		for len(s.buf)-s.pos < 2*have || len(s.buf)-s.pos == have {
			if ended = !s.fill(); ended {
				break
			}
		}
	}
}

// text takes a string whose opening quote has been read, at most so long.
func (s *scanner) text(most int) ([]byte, error) {
	b, err := s.whole(most, stringEnd)
	if err != nil {
		return nil, err
	}
	s.pos += len(b)
	return b[:len(b)-1], nil
}

// skip passes over a value whose first byte c has been read; it may be longer
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

// skipWord passes over the rest of a number or a word.
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

// stringEnd is the length of the rest of a string, its closing quote included.
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

// jsonEnd is the length of the object or array at the beginning of b; 0 where
// it does not end in b, -1 where values lie too deep in each other.
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

// traceEvent is an event; its texts lie in the buffer that it was parsed from,
// as they stand there, escapes included.
type event struct {
	ph                byte
	cat, name         []byte
	pid, tid          []byte
	args              []byte
	ts, dur           int64 // nanoseconds
	timed, hasSeconds bool  // ts and dur are there
}

// parse parses the event at the beginning of b and returns its length; 0 where
// it does not end in b, -1 where it is none.
func (e *event) parse(b []byte) int {
	*e = event{}
	i := 1 // the brace
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

// set sets the field of a key.
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

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// valueAt is the value at b[i:], a string without its quotes, and the index
// after it; 0 where it does not end in b, -1 where it is none.
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

// maxMicroseconds keeps nanoseconds within an int64, and sums of two of them.
const maxMicroseconds = math.MaxInt64 / 4000

// nanoseconds parses a number of microseconds. As a float64 a time since 1970
// would lose its fraction.
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
