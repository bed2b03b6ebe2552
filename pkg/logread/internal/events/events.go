package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"lockstep/pkg/logread/internal/record"
)

// TensorBoard's event files. A file is a sequence of TFRecords: the length as
// uint64, the masked CRC32C of these 8 bytes, the data, the masked CRC32C of
// the data, all little-endian (tensorflow/core/lib/io/record_writer.h and
// lib/hash/crc32c.h). Each record is an Event message; eventsproto.go decodes
// it. Scalars become curves, everything else (graphs, images, histograms) is
// passed over once its CRC has been checked.
//
// A wrong CRC ends the reading, as it does in TensorBoard: the length of the
// record cannot be trusted, so nothing says where the next one begins. A file
// that ends inside a record is read up to it.
const (
	Kind = "TensorBoard events"

	recordHeader   = 12 // length and its CRC
	recordOverhead = 16 // those and the CRC of the data

	// A record that is longer than this is checked and passed over in pieces.
	// A record of scalars has some hundred bytes.
	maxHeldRecord = 64 << 20

	// What a file may bring into memory, whatever it holds: so many tags, and
	// names of so many bytes. What a curve may is in curve.go.
	maxCurves   = 1 << 14
	maxTagBytes = 1 << 12

	ChunkBytes = 1 << 18 // bytes read at once: they stay in the processor's cache

	crcMaskDelta = 0xa282ead8
)

// castagnoli makes the table that hash/crc32 computes with the processor's
// own instruction; it is made once, inside the library.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// maskCRC is a CRC as records hold it: rotated, and a constant added.
func maskCRC(crc uint32) uint32 { return (crc>>15 | crc<<17) + crcMaskDelta }

// Format returns the format of event files.
func Format() record.Format {
	return record.Format{Name: Kind, Recognizes: recognizes, Read: readFile}
}

// isEvents says whether head begins with a record whose length has the right
// CRC: chance lets one other file in four billion pass.
func recognizes(_ string, head []byte) bool {
	return len(head) >= recordHeader &&
		maskCRC(crc32.Checksum(head[:8], castagnoli())) == binary.LittleEndian.Uint32(head[8:])
}

