// Package npy reads boxes of the arrays in NumPy's .npy files, without reading the rest,
// and writes the headers of such files.
//
// Source: numpy.lib.format, versions 1.0 to 3.0.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"lockstep/pkg/data/internal/values"
)

const npySignature = "\x93NUMPY"

const maxHeaderBytes = 1 << 20

// ErrNotNPY is wrapped by Open's error if the file is not a .npy file.
var ErrNotNPY = errors.New("not a .npy file: it does not begin with NumPy's signature")

// File is an open .npy file with one array. It may be read from several goroutines.
type File struct {
	r      io.ReaderAt
	closer io.Closer
	start  int64 // position of the first value
	of     values.NumberType
	shape  []int
	pool   sync.Pool // of *[]byte
}

// Open reads the header of the .npy file f. It takes ownership of f: File.Close closes f, and so
// does Open if it fails.
func Open(f *os.File) (*File, error) {
	info, err := f.Stat()
	var file *File
	if err == nil {
		file, err = New(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", f.Name(), err), f.Close())
	}
	file.closer = f
	return file, nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Shape returns the shape of the array. The caller must not modify it.
func (f *File) Shape() []int { return f.shape }

var (
	descr   = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	fortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	shaped  = regexp.MustCompile(`'shape'\s*:\s*\(([0-9, ]*)\)`)
)

// New returns the array that r reads, after reading the header of the .npy file. size is the file's
// size in bytes.
func New(r io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, 12)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !strings.HasPrefix(string(head[:n]), npySignature) {
		return nil, ErrNotNPY
	}
	at, length := int64(10), int64(binary.LittleEndian.Uint16(head[8:]))
	switch head[6] {
	case 1:
	case 2, 3:
		at, length = 12, int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return nil, fmt.Errorf("unsupported format version %d: versions 1 to 3 are supported", head[6])
	}
	if length > maxHeaderBytes || at+length > size {
		return nil, fmt.Errorf("header of %d bytes is too large for a file of %d bytes: the file is truncated or damaged; copy it again", length, size)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f := &File{r: r, start: at + length}
	return f, f.parseHeader(string(text), size)
}

// parseHeader parses the header's text, a Python dict literal, into the array's type and shape.
// size is the file's size in bytes.
func (f *File) parseHeader(text string, size int64) error {
	d, order, s := descr.FindStringSubmatch(text), fortran.FindStringSubmatch(text), shaped.FindStringSubmatch(text)
	if d == nil || order == nil || s == nil {
		return fmt.Errorf("header %.80q does not contain descr, fortran_order and shape of an array of numbers", strings.TrimSpace(text))
	}
	if order[1] == "True" {
		return errors.New("the array is in column-major order (fortran_order): save numpy.ascontiguousarray(array)")
	}
	kind := strings.TrimLeft(d[1], "<>|=")
	if len(kind) == 2 {
		f.of = values.NumberType{Size: int(kind[1] - '0'), Big: d[1][0] == '>', Float: kind[0] == 'f', Signed: kind[0] == 'i'}
	}
	if len(kind) != 2 || !strings.Contains("fiu", kind[:1]) || !f.of.IsSupported() {
		return fmt.Errorf("unsupported data type %q: integers and floats of up to 8 bytes are supported", d[1])
	}
	need := int64(f.of.Size)
	for word := range strings.SplitSeq(s[1], ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || (n > 0 && need > math.MaxInt64/64/n) {
			return fmt.Errorf("shape (%s) is too large: the file is damaged, or the array must be split", s[1])
		}
		f.shape = append(f.shape, int(n))
		need *= max(n, 1)
	}
	if need > size-f.start {
		return fmt.Errorf("the file is truncated: an array of shape (%s) needs %d bytes, but the file has %d; copy it again", s[1], need, size-f.start)
	}
	return nil
}

// maxReadGapBytes is the largest gap between two rows that is read and discarded, because one read
// of both rows is then faster than two reads.
const maxReadGapBytes = 4096

// Read copies a box of an array [D,H,W,C] to dst, as [C,D,H,W]. start is the box's first index and
// size its size.
func (f *File) Read(dst []float32, start, size [3]int) error {
	if len(f.shape) != 4 {
		return fmt.Errorf("read box: array has shape %v, want [D,H,W,C]", f.shape)
	}
	for k := range start {
		if start[k] < 0 || size[k] < 1 || size[k] > f.shape[k]-start[k] {
			return fmt.Errorf("read box: size %v at index %v exceeds the array, whose shape is %v", size, start, f.shape)
		}
	}
	channels, width := f.shape[3], f.of.Size
	voxels := size[0] * size[1] * size[2]
	if len(dst) != channels*voxels {
		return fmt.Errorf("read box: buffer has %d values, want %d", len(dst), channels*voxels)
	}
	pitch, row := f.shape[2]*channels*width, size[2]*channels*width
	lines := 1 // rows that are read in one call
	if pitch-row <= maxReadGapBytes {
		lines = size[1]
	}
	p, _ := f.pool.Get().(*[]byte)
	if need := (lines-1)*pitch + row; p == nil || len(*p) < need {
		b := make([]byte, need)
		p = &b
	}
	defer f.pool.Put(p)
	b := (*p)[:(lines-1)*pitch+row]
	line := make([]float32, size[2]*channels)
	for z := range size[0] {
		for y := 0; y < size[1]; y += lines {
			from := int64((start[0]+z)*f.shape[1]+start[1]+y)*int64(pitch) + int64(start[2]*channels*width)
			if n, err := f.r.ReadAt(b, f.start+from); n < len(b) {
				return fmt.Errorf("read array at byte %d: %w", f.start+from, err)
			}
			for k := range lines {
				f.of.DecodeFloat32(line, b[k*pitch:][:row])
				to := (z*size[1] + y + k) * size[2]
				for c := range channels {
					row := dst[c*voxels+to:][:size[2]]
					for i := range row {
						row[i] = line[i*channels+c]
					}
				}
			}
		}
	}
	return nil
}

// WriteHeader writes the header of a .npy file of little-endian float32 values. The caller must
// then write the values in row-major order.
func WriteHeader(w io.Writer, shape []int) error {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = strconv.Itoa(n)
	}
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }", strings.Join(words, ", "))
	// The data must start at a multiple of 64 bytes, after a line feed.
	pad := 64 - (10+len(text)+1)%64
	text += strings.Repeat(" ", pad) + "\n"
	head := append([]byte(npySignature), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	_, err := w.Write(append(head, text...))
	return err
}
