package scan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// JSONReader reads a JSON document of any length with a bounded buffer.
type JSONReader struct {
	r      io.Reader
	buf    []byte         // content that was read
	pos    int            // index in buf of the next byte to scan
	offset int64          // offset of buf[0] in the file
	lines  int            // number of line ends before buf[0]
	err    error          // error of r; io.EOF at the end
	object ObjectIterator // of ParseObject
}

// ErrTruncated is the error for a document that ends too early.
var ErrTruncated = errors.New("the file ends inside the JSON document")

// NewJSONReader returns a JSONReader that reads one document from r.
func NewJSONReader(r io.Reader) *JSONReader {
	return &JSONReader{r: r, buf: make([]byte, 0, readBytes)}
}

// Offset returns the number of bytes that were consumed.
func (s *JSONReader) Offset() int64 { return s.offset + int64(s.pos) }

// Lines returns the number of line ends that were consumed.
func (s *JSONReader) Lines() int { return s.lines + bytes.Count(s.buf[:s.pos], []byte("\n")) }

// Err returns the error of the underlying reader, except io.EOF.
func (s *JSONReader) Err() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// fill discards the bytes before pos and reads more. It returns false at the end of the file.
func (s *JSONReader) fill() bool {
	if s.err != nil {
		return false
	}
	if s.pos > 0 {
		s.lines = s.Lines()
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

// NextNonSpace consumes the next byte that is not white space and returns it, or 0 at the end.
func (s *JSONReader) NextNonSpace() byte {
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

// ReadValue consumes the next value, at most maxBytes long, and returns it. It is valid until the
// next call of a method.
func (s *JSONReader) ReadValue(maxBytes int) ([]byte, error) {
	return s.readValue(maxBytes, JSONValueLength)
}

// ParseObject is like ReadValue for an object, whose members parse reads. If the buffer ends inside
// the object, ParseObject reads more and calls parse again for the whole object. bad is set if the
// value is no object.
func (s *JSONReader) ParseObject(maxBytes int, parse func(o *ObjectIterator)) (text []byte, bad bool, err error) {
	text, err = s.readValue(maxBytes, func(text []byte) int {
		o := &s.object
		*o = ObjectIterator{Text: text, within: true}
		if parse(o); o.Bad {
			return JSONValueLength(text)
		}
		return o.at
	})
	return text, s.object.Bad, err
}

// readValue implements ReadValue. length returns the length of the value at the beginning of text,
// or 0 if it is incomplete, as JSONValueLength does.
func (s *JSONReader) readValue(maxBytes int, length func(text []byte) int) ([]byte, error) {
	switch c := s.NextNonSpace(); c {
	case 0, ',', ':', ']', '}':
		return nil, unexpectedByteError(c, "a value")
	}
	s.Unread(1)
	for ended := false; ; {
		// At most maxBytes+1 bytes are examined, so that the result does not depend on the sizes of
		// the reads.
		there := s.buf[s.pos:]
		n := length(there[:min(len(there), maxBytes+1)])
		if n == len(there) && there[0] != '"' && there[0] != '{' && there[0] != '[' {
			n = 0 // a number or a word may continue
		}
		switch {
		case n > 0 && n <= maxBytes:
			s.pos += n
			return there[:n], nil
		case len(there) > maxBytes:
			return nil, fmt.Errorf("a JSON value is longer than %d bytes", maxBytes)
		case ended:
			return nil, ErrTruncated
		}
		// The buffer doubles, so that searching again from the start costs at most twice the length.
		have := len(s.buf) - s.pos
		for len(s.buf)-s.pos < 2*have || len(s.buf)-s.pos == have {
			if ended = !s.fill(); ended {
				break
			}
		}
	}
}

// Unread returns the last n bytes from NextNonSpace or ReadValue to the document, so that they are
// read again.
func (s *JSONReader) Unread(n int) { s.pos -= n }

const maxJSONKeyBytes = 1 << 12

// ReadObject reads the rest of an object after its opening brace. It calls read with each key and
// the first byte of its value; read must consume the value.
func (s *JSONReader) ReadObject(read func(key string, c byte) error) error {
	for {
		switch c := s.NextNonSpace(); c {
		case '}':
			return nil
		case ',':
			continue
		case '"':
			s.Unread(1)
		default:
			return unexpectedByteError(c, "a key")
		}
		text, err := s.ReadValue(maxJSONKeyBytes)
		if err != nil {
			return err
		}
		key := string(UnquoteJSON(text))
		if c := s.NextNonSpace(); c != ':' {
			return unexpectedByteError(c, ": after a key")
		}
		c := s.NextNonSpace()
		if c == 0 {
			return ErrTruncated
		}
		s.Unread(1)
		if err := read(key, c); err != nil {
			return err
		}
	}
}

// ReadList reads the rest of a list after its opening bracket. It calls read with the first byte of
// each element; read must consume the element.
func (s *JSONReader) ReadList(read func(c byte) error) error {
	for {
		switch c := s.NextNonSpace(); c {
		case ']':
			return nil
		case ',':
		case 0:
			return ErrTruncated
		default:
			s.Unread(1)
			if err := read(c); err != nil {
				return err
			}
		}
	}
}

// unexpectedByteError returns an error that says that c was read where want was expected. If c is
// 0, the document has ended, and it returns ErrTruncated.
func unexpectedByteError(c byte, want string) error {
	if c == 0 {
		return ErrTruncated
	}
	return fmt.Errorf("expected %s, got %q", want, c)
}
