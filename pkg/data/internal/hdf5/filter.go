package hdf5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
)

// Identifiers of the supported filters (section IV.A.2.l and HDF5's registry of filters).
const (
	filterDeflate    = 1
	filterShuffle    = 2
	filterFletcher32 = 3
	filterLZF        = 32000
)

type chunkFilter struct {
	id     uint64
	values []uint32
}

// parseFilters parses a filter pipeline message (section IV.A.2.l) into filters in the order in
// which they were applied. An unsupported filter is an error.
func parseFilters(c *cursor) ([]chunkFilter, error) {
	version, n := c.readUint(1), int(c.readUint(1))
	switch version {
	case 1:
		c.skip(6)
	case 2:
	default:
		return nil, fmt.Errorf("unsupported filter pipeline version %d: versions 1 and 2 are supported", version)
	}
	var all []chunkFilter
	for range n {
		f := chunkFilter{id: c.readUint(2)}
		named := 0
		if version == 1 || f.id >= 256 {
			named = int(c.readUint(2))
		}
		c.skip(2)
		values := int(c.readUint(2))
		if version == 1 {
			named = (named + 7) / 8 * 8
		}
		name := string(bytes.TrimRight(c.nextBytes(named), "\x00"))
		for range values {
			if f.values = append(f.values, uint32(c.readUint(4))); c.err != nil {
				return nil, c.err
			}
		}
		if version == 1 && values%2 == 1 {
			c.skip(4)
		}
		if c.err != nil {
			return nil, c.err
		}
		switch f.id {
		case filterDeflate, filterFletcher32, filterLZF:
		case filterShuffle:
			if len(f.values) == 0 {
				return nil, errors.New("the shuffle filter has no element size: the file is damaged")
			}
		default:
			return nil, fmt.Errorf("unsupported filter %d (%s): gzip, lzf, shuffle and fletcher32 are supported; copy the file with h5repack -f GZIP=4", f.id, name)
		}
		for _, other := range all {
			// Each filter has separate scratch memory.
			if other.id == f.id || other.id+f.id == filterDeflate+filterLZF {
				return nil, errors.New("duplicate filters of the same kind are not supported: copy the file with h5repack -f GZIP=4")
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// chunkScratch is temporary memory for decoding, which is reused for each chunk.
type chunkScratch struct {
	stored, plain, other []byte
	zlib                 io.ReadCloser
}

// loadChunk reads and decodes a chunk. The result is valid until s is used again.
func (d *Dataset) loadChunk(c chunk, s *chunkScratch) ([]byte, error) {
	full := d.chunkBytes()
	// Deflate expands one byte to at most 1032 bytes (zlib's technical notes), lzf to 88.
	if c.size > int64(full)+int64(full)/8+1024 || int64(full) > 1040*c.size+1024 {
		return nil, fmt.Errorf("a chunk of %d bytes cannot be decoded to %d bytes: the file is damaged", c.size, full)
	}
	s.stored = resizeBuffer(s.stored, int(c.size))
	if err := d.file.readAt(s.stored, c.pos); err != nil {
		return nil, err
	}
	b := s.stored
	for i := len(d.filters) - 1; i >= 0; i-- {
		if i < 32 && c.skip>>i&1 != 0 {
			continue
		}
		var err error
		switch f := d.filters[i]; f.id {
		case filterDeflate:
			b, err = s.inflate(b, full)
		case filterLZF:
			s.plain = resizeBuffer(s.plain, full)
			b, err = decompressLZF(s.plain, b)
		case filterFletcher32:
			b, err = stripFletcher32(b)
		case filterShuffle:
			s.other = resizeBuffer(s.other, len(b))
			unshuffle(s.other, b, int(f.values[0]))
			b = s.other
		}
		if err != nil {
			return nil, fmt.Errorf("chunk at byte %d: %w", c.pos, err)
		}
	}
	if len(b) != full {
		return nil, fmt.Errorf("chunk at byte %d was decoded to %d bytes, want %d: the file is damaged", c.pos, len(b), full)
	}
	return b, nil
}

// resizeBuffer returns a slice of n bytes. It reuses the memory of b if that is large enough.
func resizeBuffer(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// inflate decompresses zlib data to at most full+5 bytes: full bytes of the chunk, 4 bytes of an
// optional checksum, and one byte by which the caller detects excess data.
func (s *chunkScratch) inflate(b []byte, full int) ([]byte, error) {
	var err error
	if s.zlib == nil {
		s.zlib, err = zlib.NewReader(bytes.NewReader(b))
	} else {
		err = s.zlib.(zlib.Resetter).Reset(bytes.NewReader(b), nil)
	}
	if err != nil {
		s.zlib = nil
		return nil, fmt.Errorf("decompress gzip: %w", err)
	}
	s.plain = resizeBuffer(s.plain, full+5)
	n, err := io.ReadFull(s.zlib, s.plain)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("decompress gzip: %w", err)
	}
	return s.plain[:n], nil
}

// decompressLZF decompresses the LibLZF data b into dst and returns what it wrote. The data consist
// of literals and references to earlier output; see lzf_d.c of liblzf.
func decompressLZF(dst, b []byte) ([]byte, error) {
	damaged := errors.New("decompress lzf: the data are damaged")
	n := 0
	for i := 0; i < len(b); {
		ctrl := int(b[i])
		i++
		if ctrl < 32 {
			run := ctrl + 1
			if i+run > len(b) || n+run > len(dst) {
				return nil, damaged
			}
			n += copy(dst[n:n+run], b[i:])
			i += run
			continue
		}
		length := ctrl >> 5
		if length == 7 {
			if i >= len(b) {
				return nil, damaged
			}
			length += int(b[i])
			i++
		}
		if i >= len(b) {
			return nil, damaged
		}
		from := n - (ctrl&0x1f)<<8 - int(b[i]) - 1
		i++
		length += 2
		if from < 0 || n+length > len(dst) {
			return nil, damaged
		}
		for k := range length { // may overlap
			dst[n+k] = dst[from+k]
		}
		n += length
	}
	return dst[:n], nil
}

// unshuffle reverses the shuffle filter, which stores the first bytes of all values, then the
// second bytes, and so on. size is a value's size in bytes.
func unshuffle(dst, b []byte, size int) {
	if size < 2 {
		copy(dst, b)
		return
	}
	n := len(b) / size
	for k := range size {
		for i, v := range b[k*n:][:n] {
			dst[i*size+k] = v
		}
	}
	copy(dst[n*size:], b[n*size:])
}

// stripFletcher32 verifies the checksum in the last four bytes of b and returns the rest. It is
// Fletcher's (1982), over big-endian 16-bit words with ones' complement sums.
func stripFletcher32(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errors.New("fletcher32 checksum is missing: the file is damaged")
	}
	b, want := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	var low, high uint64
	for i := 0; i < len(b); i += 2 {
		v := uint64(b[i]) << 8
		if i+1 < len(b) {
			v |= uint64(b[i+1])
		}
		low += v
		high += low
		if i%512 == 0 {
			low, high = low%65535, high%65535
		}
	}
	low, high = low%65535, high%65535
	// 0 and 65535 are the same in ones' complement.
	same := func(a uint64, b uint32) bool { return a == uint64(b)%65535 }
	if !same(low, want&0xffff) || !same(high, want>>16) {
		return nil, errors.New("wrong fletcher32 checksum: the file is damaged; copy it again")
	}
	return b, nil
}
