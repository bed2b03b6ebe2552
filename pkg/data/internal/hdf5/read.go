package hdf5

import (
	"fmt"
	"slices"
	"sync"
)

type scratchPool struct {
	mu   sync.Mutex
	free []*chunkScratch
}

func (s *scratchPool) get() *chunkScratch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x
	}
	return &chunkScratch{}
}

func (s *scratchPool) put(x *chunkScratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

// Reader reads boxes of a data set. It reuses memory for decoding chunks. Its methods may be called
// concurrently.
type Reader struct {
	d     *Dataset
	spare scratchPool
}

// Reader returns a new reader of d.
func (d *Dataset) Reader() *Reader { return &Reader{d: d} }

// Shape returns the shape of the data set. The caller must not modify it.
func (r *Reader) Shape() []int { return r.d.shape }

// Read copies a box of the data set to dst in row-major order. start is the box's first index and
// size its size, one number per dimension. It reads only the chunks that the box overlaps, or the
// rows of the box if the data are contiguous.
func (r *Reader) Read(dst []float32, start, size []int) error {
	d := r.d
	if len(start) != len(d.shape) || len(size) != len(d.shape) {
		return fmt.Errorf("read box: got %d dimensions, but the data have %d", len(size), len(d.shape))
	}
	n := 1
	for k := range start {
		if start[k] < 0 || size[k] < 1 || size[k] > d.shape[k]-start[k] {
			return fmt.Errorf("read box: size %v at index %v exceeds the data, whose shape is %v", size, start, d.shape)
		}
		n *= size[k]
	}
	if n != len(dst) {
		return fmt.Errorf("read box of size %v: buffer has %d values, want %d", size, len(dst), n)
	}
	s := r.spare.get()
	defer r.spare.put(s)
	if d.chunk != nil {
		return d.readChunkedBox(dst, start, size, s)
	}
	return d.readContiguousRows(dst, start, size, s)
}

// forEachRow calls f for each row of the box with the given start and size in an array. boxIndex is
// the index of the row's first value in the box, and arrayIndex its index in the array.
func forEachRow(start, size, shape []int, f func(boxIndex, arrayIndex int) error) error {
	last := len(size) - 1
	place := make([]int, len(size))
	for boxIndex := 0; ; boxIndex += size[last] {
		arrayIndex := 0
		for k := range shape {
			arrayIndex = arrayIndex*shape[k] + start[k] + place[k]
		}
		if err := f(boxIndex, arrayIndex); err != nil {
			return err
		}
		k := last - 1
		for ; k >= 0; k-- {
			if place[k]++; place[k] < size[k] {
				break
			}
			place[k] = 0
		}
		if k < 0 {
			return nil
		}
	}
}

// maxReadGapBytes is the largest gap between two rows that is read and discarded, because one read
// of both rows is then faster than two reads.
const maxReadGapBytes = 4096

// readContiguousRows reads a box of contiguous or compact data, row by row or plane by plane.
func (d *Dataset) readContiguousRows(dst []float32, start, size []int, s *chunkScratch) error {
	if len(d.shape) == 0 {
		start, size = []int{0}, []int{1}
	}
	shape, width := d.shape, d.of.Size
	if len(shape) == 0 {
		shape = []int{1}
	}
	last := len(size) - 1
	n := size[last] * width
	if d.compact != nil {
		return forEachRow(start, size, shape, func(boxIndex, arrayIndex int) error {
			d.of.DecodeFloat32(dst[boxIndex:][:size[last]], d.compact[arrayIndex*width:][:n])
			return nil
		})
	}
	if d.pos < 0 {
		d.setToFillValue(dst)
		return nil
	}
	// If the gaps are short, all rows of a plane are read in one call.
	if last > 0 && shape[last]*width-n <= maxReadGapBytes {
		return d.readContiguousPlanes(dst, start, size, s)
	}
	s.stored = resizeBuffer(s.stored, n)
	return forEachRow(start, size, shape, func(boxIndex, arrayIndex int) error {
		if err := d.file.readAt(s.stored, d.pos+int64(arrayIndex)*int64(width)); err != nil {
			return err
		}
		d.of.DecodeFloat32(dst[boxIndex:][:size[last]], s.stored)
		return nil
	})
}

// readContiguousPlanes reads a box of contiguous data plane by plane, including the gaps between the rows. A
// plane spans the last two dimensions.
func (d *Dataset) readContiguousPlanes(dst []float32, start, size []int, s *chunkScratch) error {
	last, width := len(size)-1, d.of.Size
	height, long := size[last-1], d.shape[last]
	s.stored = resizeBuffer(s.stored, ((height-1)*long+size[last])*width)
	// A plane is a row of a box whose two last axes are merged.
	merge := func(v []int, n int) []int { return append(slices.Clone(v[:last-1]), n) }
	plane := height * size[last]
	return forEachRow(merge(start, start[last-1]*long+start[last]), merge(size, plane), merge(d.shape, d.shape[last-1]*long), func(boxIndex, arrayIndex int) error {
		if err := d.file.readAt(s.stored, d.pos+int64(arrayIndex)*int64(width)); err != nil {
			return err
		}
		for y := range height {
			d.of.DecodeFloat32(dst[boxIndex+y*size[last]:][:size[last]], s.stored[y*long*width:][:size[last]*width])
		}
		return nil
	})
}

// setToFillValue sets all values of dst to the fill value.
func (d *Dataset) setToFillValue(dst []float32) {
	v := float32(0)
	if d.fill != nil {
		one := make([]float32, 1)
		d.of.DecodeFloat32(one, d.fill)
		v = one[0]
	}
	for i := range dst {
		dst[i] = v
	}
}

// readChunkedBox reads a box of chunked data, chunk by chunk.
func (d *Dataset) readChunkedBox(dst []float32, start, size []int, s *chunkScratch) error {
	rank, grid := len(size), d.chunksPerAxis()
	first, count := make([]int, rank), make([]int, rank)
	for k := range rank {
		first[k] = start[k] / d.chunk[k]
		count[k] = (start[k]+size[k]-1)/d.chunk[k] - first[k] + 1
	}
	place := make([]int, rank)
	for {
		i := uint64(0)
		for k := range rank {
			i = i*grid[k] + uint64(first[k]+place[k])
		}
		if err := d.copyChunk(dst, start, size, first, place, i, s); err != nil {
			return err
		}
		k := rank - 1
		for ; k >= 0; k-- {
			if place[k]++; place[k] < count[k] {
				break
			}
			place[k] = 0
		}
		if k < 0 {
			return nil
		}
	}
}

// copyChunk copies to dst the part of chunk i that overlaps the box. The chunk's coordinates in the
// grid of chunks are first+place.
func (d *Dataset) copyChunk(dst []float32, boxStart, size, first, place []int, i uint64, s *chunkScratch) error {
	rank, width := len(size), d.of.Size
	// The overlap: its start in the chunk, its size, and its start in the box.
	partStart, part, out := make([]int, rank), make([]int, rank), make([]int, rank)
	for k := range rank {
		chunkStart := (first[k] + place[k]) * d.chunk[k]
		lo, hi := max(boxStart[k], chunkStart), min(boxStart[k]+size[k], chunkStart+d.chunk[k])
		partStart[k], part[k], out[k] = lo-chunkStart, hi-lo, lo-boxStart[k]
	}
	n := part[rank-1]
	outStart := 0
	for k := range rank {
		outStart = outStart*size[k] + out[k]
	}
	// toBox returns the index in the box of a row's first value.
	toBox := func(row int) int {
		v, scale := outStart, 1
		for k := rank - 2; k >= 0; k-- {
			scale *= size[k+1]
			v += row % part[k] * scale
			row /= part[k]
		}
		return v
	}
	where, ok := d.chunks[i]
	if !ok {
		return forEachRow(partStart, part, d.chunk, func(partIndex, _ int) error {
			d.setToFillValue(dst[toBox(partIndex/n):][:n])
			return nil
		})
	}
	b, firstInB, err := d.readChunkPart(where, partStart, part, s)
	if err != nil {
		return err
	}
	return forEachRow(partStart, part, d.chunk, func(partIndex, chunkIndex int) error {
		row := s.plain
		if b != nil {
			row = b[(chunkIndex-firstInB)*width:]
		} else if err := d.file.readAt(row, where.pos+int64(chunkIndex)*int64(width)); err != nil {
			return err
		}
		d.of.DecodeFloat32(dst[toBox(partIndex/n):][:n], row[:n*width])
		return nil
	})
}

// readChunkPart reads the part of chunk c with the given start index and size:
//
//   - if the chunk must be decoded, the complete chunk;
//   - otherwise the range from the first to the last value of the part;
//   - nothing if this range is much larger than the part. b is then nil, and s.plain has the
//     size of one row, so that the caller can read row by row.
//
// first is the index in the chunk of the first value in b.
func (d *Dataset) readChunkPart(c chunk, start, size []int, s *chunkScratch) (b []byte, first int, err error) {
	if len(d.filters) > 0 {
		b, err = d.loadChunk(c, s)
		return b, 0, err
	}
	last, count := 0, 1
	for k := range size {
		first = first*d.chunk[k] + start[k]
		last = last*d.chunk[k] + start[k] + size[k] - 1
		count *= size[k]
	}
	width := d.of.Size
	if span := (last + 1 - first) * width; span <= max(maxReadGapBytes, 8*count*width) {
		s.stored = resizeBuffer(s.stored, span)
		return s.stored, first, d.file.readAt(s.stored, c.pos+int64(first)*int64(width))
	}
	s.plain = resizeBuffer(s.plain, size[len(size)-1]*width)
	return nil, 0, nil
}
