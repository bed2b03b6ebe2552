// Package hdf5 reads boxes of the numeric data sets of an HDF5 file without reading the
// rest of the file. Data may be contiguous, compact or chunked, with the filters gzip, lzf,
// shuffle and fletcher32. All versions of the format are supported, including the files
// that h5py writes by default and with libver="latest", with these exceptions: groups with
// many links and resizable data sets in the latest version, and the compressions szip,
// n-bit and scale-offset. The error names the unsupported feature.
//
// The memory that is allocated is limited by the size of the file and the requested box,
// not by the sizes that the file states.
//
// Source: the HDF5 File Format Specification, version 3.0. Comments cite its section
// numbers.
package hdf5

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// ErrNotHDF5 is wrapped by Open's error if the file is not an HDF5 file.
var ErrNotHDF5 = errors.New("not an HDF5 file: it does not begin with HDF5's signature")

// File is an open HDF5 file. It may be read from several goroutines.
type File struct {
	r       io.ReaderAt
	closer  io.Closer
	size    int64
	base    int64 // position of address 0 in the file
	offsets int   // size of an address in bytes
	lengths int   // size of a length in bytes
	root    int64 // position of the object header of the root group
}

// Open reads the superblock of the HDF5 file f. It takes ownership of f: File.Close closes f, and so
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

// hdf5Signature is the first bytes of a superblock (section II.A).
const hdf5Signature = "\x89HDF\r\n\x1a\n"

// New returns the HDF5 file that r reads, after reading its superblock. size is the file's size in bytes.
func New(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size}
	// The superblock may be at 0, 512, 1024, 2048, …
	for pos := int64(0); pos+8 <= size; pos = max(512, 2*pos) {
		b, err := f.readBytes(pos, 8)
		if err != nil {
			return nil, err
		}
		if string(b) == hdf5Signature {
			return f, f.readSuperblock(pos)
		}
	}
	return nil, ErrNotHDF5
}

// readSuperblock reads the superblock (section II.A) at position pos, of versions 0 to 3.
func (f *File) readSuperblock(pos int64) error {
	head, err := f.readBytes(pos, min(int64(128), f.size-pos))
	if err != nil {
		return err
	}
	c := cursor{b: head, pos: 8}
	version := c.readUint(1)
	switch version {
	case 0, 1:
		c.skip(4)
		f.offsets, f.lengths = int(c.readUint(1)), int(c.readUint(1))
		c.skip(1 + 2 + 2 + 4)
		if version == 1 {
			c.skip(4)
		}
	case 2, 3:
		f.offsets, f.lengths = int(c.readUint(1)), int(c.readUint(1))
		c.skip(1)
	default:
		if c.err == nil {
			return fmt.Errorf("unsupported superblock version %d: versions 0 to 3 are supported", version)
		}
	}
	if c.err == nil && (f.offsets != 4 && f.offsets != 8 || f.lengths != 4 && f.lengths != 8) {
		return fmt.Errorf("unsupported size of addresses (%d bytes) or lengths (%d bytes): 4 and 8 are supported", f.offsets, f.lengths)
	}
	base := c.readUint(f.offsets)
	if version < 2 {
		c.skip(3*f.offsets + f.offsets) // free space, end, driver; then the root's link name
	} else {
		c.skip(2 * f.offsets) // extension, end
	}
	root := c.readUint(f.offsets)
	if c.err != nil {
		return fmt.Errorf("read superblock: %w", c.err)
	}
	if base > uint64(f.size) {
		return fmt.Errorf("base address %d exceeds the file of %d bytes: the file is damaged", base, f.size)
	}
	f.base = int64(base)
	if f.root, err = f.filePosition(root); err != nil {
		return fmt.Errorf("root group: %w", err)
	}
	return nil
}

// filePosition converts an HDF5 address, which is relative to the base address, to a position from
// the file's start. It is an error if the position is beyond the end of the file.
func (f *File) filePosition(a uint64) (int64, error) {
	if a >= uint64(f.size-f.base) {
		return 0, fmt.Errorf("address %d is beyond the end of the file (%d bytes): the file is truncated or damaged; copy it again", a, f.size)
	}
	return f.base + int64(a), nil
}

// isUndefinedAddress reports whether a is the undefined address, in which all bits are set.
func (f *File) isUndefinedAddress(a uint64) bool {
	if f.offsets == 4 {
		return a == 0xffffffff
	}
	return a == ^uint64(0)
}

func (f *File) readBytes(pos, n int64) ([]byte, error) {
	if pos < 0 || n < 0 || n > f.size-pos {
		return nil, fmt.Errorf("bytes %d to %d are beyond the end of the file (%d bytes): the file is truncated or damaged; copy it again", pos, pos+n, f.size)
	}
	b := make([]byte, n)
	if err := f.readAt(b, pos); err != nil {
		return nil, err
	}
	return b, nil
}

func (f *File) readAt(b []byte, pos int64) error {
	n, err := f.r.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read bytes %d to %d: %w", pos, pos+int64(len(b)), err)
}

// clampToFileEnd returns n or, if fewer bytes follow pos in the file, their number.
func (f *File) clampToFileEnd(pos, n int64) int64 { return max(0, min(n, f.size-pos)) }

// RootLinkNames returns the sorted names of the links in the root group.
func (f *File) RootLinkNames() ([]string, error) {
	links, err := f.readGroupLinks(f.root)
	if err != nil {
		return nil, fmt.Errorf("read root group: %w", err)
	}
	return slices.Sorted(maps.Keys(links)), nil
}

// Dataset opens a data set by its path, such as Nbody or run1/Nbody.
func (f *File) Dataset(path string) (*Dataset, error) {
	pos := f.root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		links, err := f.readGroupLinks(pos)
		if err != nil {
			return nil, fmt.Errorf("open data set %s: %w", path, err)
		}
		to, ok := links[part]
		if !ok {
			return nil, fmt.Errorf("open data set %s: %s does not exist; its group contains: %s", path, part, joinNames(slices.Sorted(maps.Keys(links))))
		}
		if to == unfollowedLink {
			return nil, fmt.Errorf("open data set %s: %s is a soft or external link, which is not followed: name the data set itself", path, part)
		}
		pos = to
	}
	d, err := f.openDataset(pos)
	if err != nil {
		return nil, fmt.Errorf("open data set %s: %w", path, err)
	}
	return d, nil
}

// joinNames joins names, at most ten of them, by commas. It returns "none" if there are no names.
func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 10 {
		return strings.Join(names[:10], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// cursor reads numbers and bytes from b. A read beyond the end of b sets err and returns zero.
type cursor struct {
	b   []byte
	pos int
	err error
}

// nextBytes returns the next n bytes, or nil after an error.
func (c *cursor) nextBytes(n int) []byte {
	if c.err != nil || n < 0 || n > len(c.b)-c.pos {
		if c.err == nil {
			c.err = errors.New("unexpected end of a header structure: the file is damaged")
		}
		return nil
	}
	b := c.b[c.pos:][:n]
	c.pos += n
	return b
}

func (c *cursor) skip(n int) { c.nextBytes(n) }

func (c *cursor) readUint(n int) uint64 {
	var v uint64
	for i, b := range c.nextBytes(n) {
		v |= uint64(b) << (8 * i)
	}
	return v
}
