package runs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The file is a sequence of TFRecords, each an Event message. Sources:
// tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/lib/hash/crc32c.h
// (mask), tensorflow/core/util/event.proto and framework/summary.proto (fields).
const (
	eventsPrefix  = "events.out.tfevents."
	eventsVersion = "brain.Event:2"
	eventsBuffer  = 1 << 15 // bytes kept until they are written; whole records only

	crcMaskDelta = 0xa282ead8

	// Fields of Event.
	eventWallTime    protowire.Number = 1 // double, seconds since 1970
	eventStep        protowire.Number = 2 // int64
	eventFileVersion protowire.Number = 3 // string
	eventSummary     protowire.Number = 5 // Summary
	eventSessionLog  protowire.Number = 7 // SessionLog

	summaryValue     protowire.Number = 1 // of Summary: repeated Value
	valueTag         protowire.Number = 1 // of Value: string
	valueSimple      protowire.Number = 2 // of Value: float
	sessionLogStatus protowire.Number = 1 // of SessionLog: enum
	sessionStart                      = 1 // SessionLog.START
)

// EventWriter writes events.out.tfevents.*, the file that TensorBoard shows
// (tensorboard --logdir logs/<study>). Rank 0 holds it. Records reach the file
// whole, many at a time: a kill loses what was not flushed and tears at most
// the last one, before which every reader reads.
type EventWriter struct {
	mu      sync.Mutex
	f       *os.File
	pending []byte
}

// Scalar is a number under its tag, the name of a curve. A tag such as
// Loss/train is shown in the group Loss.
type Scalar struct {
	Tag   string
	Value float64
}

// OpenEvents makes a new event file in the run folder dir, which must exist.
// A run that is resumed after step gets a file of its own, which tells
// TensorBoard to forget what earlier files hold of later steps; step is 0 for
// a run that begins.
func OpenEvents(dir string, step int) (*EventWriter, error) {
	name, err := eventsName(dir, time.Now())
	if err != nil {
		return nil, fmt.Errorf("name event file in %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, unwritable("create", filepath.Join(dir, name), err)
	}
	w := &EventWriter{f: f}
	now := time.Now()
	version := appendString(appendEvent(nil, now, 0), eventFileVersion, eventsVersion)
	w.pending = appendRecord(w.pending, version)
	if step > 0 {
		status := protowire.AppendVarint(protowire.AppendTag(nil, sessionLogStatus, protowire.VarintType), sessionStart)
		restart := appendString(appendEvent(nil, now, step+1), eventSessionLog, string(status))
		w.pending = appendRecord(w.pending, restart)
	}
	if err := w.Flush(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// eventsName names the next file in dir. TensorBoard reads the files of a
// folder in the order of their names, so that the time in it is later than
// those of the others, whatever the clock says.
func eventsName(dir string, now time.Time) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	seconds := now.Unix()
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), eventsPrefix)
		stamp, _, _ := strings.Cut(rest, ".")
		if s, err := strconv.ParseInt(stamp, 10, 64); ok && err == nil && s < math.MaxInt64 {
			seconds = max(seconds, s+1)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s%010d.%s.%d", eventsPrefix, seconds, host, os.Getpid()), nil
}

// Scalars appends an event with the values at a step (from 1, over the whole
// run). A NaN was not measured, and is left out. Values are stored as float32.
func (w *EventWriter) Scalars(step int, at time.Time, values ...Scalar) error {
	var summary []byte
	for _, v := range values {
		if math.IsNaN(v.Value) {
			continue
		}
		value := appendString(nil, valueTag, v.Tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(v.Value)))
		summary = appendString(summary, summaryValue, string(value))
	}
	if len(summary) == 0 {
		return nil
	}
	event := appendString(appendEvent(nil, at, step), eventSummary, string(summary))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = appendRecord(w.pending, event)
	if len(w.pending) < eventsBuffer {
		return nil
	}
	return w.flush()
}

// Flush writes to the file what is still in memory. The error is a *LostError if
// the file is gone.
func (w *EventWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.flush(); err != nil {
		return err
	}
	return CheckPlace(w.f)
}

func (w *EventWriter) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	_, err := w.f.Write(w.pending)
	w.pending = w.pending[:0] // after an error too: a second half would not fit to the first
	if err != nil {
		return fmt.Errorf("write %s: %w", w.f.Name(), err)
	}
	return nil
}

// Close flushes and closes the file.
func (w *EventWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.flush(), w.f.Close())
}

// appendEvent begins an Event; step 0 is not written, as of any default value.
func appendEvent(b []byte, at time.Time, step int) []byte {
	b = protowire.AppendTag(b, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, eventStep, protowire.VarintType), uint64(step))
	}
	return b
}

// appendString appends a field of bytes: a text or a message.
func appendString(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// appendRecord appends data as a TFRecord: its length as uint64, the masked
// CRC of these 8 bytes, the data, and their masked CRC, all little-endian.
func appendRecord(b, data []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = append(b, length...)
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(length))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

// maskedCRC is the CRC32C of data, rotated right by 15 bits, plus a constant:
// a CRC of data that hold CRCs of themselves would else be weak.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + crcMaskDelta
}
