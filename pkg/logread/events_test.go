package logread

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"

	"lockstep/pkg/runs"
)

// The writer here is of protowire, the reader is by hand: they share nothing
// but the numbers of the fields.

func message(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func text(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
}

func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func fixed64(num protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), math.Float64bits(v))
}

func fixed32(num protowire.Number, v float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), math.Float32bits(v))
}

// event is an Event with the values of a summary.
func event(at float64, step int, values ...[]byte) []byte {
	var summary []byte
	for _, v := range values {
		summary = append(summary, text(1, v)...)
	}
	return message(fixed64(1, at), number(2, uint64(step)), text(5, summary))
}

func simple(tag string, v float32) []byte { return message(text(1, []byte(tag)), fixed32(2, v)) }

// tensor is a value with a tensor of a DataType without dimensions.
func tensor(tag string, kind uint64, fields ...[]byte) []byte {
	return message(text(1, []byte(tag)), text(9, text(1, text(1, []byte("scalars")))),
		text(8, message(append([][]byte{number(1, kind), text(2, nil)}, fields...)...)))
}

// record frames data; the CRC is that of package runs' writer, which
// TensorFlow's own golden file pins down there.
func record(data []byte) []byte {
	b := protowire.AppendFixed64(nil, uint64(len(data)))
	b = protowire.AppendFixed32(b, testCRC(b))
	b = append(b, data...)
	return protowire.AppendFixed32(b, testCRC(data))
}

// testCRC is the masked CRC32C by its definition: bit by bit, reflected
// polynomial 0x82f63b78.
func testCRC(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	crc = ^crc
	return (crc>>15 | crc<<17) + 0xa282ead8
}

func eventFile(records ...[]byte) []byte {
	out := record(message(fixed64(1, 1000), text(3, []byte("brain.Event:2"))))
	for _, r := range records {
		out = append(out, record(r)...)
	}
	return out
}

// read gives a file to a reader in pieces of n bytes.
func read(b []byte, n int) *eventReader {
	r := newEventReader()
	for len(b) > 0 {
		k := min(n, len(b))
		r.write(b[:k])
		b = b[k:]
	}
	return r
}

// says are the problems of a reader of the file f.
func says(r *eventReader, ended bool) (texts []string) {
	report := Report{Path: "f"}
	r.report(&report, ended)
	for _, p := range report.problems() {
		texts = append(texts, p.String())
	}
	return texts
}

// eventRun is the run of several readers' files.
func eventRun(files map[string]*eventReader) runs.Run {
	var parts []*part
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, &part{role: companion, run: runs.Run{File: name, Dir: name}, events: files[name], report: &Report{Path: name}})
	}
	return (&merger{root: "run"}).merge(parts)[0]
}

