package weights

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"lockstep/pkg/internal/safeopen"
)

// maxFileBytes limits the size of a file in bytes, because Read loads it into memory
// completely.
const maxFileBytes = 64 << 30

// Read loads a safetensors file. It returns an error unless lengths and offsets fit the
// file, tensors fill the data without gaps or overlaps, and shapes match the sizes of the
// tensors. Read verifies the checksums that Write added; files of other programs have none.
// Its memory use is proportional to the size of the file. Named pipes, devices and files of
// more than 64 GiB are errors. An error in the content of a file is a *DamagedError.
func Read(path string) (*File, error) { return ReadContext(context.Background(), path) }

// ReadContext is like Read, but stops and returns the error of ctx when ctx is canceled.
// Reading a file of many GiB takes seconds to minutes.
func ReadContext(ctx context.Context, path string) (*File, error) {
	b, err := safeopen.ReadUserFile(ctx, path, maxFileBytes)
	if errors.Is(err, syscall.EIO) { // the disk reports unreadable sectors
		return nil, &DamagedError{path, err}
	}
	if err != nil {
		return nil, fmt.Errorf("read weights: %w", err)
	}
	f, err := decode(ctx, b)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read weights %s: %w", path, ctx.Err())
	}
	if err != nil {
		return nil, &DamagedError{path, err}
	}
	return f, nil
}

// Decode parses the content of a safetensors file.
func Decode(b []byte) (*File, error) { return decode(context.Background(), b) }

// decode is Decode, but stops before the next tensor when ctx is canceled.
func decode(ctx context.Context, b []byte) (*File, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("file has %d bytes: a safetensors file starts with 8 bytes of header length", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || n > uint64(len(b)-8) {
		return nil, fmt.Errorf("header length is %d, but only %d bytes follow it: the file is truncated or not in safetensors format", n, len(b)-8)
	}
	header, data := b[8:8+n], b[8+n:]
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("header does not start with {: the file is not in safetensors format")
	}
	names, entries, metadata, err := decodeHeader(header)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	sums, err := extractChecksums(metadata)
	if err != nil {
		return nil, err
	}
	f := &File{Metadata: metadata}
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, err := decodeTensor(name, entries[i], data)
		if err == nil && sums != nil {
			err = verifyTensorChecksum(name, entries[i], data, sums)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		f.Tensors = append(f.Tensors, t)
	}
	if err := checkTensorsCoverData(names, entries, int64(len(data))); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeHeader parses the header. It returns the names and entries of the tensors in the
// order of their data, and the metadata.
func decodeHeader(header []byte) (names []string, entries []tensorEntry, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(header))
	d.DisallowUnknownFields()
	if _, err := d.Token(); err != nil { // {
		return nil, nil, nil, err
	}
	type named struct {
		name string
		tensorEntry
	}
	var all []named
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, nil, nil, err
		}
		name, ok := key.(string)
		if !ok || seen[name] {
			return nil, nil, nil, fmt.Errorf("duplicate name %v", key)
		}
		seen[name] = true
		if name == metadataKey {
			if err := d.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		e := tensorEntry{}
		if err := d.Decode(&e); err != nil {
			return nil, nil, nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		if e.Shape == nil || e.Offsets == nil || len(*e.Offsets) != 2 {
			return nil, nil, nil, fmt.Errorf("tensor %s needs dtype, shape and two data_offsets", name)
		}
		all = append(all, named{name, e})
	}
	if _, err := d.Token(); err != nil { // }
		return nil, nil, nil, err
	}
	if rest := bytes.TrimRight(header[d.InputOffset():], " "); len(rest) > 0 {
		return nil, nil, nil, fmt.Errorf("%d unexpected bytes follow the closing brace", len(rest))
	}
	slices.SortStableFunc(all, func(a, b named) int {
		x, y := *a.Offsets, *b.Offsets
		return slices.Compare(x, y)
	})
	for _, e := range all {
		names, entries = append(names, e.name), append(entries, e.tensorEntry)
	}
	return names, entries, metadata, nil
}

func decodeTensor(name string, e tensorEntry, data []byte) (Tensor, error) {
	kind, ok := valueDecoders()[e.DType]
	if !ok {
		return Tensor{}, fmt.Errorf("unsupported dtype %q: use one of %s", e.DType, strings.Join(slices.Sorted(maps.Keys(valueDecoders())), ", "))
	}
	begin, end := (*e.Offsets)[0], (*e.Offsets)[1]
	if begin < 0 || end < begin || end > int64(len(data)) {
		return Tensor{}, fmt.Errorf("data_offsets %d to %d are outside of the %d bytes of data: the file is truncated or damaged", begin, end, len(data))
	}
	n, err := valueCount(e.Shape)
	if err != nil {
		return Tensor{}, err
	}
	if end-begin != n*kind.width {
		return Tensor{}, fmt.Errorf("shape %v of %s needs %d bytes, but data_offsets span %d bytes", e.Shape, e.DType, n*kind.width, end-begin)
	}
	t := Tensor{Name: name, Shape: e.Shape}
	from := data[begin:end]
	if kind.f32 != nil {
		t.F32 = make([]float32, n)
		for i := range t.F32 {
			t.F32[i] = kind.f32(from[int64(i)*kind.width:])
		}
		return t, nil
	}
	t.F64 = make([]float64, n)
	for i := range t.F64 {
		if t.F64[i], ok = kind.f64(from[int64(i)*kind.width:]); !ok {
			return Tensor{}, fmt.Errorf("%[2]s value at index %[1]d cannot be represented exactly as float64", i, e.DType)
		}
	}
	return t, nil
}

// checkTensorsCoverData returns an error unless each byte of data belongs to exactly
// one tensor.
func checkTensorsCoverData(names []string, entries []tensorEntry, size int64) error {
	at := int64(0)
	for i, e := range entries {
		begin, end := (*e.Offsets)[0], (*e.Offsets)[1]
		if begin != at {
			return fmt.Errorf("tensor %s starts at byte %d of the data, but the previous tensor ends at byte %d", names[i], begin, at)
		}
		at = end
	}
	if at != size {
		return fmt.Errorf("the tensors end at byte %d, but there are %d bytes of data", at, size)
	}
	return nil
}
