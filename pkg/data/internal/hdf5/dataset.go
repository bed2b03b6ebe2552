package hdf5

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/data/internal/values"
)

const maxRank = 32

// Dataset is a numeric data set of an HDF5 file. It may be read from several goroutines.
type Dataset struct {
	file  *File
	shape []int
	of    values.NumberType
	fill  []byte // value of elements that were never written; nil: 0

	compact []byte // the data of a compact data set
	pos     int64  // position of contiguous data in the file; -1 if nothing was written
	chunk   []int  // shape of a chunk; nil if the data are not chunked
	chunks  map[uint64]chunk
	filters []chunkFilter
}

// chunk is the position and size in bytes of a chunk in the file.
type chunk struct {
	pos  int64
	size int64
	skip uint32 // bit mask of filters that were not applied
}

// Shape returns the shape of the data set. The caller must not modify it.
func (d *Dataset) Shape() []int { return d.shape }

func (f *File) openDataset(pos int64) (*Dataset, error) {
	all, err := f.readObjectHeader(pos)
	if err != nil {
		return nil, err
	}
	d := &Dataset{file: f, pos: -1}
	for _, m := range all {
		if m.kind == messageExternal {
			return nil, errors.New("values in other files (external storage) are not supported: copy the file with h5repack -l CONTI")
		}
	}
	seen := map[int]bool{}
	// Dataspace and type first: the other messages depend on them.
	order := []int{messageDataspace, messageDatatype, messageFill, messageFilters, messageLayout}
	for _, kind := range order {
		for _, m := range all {
			if m.kind != kind || seen[kind] {
				continue
			}
			seen[kind] = true
			if m.share {
				return nil, errors.New("named (shared) data types are not supported: write the data set without a named type")
			}
			c := &cursor{b: m.data}
			switch kind {
			case messageDataspace:
				err = d.parseDataspace(c)
			case messageDatatype:
				d.of, err = parseDatatype(c)
			case messageFill:
				err = d.parseFillValue(c)
			case messageFilters:
				d.filters, err = parseFilters(c)
			case messageLayout:
				err = d.parseLayout(c)
			}
			if err == nil {
				err = c.err
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if !seen[messageDataspace] || !seen[messageDatatype] || !seen[messageLayout] {
		return nil, errors.New("the object is not a data set; it may be a group")
	}
	return d, nil
}

// parseDataspace parses a dataspace message (section IV.A.2.b) and sets d.shape.
func (d *Dataset) parseDataspace(c *cursor) error {
	version, rank := c.readUint(1), int(c.readUint(1))
	switch version {
	case 1:
		c.skip(6)
	case 2:
		c.skip(2)
	default:
		return fmt.Errorf("unsupported dataspace version %d: versions 1 and 2 are supported", version)
	}
	if rank > maxRank {
		return fmt.Errorf("dataspace has %d dimensions, want at most %d", rank, maxRank)
	}
	total := uint64(1)
	for range rank {
		n := c.readUint(d.file.lengths)
		if c.err != nil {
			return c.err
		}
		if n > math.MaxInt32 || (n > 0 && total > math.MaxInt64/64/n) {
			return fmt.Errorf("dimension %d has length %d, with which the data set is too large: the file is damaged", len(d.shape), n)
		}
		d.shape = append(d.shape, int(n))
		total *= max(n, 1)
	}
	return nil
}

// parseDatatype parses a datatype message (section IV.A.2.d). It returns an error unless the type
// is an integer of 1 to 8 bytes or an IEEE 754 float.
func parseDatatype(c *cursor) (values.NumberType, error) {
	class := c.readUint(1) & 0xf
	bits := c.readUint(3)
	t := values.NumberType{Size: int(c.readUint(4)), Big: bits&1 != 0, Signed: bits&8 != 0}
	switch class {
	case 0:
		offset, precision := c.readUint(2), c.readUint(2)
		switch {
		case c.err != nil || !t.IsSupported():
		case offset != 0 || precision != uint64(8*t.Size):
			return t, fmt.Errorf("unsupported integers of %d bits in %d bytes: integers must fill their bytes; convert them (astype in NumPy)", precision, t.Size)
		default:
			return t, nil
		}
	case 1:
		t.Float = true
		c.skip(2)
		precision := int(c.readUint(2))
		c.skip(1)
		exponent := map[int]uint64{2: 5, 4: 8, 8: 11}[t.Size]
		if bits&0x40 == 0 && precision == 8*t.Size && exponent != 0 && c.readUint(1) == exponent {
			return t, c.err
		}
	}
	if c.err != nil {
		return t, c.err
	}
	return t, fmt.Errorf("unsupported type class %d with %d bytes: integers of 1, 2, 4 or 8 bytes and floats of 2, 4 or 8 bytes are supported", class, t.Size)
}

// parseFillValue parses a fill value message (section IV.A.2.f) and sets d.fill.
func (d *Dataset) parseFillValue(c *cursor) error {
	version := c.readUint(1)
	var defined bool
	switch version {
	case 1, 2:
		c.skip(2)
		defined = c.readUint(1) != 0 || version == 1
	case 3:
		defined = c.readUint(1)&0x20 != 0
	default:
		return fmt.Errorf("unsupported fill value version %d: versions 1 to 3 are supported", version)
	}
	if !defined {
		return c.err
	}
	n := c.readUint(4)
	if c.err == nil && n > 0 && n == uint64(d.of.Size) { // a size of 0 means that the data type is missing, which is reported later
		if v := c.nextBytes(d.of.Size); c.err == nil && slices.Max(v) > 0 {
			d.fill = slices.Clone(v)
		}
	}
	return c.err
}

// parseLayout parses a data layout message (section IV.A.2.i) of version 3 or 4, and reads the
// positions of chunks.
func (d *Dataset) parseLayout(c *cursor) error {
	version := c.readUint(1)
	if version != 3 && version != 4 {
		return fmt.Errorf("unsupported layout version %d: versions 3 and 4 are supported (HDF5 1.6.3 and later): copy the file with h5repack", version)
	}
	f := d.file
	switch class := c.readUint(1); class {
	case 0:
		n := int(c.readUint(2))
		if d.compact = c.nextBytes(n); c.err == nil && n != d.sizeBytes() {
			return fmt.Errorf("got %d bytes of data for shape %v, want %d: the file is damaged", n, d.shape, d.sizeBytes())
		}
	case 1:
		a, size := c.readUint(f.offsets), c.readUint(f.lengths)
		if c.err != nil || f.isUndefinedAddress(a) {
			return c.err
		}
		pos, err := f.filePosition(a)
		if err != nil {
			return err
		}
		if size < uint64(d.sizeBytes()) || int64(d.sizeBytes()) > f.size-pos {
			return fmt.Errorf("data of %d bytes at byte %d exceed the file of %d bytes or do not match shape %v: the file is truncated; copy it again", size, pos, f.size, d.shape)
		}
		d.pos = pos
	case 2:
		if version == 4 {
			return d.readIndexedChunkPositions(c)
		}
		return d.readBTreeChunkPositions(c)
	default:
		return fmt.Errorf("unsupported layout class %d: contiguous, compact and chunked data are supported; copy the file with h5repack -l CONTI", class)
	}
	return c.err
}

func (d *Dataset) sizeBytes() int {
	n := d.of.Size
	for _, v := range d.shape {
		n *= v
	}
	return n
}

// parseChunkShape reads the chunk's shape from c and sets d.chunk. The shape consists of rank
// numbers of width bytes each, and the last number is the size of a value in bytes.
func (d *Dataset) parseChunkShape(c *cursor, rank, width int) error {
	if rank != len(d.shape)+1 || rank < 2 {
		return fmt.Errorf("chunks have %d dimensions, but the data have %d: the file is damaged", rank-1, len(d.shape))
	}
	total := uint64(1)
	for i := range rank {
		n := c.readUint(width)
		if c.err != nil {
			return c.err
		}
		if n == 0 || n > maxChunkBytes || total > maxChunkBytes/n {
			return fmt.Errorf("a chunk is empty or larger than %d MiB: write smaller chunks", maxChunkBytes>>20)
		}
		total *= n
		if i < rank-1 {
			d.chunk = append(d.chunk, int(n))
		} else if n != uint64(d.of.Size) {
			return fmt.Errorf("chunks have values of %d bytes, but the data type has %d bytes: the file is damaged", n, d.of.Size)
		}
	}
	return nil
}

// maxChunkBytes limits the uncompressed size of a chunk, in bytes.
const maxChunkBytes = 1 << 30

func (d *Dataset) chunkBytes() int {
	n := d.of.Size
	for _, v := range d.chunk {
		n *= v
	}
	return n
}

func (d *Dataset) chunksPerAxis() []uint64 {
	g := make([]uint64, len(d.shape))
	for k, n := range d.shape {
		g[k] = uint64((n + d.chunk[k] - 1) / d.chunk[k])
	}
	return g
}

// addChunk sets the position of chunk i. It returns an error if c extends beyond the end of the
// file or has the wrong size.
func (d *Dataset) addChunk(i uint64, c chunk) error {
	if c.size > d.file.size-c.pos {
		return fmt.Errorf("a chunk of %d bytes at byte %d exceeds the file of %d bytes: the file is truncated; copy it again", c.size, c.pos, d.file.size)
	}
	full := int64(d.chunkBytes())
	if len(d.filters) == 0 && c.size != full {
		return fmt.Errorf("the chunk at byte %d has %d bytes, want %d: the file is damaged", c.pos, c.size, full)
	}
	d.chunks[i] = c
	return nil
}

// readBTreeChunkPositions reads the chunks' positions from the B-tree of a version 3 layout.
func (d *Dataset) readBTreeChunkPositions(c *cursor) error {
	f := d.file
	rank := int(c.readUint(1))
	tree := c.readUint(f.offsets)
	if c.err != nil {
		return c.err
	}
	if err := d.parseChunkShape(c, rank, 4); err != nil {
		return err
	}
	d.chunks = map[uint64]chunk{}
	if f.isUndefinedAddress(tree) {
		return nil
	}
	grid := d.chunksPerAxis()
	return f.walkBTree(tree, 1, 8+8*rank, func(key []byte, child int64) error {
		c := cursor{b: key}
		size, skip := c.readUint(4), uint32(c.readUint(4))
		i := uint64(0)
		for k, n := range d.chunk {
			pos := c.readUint(8)
			if pos%uint64(n) != 0 || pos/uint64(n) >= grid[k] {
				return fmt.Errorf("a chunk is at index %d of dimension %d, whose length is %d: the file is damaged", pos, k, d.shape[k])
			}
			i = i*grid[k] + pos/uint64(n)
		}
		return d.addChunk(i, chunk{child, int64(size), skip})
	})
}

// readIndexedChunkPositions reads the chunks' positions from the chunk index (section VII) of a version 4
// layout: a single chunk, an implicit index, or a fixed array.
func (d *Dataset) readIndexedChunkPositions(c *cursor) error {
	f := d.file
	flags, rank, width := c.readUint(1), int(c.readUint(1)), int(c.readUint(1))
	if c.err != nil {
		return c.err
	}
	if width > 8 {
		return fmt.Errorf("chunk dimensions are stored in %d bytes, want at most 8: the file is damaged", width)
	}
	if err := d.parseChunkShape(c, rank, width); err != nil {
		return err
	}
	d.chunks = map[uint64]chunk{}
	full := int64(d.chunkBytes())
	kind := c.readUint(1)
	single := chunk{size: full}
	pageBits := uint64(0)
	switch kind {
	case 1:
		if flags&2 != 0 {
			single.size, single.skip = int64(c.readUint(f.lengths)&math.MaxInt64), uint32(c.readUint(4))
		}
	case 2:
	case 3:
		pageBits = c.readUint(1)
	default:
		return errors.New("chunk indexes of resizable data sets in HDF5's latest format are not supported: write the data set with a fixed shape, or in h5py's default format (libver earliest)")
	}
	a := c.readUint(f.offsets)
	if c.err != nil || f.isUndefinedAddress(a) {
		return c.err
	}
	pos, err := f.filePosition(a)
	if err != nil {
		return err
	}
	total := uint64(1)
	for _, n := range d.chunksPerAxis() {
		if n > 0 && total > math.MaxInt64/n {
			return errors.New("the data set has too many chunks: the file is damaged")
		}
		total *= n
	}
	switch kind {
	case 1:
		single.pos = pos
		return d.addChunk(0, single)
	case 2:
		if total > uint64((f.size-pos)/full) {
			return fmt.Errorf("%d chunks of %d bytes at byte %d exceed the file of %d bytes: the file is truncated; copy it again", total, full, pos, f.size)
		}
		for i := range total {
			if err := d.addChunk(i, chunk{pos: pos + int64(i)*full, size: full}); err != nil {
				return err
			}
		}
		return nil
	}
	return d.readFixedArray(pos, pageBits, total)
}

// readFixedArray reads the positions of total chunks from the fixed array index (section VII.C) at pos.
func (d *Dataset) readFixedArray(pos int64, pageBits, total uint64) error {
	f := d.file
	b, err := f.readBytes(pos, f.clampToFileEnd(pos, int64(8+f.lengths+f.offsets)))
	if err != nil {
		return err
	}
	c := cursor{b: b}
	if string(c.nextBytes(4)) != "FAHD" {
		return fmt.Errorf("fixed array signature is missing at byte %d: the file is damaged", pos)
	}
	c.skip(1)
	filtered, each := c.readUint(1) == 1, int(c.readUint(1))
	c.skip(1)
	n, a := c.readUint(f.lengths), c.readUint(f.offsets)
	if c.err != nil || f.isUndefinedAddress(a) {
		return c.err
	}
	sizeBytes := 0
	if filtered {
		sizeBytes = each - f.offsets - 4
	}
	if n != total || each < f.offsets || sizeBytes < 0 || sizeBytes > 8 || (filtered && sizeBytes == 0) || pageBits > 32 || total > uint64(f.size)/uint64(each) {
		return errors.New("a fixed array does not match the shape of its data set: the file is damaged")
	}
	if pos, err = f.filePosition(a); err != nil {
		return err
	}
	pos += int64(6 + f.offsets)
	perPage := total
	if total > 1<<pageBits {
		perPage = 1 << pageBits
		pages := (total + perPage - 1) / perPage
		pos += int64((pages+7)/8) + 4
	}
	for first := uint64(0); first < total; first += perPage {
		count := min(perPage, total-first)
		b, err := f.readBytes(pos, int64(count)*int64(each))
		if err != nil {
			return err
		}
		pos += int64(len(b)) + 4
		c := cursor{b: b}
		for i := range count {
			where := chunk{size: int64(d.chunkBytes())}
			a := c.readUint(f.offsets)
			if filtered {
				where.size, where.skip = int64(c.readUint(sizeBytes)&math.MaxInt64), uint32(c.readUint(4))
			}
			// A page that was never written consists of zeros.
			if f.isUndefinedAddress(a) || a == 0 {
				continue
			}
			if where.pos, err = f.filePosition(a); err != nil {
				return err
			}
			if err := d.addChunk(first+i, where); err != nil {
				return err
			}
		}
	}
	return nil
}
