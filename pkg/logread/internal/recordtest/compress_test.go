package recordtest

import (
	"bytes"
	"compress/bzip2"
	"io"
	"math/rand/v2"
	"testing"
)

// TestBzip2 checks that the standard library reads what Bzip2 writes.
func TestBzip2(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		text := make([]byte, rng.IntN(1<<10))
		if round%20 == 0 {
			text = make([]byte, bzip2BlockBytes+100)
		}
		values := 1 + rng.IntN(256)
		for i := range text {
			text[i] = byte(rng.IntN(values) * rng.IntN(2))
		}
		got, err := io.ReadAll(bzip2.NewReader(bytes.NewReader(Bzip2(t, text))))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("round %d: %d bytes of %d, %v", round, len(got), len(text), err)
		}
	}
}