// readEvents reads an event file; eventsrun.go makes one run of those of a
// folder.
func readFile(_ context.Context, in *record.Input) ([]*record.Part, error) {
	r := NewReader()
	buf := make([]byte, ChunkBytes)
	for {
		n, err := in.Reader.Read(buf)
		r.Write(buf[:n])
		if r.stopped || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	r.Report(in.Report, true)
	if r.records == 0 {
		return nil, nil
	}
	return []*record.Part{{Role: record.Companion, Source: r}}, nil
}

// Reader takes an event file in pieces of any size and can say at any
// time what it holds.
type Reader struct {
	table *crc32.Table

	offset int64  // in the file, of the record that is being read
	rest   []byte // its beginning, where a piece ended inside it
	large  largeRecord

	stopped bool // by a wrong CRC

	curves    []*record.Curve
	byTag     map[string]int
	next      int // curve that is likely to come: tags repeat in the same order
	began     float64
	restarted bool
	restart   int64 // lowest step of a session's start: earlier files' later steps do not count

	records, scalars int64
	dropped          int64 // scalars of tags beyond maxCurves
	problems         []string
	moreProblems     int
}

// largeRecord is a record that is passed over in pieces.
type largeRecord struct {
	left int64 // bytes of data still to come, and of the CRC when negative: see skip
	size int64
	crc  uint32
	on   bool
}

func NewReader() *Reader {
	return &Reader{table: castagnoli(), byTag: map[string]int{}, began: math.NaN()}
}

// Write takes the next piece of the file. It keeps nothing of b but the
// beginning of a record that it ends in.
func (r *Reader) Write(b []byte) {
	for len(b) > 0 && !r.stopped {
		switch {
		case r.large.on:
			b = r.skip(b)
		case len(r.rest) > 0:
			b = r.complete(b)
		default:
			b = b[r.whole(b):]
			if r.large.on || r.stopped {
				continue
			}
			r.rest = append(r.rest[:0], b...)
			return
		}
	}
}

// complete adds to the record's beginning what is missing of it, takes the
// record, and returns what follows.
func (r *Reader) complete(b []byte) []byte {
	need := recordHeader
	if len(r.rest) >= recordHeader {
		// The length was checked when the header was there.
		need = recordOverhead + int(binary.LittleEndian.Uint64(r.rest))
	}
	n := min(need-len(r.rest), len(b))
	r.rest = append(r.rest, b[:n]...)
	if used := r.whole(r.rest); used > 0 || r.large.on || r.stopped {
		r.rest = r.rest[:0]
	}
	return b[n:]
}

// whole takes the whole records at the beginning of b and returns their
// length. Where the next one is too large to be held its header is taken too.
func (r *Reader) whole(b []byte) (used int) {
	for len(b)-used >= recordHeader {
		at := b[used:]
		if maskCRC(crc32.Checksum(at[:8], r.table)) != binary.LittleEndian.Uint32(at[8:]) {
			r.stop("the length of the record has the wrong CRC")
			return used
		}
		length := binary.LittleEndian.Uint64(at)
		if length > maxHeldRecord {
			if length > math.MaxInt64-recordOverhead {
				r.stop("the record is said to be %d bytes long", length)
				return used
			}
			r.large = largeRecord{on: true, left: int64(length) + 4, size: int64(length)}
			return used + recordHeader
		}
		n := int(length)
		if len(at) < recordOverhead+n {
			return used
		}
		data := at[recordHeader : recordHeader+n]
		if maskCRC(crc32.Checksum(data, r.table)) != binary.LittleEndian.Uint32(at[recordHeader+n:]) {
			r.stop("the record has the wrong CRC")
			return used
		}
		if err := r.event(data); err != nil {
			r.problem("the record at byte %d is passed over: %v", r.offset, err)
		}
		r.records++
		used += recordOverhead + n
		r.offset += int64(recordOverhead + n)
	}
	return used
}

// skip passes over b as far as it belongs to the large record.
func (r *Reader) skip(b []byte) []byte {
	l := &r.large
	if l.left > 4 {
		n := int(min(l.left-4, int64(len(b))))
		l.crc = crc32.Update(l.crc, r.table, b[:n])
		l.left -= int64(n)
		return b[n:]
	}
	n := int(min(l.left, int64(len(b))))
	r.rest = append(r.rest, b[:n]...)
	l.left -= int64(n)
	if l.left > 0 {
		return nil
	}
	if maskCRC(l.crc) != binary.LittleEndian.Uint32(r.rest) {
		r.stop("the record has the wrong CRC")
	} else {
		r.problem("the record at byte %d is %d bytes long and is passed over; a record of scalars has no more than %d", r.offset, l.size, maxHeldRecord)
		r.records++
		r.offset += recordOverhead + l.size
	}
	r.rest, r.large = r.rest[:0], largeRecord{}
	return b[n:]
}

func (r *Reader) stop(format string, a ...any) {
	r.stopped = true
	r.rest = nil
	r.problem("reading stops at byte %d: %s; what stands before it is read", r.offset, fmt.Sprintf(format, a...))
}

func (r *Reader) problem(format string, a ...any) {
	if len(r.problems) >= record.MaxUnused-2 { // a stop and a torn end are always said
		r.moreProblems++
		return
	}
	r.problems = append(r.problems, fmt.Sprintf(format, a...))
}

// torn is how many bytes there are of a record that the file ends in.
func (r *Reader) torn() int64 {
	switch {
	case r.stopped:
		return 0
	case r.large.on:
		return recordHeader + r.large.size + 4 - r.large.left
	}
	return int64(len(r.rest))
}

// Report says in a report what was read and what not; ended says that nothing
// will follow.
func (r *Reader) Report(to *record.Report, ended bool) {
	to.Records = r.records
	for _, p := range r.problems {
		to.Problem(0, "%s", p)
	}
	if n := r.torn(); ended && n > 0 {
		to.Problem(0, "the file ends inside the record at byte %d, of which %d bytes are there; what stands before it is read", r.offset, n)
	}
	to.UnusedMore += r.moreProblems
	if r.dropped > 0 {
		to.Problem(0, "%d values are not read: the file has more than %d tags", r.dropped, maxCurves)
	}
	if r.records > r.scalars && r.scalars == 0 {
		to.Assume("none of the %d records holds a scalar", r.records)
	}
}

// scalar adds a value to its curve.
func (r *Reader) scalar(tag []byte, step int64, at, value float64) {
	r.scalars++
	c := r.curve(tag)
	if c == nil {
		r.dropped++
		return
	}
	c.Add(step, value, at)
}

func (r *Reader) curve(tag []byte) *record.Curve {
	if r.next >= len(r.curves) {
		r.next = 0
	}
	if r.next < len(r.curves) && r.curves[r.next].Name == string(tag) {
		r.next++
		return r.curves[r.next-1]
	}
	i, ok := r.byTag[string(tag)]
	if !ok {
		if len(r.curves) >= maxCurves || len(tag) > maxTagBytes {
			return nil
		}
		i = len(r.curves)
		name := string(tag)
		r.byTag[name] = i
		r.curves = append(r.curves, record.NewCurve(name, -1, true))
	}
	r.next = i + 1
	return r.curves[i]
}

// sessionStart drops what the file holds from step on, and remembers that
// earlier files of the run have to do so too.
func (r *Reader) sessionStart(step int64) {
	for _, c := range r.curves {
		c.ForgetFrom(step)
	}
	if !r.restarted || step < r.restart {
		r.restarted, r.restart = true, step
	}
}
