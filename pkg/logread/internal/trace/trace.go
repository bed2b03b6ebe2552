package trace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// A trace is a JSON array of events, or an object with this array under the key
// traceEvents, as PyTorch's profiler (Kineto), Horovod's timeline and Chrome
// write it ("Trace Event Format", Google, 2016). A file has some hundred bytes
// per event and up to millions of events, so it is read once, one event at a
// time.
const (
	kind = "trace"

	maxEvent = 16 << 20  // bytes of one event
	maxValue = 256 << 20 // bytes of a value other than the events

	// Limits of the memory for a trace. Spans and names beyond them are left out.
	maxSpans     = 1 << 21
	maxNames     = 1 << 16
	maxNameBytes = 1 << 11
	maxLanes     = 1 << 14
	maxOpenSpans = 1 << 12 // open spans of a lane
)

// Format returns the format of traces.
func Format() record.Format {
	return record.Format{Name: kind, Recognizes: isTrace, Read: readTraceFile, Document: true}
}

func isTrace(_ string, head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 {
		return false
	}
	has := func(s string) bool { return bytes.Contains(head, []byte(s)) }
	if head[0] == '[' {
		rest := bytes.TrimLeft(head[1:], " \t\r\n")
		return len(rest) > 0 && rest[0] == '{' && has(`"ph"`) && (has(`"ts"`) || has(`"pid"`))
	}
	// Kineto files may begin with so many device properties that head does not contain traceEvents.
	return head[0] == '{' && (has(`"traceEvents"`) || has(`"schemaVersion"`) && (has(`"deviceProperties"`) || has(`"distributedInfo"`)))
}

type traceFile struct {
	rank   int   // rank of the process; -1 if unknown
	world  int   // number of ranks; 0 if unknown
	events int64 // number of events read
	set    *spanSet
}

// readTraceFile reads a trace file into one part. JoinTraceFiles later merges the parts of a
// folder.
func readTraceFile(_ context.Context, in *record.Input) ([]*record.Part, error) {
	t := &traceFile{rank: -1, set: newSpanSet()}
	s := scan.NewJSONReader(in.Reader)
	err := t.read(s)
	if s.Err() != nil {
		return nil, s.Err()
	}
	if err != nil {
		in.AddProblem(0, "reading stops at byte %d: %v; the content before it is read", s.Offset(), err)
	}
	in.Report.Records = t.events
	if m := fileRankPattern.FindStringSubmatch(filepath.Base(in.Path)); t.rank < 0 && m != nil {
		t.rank, _ = strconv.Atoi(m[1]) // six digits at most
		in.Report.AddAssumption("rank %d: from the file name", t.rank)
	}
	if t.rank < 0 && !t.set.allLanesHaveRanks() {
		in.Report.AddAssumption("rank 0: the trace has no rank; a file name such as rank3.json sets it")
	}
	t.set.removeNested()
	for _, x := range t.set.describeOmissions() {
		in.AddProblem(0, "%s", x)
	}
	if n := t.set.nested; n > 0 {
		in.Report.AddAssumption("%s inside another span of the same kind, which counts instead", english.FormatCount(int(n), "span"))
	}
	if n := t.set.drawn; n > 0 {
		in.Report.AddAssumption("%d step marks on device streams are ignored: the host's marks count", n)
	}
	if len(t.set.spans) == 0 {
		in.AddProblem(0, "none of the %d events of the trace is a span", t.events)
		return nil, nil
	}
	return []*record.Part{{Role: record.Companion, Source: t}}, nil
}

// JoinTraceFiles merges the traces of each folder into one part. A folder contains one trace per
// rank, or several traces of a rank that was profiled repeatedly.
func JoinTraceFiles(parts []*record.Part) []*record.Part {
	byFolder := map[string][]*record.Part{}
	var kept []*record.Part
	for _, p := range parts {
		folder := filepath.Dir(p.Run.File)
		_, isTrace := p.Source.(*traceFile)
		if !isTrace || len(byFolder[folder]) == 0 {
			kept = append(kept, p)
		}
		if isTrace {
			byFolder[folder] = append(byFolder[folder], p)
		}
	}
	for _, files := range byFolder {
		joinRankTraces(files)
	}
	return kept
}

func traceFileOf(p *record.Part) *traceFile { return p.Source.(*traceFile) }

