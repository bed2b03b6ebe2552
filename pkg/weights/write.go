package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"lockstep/pkg/internal/wholefile"
)

const (
	metadataKey = "__metadata__"
	// The reference implementation does not accept longer headers.
	maxHeader = 100_000_000
	// Data starts at a multiple of alignment, so that values are aligned in a mapped file.
	alignment = 8
)

type tensorEntry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets *[]int64 `json:"data_offsets"` // begin and end within the data
}

// Write saves tensors and metadata to path, with checksums that Read verifies. It replaces
// path atomically: it writes a temporary file in the same folder, synchronizes it to disk,
// and renames it to path.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	metadata, err := metadataWithChecksums(tensors, metadata)
	if err == nil {
		err = wholefile.Write(path, 0o666, func(f *os.File) error { return Encode(f, tensors, metadata) })
	}
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	return nil
}

// Encode writes tensors and metadata to w, without checksums. F64 tensors come first, so
// that all values are aligned; otherwise the order of the tensors is kept.
func Encode(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b Tensor) int { return b.bytesPerValue() - a.bytesPerValue() })
	header, err := encodeHeader(sorted, metadata)
	if err != nil {
		return err
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	chunk := make([]byte, 0, 1<<16)
	for _, t := range sorted {
		if err := encodeValues(w, t, chunk); err != nil {
			return err
		}
	}
	return nil
}

// encodeHeader returns the header as JSON. Its tensors are in the order of their data, and
// it is padded with spaces so that the data are aligned.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	field := func(name string, value any) error {
		if !utf8.ValidString(name) {
			return fmt.Errorf("tensor name %q is not UTF-8", name)
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(name)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
		return nil
	}
	for k, v := range metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, fmt.Errorf("metadata %q is not UTF-8", k)
		}
	}
	if len(metadata) > 0 {
		if err := field(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	var at int64
	for _, t := range tensors {
		if err := t.validate(); err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("duplicate tensor name %s", t.Name)
		}
		seen[t.Name] = true
		end := at + int64(t.Len())*int64(t.bytesPerValue())
		shape := t.Shape
		if shape == nil {
			shape = []int{} // JSON [], not null
		}
		if err := field(t.Name, tensorEntry{t.DType(), shape, &[]int64{at, end}}); err != nil {
			return nil, err
		}
		at = end
	}
	b.WriteByte('}')
	for (8+b.Len())%alignment != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > maxHeader {
		return nil, fmt.Errorf("header has %d bytes, want at most %d", b.Len(), maxHeader)
	}
	return b.Bytes(), nil
}

// encodeValues writes the values of t in little-endian order, using chunk as a buffer.
func encodeValues(w io.Writer, t Tensor, chunk []byte) error {
	flush := func(needed int) error {
		if len(chunk)+needed <= cap(chunk) {
			return nil
		}
		_, err := w.Write(chunk)
		chunk = chunk[:0]
		return err
	}
	for _, v := range t.F32 {
		if err := flush(4); err != nil {
			return err
		}
		chunk = binary.LittleEndian.AppendUint32(chunk, math.Float32bits(v))
	}
	for _, v := range t.F64 {
		if err := flush(8); err != nil {
			return err
		}
		chunk = binary.LittleEndian.AppendUint64(chunk, math.Float64bits(v))
	}
	_, err := w.Write(chunk)
	return err
}
