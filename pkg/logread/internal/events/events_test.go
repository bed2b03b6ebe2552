package events

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// The tests write messages with package protowire and read them with this package.
// Both share only the field numbers.

// pieces is a reader whose Read returns at most n bytes.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	k := copy(to, p.b[:min(p.n, len(p.b))])
	p.b = p.b[k:]
	return k, nil
}

// read passes a file to a new Parser in two parts, each in pieces of n bytes.
func read(b []byte, n int) *Parser {
	r := NewParser()
	for _, part := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
		if err := r.Read(&pieces{part, n}); err != nil {
			panic(err) // pieces returns none
		}
	}
	return r
}

// problemsOf returns the problems in the report of a Parser.
func problemsOf(r *Parser, ended bool) (texts []string) {
	report := record.Report{Path: "f"}
	r.AddToReport(&report, ended)
	for _, p := range report.Problems() {
		texts = append(texts, p.String())
	}
	return texts
}

// eventRun returns the run that Join makes of several files.
func eventRun(files map[string]*Parser) runs.Run {
	var parts []*record.Part
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, &record.Part{Role: record.Companion, Run: runs.Run{File: name, Dir: name}, Source: files[name], Report: &record.Report{Path: name}})
	}
	return JoinEventFiles(parts)[0].Run
}

// TestMaskedCRC checks the CRC-32C of "123456789", which is e3069283, and of 32
// zero bytes, which is 8a9136aa (RFC 3720, appendix B.4).
func TestMaskedCRC(t *testing.T) {
	for text, crc := range map[string]uint32{"123456789": 0xe3069283, strings.Repeat("\x00", 32): 0x8a9136aa} {
		if got, want := recordtest.ComputeMaskedCRC([]byte(text)), maskCRC(crc); got != want {
			t.Errorf("%q: %x, expected %x", text, got, want)
		}
	}
}

