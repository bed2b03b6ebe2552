package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"lockstep/pkg/logread/internal/record"
)

// A file is a sequence of TFRecords: the length as uint64, the masked CRC32C of these 8 bytes, the
// data, and the masked CRC32C of the data, all little-endian (tensorflow/core/lib/io/record_writer.h
// and lib/hash/crc32c.h). Each record is an Event message, which proto.go decodes.
//
// A wrong CRC ends the reading, as in TensorBoard: the length of the record
// cannot be trusted, so the start of the next record is unknown. If a file ends
// inside a record, everything before that record is read.
const (
	Kind = "TensorBoard events"

	recordHeader   = 12 // length and its CRC
	recordOverhead = 16 // the header and the CRC of the data

	// A longer record is not kept but skipped. A record of scalars has some hundred bytes.
	maxHeldRecord = 64 << 20

	// Limits of the memory for a file's values. record.Curve limits the points of a curve.
	maxCurves   = 1 << 14
	maxTagBytes = 1 << 12

	chunkBytes = 1 << 18 // bytes read at once, which fit into the processor's cache

	crcMaskDelta = 0xa282ead8
)

// castagnoliTable returns the table for which hash/crc32 uses the CRC32C instruction; computed once.
func castagnoliTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// maskCRC masks a CRC as TFRecords store it: rotated right by 15 bits, plus a constant.
func maskCRC(crc uint32) uint32 { return (crc>>15 | crc<<17) + crcMaskDelta }

// Format returns the format of TensorBoard's event files.
func Format() record.Format {
	return record.Format{Name: Kind, Recognizes: isEventFile, Read: readEventFile}
}

// isEventFile reports whether head begins with a record whose length has the
// right CRC. A file of another format passes with a probability of 2^-32.
func isEventFile(_ string, head []byte) bool {
	return len(head) >= recordHeader &&
		maskCRC(crc32.Checksum(head[:8], castagnoliTable())) == binary.LittleEndian.Uint32(head[8:])
}

// readEventFile reads an event file into one part. JoinEventFiles later merges the parts of a
// folder.
func readEventFile(_ context.Context, in *record.Input) ([]*record.Part, error) {
	r := NewParser()
	if err := r.Read(in.Reader); err != nil {
		return nil, err
	}
	r.AddToReport(in.Report, true)
	if r.records == 0 {
		return nil, nil
	}
	return []*record.Part{{Role: record.Companion, Source: r}}, nil
}

// Parser parses an event file that may still grow. Its results so far can be used at any time.
type Parser struct {
	table *crc32.Table

	offset int64  // offset of the current record in the file
	rest   []byte // the beginning of the current record, if the content so far ends inside it
	large  int64  // bytes of the current record's data, if they are skipped; otherwise 0
	left   int64  // bytes of them and of their CRC that were not read yet

	stopped bool // parsing ended at a wrong CRC

	curves    record.Curves // one per tag
	began     float64       // time of the first event, in seconds since 1970; NaN before it
	restarted bool
	restart   int64 // lowest step at which a session started; later steps of earlier files are superseded

	records, scalars int64
	dropped          int64 // scalars of tags beyond maxCurves
	problems         []string
	moreProblems     int
}

// NewParser returns a parser for one event file.
func NewParser() *Parser {
	return &Parser{table: castagnoliTable(), curves: record.Curves{Most: maxCurves}, began: math.NaN()}
}

