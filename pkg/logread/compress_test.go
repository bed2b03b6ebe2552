package logread

import (
	"bytes"
	"compress/bzip2"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// compressors returns functions that compress text, by the extension of the
// files that they make.
func compressors() map[string]func(testing.TB, []byte) []byte {
	return map[string]func(testing.TB, []byte) []byte{".gz": gzipped, ".zst": zstdPacked, ".xz": xzPacked, ".bz2": bzip2Packed}
}

// gzipped compresses text with gzip.
func gzipped(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zstdPacked compresses text with zstd.
func zstdPacked(t testing.TB, text []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(text, nil)
}

// xzPacked compresses text with xz.
func xzPacked(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := xz.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bzip2BlockBytes is the number of bytes of text per block that bzip2Packed writes.
const bzip2BlockBytes = 1 << 15

// bzip2Packed compresses text with bzip2, which the standard library can only read. It
// writes short blocks and Huffman codes of nearly equal lengths, so the result is
// longer than that of other programs.
func bzip2Packed(_ testing.TB, text []byte) []byte {
	w := &bitWriter{}
	for _, c := range []byte("BZh1") {
		w.write(uint64(c), 8)
	}
	total := uint32(0)
	for block := range slices.Chunk(text, bzip2BlockBytes) {
		sum := bzip2Checksum(block)
		total = bits.RotateLeft32(total, 1) ^ sum
		w.write(0x314159265359, 48) // π
		w.write(uint64(sum), 32)
		w.writeBzip2Block(bzip2Runs(block))
	}
	w.write(0x177245385090, 48) // √π
	w.write(uint64(total), 32)
	for w.n%8 != 0 {
		w.write(0, 1)
	}
	return w.b
}

// bzip2Checksum returns the CRC-32 of text with the most significant bit first.
func bzip2Checksum(text []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range text {
		sum ^= uint32(c) << 24
		for range 8 {
			carry := sum >> 31
			sum = sum<<1 ^ carry*0x04c11db7
		}
	}
	return ^sum
}

// bzip2Runs replaces four to 255 equal bytes by four of them and a byte with
// the number of the others.
func bzip2Runs(text []byte) []byte {
	var b []byte
	for len(text) > 0 {
		n := 1
		for n < len(text) && n < 255 && text[n] == text[0] {
			n++
		}
		b = append(b, text[:min(n, 4)]...)
		if n >= 4 {
			b = append(b, byte(n-4))
		}
		text = text[n:]
	}
	return b
}

// bitWriter writes numbers with the most significant bit first.
type bitWriter struct {
	b []byte
	n int // number of bits written
}

func (w *bitWriter) write(v uint64, count int) {
	for i := count - 1; i >= 0; i-- {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.n/8] |= byte(v>>i&1) << (7 - w.n%8)
		w.n++
	}
}

// writeBzip2Block writes a block after its checksum: the Burrows-Wheeler
// transform of data as indexes of a list whose used entry moves to the front.
func (w *bitWriter) writeBzip2Block(data []byte) {
	n := len(data)
	twice := slices.Concat(data, data)
	rotations := make([]int, n)
	for i := range rotations {
		rotations[i] = i
	}
	slices.SortStableFunc(rotations, func(a, b int) int { return bytes.Compare(twice[a:a+n], twice[b:b+n]) })
	w.write(0, 1) // not randomized
	w.write(uint64(slices.Index(rotations, 0)), 24)
	var used [256]bool
	for _, c := range data {
		used[c] = true
	}
	var list []byte // the used bytes, most recently used first
	rows := uint64(0)
	for c := range 256 {
		if used[c] {
			list = append(list, byte(c))
			rows |= 1 << (15 - c/16)
		}
	}
	w.write(rows, 16)
	for row := range 16 {
		for c := 16 * row; rows>>(15-row)&1 != 0 && c < 16*row+16; c++ {
			if used[c] {
				w.write(1, 1)
			} else {
				w.write(0, 1)
			}
		}
	}
	w.writeBzip2Symbols(bzip2Symbols(twice, rotations, list), len(list)+2)
}

// bzip2Symbols returns the symbols of a block: 0 and 1 are the digits of the
// number of zeros, and the last one marks the end.
func bzip2Symbols(twice []byte, rotations []int, list []byte) []int {
	var symbols []int
	zeros, end := 0, len(list)+1
	flush := func() {
		for ; zeros > 0; zeros = (zeros - 1) / 2 {
			symbols = append(symbols, (zeros-1)%2)
		}
	}
	for _, from := range rotations {
		c := twice[from+len(rotations)-1] // the last byte of the rotation
		i := bytes.IndexByte(list, c)
		copy(list[1:i+1], list[:i])
		list[0] = c
		if i == 0 {
			zeros++
			continue
		}
		flush()
		symbols = append(symbols, i+1)
	}
	flush()
	return append(symbols, end)
}

// writeBzip2Symbols writes the Huffman codes, twice since the format requires
// two, and the symbols, which are less than alphabet.
func (w *bitWriter) writeBzip2Symbols(symbols []int, alphabet int) {
	const groupSymbols = 50 // per choice of a code
	long := bits.Len(uint(alphabet - 1))
	short := 1<<long - alphabet // number of symbols whose codes have one bit less
	w.write(2, 3)
	groups := (len(symbols) + groupSymbols - 1) / groupSymbols
	w.write(uint64(groups), 15)
	w.write(0, groups)
	for range 2 {
		length := long
		if short > 0 {
			length--
		}
		w.write(uint64(length), 5)
		for s := range alphabet {
			if s == short && length < long {
				w.write(0b10, 2) // one bit more
			}
			w.write(0, 1)
		}
	}
	for _, s := range symbols {
		if s < short {
			w.write(uint64(s), long-1)
		} else {
			w.write(uint64(s+short), long)
		}
	}
}

// TestBzip2 checks that the standard library reads what bzip2Packed writes.
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
		got, err := io.ReadAll(bzip2.NewReader(bytes.NewReader(bzip2Packed(t, text))))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("round %d: %d bytes of %d, %v", round, len(got), len(text), err)
		}
	}
}