func TestEventScalars(t *testing.T) {
	pack := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = protowire.AppendVarint(b, x)
		}
		return b
	}
	neg := uint64(math.MaxUint64) - 2 // −3 as a varint
	nan := math.NaN()
	for i, c := range []struct {
		value []byte
		want  float64
		not   bool // no scalar
	}{
		{value: recordtest.EncodeScalar("a", 0.25), want: 0.25},
		{value: recordtest.EncodeScalar("a", float32(math.Inf(-1))), want: math.Inf(-1)},
		{value: recordtest.EncodeScalar("a", float32(nan)), want: nan},
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeFixed32Field(5, 0.5)), want: 0.5},
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeBytesField(5, recordtest.EncodeFixed32Field(1, 1.5)[1:])), want: 1.5},
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeBytesField(4, recordtest.EncodeFixed32Field(1, 2.5)[1:])), want: 2.5},
		{value: recordtest.EncodeTensor("a", 2, recordtest.EncodeFixed64Field(6, 0.1)), want: 0.1},
		{value: recordtest.EncodeTensor("a", 2, recordtest.EncodeBytesField(6, recordtest.EncodeFixed64Field(1, 0.2)[1:])), want: 0.2},
		{value: recordtest.EncodeTensor("a", 2, recordtest.EncodeBytesField(4, recordtest.EncodeFixed64Field(1, 0.3)[1:])), want: 0.3},
		{value: recordtest.EncodeTensor("a", 3, recordtest.EncodeBytesField(7, pack(neg))), want: -3},
		{value: recordtest.EncodeTensor("a", 3, recordtest.EncodeVarintField(7, 7)), want: 7},
		{value: recordtest.EncodeTensor("a", 3, recordtest.EncodeBytesField(4, []byte{0xfd, 0xff, 0xff, 0xff})), want: -3},
		{value: recordtest.EncodeTensor("a", 4, recordtest.EncodeBytesField(4, []byte{200})), want: 200},
		{value: recordtest.EncodeTensor("a", 6, recordtest.EncodeBytesField(4, []byte{0xfd})), want: -3},
		{value: recordtest.EncodeTensor("a", 5, recordtest.EncodeBytesField(4, []byte{0xfd, 0xff})), want: -3},
		{value: recordtest.EncodeTensor("a", 17, recordtest.EncodeBytesField(4, []byte{0xfd, 0xff})), want: 65533},
		{value: recordtest.EncodeTensor("a", 9, recordtest.EncodeBytesField(10, pack(neg))), want: -3},
		{value: recordtest.EncodeTensor("a", 9, recordtest.EncodeBytesField(4, []byte{0xfd, 255, 255, 255, 255, 255, 255, 255})), want: -3},
		{value: recordtest.EncodeTensor("a", 10, recordtest.EncodeBytesField(11, pack(1))), want: 1},
		{value: recordtest.EncodeTensor("a", 22, recordtest.EncodeBytesField(16, pack(1<<31))), want: 1 << 31},
		{value: recordtest.EncodeTensor("a", 23, recordtest.EncodeBytesField(17, pack(1<<63))), want: 1 << 63},
		{value: recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(13, pack(0x3555))), want: 0.333251953125},    // the half next to 1/3 (IEEE 754)
		{value: recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(13, pack(0xfbff))), want: -65504},            // the lowest half
		{value: recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(13, pack(1))), want: 5.9604644775390625e-08}, // the smallest half
		{value: recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(4, []byte{0, 0x7c})), want: math.Inf(1)},     //
		{value: recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(4, []byte{1, 0x7c})), want: nan},             //
		{value: recordtest.EncodeTensor("a", 14, recordtest.EncodeBytesField(13, pack(0x3fc0))), want: 1.5},               // bfloat16: the upper half of a float
		{value: recordtest.EncodeTensor("a", 1), want: 0},                                                                 // a default value is not written
		{value: recordtest.EncodeTensor("a", 7, recordtest.EncodeBytesField(8, []byte("some text"))), not: true},          // DT_STRING
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeBytesField(5, append(recordtest.EncodeFixed32Field(1, 1)[1:], recordtest.EncodeFixed32Field(1, 2)[1:]...))), not: true},
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeBytesField(2, recordtest.EncodeBytesField(2, recordtest.EncodeVarintField(1, 3)))), not: true},                                    // shape (3)
		{value: recordtest.EncodeTensor("a", 1, recordtest.EncodeBytesField(2, recordtest.EncodeBytesField(2, recordtest.EncodeVarintField(1, 1))), recordtest.EncodeFixed32Field(5, 4)), want: 4}, // shape (1)
		{value: recordtest.EncodeMessage(recordtest.EncodeBytesField(1, []byte("a")), recordtest.EncodeBytesField(4, []byte{1, 2, 3})), not: true},                                                 // an image
	} {
		r := read(recordtest.EncodeEventFile(recordtest.EncodeEvent(12, 3, c.value)), 1<<20)
		if len(r.problems) > 0 {
			t.Errorf("%d: %v", i, r.problems)
		}
		if c.not {
			if len(r.curves.All) > 0 {
				t.Errorf("%d: read as %v", i, r.curves.All[0].Values)
			}
			continue
		}
		if len(r.curves.All) != 1 {
			t.Errorf("%d: %d curves", i, len(r.curves.All))
			continue
		}
		want := runs.Curve{Name: "a", Rank: -1, Steps: []int64{3}, Values: []float64{c.want}, Times: []float64{12}}
		if d := cmp.Diff(want, r.curves.All[0].Curve, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%d (-want +got)\n%s", i, d)
		}
	}
}

// mixed returns a file in the form of Keras (a graph, scalars, an image,
// scalars) and the offsets at which its records end.
func mixed() (b []byte, ends []int) {
	records := [][]byte{
		recordtest.EncodeMessage(recordtest.EncodeFixed64Field(1, 1000), recordtest.EncodeBytesField(3, []byte("brain.Event:2"))),
		recordtest.EncodeMessage(recordtest.EncodeFixed64Field(1, 1001), recordtest.EncodeBytesField(4, bytes.Repeat([]byte("graph"), 2000))),
		recordtest.EncodeEvent(1002, 0, recordtest.EncodeScalar("epoch_loss", 2), recordtest.EncodeScalar("epoch_accuracy", 0.25)),
		recordtest.EncodeEvent(1003, 0, recordtest.EncodeMessage(recordtest.EncodeBytesField(1, []byte("sample")), recordtest.EncodeBytesField(4, bytes.Repeat([]byte{1}, 3000)))),
		recordtest.EncodeEvent(1004, 1, recordtest.EncodeScalar("epoch_loss", 1), recordtest.EncodeScalar("epoch_accuracy", 0.5)),
	}
	for _, r := range records {
		b = append(b, recordtest.EncodeRecord(r)...)
		ends = append(ends, len(b))
	}
	return b, ends
}

