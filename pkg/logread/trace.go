package logread

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
	"lockstep/pkg/runs"
)

// Traces in Chrome's format, a JSON array of events or an object that holds it
// under traceEvents, as PyTorch's profiler (Kineto), Horovod's timeline and
// Chrome write them ("Trace Event Format", Google, 2016). A file has some
// hundred bytes an event and up to millions of events, so that it is gone
// through once, an event at a time.
const (
	traceKind = "trace"

	traceBuffer   = 1 << 20
	maxTraceEvent = 16 << 20 // bytes of one event
	maxTraceValue = 1 << 20  // of a value beside the events that is looked at
	maxTraceDepth = 512      // of values inside each other

	// What a trace may bring into memory. Spans beyond are left out, and so are
	// the names of spans beyond those.
	maxSpans     = 1 << 21
	maxNames     = 1 << 16
	maxNameBytes = 1 << 11
	maxLanes     = 1 << 14
	maxOpenSpans = 1 << 12 // spans of a lane that began and did not end yet
)

// isTrace says whether a file that begins with head is a trace.
func isTrace(_ string, head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(head) == 0 {
		return false
	}
	has := func(s string) bool { return bytes.Contains(head, []byte(s)) }
	if head[0] == '[' {
		rest := bytes.TrimLeft(head[1:], " \t\r\n")
		return len(rest) > 0 && rest[0] == '{' && has(`"ph"`) && (has(`"ts"`) || has(`"pid"`))
	}
	// Kineto's file begins with the properties of the devices, which may fill the head.
	return head[0] == '{' && (has(`"traceEvents"`) || has(`"schemaVersion"`) && (has(`"deviceProperties"`) || has(`"distributedInfo"`)))
}

// trace is what a file holds.
type trace struct {
	rank   int // -1 where the file does not tell
	world  int // 0 where it does not tell
	events int64
	set    *spanSet
	spans  []runs.Span
}

// readTrace reads a trace; joinTraces makes one run of those of a folder.
func readTrace(_ context.Context, in *input) ([]*part, error) {
	t := &trace{rank: -1, set: newSpanSet()}
	s := &traceScanner{r: in.r, buf: make([]byte, 0, traceBuffer)}
	err := t.read(s)
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return nil, s.err
	}
	if err != nil {
		in.problem(0, "reading stops at byte %d: %v; what stands before it is read", s.offset+int64(s.pos), err)
	}
	in.report.Records = t.events
	if m := rankInName().FindStringSubmatch(filepath.Base(in.path)); t.rank < 0 && m != nil {
		t.rank, _ = strconv.Atoi(m[1]) // six digits at most
		in.report.assume("rank %d: from the name", t.rank)
	}
	if t.rank < 0 && !t.set.ranked() {
		in.report.assume("rank 0: nothing says it; a name such as rank3.json would")
	}
	t.spans = t.set.result(max(t.rank, 0))
	for _, x := range t.set.left() {
		in.problem(0, "%s", x)
	}
	if n := t.set.nested; n > 0 {
		in.report.assume("%s inside others of their kind, which count instead", english.Count(int(n), "span"))
	}
	if n := t.set.drawn; n > 0 {
		in.report.assume("%d marks of steps are drawn over a device's stream; the host's count", n)
	}
	if len(t.spans) == 0 {
		in.problem(0, "none of the %d events of the trace is a span", t.events)
		return nil, nil
	}
	return []*part{{role: companion, trace: t}}, nil
}

// joinTraces makes one part of the traces of each folder, of which there is
// one for each rank, and for a rank one for each time that was profiled.
func joinTraces(parts []*part) []*part {
	byFolder := map[string][]*part{}
	var kept []*part
	for _, p := range parts {
		folder := filepath.Dir(p.run.File)
		if p.trace == nil || len(byFolder[folder]) == 0 {
			kept = append(kept, p)
		}
		if p.trace != nil {
			byFolder[folder] = append(byFolder[folder], p)
		}
	}
	for _, files := range byFolder {
		joinRankTraces(files)
	}
	return kept
}

