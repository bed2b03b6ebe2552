package runs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bitwiseCRC is CRC32C bit by bit, from its polynomial alone (RFC 3720,
// section 12.1: 0x1EDC6F41, here with its bits in reverse).
func bitwiseCRC(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			if crc&1 == 1 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

// bitwiseMask is the mask of TFRecord's CRCs as tensorflow/core/lib/hash/crc32c.h
// words it: rotate right by 15 bits and add a constant.
func bitwiseMask(crc uint32) uint32 { return (crc>>15 | crc<<(32-15)) + 0xa282ead8 }

func TestBitwiseCRC(t *testing.T) {
	// RFC 3720, appendix B.4: 32 bytes of zeros and of ones.
	for _, c := range []struct {
		data []byte
		want uint32
	}{{make([]byte, 32), 0x8a9136aa}, {bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43}} {
		if got := bitwiseCRC(c.data); got != c.want {
			t.Errorf("CRC of %x is %#x, expected %#x", c.data[0], got, c.want)
		}
	}
}

// readRecords reads TFRecords up to the end or to the first that is damaged.
func readRecords(file []byte) (records [][]byte, err error) {
	for len(file) > 0 {
		if len(file) < 12 {
			return records, fmt.Errorf("record %d: %d bytes of its header", len(records), len(file))
		}
		if got, want := binary.LittleEndian.Uint32(file[8:]), bitwiseMask(bitwiseCRC(file[:8])); got != want {
			return records, fmt.Errorf("record %d: CRC of the length is %#x, expected %#x", len(records), got, want)
		}
		n := int(binary.LittleEndian.Uint64(file))
		if len(file) < 12+n+4 {
			return records, fmt.Errorf("record %d: %d bytes of %d", len(records), len(file), 12+n+4)
		}
		data := file[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(file[12+n:]), bitwiseMask(bitwiseCRC(data)); got != want {
			return records, fmt.Errorf("record %d: CRC of the data is %#x, expected %#x", len(records), got, want)
		}
		records, file = append(records, data), file[12+n+4:]
	}
	return records, nil
}

// readEvent decodes an Event, field by field, by the wire format's own
// rules (protobuf.dev/programming-guides/encoding), for the fields it may have.
func readEvent(t *testing.T, data []byte) (text []string) {
	t.Helper()
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		data = data[n:]
		field, wire := key>>3, key&7
		switch wire {
		case 0:
			v, n := binary.Uvarint(data)
			text, data = append(text, fmt.Sprintf("%d=%d", field, v)), data[n:]
		case 1:
			v := math.Float64frombits(binary.LittleEndian.Uint64(data))
			text, data = append(text, fmt.Sprintf("%d=%.6f", field, v)), data[8:]
		case 2:
			size, n := binary.Uvarint(data)
			body := data[n : n+int(size)]
			data = data[n+int(size):]
			// Texts are file_version (3 of Event) and tag (1 of Value, a
			// printable one); the others are messages.
			if field == 3 || field == 1 && body[0] >= ' ' {
				text = append(text, fmt.Sprintf("%d=%s", field, body))
			} else {
				text = append(text, fmt.Sprintf("%d{%s}", field, strings.Join(readEvent(t, body), " ")))
			}
		case 5:
			v := math.Float32frombits(binary.LittleEndian.Uint32(data))
			text, data = append(text, fmt.Sprintf("%d=%v", field, v)), data[4:]
		default:
			t.Fatalf("field %d has wire type %d", field, wire)
		}
	}
	return text
}

// TestEventGolden compares one record with bytes that were worked out by hand: the
// event of second 1, step 3, with 0.5 under the tag "a".
func TestEventGolden(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenEvents(dir, 0)
	check(t, err)
	w.pending = nil
	check(t, w.AppendScalars(3, time.Unix(1, 0), Scalar{"a", 0.5}))
	event := "" +
		"09 000000000000f03f" + // field 1, fixed64: 1.0 is 0x3ff0000000000000
		"10 03" + // field 2, varint
		"2a 0a" + // field 5, 10 bytes
		"0a 08" + // field 1 of Summary, 8 bytes
		"0a 01 61" + // field 1 of Value, 1 byte: "a"
		"15 0000003f" // field 2, fixed32: 0.5 is 0x3f000000
	data, err := hex.DecodeString(strings.ReplaceAll(event, " ", ""))
	check(t, err)
	if len(data) != 23 { // 9 + 2 + 2 + 2 + 3 + 5
		t.Fatalf("%d bytes", len(data))
	}
	want := []byte{23, 0, 0, 0, 0, 0, 0, 0}
	want = binary.LittleEndian.AppendUint32(want, bitwiseMask(bitwiseCRC(want)))
	want = append(want, data...)
	want = binary.LittleEndian.AppendUint32(want, bitwiseMask(bitwiseCRC(data)))
	if !bytes.Equal(w.pending, want) {
		t.Errorf("record\n%x, expected\n%x", w.pending, want)
	}
	check(t, w.Close())

	// Every file of TensorFlow and PyTorch begins with these 12 bytes: an event
	// of 24 (a time, and "brain.Event:2") and the CRC of that length.
	files := eventFiles(t, dir)
	if head := hex.EncodeToString(files[0][:12]); head != "1800000000000000a37f4b22" {
		t.Errorf("the file begins with %s", head)
	}
}

// eventFiles are the contents of the event files of dir, in the order of their names.
func eventFiles(t *testing.T, dir string) (files [][]byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	check(t, err)
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		check(t, err)
		files = append(files, text)
	}
	return files
}

// TestEventsReadBack writes a run, and its resumption in the same second.
func TestEventsReadBack(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2021, 11, 12, 0, 32, 26, 118e6, time.UTC) // second 1636677146.118
	w, err := OpenEvents(dir, 0)
	check(t, err)
	check(t, w.AppendScalars(300, at, Scalar{"Loss/train", 0.25}, Scalar{"Loss/valid", math.NaN()}, Scalar{"IoU", 0.75}))
	check(t, w.AppendScalars(301, at, Scalar{"IoU", math.NaN()}))
	check(t, w.Close())
	w, err = OpenEvents(dir, 300)
	check(t, err)
	check(t, w.AppendScalars(301, at, Scalar{"Learning Rate", 0.5}))
	check(t, w.Close())

	files := eventFiles(t, dir)
	if len(files) != 2 {
		t.Fatalf("%d files, expected one for each time the run was started", len(files))
	}
	var got [][]string
	for _, file := range files {
		records, err := readRecords(file)
		check(t, err)
		for i, r := range records {
			event := readEvent(t, r)
			if i == 0 || strings.HasPrefix(event[len(event)-1], "7{") { // the time of now
				event = event[1:]
			}
			got = append(got, event)
		}
	}
	want := [][]string{
		{"3=brain.Event:2"},
		{"1=1636677146.118000", "2=300", "5{1{1=Loss/train 2=0.25} 1{1=IoU 2=0.75}}"},
		{"3=brain.Event:2"},
		{"2=301", "7{1=1}"}, // what was written of step 301 and later counts no more
		{"1=1636677146.118000", "2=301", "5{1{1=Learning Rate 2=0.5}}"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestEventsTorn truncates a file anywhere, as a kill does: complete records are read, and
// the reader detects the rest.
func TestEventsTorn(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenEvents(dir, 0)
	check(t, err)
	ends := []int{len(eventFiles(t, dir)[0])}
	for step := 1; step <= 3; step++ {
		check(t, w.AppendScalars(step, time.Now(), Scalar{"Loss/step", float64(step)}))
		check(t, w.Flush()) // on disk without Close, as of a process that is killed
		ends = append(ends, len(eventFiles(t, dir)[0]))
	}
	defer w.Close()
	file := eventFiles(t, dir)[0]
	for cut := range len(file) + 1 {
		whole := 0
		for whole < len(ends) && ends[whole] <= cut {
			whole++
		}
		records, err := readRecords(file[:cut])
		if torn := cut > 0 && !slices.Contains(ends, cut); len(records) != whole || (err != nil) != torn {
			t.Fatalf("cut at %d of %d: %d records, expected %d; error %v", cut, len(file), len(records), whole, err)
		}
	}
	for at := range file { // a bit that flipped is noticed
		bad := slices.Clone(file)
		bad[at] ^= 0x10
		if _, err := readRecords(bad); err == nil {
			t.Fatalf("byte %d is damaged and nobody noticed", at)
		}
	}
}

// TestEventsReachTheFile: the events of a long epoch are written before its end.
func TestEventsReachTheFile(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenEvents(dir, 0)
	check(t, err)
	defer w.Close()
	for step := range 1000 {
		check(t, w.AppendScalars(step+1, time.Now(), Scalar{"Loss/step", 1}))
	}
	records, err := readRecords(eventFiles(t, dir)[0])
	if err != nil || len(records) < 500 {
		t.Errorf("%d records before a flush, error %v", len(records), err)
	}
}

func TestEventsErrors(t *testing.T) {
	_, err := OpenEvents(filepath.Join(t.TempDir(), "none"), 0)
	wantError(t, err, "name event file in", "none", "no such file")
}
