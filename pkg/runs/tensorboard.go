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

// An event file is a sequence of TFRecords, each of which contains an Event message. Sources:
// tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/lib/hash/crc32c.h
// (mask), tensorflow/core/util/event.proto and framework/summary.proto (fields).
const (
	eventsPrefix  = "events.out.tfevents."
	eventsVersion = "brain.Event:2"
	eventsBuffer  = 1 << 15 // bytes kept in memory before they are written

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

// EventWriter writes events.out.tfevents.*, the file that TensorBoard displays (tensorboard
// --logdir logs/<study>). Only rank 0 has one. It writes many complete records at a time. A kill
// loses the records that were not flushed and tears at most the last one written.
type EventWriter struct {
	mu      sync.Mutex
	f       *os.File
	pending []byte

	value, summary, event []byte // memory of AppendScalars, which is called in each step
}

// Scalar is a value with a tag, the name of its curve in TensorBoard, which displays Loss/train in
// the group Loss.
type Scalar struct {
	Tag   string
	Value float64
}

// OpenEvents creates a new event file in the run folder dir, which must exist. step is the last
// step before a resumption, or 0: TensorBoard then discards later values in earlier files.
func OpenEvents(dir string, step int) (*EventWriter, error) {
	name, err := newEventFileName(dir, time.Now())
	if err != nil {
		return nil, fmt.Errorf("name event file in %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, wrapWriteError("create", filepath.Join(dir, name), err)
	}
	w := &EventWriter{f: f}
	now := time.Now()
	version := appendString(appendEvent(nil, now, 0), eventFileVersion, eventsVersion)
	w.pending = appendRecord(w.pending, version)
	if step > 0 {
		status := protowire.AppendVarint(protowire.AppendTag(nil, sessionLogStatus, protowire.VarintType), sessionStart)
		restart := appendMessage(appendEvent(nil, now, step+1), eventSessionLog, status)
		w.pending = appendRecord(w.pending, restart)
	}
	if err := w.Flush(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// newEventFileName returns the name of the next event file in dir. TensorBoard reads a folder's
// files in the order of their names, so the new name has a later time than all others, even if the
// clock was set back.
func newEventFileName(dir string, now time.Time) (string, error) {
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

// AppendScalars appends values at a step, which is counted from 1 over the whole run. It omits NaN,
// which means not measured. Values are stored as float32.
func (w *EventWriter) AppendScalars(step int, at time.Time, values ...Scalar) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.summary = w.summary[:0]
	for _, v := range values {
		if math.IsNaN(v.Value) {
			continue
		}
		w.value = appendString(w.value[:0], valueTag, v.Tag)
		w.value = protowire.AppendTag(w.value, valueSimple, protowire.Fixed32Type)
		w.value = protowire.AppendFixed32(w.value, math.Float32bits(float32(v.Value)))
		w.summary = appendMessage(w.summary, summaryValue, w.value)
	}
	if len(w.summary) == 0 {
		return nil
	}
	w.event = appendMessage(appendEvent(w.event[:0], at, step), eventSummary, w.summary)
	w.pending = appendRecord(w.pending, w.event)
	if len(w.pending) < eventsBuffer {
		return nil
	}
	return w.flush()
}

// Flush writes the buffered events to the file. The error is a *LostError if the file was deleted,
// moved or replaced.
func (w *EventWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.flush(); err != nil {
		return err
	}
	return CheckNotLost(w.f)
}

func (w *EventWriter) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	_, err := w.f.Write(w.pending)
	w.pending = w.pending[:0] // after an error too: part of it may be written already
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

// appendEvent appends the first fields of an Event to b, without step 0, which is protobuf's default.
func appendEvent(b []byte, at time.Time, step int) []byte {
	b = protowire.AppendTag(b, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, eventStep, protowire.VarintType), uint64(step))
	}
	return b
}

func appendString(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// appendRecord appends data as a TFRecord: its length as uint64, the masked CRC of these 8 bytes,
// the data, and their masked CRC, all little-endian.
func appendRecord(b, data []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b[len(b)-8:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

// maskedCRC returns the CRC32C of data, rotated right by 15 bits, plus a constant: the CRC of data
// that contains CRCs would be weak.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + crcMaskDelta
}