// TestEventPieces checks that a file is read in chunks of any size, and that
// all complete records of a truncated file are read and its end is reported.
func TestEventPieces(t *testing.T) {
	b, ends := mixed()
	for _, n := range []int{1, 2, 3, 11, 12, 13, 16, 17, 100, 4096, len(b)} {
		r := read(b, n)
		if r.records != 5 || r.scalars != 4 || len(problemsOf(r, true)) > 0 || r.offset != int64(len(b)) {
			t.Fatalf("pieces of %d: %d records, %d scalars, offset %d, %v", n, r.records, r.scalars, r.offset, problemsOf(r, true))
		}
	}
	for cut := range len(b) {
		r := read(b[:cut], 97)
		whole, at := 0, 0
		for _, e := range ends {
			if e <= cut {
				whole, at = whole+1, e
			}
		}
		problems := problemsOf(r, true)
		if int(r.records) != whole || (cut > at) != (len(problems) == 1) {
			t.Fatalf("cut at %d: %d records, expected %d; %v", cut, r.records, whole, problems)
		}
		if len(problems) == 1 {
			want := fmt.Sprintf("f: the file ends inside the record at byte %d, after %d of its bytes; the content before it is read", at, cut-at)
			if problems[0] != want {
				t.Fatalf("%s, expected %s", problems[0], want)
			}
			if len(problemsOf(r, false)) != 0 {
				t.Fatal("a file that grows is not torn")
			}
		}
	}
}

// TestEventCRC checks that a change of any byte is detected and that the
// records before it are read.
func TestEventCRC(t *testing.T) {
	b, ends := mixed()
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		r := read(bad, 1000)
		whole := 0
		for _, e := range ends {
			if e <= i {
				whole++
			}
		}
		problems := problemsOf(r, true)
		if int(r.records) != whole || len(problems) != 1 || !strings.Contains(problems[0], fmt.Sprintf("reading stops at byte %d: ", r.offset)) {
			t.Fatalf("byte %d: %d records, expected %d; %v", i, r.records, whole, problems)
		}
	}
}

// TestEventLarge checks that a record above the limit is skipped without keeping it
// in memory.
func TestEventLarge(t *testing.T) {
	large := recordtest.EncodeRecord(make([]byte, maxHeldRecord+1))
	tail := recordtest.EncodeRecord(recordtest.EncodeEvent(1, 2, recordtest.EncodeScalar("a", 3)))
	for _, c := range []struct {
		cut     int
		records int64
		says    string
	}{
		{0, 2, "is 67108865 bytes long and is skipped"},
		{len(tail) + 2, 0, "the file ends inside the record at byte 0, after 67108879 of its bytes"},
	} {
		b := append(bytes.Clone(large), tail...)
		r := read(b[:len(b)-c.cut], 1<<20-1)
		if p := problemsOf(r, true); r.records != c.records || len(p) != 1 || !strings.Contains(p[0], c.says) {
			t.Errorf("%+v: %d records, %v", c, r.records, p)
		}
		if cap(r.rest) > 1<<20 {
			t.Errorf("%d bytes were kept in memory", cap(r.rest))
		}
	}
}

// TestEventMalformed checks that a malformed Event with a correct CRC is a
// problem and that the records after it are read.
func TestEventMalformed(t *testing.T) {
	var bad [][]byte
	for range record.MaxUnused + 3 {
		bad = append(bad, []byte{0xff, 0xff, 0xff})
	}
	r := read(recordtest.EncodeEventFile(append(bad, recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("a", 1)))...), 64)
	p := problemsOf(r, true)
	if r.scalars != 1 || len(p) != record.MaxUnused-1 {
		t.Fatalf("%d scalars, %d problems", r.scalars, len(p))
	}
	if want := "f: record at byte 40 is skipped: malformed or incomplete protobuf message"; p[0] != want {
		t.Errorf("%s, expected %s", p[0], want) // the file version: 16 + 9 + 15 bytes
	}
	if want := "f: and 5 more lines that could not be used"; p[record.MaxUnused-2] != want {
		t.Errorf("%s, expected %s", p[record.MaxUnused-2], want)
	}
}