// joinRankTraces moves the spans of all files into the first part. Times are relative to the start of
// their file; since all files of a rank use the same clock, joinRankTraces makes them relative to the
// rank's first file.
func joinRankTraces(files []*record.Part) {
	first := map[int]int64{} // nanoseconds, by rank
	for _, p := range files {
		rank := max(traceFileOf(p).rank, 0)
		if at, ok := first[rank]; !ok || traceFileOf(p).set.first < at {
			first[rank] = traceFileOf(p).set.first
		}
	}
	run := &files[0].Run
	highest := 0
	seen := map[int]bool{}
	for _, p := range files {
		later := float64(traceFileOf(p).set.first-first[max(traceFileOf(p).rank, 0)]) / 1e9
		from := len(run.Spans)
		run.Spans = traceFileOf(p).set.appendSpans(run.Spans, max(traceFileOf(p).rank, 0))
		for i := range run.Spans[from:] {
			s := &run.Spans[from+i]
			s.Start += later
			seen[s.Rank] = true
			highest = max(highest, s.Rank)
		}
		run.Info.Workers = max(run.Info.Workers, traceFileOf(p).world)
		if p != files[0] {
			p.Report.AddAssumption("the spans of rank %d are added to those of %s", max(traceFileOf(p).rank, 0), run.File)
		}
	}
	if run.Info.Workers == 0 && len(seen) > 1 && len(seen) == highest+1 {
		run.Info.Workers = len(seen)
		files[0].Report.AddAssumption("%s: number of ranks in the traces", english.FormatCount(len(seen), "worker"))
	}
	slices.SortStableFunc(run.Spans, compareSpans)
}

func compareSpans(a, b runs.Span) int {
	if a.Rank == b.Rank && a.Lane == b.Lane { // usually
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Seconds, a.Seconds))
	}
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), runs.NaturalCompare(a.Lane, b.Lane), cmp.Compare(a.Start, b.Start), cmp.Compare(b.Seconds, a.Seconds))
}

func (t *traceFile) read(s *scan.JSONReader) error {
	switch c := s.NextNonSpace(); c {
	case '[':
		return t.readEventArray(s, true)
	case '{':
		return s.ReadObject(func(key string, c byte) error {
			switch {
			case key == "traceEvents" && c == '[':
				s.NextNonSpace()
				return t.readEventArray(s, false)
			case key == "distributedInfo" && c == '{':
				return t.readDistributedInfo(s)
			}
			_, err := s.ReadValue(maxValue)
			return err
		})
	case 0:
		return scan.ErrTruncated
	default:
		return fmt.Errorf("expected [ or {, got %q", c)
	}
}

// readDistributedInfo reads the rank and world size from Kineto's object
// distributedInfo.
func (t *traceFile) readDistributedInfo(s *scan.JSONReader) error {
	b, err := s.ReadValue(maxValue)
	info := scan.ObjectIterator{Text: b}
	for key, value := range info.Members() {
		switch n, err := strconv.Atoi(string(value)); {
		case err != nil:
		case string(key) == "rank" && n >= 0 && n < record.MaxWorkers:
			t.rank = n
		case string(key) == "world_size" && n > 0 && n <= record.MaxWorkers:
			t.world = n
		}
	}
	return err
}

// readEventArray reads the events of an array after its opening bracket. If bare is set, the array
// is the complete file, and its closing bracket may be missing, as in the file of a killed program.
func (t *traceFile) readEventArray(s *scan.JSONReader, bare bool) error {
	var e traceEvent
	torn := false
	err := s.ReadList(func(c byte) error {
		if c != '{' {
			return fmt.Errorf("expected an event, got %q", c)
		}
		b, bad, err := s.ParseObject(maxEvent, e.parse)
		if torn = err != nil; torn {
			return err
		}
		if bad {
			s.Unread(len(b))
			return errors.New("malformed JSON value")
		}
		t.events++
		t.set.addEvent(&e)
		return nil
	})
	if bare && !torn && errors.Is(err, scan.ErrTruncated) {
		return nil
	}
	return err
}

// fileRankPattern matches rank3.json, trace_rank-3.pt.trace.json and worker3.json.
var fileRankPattern = regexp.MustCompile(`(?i)(?:rank|worker)[_.-]?(\d{1,6})`)
