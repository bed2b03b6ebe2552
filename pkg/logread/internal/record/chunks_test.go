package record

import (
	"bytes"
	"testing"
)

// TestNoChunks: content is not split if it is short, compressed, or without a
// line end where a chunk would begin.
func TestNoChunks(t *testing.T) {
	for name, in := range map[string]*Input{
		"short":      {Size: minChunkBytes, Goroutines: 8, ReaderAt: bytes.NewReader(bytes.Repeat([]byte("1\n"), minChunkBytes/2))},
		"one line":   {Size: 4 * minChunkBytes, Goroutines: 2, ReaderAt: bytes.NewReader(make([]byte, 4*minChunkBytes))},
		"compressed": {Size: 4 * minChunkBytes, Goroutines: 2},
		"shrunk":     {Size: 4 * minChunkBytes, Goroutines: 2, ReaderAt: bytes.NewReader([]byte("1\n2\n"))},
	} {
		if got := in.Split(); got != nil {
			t.Errorf("%s: %v, expected none", name, got)
		}
	}
}
