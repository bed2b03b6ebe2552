package scan

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"slices"
	"strconv"
	"testing"
)

// FuzzLines checks that Lines returns the same lines as bytes.Lines, whatever
// the sizes of the reads, and that Ahead does not change them.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), 3)
	f.Add(bytes.Repeat([]byte("0123456789"), 1000), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 || size > 1<<12 {
			return
		}
		l := NewLineReader(nil, int64(size))
		l.buffer = bufio.NewReaderSize(&lineSource{&smallReads{bytes.NewReader(text), size}, l}, size)
		var got []string
		for {
			line, ok := l.Next()
			if !ok {
				break
			}
			got = append(got, string(line))
			if ahead := l.Peek(2); len(got)%2 == 0 && !bytes.Contains(text, ahead) {
				t.Errorf("%q follows line %d", ahead, l.Number)
			}
		}
		var want []string
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			want = append(want, string(bytes.TrimSuffix(line, []byte("\r"))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, expected %q", got, want)
		}
	})
}

// FuzzDecimal compares Decimal with strconv.
func FuzzDecimal(f *testing.F) {
	for _, text := range []string{"752.9529612064362", "-0.001", "+5.", ".5", "9007199254740993", "1e5", "1.5.2", "00.10", "1_0", "0x1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, n := ParseDecimal(text)
		if n == 0 {
			return
		}
		want, err := strconv.ParseFloat(string(text[:n]), 64)
		if err != nil || math.Float64bits(want) != math.Float64bits(v) {
			t.Errorf("%q: %v, expected %v, %v", text[:n], v, want, err)
		}
	})
}

// smallReads is a reader whose Read returns at most n bytes.
type smallReads struct {
	r io.Reader
	n int
}

func (s *smallReads) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }
