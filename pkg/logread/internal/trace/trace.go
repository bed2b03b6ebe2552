package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// A trace is a JSON array of events, or an object with the array under
// traceEvents, as PyTorch's profiler (Kineto), Horovod's timeline and Chrome
// write it ("Trace Event Format", Google, 2016). A file has some hundred bytes
// per event and up to millions of events, so it is read once, one event at a
// time.
const (
	kind = "trace"

	bufferBytes = 1 << 20
	maxEvent    = 16 << 20 // bytes of one event
	maxValue    = 1 << 20  // bytes of a value beside the events
	maxDepth    = 512      // nesting of values

	// Limits of what a trace may bring into memory. Spans beyond them are left
	// out, and so are names.
	maxSpans     = 1 << 21
	maxNames     = 1 << 16
	maxNameBytes = 1 << 11
	maxLanes     = 1 << 14
	maxOpenSpans = 1 << 12 // spans of a lane that began and did not end yet
)

// Format returns the format of traces.
func Format() record.Format {
	return record.Format{Name: kind, Recognizes: recognizes, Read: readFile, Document: true}
}

// recognizes reports whether a file that begins with head is a trace.
func recognizes(_ string, head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(head) == 0 {
		return false
	}
	has := func(s string) bool { return bytes.Contains(head, []byte(s)) }
	if head[0] == '[' {
		rest := bytes.TrimLeft(head[1:], " \t\r\n")
		return len(rest) > 0 && rest[0] == '{' && has(`"ph"`) && (has(`"ts"`) || has(`"pid"`))
	}
	// Kineto's file begins with the properties of the devices, which may fill
	// head.
	return head[0] == '{' && (has(`"traceEvents"`) || has(`"schemaVersion"`) && (has(`"deviceProperties"`) || has(`"distributedInfo"`)))
}

// file is the content of one trace.
type file struct {
	rank   int // -1 if the file does not have it
	world  int // 0 if the file does not have it
	events int64
	set    *spanSet
	spans  []runs.Span
}

// readFile reads a trace. Join makes one run of the traces of a folder.
func readFile(_ context.Context, in *record.Input) ([]*record.Part, error) {
	t := &file{rank: -1, set: newSpanSet()}
	s := &scanner{r: in.Reader, buf: make([]byte, 0, bufferBytes)}
	err := t.read(s)
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return nil, s.err
	}
	if err != nil {
		in.Problem(0, "reading stops at byte %d: %v; what stands before it is read", s.offset+int64(s.pos), err)
	}
	in.Report.Records = t.events
	if m := rankInName().FindStringSubmatch(filepath.Base(in.Path)); t.rank < 0 && m != nil {
		t.rank, _ = strconv.Atoi(m[1]) // six digits at most
		in.Report.Assume("rank %d: from the name", t.rank)
	}
	if t.rank < 0 && !t.set.ranked() {
		in.Report.Assume("rank 0: nothing says it; a name such as rank3.json would")
	}
	t.spans = t.set.result(max(t.rank, 0))
	for _, x := range t.set.left() {
		in.Problem(0, "%s", x)
	}
	if n := t.set.nested; n > 0 {
		in.Report.Assume("%s inside others of their kind, which count instead", english.Count(int(n), "span"))
	}
	if n := t.set.drawn; n > 0 {
		in.Report.Assume("%d marks of steps are drawn over a device's stream; the host's count", n)
	}
	if len(t.spans) == 0 {
		in.Problem(0, "none of the %d events of the trace is a span", t.events)
		return nil, nil
	}
	return []*record.Part{{Role: record.Companion, Source: t}}, nil
}

// Join makes one part of the traces of each folder. A folder has a trace for
// each rank, and several for a rank that was profiled several times.
func Join(parts []*record.Part) []*record.Part {
	byFolder := map[string][]*record.Part{}
	var kept []*record.Part
	for _, p := range parts {
		folder := filepath.Dir(p.Run.File)
		_, isTrace := p.Source.(*file)
		if !isTrace || len(byFolder[folder]) == 0 {
			kept = append(kept, p)
		}
		if isTrace {
			byFolder[folder] = append(byFolder[folder], p)
		}
	}
	for _, files := range byFolder {
		joinRanks(files)
	}
	return kept
}

// fileOf returns the trace of a part.
func fileOf(p *record.Part) *file { return p.Source.(*file) }

// joinRanks moves the spans of all files into the first part. The times of one
// rank are on one clock, so that later files of the rank begin later.
func joinRanks(files []*record.Part) {
	first := map[int]int64{} // nanoseconds, by rank
	for _, p := range files {
		rank := max(fileOf(p).rank, 0)
		if at, ok := first[rank]; !ok || fileOf(p).set.first < at {
			first[rank] = fileOf(p).set.first
		}
	}
	run := &files[0].Run
	highest := 0
	seen := map[int]bool{}
	for _, p := range files {
		later := float64(fileOf(p).set.first-first[max(fileOf(p).rank, 0)]) / 1e9
		from := len(run.Spans)
		run.Spans = append(run.Spans, fileOf(p).spans...)
		for i := range run.Spans[from:] {
			s := &run.Spans[from+i]
			s.Start += later
			seen[s.Rank] = true
			highest = max(highest, s.Rank)
		}
		run.Info.Workers = max(run.Info.Workers, fileOf(p).world)
		if p != files[0] {
			p.Report.Assume("the spans of rank %d belong to those in %s", max(fileOf(p).rank, 0), run.File)
		}
	}
	if run.Info.Workers == 0 && len(seen) > 1 && len(seen) == highest+1 {
		run.Info.Workers = len(seen)
		files[0].Report.Assume("%s: the ranks of the traces", english.Count(len(seen), "worker"))
	}
	slices.SortStableFunc(run.Spans, func(a, b runs.Span) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), runs.NaturalCompare(a.Lane, b.Lane), cmp.Compare(a.Start, b.Start), cmp.Compare(b.Seconds, a.Seconds))
	})
}

var errFileEnds = errors.New("the file ends inside the trace")

// read reads the whole trace.
func (t *file) read(s *scanner) error {
	if bytes.HasPrefix(s.peek(3), []byte("\xef\xbb\xbf")) {
		s.pos += 3
	}
	switch c := s.next(); c {
	case '[':
		return t.array(s, true)
	case '{':
		return t.object(s)
	case 0:
		return errFileEnds
	default:
		return fmt.Errorf("expected [ or {, got %q", c)
	}
}

// object reads the outer object, whose opening brace has been read.
func (t *file) object(s *scanner) error {
	for {
		switch c := s.next(); c {
		case '}':
			return nil
		case ',':
			continue
		case '"':
		case 0:
			return errFileEnds
		default:
			return fmt.Errorf("expected a key, got %q", c)
		}
		key, err := s.text(maxNameBytes)
		if err != nil {
			return err
		}
		name := string(key)
		if c := s.next(); c != ':' {
			return orEnds(c, "expected : after a key, got %q", c)
		}
		switch c := s.next(); {
		case name == "traceEvents" && c == '[':
			err = t.array(s, false)
		case name == "distributedInfo" && c == '{':
			err = t.distributed(s)
		case c == 0:
			return errFileEnds
		default:
			err = s.skip(c)
		}
		if err != nil {
			return err
		}
	}
}

// orEnds returns the error for an unexpected byte, or for the end of the file
// if c is 0.
func orEnds(c byte, format string, a ...any) error {
	if c == 0 {
		return errFileEnds
	}
	return fmt.Errorf(format, a...)
}

// distributed reads Kineto's rank and world size from an object whose opening
// brace has been read.
func (t *file) distributed(s *scanner) error {
	s.pos--
	b, err := s.whole(maxValue, func(b []byte) int { return jsonEnd(b) })
	if err != nil {
		return err
	}
	var info struct {
		Rank  *int `json:"rank"`
		World *int `json:"world_size"`
	}
	if json.Unmarshal(b, &info) == nil {
		if info.Rank != nil && *info.Rank >= 0 && *info.Rank < record.MaxWorkers {
			t.rank = *info.Rank
		}
		if info.World != nil && *info.World > 0 && *info.World <= record.MaxWorkers {
			t.world = *info.World
		}
	}
	s.pos += len(b)
	return nil
}

// array reads the events of an array whose opening bracket has been read. A
// bare array need not be closed, so that a program that is killed leaves a
// valid file.
func (t *file) array(s *scanner, bare bool) error {
	var e event
	for {
		switch c := s.next(); c {
		case ']':
			return nil
		case ',':
		case 0:
			if bare {
				return nil
			}
			return errFileEnds
		case '{':
			s.pos--
			b, err := s.whole(maxEvent, e.parse)
			if err != nil {
				return err
			}
			t.events++
			t.set.add(&e)
			s.pos += len(b)
		default:
			s.pos--
			return fmt.Errorf("expected an event, got %q", c)
		}
	}
}

// rankInName matches the rank in the name of a file: rank3.json,
// trace_rank-3.pt.trace.json, worker3.….
func rankInName() *regexp.Regexp { return regexp.MustCompile(`(?i)(?:rank|worker)[_.-]?(\d{1,6})`) }
