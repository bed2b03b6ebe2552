package hdf5

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/zlib"
)

// OutputDataset describes a float32 data set that Write writes.
type OutputDataset struct {
	Name  string
	Shape []int
	Chunk []int // shape of a chunk; nil: contiguous
	Gzip  bool  // whether to compress the chunks
	// Values fills dst with the box that starts at index start and has the given size. Write calls
	// it for one box after another, in file order.
	Values func(dst []float32, start, size []int) error
}

// Sizes of B-tree nodes and symbol tables, with the default values of HDF5 (section II.A).
const (
	symbolsHalf     = 4              // half the number of symbols of a symbol table
	groupHalf       = 16             // half the number of entries of a group's B-tree node
	chunksHalf      = 32             // half the number of entries of a chunk B-tree node
	none            = math.MaxUint64 // undefined address
	superblockBytes = 96             // size of a version 0 superblock in bytes
	maxOutputs      = 2 * symbolsHalf
)

// writer appends to a file. pos is the number of bytes written so far.
type writer struct {
	w   *bufio.Writer
	pos int64
}

// appendBytes appends b and returns its position in the file.
func (w *writer) appendBytes(b []byte) (pos uint64, err error) {
	pos = uint64(w.pos)
	n, err := w.w.Write(b)
	w.pos += int64(n)
	return pos, err
}