// TestEventRestart checks that a session that starts again at a step replaces
// the points from that step on.
func TestEventRestart(t *testing.T) {
	start := func(step int) []byte {
		return recordtest.EncodeMessage(recordtest.EncodeVarintField(2, uint64(step)), recordtest.EncodeBytesField(7, recordtest.EncodeVarintField(1, 1)))
	}
	first := read(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("a", 1)), recordtest.EncodeEvent(2, 2, recordtest.EncodeScalar("a", 2)), recordtest.EncodeEvent(3, 3, recordtest.EncodeScalar("a", 3))), 50)
	second := read(recordtest.EncodeEventFile(start(2), recordtest.EncodeEvent(5, 2, recordtest.EncodeScalar("a", 20)), recordtest.EncodeEvent(6, 4, recordtest.EncodeScalar("a", 40)), start(4), recordtest.EncodeEvent(7, 4, recordtest.EncodeScalar("a", 44))), 50)
	first.began, second.began = 1, 4 // whatever their names say
	run := eventRun(map[string]*Parser{"run/b": first, "run/a": second})
	want := []runs.Curve{{Name: "a", Rank: -1, Steps: []int64{1, 2, 4}, Values: []float64{1, 20, 44}, Times: []float64{1, 5, 7}}}
	if d := cmp.Diff(want, run.Curves); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestEventBounds checks that a file with many tags takes bounded memory and
// that omitted values are reported.
func TestEventBounds(t *testing.T) {
	r := NewParser()
	for i := range maxCurves + 9 {
		r.addScalar(fmt.Append(nil, "tag", i), 1, 0, 0)
	}
	r.addScalar(make([]byte, maxTagBytes+1), 1, 0, 0)
	want := []string{"f: 10 values are not read: the file has more than 16384 tags"}
	if d := cmp.Diff(want, problemsOf(r, true)); d != "" || len(r.curves.All) != maxCurves {
		t.Errorf("%d curves (-want +got)\n%s", len(r.curves.All), d)
	}
}

// eventsOf returns a file of about size bytes. Each record contains a scalar,
// and an image of the given number of bytes if that is not 0.
func eventsOf(size, image int) []byte {
	var b []byte
	tags := []string{"Loss/train", "Loss/valid", "Learning Rate", "Avg iters per sec"}
	blob := bytes.Repeat([]byte{0x5a}, image)
	for i := 0; len(b) < size; i++ {
		values := [][]byte{recordtest.EncodeScalar(tags[i%4], float32(i))}
		if image > 0 {
			values = append(values, recordtest.EncodeMessage(recordtest.EncodeBytesField(1, []byte("image")), recordtest.EncodeBytesField(4, blob)))
		}
		one := recordtest.EncodeEvent(1.7e9+float64(i), i, values...)
		head := protowire.AppendFixed64(nil, uint64(len(one)))
		b = append(b, head...)
		b = protowire.AppendFixed32(b, maskCRC(crc32c(head)))
		b = append(b, one...)
		b = protowire.AppendFixed32(b, maskCRC(crc32c(one)))
	}
	return b
}

func BenchmarkEvents(b *testing.B) {
	for _, c := range []struct {
		name  string
		image int
	}{{"scalars", 0}, {"4kB", 4096}, {"64kB", 65536}} {
		b.Run(c.name, func(b *testing.B) {
			data := eventsOf(8<<20, c.image)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if r := read(data, 1<<20); r.stopped {
					b.Fatal(r.problems)
				}
			}
		})
	}
}

func FuzzEvents(f *testing.F) {
	b, _ := mixed()
	f.Add(b, uint16(100))
	f.Add(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("a", 1)), recordtest.EncodeMessage(recordtest.EncodeVarintField(2, 1), recordtest.EncodeBytesField(7, recordtest.EncodeVarintField(1, 1)))), uint16(7))
	f.Add(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeTensor("a", 19, recordtest.EncodeBytesField(13, []byte{1})))), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		// A fuzzer hardly finds a correct CRC, so the bytes are also used as the data of records.
		for _, data := range [][]byte{b, append(recordtest.EncodeRecord(b), recordtest.EncodeRecord(b[:len(b)/2])...)} {
			once, pieces := read(data, len(data)+1), read(data, int(piece)+1)
			a, c := eventRun(map[string]*Parser{"f": once}), eventRun(map[string]*Parser{"f": pieces})
			if d := cmp.Diff(a, c, cmpopts.EquateNaNs()); d != "" {
				t.Fatalf("in pieces it reads otherwise:\n%s", d)
			}
			recordtest.ReadAndCheckFormat(t, Format(), "events.out.tfevents.1", data)
		}
	})
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