// joinRankTraces puts the spans of all files into the first. Times of one
// rank are on one clock, so that its later files begin later.
func joinRankTraces(files []*part) {
	first := map[int]int64{} // nanoseconds, by rank
	for _, p := range files {
		rank := max(p.trace.rank, 0)
		if at, ok := first[rank]; !ok || p.trace.set.first < at {
			first[rank] = p.trace.set.first
		}
	}
	run := &files[0].run
	highest := 0
	seen := map[int]bool{}
	for _, p := range files {
		later := float64(p.trace.set.first-first[max(p.trace.rank, 0)]) / 1e9
		from := len(run.Spans)
		run.Spans = append(run.Spans, p.trace.spans...)
		for i := range run.Spans[from:] {
			s := &run.Spans[from+i]
			s.Start += later
			seen[s.Rank] = true
			highest = max(highest, s.Rank)
		}
		run.Info.Workers = max(run.Info.Workers, p.trace.world)
		if p != files[0] {
			p.report.assume("the spans of rank %d belong to those in %s", max(p.trace.rank, 0), run.File)
		}
	}
	if run.Info.Workers == 0 && len(seen) > 1 && len(seen) == highest+1 {
		run.Info.Workers = len(seen)
		files[0].report.assume("%s: the ranks of the traces", english.Count(len(seen), "worker"))
	}
	slices.SortStableFunc(run.Spans, func(a, b runs.Span) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), runs.NaturalCompare(a.Lane, b.Lane), cmp.Compare(a.Start, b.Start), cmp.Compare(b.Seconds, a.Seconds))
	})
}

var errTraceEnds = errors.New("the file ends inside the trace")

func (t *trace) read(s *traceScanner) error {
	if bytes.HasPrefix(s.peek(3), []byte("\xef\xbb\xbf")) {
		s.pos += 3
	}
	switch c := s.next(); c {
	case '[':
		return t.array(s, true)
	case '{':
		return t.object(s)
	case 0:
		return errTraceEnds
	default:
		return fmt.Errorf("expected [ or {, got %q", c)
	}
}

// object goes through the outer object; its opening brace has been read.
func (t *trace) object(s *traceScanner) error {
	for {
		switch c := s.next(); c {
		case '}':
			return nil
		case ',':
			continue
		case '"':
		case 0:
			return errTraceEnds
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
			return errTraceEnds
		default:
			err = s.skip(c)
		}
		if err != nil {
			return err
		}
	}
}

// orEnds is the error of an unexpected byte, or of the file's end.
func orEnds(c byte, format string, a ...any) error {
	if c == 0 {
		return errTraceEnds
	}
	return fmt.Errorf(format, a...)
}

// distributed reads Kineto's rank; its opening brace has been read.
func (t *trace) distributed(s *traceScanner) error {
	s.pos--
	b, err := s.whole(maxTraceValue, func(b []byte) int { return jsonEnd(b) })
	if err != nil {
		return err
	}
	var info struct {
		Rank  *int `json:"rank"`
		World *int `json:"world_size"`
	}
	if json.Unmarshal(b, &info) == nil {
		if info.Rank != nil && *info.Rank >= 0 && *info.Rank < maxWorkers {
			t.rank = *info.Rank
		}
		if info.World != nil && *info.World > 0 && *info.World <= maxWorkers {
			t.world = *info.World
		}
	}
	s.pos += len(b)
	return nil
}

// array goes through the events; the opening bracket has been read. That of a
// bare array need not be closed, so that a program that is killed leaves a
// good file.
func (t *trace) array(s *traceScanner, bare bool) error {
	var e traceEvent
	for {
		switch c := s.next(); c {
		case ']':
			return nil
		case ',':
		case 0:
			if bare {
				return nil
			}
			return errTraceEnds
		case '{':
			s.pos--
			b, err := s.whole(maxTraceEvent, e.parse)
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

// rankInName finds a rank in a file's name: rank3.json, trace_rank-3.pt.trace.json,
// worker3.….
func rankInName() *regexp.Regexp { return regexp.MustCompile(`(?i)(?:rank|worker)[_.-]?(\d{1,6})`) }
