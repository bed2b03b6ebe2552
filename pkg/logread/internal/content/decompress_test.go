package content

import (
	"bytes"
	"testing"

	"github.com/ulikunitz/xz"
)

// TestXZDictionaryBytes checks the size of the dictionary, which is 8 MiB by default in package xz,
// and the largest size that the format can state (The .xz File Format, section 5.3.1).
func TestXZDictionaryBytes(t *testing.T) {
	var b bytes.Buffer
	z, err := xz.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write([]byte("1,2\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	packed := b.Bytes()
	const property = xz.HeaderLen + 4 // after the size, flags and filter of the block
	for bits, want := range map[byte]int64{packed[property]: 8 << 20, 36: 1 << 30, 40: 1<<32 - 1} {
		packed[property] = bits
		if size, ok := xzDictionaryBytes(packed); !ok || size != want {
			t.Errorf("bits %d: got a dictionary of %d bytes, %v, want %d", bits, size, ok, want)
		}
	}
}
