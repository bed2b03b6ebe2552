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

// A file is a sequence of TFRecords: the length as uint64, the masked CRC32C of
// these 8 bytes, the data, and the masked CRC32C of the data, all little-endian
// (tensorflow/core/lib/io/record_writer.h and lib/hash/crc32c.h). Each record
// is an Event message, which proto.go decodes. Scalars become curves.
// Everything else (graphs, images, histograms) is skipped once its CRC has been
// checked.
//
// A wrong CRC ends the reading, as in TensorBoard: the length of the record
// cannot be trusted, so the start of the next record is unknown. If a file ends
// inside a record, everything before that record is read.
const (
	Kind = "TensorBoard events"

	recordHeader   = 12 // length and its CRC
	recordOverhead = 16 // the header and the CRC of the data

	// A longer record is checked and skipped in pieces. A record of scalars has
	// some hundred bytes.
	maxHeldRecord = 64 << 20

	// Limits of what a file may bring into memory. record.Curve limits the
	// points of a curve.
	maxCurves   = 1 << 14
	maxTagBytes = 1 << 12

	ChunkBytes = 1 << 18 // bytes read at once, which fit into the processor's cache

	crcMaskDelta = 0xa282ead8
)

// castagnoli returns the table with which hash/crc32 uses the processor's
// instruction for CRC32C. The library makes it once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// maskCRC returns a CRC as records store it: rotated, with a constant added.
func maskCRC(crc uint32) uint32 { return (crc>>15 | crc<<17) + crcMaskDelta }

// Format returns the format of event files.
func Format() record.Format {
	return record.Format{Name: Kind, Recognizes: recognizes, Read: readFile}
}

// recognizes reports whether head begins with a record whose length has the
// right CRC. One other file in four billion passes by chance.
func recognizes(_ string, head []byte) bool {
	return len(head) >= recordHeader &&
		maskCRC(crc32.Checksum(head[:8], castagnoli())) == binary.LittleEndian.Uint32(head[8:])
}

// readFile reads an event file. Join makes a run of the files of a folder.
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

// Reader reads an event file in pieces of any size, and can return at any time
// what it has read.
type Reader struct {
	table *crc32.Table

	offset int64  // in the file, of the current record
	rest   []byte // the beginning of the current record, if a piece ended inside it
	large  largeRecord

	stopped bool // by a wrong CRC

	curves    []*record.Curve
	byTag     map[string]int
	next      int // index of the curve that is likely to come next: tags repeat in the same order
	began     float64
	restarted bool
	restart   int64 // lowest step at which a session started; it replaces later steps of earlier files

	records, scalars int64
	dropped          int64 // scalars of tags beyond maxCurves
	problems         []string
	moreProblems     int
}

// largeRecord is a record that is skipped in pieces.
type largeRecord struct {
	left int64 // bytes of the data and its CRC still to come
	size int64
	crc  uint32
	on   bool
}

// NewReader returns a reader of one event file.
func NewReader() *Reader {
	return &Reader{table: castagnoli(), byTag: map[string]int{}, began: math.NaN()}
}

// Write reads the next piece of the file. It keeps nothing of b except the
// beginning of a record that continues in the next piece.
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

// complete adds the missing bytes to the beginning of a record, reads the
// record if it is whole, and returns what follows.
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

// whole reads the whole records at the beginning of b and returns their length.
// If the next record is too large to be held, its header is included.
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

// skip skips the bytes of b that belong to the large record, and returns what
// follows.
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

// stop ends the reading at the current record with a problem.
func (r *Reader) stop(format string, a ...any) {
	r.stopped = true
	r.rest = nil
	r.problem("reading stops at byte %d: %s; what stands before it is read", r.offset, fmt.Sprintf(format, a...))
}

// problem notes a problem of the file.
func (r *Reader) problem(format string, a ...any) {
	if len(r.problems) >= record.MaxUnused-2 { // room is left for a stop and a torn end, which are always noted
		r.moreProblems++
		return
	}
	r.problems = append(r.problems, fmt.Sprintf(format, a...))
}

// torn returns how many bytes there are of an incomplete record at the end of
// the file.
func (r *Reader) torn() int64 {
	switch {
	case r.stopped:
		return 0
	case r.large.on:
		return recordHeader + r.large.size + 4 - r.large.left
	}
	return int64(len(r.rest))
}

// Report writes into a report what was read and what was not. ended says that
// nothing will follow.
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

// curve returns the curve of a tag, or nil if there are too many.
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

// sessionStart removes what the file has from step on. Join does the same with
// earlier files of the run.
func (r *Reader) sessionStart(step int64) {
	for _, c := range r.curves {
		c.ForgetFrom(step)
	}
	if !r.restarted || step < r.restart {
		r.restarted, r.restart = true, step
	}
}