// TestMaskedCRC: the check value of CRC-32C for "123456789" is e3069283
// (RFC 3720, appendix B.4 gives that of 32 zeros: 8a9136aa).
func TestMaskedCRC(t *testing.T) {
	for text, crc := range map[string]uint32{"123456789": 0xe3069283, strings.Repeat("\x00", 32): 0x8a9136aa} {
		if got, want := testCRC([]byte(text)), maskCRC(crc); got != want {
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
		{value: simple("a", 0.25), want: 0.25},
		{value: simple("a", float32(math.Inf(-1))), want: math.Inf(-1)},
		{value: simple("a", float32(nan)), want: nan},
		{value: tensor("a", 1, fixed32(5, 0.5)), want: 0.5},
		{value: tensor("a", 1, text(5, fixed32(1, 1.5)[1:])), want: 1.5},
		{value: tensor("a", 1, text(4, fixed32(1, 2.5)[1:])), want: 2.5},
		{value: tensor("a", 2, fixed64(6, 0.1)), want: 0.1},
		{value: tensor("a", 2, text(6, fixed64(1, 0.2)[1:])), want: 0.2},
		{value: tensor("a", 2, text(4, fixed64(1, 0.3)[1:])), want: 0.3},
		{value: tensor("a", 3, text(7, pack(neg))), want: -3},
		{value: tensor("a", 3, number(7, 7)), want: 7},
		{value: tensor("a", 3, text(4, []byte{0xfd, 0xff, 0xff, 0xff})), want: -3},
		{value: tensor("a", 4, text(4, []byte{200})), want: 200},
		{value: tensor("a", 6, text(4, []byte{0xfd})), want: -3},
		{value: tensor("a", 5, text(4, []byte{0xfd, 0xff})), want: -3},
		{value: tensor("a", 17, text(4, []byte{0xfd, 0xff})), want: 65533},
		{value: tensor("a", 9, text(10, pack(neg))), want: -3},
		{value: tensor("a", 9, text(4, []byte{0xfd, 255, 255, 255, 255, 255, 255, 255})), want: -3},
		{value: tensor("a", 10, text(11, pack(1))), want: 1},
		{value: tensor("a", 22, text(16, pack(1<<31))), want: 1 << 31},
		{value: tensor("a", 23, text(17, pack(1<<63))), want: 1 << 63},
		{value: tensor("a", 19, text(13, pack(0x3555))), want: 0.333251953125},    // the half next to 1/3 (IEEE 754)
		{value: tensor("a", 19, text(13, pack(0xfbff))), want: -65504},            // the lowest half
		{value: tensor("a", 19, text(13, pack(1))), want: 5.9604644775390625e-08}, // the smallest half
		{value: tensor("a", 19, text(4, []byte{0, 0x7c})), want: math.Inf(1)},     //
		{value: tensor("a", 19, text(4, []byte{1, 0x7c})), want: nan},             //
		{value: tensor("a", 14, text(13, pack(0x3fc0))), want: 1.5},               // bfloat16: the upper half of a float
		{value: tensor("a", 1), want: 0},                                          // a default value is not written
		{value: tensor("a", 7, text(8, []byte("some text"))), not: true},          // DT_STRING
		{value: tensor("a", 1, text(5, append(fixed32(1, 1)[1:], fixed32(1, 2)[1:]...))), not: true},
		{value: tensor("a", 1, text(2, text(2, number(1, 3)))), not: true},              // shape (3)
		{value: tensor("a", 1, text(2, text(2, number(1, 1))), fixed32(5, 4)), want: 4}, // shape (1)
		{value: message(text(1, []byte("a")), text(4, []byte{1, 2, 3})), not: true},     // an image
	} {
		r := read(eventFile(event(12, 3, c.value)), 1<<20)
		if len(r.problems) > 0 {
			t.Errorf("%d: %v", i, r.problems)
		}
		if c.not {
			if len(r.curves) > 0 {
				t.Errorf("%d: read as %v", i, r.curves[0].Values)
			}
			continue
		}
		if len(r.curves) != 1 {
			t.Errorf("%d: %d curves", i, len(r.curves))
			continue
		}
		want := runs.Curve{Name: "a", Rank: -1, Steps: []int64{3}, Values: []float64{c.want}, Times: []float64{12}}
		if d := cmp.Diff(want, r.curves[0].Curve, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%d (-want +got)\n%s", i, d)
		}
	}
}

// mixed is a file as Keras leaves it: a graph, scalars, an image, scalars.
func mixed() (b []byte, ends []int) {
	records := [][]byte{
		message(fixed64(1, 1000), text(3, []byte("brain.Event:2"))),
		message(fixed64(1, 1001), text(4, bytes.Repeat([]byte("graph"), 2000))),
		event(1002, 0, simple("epoch_loss", 2), simple("epoch_accuracy", 0.25)),
		event(1003, 0, message(text(1, []byte("sample")), text(4, bytes.Repeat([]byte{1}, 3000)))),
		event(1004, 1, simple("epoch_loss", 1), simple("epoch_accuracy", 0.5)),
	}
	for _, r := range records {
		b = append(b, record(r)...)
		ends = append(ends, len(b))
	}
	return b, ends
}

// TestEventPieces: however the file comes in pieces, and wherever it is cut,
// what is whole is read, and where it stops is said.
func TestEventPieces(t *testing.T) {
	b, ends := mixed()
	for _, n := range []int{1, 2, 3, 11, 12, 13, 16, 17, 100, 4096, len(b)} {
		r := read(b, n)
		if r.records != 5 || r.scalars != 4 || len(says(r, true)) > 0 || r.offset != int64(len(b)) {
			t.Fatalf("pieces of %d: %d records, %d scalars, offset %d, %v", n, r.records, r.scalars, r.offset, says(r, true))
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
		problems := says(r, true)
		if int(r.records) != whole || (cut > at) != (len(problems) == 1) {
			t.Fatalf("cut at %d: %d records, expected %d; %v", cut, r.records, whole, problems)
		}
		if len(problems) == 1 {
			want := fmt.Sprintf("f: the file ends inside the record at byte %d, of which %d bytes are there; what stands before it is read", at, cut-at)
			if problems[0] != want {
				t.Fatalf("%s, expected %s", problems[0], want)
			}
			if len(says(r, false)) != 0 {
				t.Fatal("a file that grows is not torn")
			}
		}
	}
}

// TestEventCRC: no byte can change unnoticed, and what stands before it counts.
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
		problems := says(r, true)
		if int(r.records) != whole || len(problems) != 1 || !strings.Contains(problems[0], fmt.Sprintf("reading stops at byte %d: ", r.offset)) {
			t.Fatalf("byte %d: %d records, expected %d; %v", i, r.records, whole, problems)
		}
	}
}