// Read parses the next content of the file, up to the end of source. It keeps the
// beginning of a record that continues in the next content.
func (r *Parser) Read(source io.Reader) error {
	b := append(make([]byte, 0, chunkBytes+len(r.rest)), r.rest...)
	for {
		if len(b) == cap(b) { // a long record
			b = slices.Grow(b, len(b))
		}
		n, err := source.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		b = b[:copy(b, b[r.readRecords(b):])]
		if err == nil {
			continue
		}
		if r.rest = bytes.Clone(b); errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// readRecords parses the complete records at the beginning of b and returns how many bytes it used.
// After a wrong CRC it skips everything and returns len(b).
func (r *Parser) readRecords(b []byte) (used int) {
	for {
		at := b[used:]
		switch {
		case r.stopped:
			return len(b)
		case r.large > 0:
			n := min(r.left, int64(len(at)))
			used += int(n)
			if r.left -= n; r.left > 0 {
				return used
			}
			r.addProblem("record at byte %d is %d bytes long and is skipped; a record of scalars has at most %d", r.offset, r.large, maxHeldRecord)
			r.records++
			r.offset += recordOverhead + r.large
			r.large = 0
			continue
		case len(at) < recordHeader:
			return used
		case maskCRC(crc32.Checksum(at[:8], r.table)) != binary.LittleEndian.Uint32(at[8:]):
			r.stopWithProblem("the length of the record has the wrong CRC")
			continue
		}
		length := binary.LittleEndian.Uint64(at)
		if length > math.MaxInt64-recordOverhead {
			r.stopWithProblem("invalid record length %d", length)
			continue
		}
		if length > maxHeldRecord {
			r.large, r.left = int64(length), int64(length)+4
			used += recordHeader
			continue
		}
		n := int(length)
		if len(at) < recordOverhead+n {
			return used
		}
		data := at[recordHeader : recordHeader+n]
		if maskCRC(crc32.Checksum(data, r.table)) != binary.LittleEndian.Uint32(at[recordHeader+n:]) {
			r.stopWithProblem("the record has the wrong CRC")
			continue
		}
		if err := r.readEvent(data); err != nil {
			r.addProblem("record at byte %d is skipped: %v", r.offset, err)
		}
		r.records++
		used += recordOverhead + n
		r.offset += int64(recordOverhead + n)
	}
}

func (r *Parser) stopWithProblem(format string, a ...any) {
	r.stopped = true
	r.addProblem("reading stops at byte %d: %s; the content before it is read", r.offset, fmt.Sprintf(format, a...))
}

func (r *Parser) addProblem(format string, a ...any) {
	if len(r.problems) >= record.MaxUnused-2 { // the last two are reserved for a stop and a torn end, which are always reported
		r.moreProblems++
		return
	}
	r.problems = append(r.problems, fmt.Sprintf(format, a...))
}

// countTornBytes returns the size of the incomplete record at the end of the file, or 0.
func (r *Parser) countTornBytes() int64 {
	switch {
	case r.stopped:
		return 0
	case r.large > 0:
		return recordHeader + r.large + 4 - r.left
	}
	return int64(len(r.rest))
}

// AddToReport reports what was read, what was skipped, and why. If ended is set, the
// file is complete, and an incomplete record at its end is a problem.
func (r *Parser) AddToReport(rep *record.Report, ended bool) {
	rep.Records = r.records
	for _, p := range r.problems {
		rep.AddProblem(0, "%s", p)
	}
	if n := r.countTornBytes(); ended && n > 0 {
		rep.AddProblem(0, "the file ends inside the record at byte %d, after %d of its bytes; the content before it is read", r.offset, n)
	}
	rep.UnusedMore += r.moreProblems
	if r.dropped > 0 {
		rep.AddProblem(0, "%d values are not read: the file has more than %d tags", r.dropped, maxCurves)
	}
	if r.records > r.scalars && r.scalars == 0 {
		rep.AddAssumption("none of the %d records contains a scalar", r.records)
	}
}

// addScalar adds a value to its tag's curve. seconds is the time since 1970.
func (r *Parser) addScalar(tag []byte, step int64, seconds, value float64) {
	r.scalars++
	if len(tag) <= maxTagBytes {
		if c := r.curves.FindOrAdd(tag, -1, true); c != nil {
			c.AddPoint(step, value, seconds)
			return
		}
	}
	r.dropped++
}

// removePointsFrom removes the file's points at and after step, because a resumed session logs them
// again. JoinEventFiles removes them from the run's earlier files.
func (r *Parser) removePointsFrom(step int64) {
	for _, c := range r.curves.All {
		record.RemovePointsFrom(&c.Curve, step)
	}
	if !r.restarted || step < r.restart {
		r.restarted, r.restart = true, step
	}
}
