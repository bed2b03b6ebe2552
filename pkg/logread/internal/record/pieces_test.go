package record

import (
	"bytes"
	"testing"
)

// TestPiecesNone: what is short, or has no line end where a piece would begin,
// is read in one.
func TestPiecesNone(t *testing.T) {
	for name, in := range map[string]*Input{
		"short":      {Size: leastPiece, Goroutines: 8, ReaderAt: bytes.NewReader(bytes.Repeat([]byte("1\n"), leastPiece/2))},
		"one line":   {Size: 4 * leastPiece, Goroutines: 2, ReaderAt: bytes.NewReader(make([]byte, 4*leastPiece))},
		"compressed": {Size: 4 * leastPiece, Goroutines: 2},
		"shrunk":     {Size: 4 * leastPiece, Goroutines: 2, ReaderAt: bytes.NewReader([]byte("1\n2\n"))},
	} {
		if got := in.Pieces(); got != nil {
			t.Errorf("%s: %v, expected none", name, got)
		}
	}
}