// TestEventLarge: a record beyond the limit is checked in pieces and passed over.
func TestEventLarge(t *testing.T) {
	large := record(make([]byte, maxHeldRecord+1))
	tail := record(event(1, 2, simple("a", 3)))
	for _, c := range []struct {
		flip    int // byte of the file that is damaged; −1: none
		cut     int
		records int64
		says    string
	}{
		{-1, 0, 2, "is 67108865 bytes long and is passed over"},
		{maxHeldRecord / 2, 0, 0, "reading stops at byte 0: the record has the wrong CRC"},
		{-1, len(tail) + 2, 0, "the file ends inside the record at byte 0, of which 67108879 bytes are there"},
	} {
		b := append(bytes.Clone(large), tail...)
		if c.flip >= 0 {
			b[c.flip] ^= 1
		}
		r := read(b[:len(b)-c.cut], 1<<20-1)
		if p := says(r, true); r.records != c.records || len(p) != 1 || !strings.Contains(p[0], c.says) {
			t.Errorf("%+v: %d records, %v", c, r.records, p)
		}
		if cap(r.rest) > 1<<20 {
			t.Errorf("%d bytes were held", cap(r.rest))
		}
	}
}

// TestEventMalformed: a record that is no Event though its CRC is right is
// said, and those after it are read.
func TestEventMalformed(t *testing.T) {
	var bad [][]byte
	for range maxUnused + 3 {
		bad = append(bad, []byte{0xff, 0xff, 0xff})
	}
	r := read(eventFile(append(bad, event(1, 1, simple("a", 1)))...), 64)
	p := says(r, true)
	if r.scalars != 1 || len(p) != maxUnused-1 {
		t.Fatalf("%d scalars, %d problems", r.scalars, len(p))
	}
	if want := "f: the record at byte 40 is passed over: it is no whole protobuf message"; p[0] != want {
		t.Errorf("%s, expected %s", p[0], want) // the file version: 16 + 9 + 15 bytes
	}
	if want := "f: and 5 more lines that could not be used"; p[maxUnused-2] != want {
		t.Errorf("%s, expected %s", p[maxUnused-2], want)
	}
}