// Write writes an HDF5 file with 1 to 8 data sets in the oldest version of the format, which every
// HDF5 reader supports.
func Write(w io.WriteSeeker, sets ...OutputDataset) error {
	if len(sets) == 0 || len(sets) > maxOutputs {
		return fmt.Errorf("write HDF5 file: got %d data sets, want 1 to %d", len(sets), maxOutputs)
	}
	sets = slices.Clone(sets)
	slices.SortFunc(sets, func(a, b OutputDataset) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	out := &writer{w: bufio.NewWriterSize(w, 1<<20)}
	if _, err := out.appendBytes(make([]byte, superblockBytes)); err != nil {
		return err
	}
	headers := make([]uint64, len(sets))
	for i, s := range sets {
		var err error
		if headers[i], err = out.writeDataset(s); err != nil {
			return fmt.Errorf("write data set %s: %w", s.Name, err)
		}
	}
	root, err := out.writeRootGroup(sets, headers)
	if err != nil {
		return err
	}
	if err := out.w.Flush(); err != nil {
		return err
	}
	if _, err := w.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = w.Write(encodeSuperblock(uint64(out.pos), root))
	return err
}

// appendLE appends each byte, uint16, uint32 or uint64 in values to b, in little-endian order.
func appendLE(b []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case byte:
			b = append(b, v)
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, v)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

// encodeSuperblock encodes a version 0 superblock (section II.A). end is the file's size, and root
// the position of the root group's header.
func encodeSuperblock(end, root uint64) []byte {
	b := appendLE([]byte(hdf5Signature), byte(0), byte(0), byte(0), byte(0), byte(0), byte(8), byte(8), byte(0),
		uint16(symbolsHalf), uint16(groupHalf), uint32(0), uint64(0), uint64(none), end, uint64(none))
	return append(appendLE(b, uint64(0), root, uint32(0), uint32(0)), make([]byte, 16)...)
}

// writeRootGroup writes the root group (heap of names, symbol table, B-tree and header) and returns
// its header's position.
func (w *writer) writeRootGroup(sets []OutputDataset, headers []uint64) (uint64, error) {
	heap := make([]byte, 8)
	symbols := appendLE([]byte("SNOD"), byte(1), byte(0), uint16(len(sets)))
	last := uint64(0)
	for i, s := range sets {
		last = uint64(len(heap))
		symbols = append(appendLE(symbols, last, headers[i], uint32(0), uint32(0)), make([]byte, 16)...)
		heap = append(heap, s.Name...)
		heap = append(heap, make([]byte, 8-len(s.Name)%8)...)
	}
	symbols = padTo(symbols, 8+2*symbolsHalf*40)
	data, err := w.appendBytes(heap)
	if err != nil {
		return 0, err
	}
	names, err := w.appendBytes(appendLE([]byte("HEAP"), uint32(0), uint64(len(heap)), uint64(1), data)) // 1: the heap has no free space
	if err != nil {
		return 0, err
	}
	node, err := w.appendBytes(symbols)
	if err != nil {
		return 0, err
	}
	tree := appendLE([]byte("TREE"), byte(0), byte(0), uint16(1), uint64(none), uint64(none), uint64(0), node, last)
	pos, err := w.appendBytes(padTo(tree, 24+2*groupHalf*8+(2*groupHalf+1)*8))
	if err != nil {
		return 0, err
	}
	return w.writeObjectHeader(headerMessage{kind: messageSymbolTable, data: appendLE(nil, pos, names)})
}

func padTo(b []byte, n int) []byte { return append(b, make([]byte, max(0, n-len(b)))...) }

func (w *writer) writeObjectHeader(all ...headerMessage) (uint64, error) {
	var body []byte
	for _, m := range all {
		data := padTo(m.data, (len(m.data)+7)/8*8)
		body = append(appendLE(body, uint16(m.kind), uint16(len(data)), uint32(0)), data...)
	}
	return w.appendBytes(append(appendLE(nil, byte(1), byte(0), uint16(len(all)), uint32(1), uint32(len(body)), uint32(0)), body...))
}

// writeDataset writes a data set's values and then its header, and returns the header's position.
func (w *writer) writeDataset(s OutputDataset) (uint64, error) {
	rank := len(s.Shape)
	if rank == 0 || rank > maxRank || s.Name == "" || slices.Min(s.Shape) < 1 || (s.Chunk != nil && (len(s.Chunk) != rank || slices.Min(s.Chunk) < 1)) {
		return 0, fmt.Errorf("got name %q, shape %v and chunk shape %v, want a name, 1 to %d dimensions of at least 1, and as many chunk dimensions", s.Name, s.Shape, s.Chunk, maxRank)
	}
	space := appendLE(nil, byte(1), byte(rank), byte(0), byte(0), uint32(0))
	for _, n := range s.Shape {
		space = appendLE(space, uint64(n))
	}
	// IEEE 754 binary32, little-endian.
	float := appendLE(nil, byte(0x11), byte(0x20), byte(31), byte(0), uint32(4), uint16(0), uint16(32), byte(23), byte(8), byte(0), byte(23), uint32(127))
	all := []headerMessage{{kind: messageDataspace, data: space}, {kind: messageDatatype, data: float}}
	if s.Chunk == nil {
		pos, err := w.writeContiguous(s)
		if err != nil {
			return 0, err
		}
		fill := []byte{2, 2, 2, 0} // version 2, late allocation, written if set, undefined
		layout := appendLE(nil, byte(3), byte(1), pos, uint64(w.pos)-pos)
		return w.writeObjectHeader(append(all, headerMessage{kind: messageFill, data: fill}, headerMessage{kind: messageLayout, data: layout})...)
	}
	tree, err := w.writeChunked(s)
	if err != nil {
		return 0, err
	}
	layout := appendLE(nil, byte(3), byte(2), byte(rank+1), tree)
	for _, n := range s.Chunk {
		layout = appendLE(layout, uint32(n))
	}
	all = append(all, headerMessage{kind: messageFill, data: []byte{2, 3, 2, 0}}, headerMessage{kind: messageLayout, data: appendLE(layout, uint32(4))})
	if s.Gzip {
		filter := appendLE(nil, byte(1), byte(1), uint16(0), uint32(0), uint16(filterDeflate), uint16(8), uint16(1), uint16(1))
		all = append(all, headerMessage{kind: messageFilters, data: appendLE(append(filter, "deflate\x00"...), uint32(gzipLevel), uint32(0))})
	}
	return w.writeObjectHeader(all...)
}

const gzipLevel = 4 // h5py's default

// writeContiguous writes all values of s, one plane of the last two dimensions at a time. It returns
// the position of the first value.
func (w *writer) writeContiguous(s OutputDataset) (uint64, error) {
	rank := len(s.Shape)
	size := slices.Repeat([]int{1}, rank)
	copy(size[max(0, rank-2):], s.Shape[max(0, rank-2):])
	first := uint64(w.pos)
	err := forEachBox(s.Shape, size, func(start []int) error {
		b, err := s.encodeBox(start, size)
		if err != nil {
			return err
		}
		_, err = w.appendBytes(b)
		return err
	})
	return first, err
}

// encodeBox returns the box's values as bytes. Values beyond the shape of the data set are zero.
func (s OutputDataset) encodeBox(start, size []int) ([]byte, error) {
	inside, n, all := slices.Clone(size), 1, 1
	for k := range size {
		inside[k] = min(size[k], s.Shape[k]-start[k])
		n *= inside[k]
		all *= size[k]
	}
	v := make([]float32, n)
	if err := s.Values(v, start, inside); err != nil {
		return nil, err
	}
	b := make([]byte, 4*all)
	last := len(size) - 1
	err := forEachRow(make([]int, len(size)), inside, size, func(source, target int) error {
		for i, x := range v[source:][:inside[last]] {
			binary.LittleEndian.PutUint32(b[4*(target+i):], math.Float32bits(x))
		}
		return nil
	})
	return b, err
}

// forEachBox divides an array of the given shape into boxes of the given size and calls f with the
// start index of each box, in row-major order.
func forEachBox(shape, size []int, f func(start []int) error) error {
	start := make([]int, len(shape))
	for {
		if err := f(start); err != nil {
			return err
		}
		k := len(shape) - 1
		for ; k >= 0; k-- {
			if start[k] += size[k]; start[k] < shape[k] {
				break
			}
			start[k] = 0
		}
		if k < 0 {
			return nil
		}
	}
}

type btreeEntry struct {
	key   []byte
	child uint64
}

// writeChunked writes the chunks and their B-tree (section III.A.1), and returns the B-tree's position.
func (w *writer) writeChunked(s OutputDataset) (uint64, error) {
	var level []btreeEntry
	var packed bytes.Buffer
	err := forEachBox(s.Shape, s.Chunk, func(start []int) error {
		b, err := s.encodeBox(start, s.Chunk)
		if err != nil {
			return err
		}
		if s.Gzip {
			packed.Reset()
			z, err := zlib.NewWriterLevel(&packed, gzipLevel)
			if err != nil {
				return err
			}
			_, err = z.Write(b)
			if err = errors.Join(err, z.Close()); err != nil {
				return err
			}
			b = packed.Bytes()
		}
		pos, err := w.appendBytes(b)
		level = append(level, btreeEntry{s.encodeChunkKey(uint32(len(b)), start), pos})
		return err
	})
	if err != nil {
		return 0, err
	}
	// The last key is the index of a chunk after the last one along every dimension.
	behind := slices.Clone(s.Shape)
	for k, n := range s.Chunk {
		behind[k] = (s.Shape[k] + n - 1) / n * n
	}
	end := s.encodeChunkKey(0, behind)
	for depth := 0; ; depth++ {
		var above []btreeEntry
		for i := 0; i < len(level); i += 2 * chunksHalf {
			node := level[i:min(len(level), i+2*chunksHalf)]
			// The nodes of a level are adjacent in the file and have the same size.
			each := 24 + 2*chunksHalf*8 + (2*chunksHalf+1)*len(end)
			left, right := uint64(none), uint64(none)
			if i > 0 {
				left = uint64(w.pos) - uint64(each)
			}
			after := end
			if i+len(node) < len(level) {
				right, after = uint64(w.pos)+uint64(each), level[i+len(node)].key
			}
			b := appendLE([]byte("TREE"), byte(1), byte(depth), uint16(len(node)), left, right)
			for _, e := range node {
				b = appendLE(append(b, e.key...), e.child)
			}
			pos, err := w.appendBytes(padTo(append(b, after...), each))
			if err != nil {
				return 0, err
			}
			above = append(above, btreeEntry{node[0].key, pos})
		}
		if level = above; len(level) == 1 {
			return level[0].child, nil
		}
	}
}

// encodeChunkKey encodes a chunk's key in the B-tree: its size in bytes, the mask of skipped filters
// (always 0), and its start index.
func (s OutputDataset) encodeChunkKey(size uint32, start []int) []byte {
	b := appendLE(nil, size, uint32(0))
	for _, v := range start {
		b = appendLE(b, uint64(v))
	}
	return appendLE(b, uint64(0))
}
