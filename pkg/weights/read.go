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

// maxFile bounds a file, which is held in memory as a whole.
const maxFile = 64 << 30

// Read loads a file. It is strict: lengths and offsets must fit the file,
// tensors must fill the data without gaps or overlaps, and shapes must agree
// with their bytes. Values and metadata are compared with the checksums that
// Write left; files of other programs have none. No more memory is asked for than
// the file's size warrants. A named pipe, a device and a file of more than 64 GiB
// are refused. The error about a file's content is a *DamagedError.
func Read(path string) (*File, error) { return ReadContext(context.Background(), path) }

// ReadContext does what Read does, and ends with the error of ctx once that is
// canceled: a file of many GiB takes seconds to minutes.
func ReadContext(ctx context.Context, path string) (*File, error) {
	b, err := safeopen.ReadNamedContext(ctx, path, maxFile)
	if errors.Is(err, syscall.EIO) { // the disk cannot read its own sectors
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

// Decode reads a file's bytes.
func Decode(b []byte) (*File, error) { return decode(context.Background(), b) }

// decode is Decode, which ends between two tensors once ctx is canceled.
func decode(ctx context.Context, b []byte) (*File, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("file has %d bytes: a safetensors file starts with 8 bytes of header length", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || n > uint64(len(b)-8) {
		return nil, fmt.Errorf("header length is %d, but the file has %d bytes after it: the file is cut off or no safetensors file", n, len(b)-8)
	}
	header, data := b[8:8+n], b[8+n:]
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("header does not start with {: this is no safetensors file")
	}
	names, entries, metadata, err := decodeHeader(header)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	sums, err := checkMetadata(metadata)
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
			err = checkTensor(name, entries[i], data, sums)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		f.Tensors = append(f.Tensors, t)
	}
	if err := checkCover(names, entries, int64(len(data))); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeHeader reads the header's fields in the order of their data.
func decodeHeader(header []byte) (names []string, entries []entry, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(header))
	d.DisallowUnknownFields()
	if _, err := d.Token(); err != nil { // {
		return nil, nil, nil, err
	}
	type named struct {
		name string
		entry
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
			return nil, nil, nil, fmt.Errorf("name %v comes twice", key)
		}
		seen[name] = true
		if name == metadataKey {
			if err := d.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		e := entry{}
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
		return nil, nil, nil, fmt.Errorf("%d bytes follow the closing brace", len(rest))
	}
	slices.SortStableFunc(all, func(a, b named) int {
		x, y := *a.Offsets, *b.Offsets
		return slices.Compare(x, y)
	})
	for _, e := range all {
		names, entries = append(names, e.name), append(entries, e.entry)
	}
	return names, entries, metadata, nil
}

// decodeTensor reads one tensor's values.
func decodeTensor(name string, e entry, data []byte) (Tensor, error) {
	kind, ok := formats()[e.DType]
	if !ok {
		return Tensor{}, fmt.Errorf("dtype %q is not supported: use one of %s", e.DType, strings.Join(slices.Sorted(maps.Keys(formats())), ", "))
	}
	begin, end := (*e.Offsets)[0], (*e.Offsets)[1]
	if begin < 0 || end < begin || end > int64(len(data)) {
		return Tensor{}, fmt.Errorf("data_offsets %d to %d are outside of the %d bytes of data: the file is cut off or damaged", begin, end, len(data))
	}
	n, err := count(e.Shape)
	if err != nil {
		return Tensor{}, err
	}
	if end-begin != n*kind.width {
		return Tensor{}, fmt.Errorf("shape %v of %s takes %d bytes, data_offsets give %d", e.Shape, e.DType, n*kind.width, end-begin)
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
			return Tensor{}, fmt.Errorf("value %d of %s has no exact float64", i, e.DType)
		}
	}
	return t, nil
}

// checkCover reports bytes that belong to two tensors or to none.
func checkCover(names []string, entries []entry, size int64) error {
	at := int64(0)
	for i, e := range entries {
		begin, end := (*e.Offsets)[0], (*e.Offsets)[1]
		if begin != at {
			return fmt.Errorf("tensor %s starts at byte %d of the data, the one before ends at %d", names[i], begin, at)
		}
		at = end
	}
	if at != size {
		return fmt.Errorf("the tensors end at byte %d of %d bytes of data", at, size)
	}
	return nil
}