// TestEventRestart: a session that starts again at a step repeats it.
func TestEventRestart(t *testing.T) {
	start := func(step int) []byte { return message(number(2, uint64(step)), text(7, number(1, 1))) }
	first := read(eventFile(event(1, 1, simple("a", 1)), event(2, 2, simple("a", 2)), event(3, 3, simple("a", 3))), 50)
	second := read(eventFile(start(2), event(5, 2, simple("a", 20)), event(6, 4, simple("a", 40)), start(4), event(7, 4, simple("a", 44))), 50)
	first.began, second.began = 1, 4 // whatever their names say
	run := eventRun(map[string]*eventReader{"run/b": first, "run/a": second})
	want := []runs.Curve{{Name: "a", Rank: -1, Steps: []int64{1, 2, 4}, Values: []float64{1, 20, 44}, Times: []float64{1, 5, 7}}}
	if d := cmp.Diff(want, run.Curves); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestEventEpochs(t *testing.T) {
	nan := math.NaN()
	epoch := func(n int, train, val, acc, valAcc, lr float64) runs.Epoch {
		return runs.Epoch{
			Epoch: n, Seconds: nan, SamplesPerSecond: nan, TrainLoss: train, ValLoss: val, IoU: nan, Dice: nan,
			ValSeconds: nan, LearningRate: lr, Accuracy: acc, ValAccuracy: valAcc,
		}
	}
	for _, c := range []struct {
		name   string
		files  map[string][]byte
		epochs []runs.Epoch
		curves []string
	}{
		{
			"Keras",
			map[string][]byte{
				"run/train/e": eventFile(
					event(1, 0, simple("epoch_loss", 2), simple("epoch_sparse_categorical_accuracy", 0.25), tensor("epoch_lr", 1, fixed32(5, 0.5))),
					event(2, 1, simple("epoch_loss", 1))),
				"run/validation/e": eventFile(
					event(1, 0, simple("epoch_loss", 4), simple("epoch_sparse_categorical_accuracy", 0.5)),
					event(1, 128, simple("evaluation_loss_vs_iterations", 4))),
			},
			[]runs.Epoch{epoch(1, 2, 4, 0.25, 0.5, 0.5), epoch(2, 1, nan, nan, nan, nan)},
			[]string{
				"train/epoch_loss", "train/epoch_sparse_categorical_accuracy", "train/epoch_lr", "validation/epoch_loss",
				"validation/epoch_sparse_categorical_accuracy", "validation/evaluation_loss_vs_iterations",
			},
		},
		{
			"Lightning",
			map[string][]byte{"run/e": eventFile(
				event(1, 49, simple("train_loss", 3), simple("epoch", 0)),
				event(2, 99, simple("val_loss", 2), simple("val_acc", 0.5), simple("train_loss_epoch", 2.5), simple("epoch", 0)),
				event(3, 199, simple("val_loss", 1), simple("epoch", 1)))},
			[]runs.Epoch{epoch(1, 2.5, 2, nan, 0.5, nan), epoch(2, nan, 1, nan, nan, nan)},
			[]string{"train_loss", "epoch", "val_loss", "val_acc", "train_loss_epoch"},
		},
		{
			"SC21",
			map[string][]byte{"run/logs/e": eventFile(event(1, 800, simple("Loss/train", 3), simple("Learning Rate", 1), simple("Avg iters per sec", 5)), event(1, 800, simple("Loss/valid", 2)))},
			nil,
			[]string{"Loss/train", "Learning Rate", "Avg iters per sec", "Loss/valid"},
		},
	} {
		files := map[string]*eventReader{}
		for name, b := range c.files {
			files[name] = read(b, 33)
		}
		run := eventRun(files)
		if d := cmp.Diff(c.epochs, run.Epochs, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
		var names []string
		for _, curve := range run.Curves {
			names = append(names, curve.Name)
		}
		if d := cmp.Diff(c.curves, names); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
	}
}

// TestEventOwnWriter: what package runs writes for TensorBoard reads back.
func TestEventOwnWriter(t *testing.T) {
	dir := t.TempDir()
	w, err := runs.OpenEvents(dir, 0)
	check(t, err)
	at := time.UnixMicro(1_700_000_000_250_000)
	check(t, w.Scalars(1, at, runs.Scalar{Tag: "Loss/step", Value: 0.5}, runs.Scalar{Tag: "Seconds/step", Value: math.NaN()}))
	check(t, w.Scalars(2, at, runs.Scalar{Tag: "Loss/step", Value: 0.25}))
	check(t, w.Close())
	w, err = runs.OpenEvents(dir, 1) // resumed after step 1
	check(t, err)
	check(t, w.Scalars(2, at, runs.Scalar{Tag: "Loss/step", Value: 0.125}))
	check(t, w.Close())
	found, problems, err := Read(dir)
	check(t, err)
	if len(found) != 1 {
		t.Fatalf("%d runs", len(found))
	}
	want := []runs.Curve{{Name: "Loss/step", Rank: -1, Steps: []int64{1, 2}, Values: []float64{0.5, 0.125}, Times: []float64{1_700_000_000.25, 1_700_000_000.25}}}
	if d := cmp.Diff(want, found[0].Curves); d != "" || len(problems) != 1 || found[0].Kind != eventsKind { // nothing says how many workers
		t.Errorf("%s, %v (-want +got)\n%s", found[0].Kind, problems, d)
	}
}

// TestEventBounds: a file of many tags takes bounded memory, and what is left
// out is said.
func TestEventBounds(t *testing.T) {
	r := newEventReader()
	for i := range maxCurves + 9 {
		r.scalar(fmt.Append(nil, "tag", i), 1, 0, 0)
	}
	r.scalar(make([]byte, maxTagBytes+1), 1, 0, 0)
	want := []string{"f: 10 values are not read: the file has more than 16384 tags"}
	if d := cmp.Diff(want, says(r, true)); d != "" || len(r.curves) != maxCurves {
		t.Errorf("%d curves (-want +got)\n%s", len(r.curves), d)
	}
}

// eventsOf is a file of about size bytes: records with a scalar each, or with
// an image of n bytes beside the scalar.
func eventsOf(size, image int) []byte {
	var b []byte
	tags := []string{"Loss/train", "Loss/valid", "Learning Rate", "Avg iters per sec"}
	blob := bytes.Repeat([]byte{0x5a}, image)
	for i := 0; len(b) < size; i++ {
		values := [][]byte{simple(tags[i%4], float32(i))}
		if image > 0 {
			values = append(values, message(text(1, []byte("image")), text(4, blob)))
		}
		one := event(1.7e9+float64(i), i, values...)
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
	f.Add(eventFile(event(1, 1, simple("a", 1)), message(number(2, 1), text(7, number(1, 1)))), uint16(7))
	f.Add(eventFile(event(1, 1, tensor("a", 19, text(13, []byte{1})))), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		// A fuzzer hardly finds a CRC: the bytes are the data of records too.
		for _, data := range [][]byte{b, append(record(b), record(b[:len(b)/2])...)} {
			once, pieces := read(data, len(data)+1), read(data, int(piece)+1)
			a, c := eventRun(map[string]*eventReader{"f": once}), eventRun(map[string]*eventReader{"f": pieces})
			if d := cmp.Diff(a, c, cmpopts.EquateNaNs()); d != "" {
				t.Fatalf("in pieces it reads otherwise:\n%s", d)
			}
			fuzzKind(t, eventsKind, "events.out.tfevents.1", data)
		}
	})
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
