package horovod

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/wholefile"
)

// Names of Horovod's activities on the timeline.
const (
	activityNegotiate = "NEGOTIATE_ALLREDUCE"
	activityAllReduce = "ALLREDUCE"
	activityMemcpyIn  = "MEMCPY_IN_FUSION_BUFFER"
	activityMemcpyOut = "MEMCPY_OUT_FUSION_BUFFER"
)

// allReduceActivity returns the timeline's name for the all-reduce, such as
// "SHARED_MEMORY_ALLREDUCE". Horovod's own names are MPI_ALLREDUCE and GLOO_ALLREDUCE.
func allReduceActivity(transport string) string {
	transport, _, _ = strings.Cut(transport, ",") // the algorithm
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(transport)) + "_ALLREDUCE"
}

// Timeline writes Horovod's timeline: a JSON array in Chrome's Trace Event Format, in which each
// tensor is a process. The file is always a complete JSON document, even if the program ends
// unexpectedly.
//
// The methods of a nil *Timeline, other than Close, do nothing.
type Timeline struct {
	file    *os.File
	start0  time.Time
	buffer  []byte // events that are not in the file yet
	size    int64  // of the file without the closing bracket
	tensors map[string]*timelineTensor
	err     error // the first error; nothing is written after it
}

// timelineTensor is the state of a tensor on the Timeline.
type timelineTensor struct {
	process int
	open    int // spans that have begun and not ended
}

// CreateTimeline creates the timeline file at path. It replaces an existing file.
func CreateTimeline(path string) (*Timeline, error) {
	if err := wholefile.BreakHardLinks(path); err != nil { // a snapshot with hard links stays as it is
		return nil, fmt.Errorf("create timeline: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create timeline: %w", err)
	}
	t := &Timeline{file: f, start0: time.Now(), tensors: map[string]*timelineTensor{}, buffer: []byte("[")}
	t.addMetadata(0, fmt.Sprintf(`{"start_time_since_epoch_in_micros":%d}`, t.start0.UnixMicro()))
	t.flush()
	return t, t.err
}

func (t *Timeline) addMetadata(process int, args string) {
	t.appendEvent(`{"name":"process_name","ph":"M","pid":%d,"args":%s}`, process, args)
	t.appendEvent(`{"name":"process_sort_index","ph":"M","pid":%d,"args":{"sort_index":%d}}`, process, process)
}

func (t *Timeline) appendEvent(format string, args ...any) {
	if t.size > 0 || len(t.buffer) > 1 {
		t.buffer = append(t.buffer, ',')
	}
	t.buffer = fmt.Appendf(append(t.buffer, '\n'), format, args...)
}

func (t *Timeline) timelineTensorOf(name string) *timelineTensor {
	s := t.tensors[name]
	if s == nil {
		s = &timelineTensor{process: len(t.tensors) + 1}
		t.tensors[name] = s
		text, _ := json.Marshal(map[string]string{"name": name}) // never fails for strings
		t.addMetadata(s.process, string(text))
	}
	return s
}

func (t *Timeline) formatTimestamp() string {
	return strconv.FormatFloat(float64(time.Since(t.start0).Nanoseconds())/1e3, 'f', 3, 64)
}

// beginSpan begins a span of a tensor, nested in the spans that are already open.
func (t *Timeline) beginSpan(name, activity string) {
	s := t.timelineTensorOf(name)
	s.open++
	t.appendEvent(`{"ph":"B","name":%q,"ts":%s,"pid":%d}`, activity, t.formatTimestamp(), s.process)
}

// endSpans ends spans of a tensor, the innermost first, until the number of open spans is open.
// args are the arguments of the last span that is ended.
func (t *Timeline) endSpans(name string, open int, args string) {
	s := t.timelineTensorOf(name)
	for ; s.open > open; s.open-- {
		last := ""
		if s.open == open+1 {
			last = args
		}
		t.appendEvent(`{"ph":"E","ts":%s,"pid":%d%s}`, t.formatTimestamp(), s.process, last)
	}
}

func (t *Timeline) beginNegotiation(name string) {
	if t != nil {
		t.beginSpan(name, activityNegotiate)
	}
}

func (t *Timeline) recordRankReady(name string, rank int) {
	if t != nil {
		t.appendEvent(`{"ph":"X","name":"%d","ts":%s,"pid":%d,"dur":0}`, rank, t.formatTimestamp(), t.timelineTensorOf(name).process)
	}
}

func (t *Timeline) endNegotiation(name string) {
	if t != nil {
		t.endSpans(name, 0, "")
	}
}

func (t *Timeline) beginAllReduce(names []string) {
	if t == nil {
		return
	}
	for _, name := range names {
		t.beginSpan(name, activityAllReduce)
	}
}

// beginActivity ends the current activity of a reduction and begins the next one.
func (t *Timeline) beginActivity(names []string, activity string) {
	if t == nil {
		return
	}
	for _, name := range names {
		t.endSpans(name, 1, "")
		t.beginSpan(name, activity)
	}
}

func (t *Timeline) endAllReduce(tensors []tensorRequest) {
	if t == nil {
		return
	}
	for _, r := range tensors {
		t.endSpans(r.Name, 0, fmt.Sprintf(`,"args":{"dtype":"float%d","shape":"[%d]"}`, r.Bits, r.Elements))
	}
}

// flush writes the recorded events to the file, followed by the bracket that closes the array. The
// next call overwrites the bracket.
func (t *Timeline) flush() {
	if t == nil || t.err != nil {
		return
	}
	const closing = "\n]\n"
	if _, err := t.file.WriteAt(append(t.buffer, closing...), t.size); err != nil {
		t.err = fmt.Errorf("write timeline: %w", err)
	}
	t.size += int64(len(t.buffer))
	t.buffer = t.buffer[:0]
}

// Close writes the remaining events, closes the file, and returns the first error of any write.
func (t *Timeline) Close() error {
	t.flush()
	if err := t.file.Close(); err != nil && t.err == nil {
		t.err = fmt.Errorf("close timeline: %w", err)
	}
	return t.err
}
