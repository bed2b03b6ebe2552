package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"lockstep/pkg/runs"
)

// spanClass classifies a span. The kind of the span follows when the whole
// trace is known.
type spanClass uint8

const (
	classIgnored     spanClass = iota
	classOther                 //
	classStep                  // a training step, always kept
	classData                  //
	classCompute               // on a device
	classCommunicate           //
	classHostCompute           // an operator on the host: computation, unless a device computes
	classHostEnqueue           // the launch of a collective: communication, unless the collective itself is in the trace
)

// spanSet stores the spans of a trace in a compact form.
type spanSet struct {
	spans  []compactSpan
	names  []string
	lanes  []lane
	named  map[string]spanName // by category and name
	byLane map[string]int32    // by process and thread
	byPid  map[string]int      // rank of a process, if its name has one
	key    []byte              // scratch

	first                   int64 // nanoseconds
	any, device, collective bool
	compactAt               int
	full                    bool

	nested, drawn, tooMany, unnamed, unopened, noLane, tooDeep, untimed int64
}

type compactSpan struct {
	start, length int64 // nanoseconds
	lane, name    int32
	class         spanClass
}

type spanName struct {
	name  int32
	class spanClass
}

type lane struct {
	name, pid string
	open      []compactSpan // began by an event B and did not end yet; innermost last
}

// noName is the name of a span whose own name exceeds the limits.
const noName = "(name left out)"

func newSpanSet() *spanSet {
	return &spanSet{
		names: []string{noName}, named: map[string]spanName{}, byLane: map[string]int32{},
		byPid: map[string]int{}, compactAt: 1 << 17,
	}
}

// add adds an event.
func (s *spanSet) add(e *event) {
	switch e.ph {
	case 'M':
		s.metadata(e)
		return
	case 'X', 'B', 'E':
	default:
		return // instants, counters, flows
	}
	if !e.timed || e.ph == 'X' && (!e.hasSeconds || e.dur < 0) {
		s.untimed++
		return
	}
	if e.ph == 'E' {
		s.end(e)
		return
	}
	n := s.nameOf(e)
	if n.class == classIgnored && e.ph == 'X' {
		if string(e.cat) == deviceAnnotation {
			s.drawn++
		}
		return
	}
	at, ok := s.laneOf(e)
	if !ok {
		s.noLane++
		return
	}
	span := compactSpan{start: e.ts, length: e.dur, lane: at, name: n.name, class: n.class}
	if e.ph == 'X' {
		s.put(span)
		return
	}
	if l := &s.lanes[at]; len(l.open) < maxOpenSpans {
		l.open = append(l.open, span)
	} else {
		s.tooDeep++
	}
}

// end ends the span of its lane that began last.
func (s *spanSet) end(e *event) {
	at, ok := s.laneOf(e)
	if !ok || len(s.lanes[at].open) == 0 {
		s.unopened++
		return
	}
	l := &s.lanes[at]
	span := l.open[len(l.open)-1]
	l.open = l.open[:len(l.open)-1]
	if span.length = e.ts - span.start; span.length >= 0 && span.class != classIgnored {
		s.put(span)
	}
}

// put adds a complete span.
func (s *spanSet) put(span compactSpan) {
	switch span.class {
	case classCompute:
		s.device = true
	case classCommunicate:
		s.collective = s.collective || isCollectiveItself(s.names[span.name])
	}
	if !s.any || span.start < s.first {
		s.first, s.any = span.start, true
	}
	if len(s.spans) >= s.compactAt && !s.full {
		s.compact()
		s.compactAt = min(max(s.compactAt, 2*len(s.spans)), maxSpans)
		s.full = len(s.spans) > maxSpans*3/4 // compacting again would gain little
	}
	if len(s.spans) >= maxSpans {
		s.tooMany++
		return
	}
	s.spans = append(s.spans, span)
}

// compact removes the spans that are inside another span of the same class and lane.
// Operators call dozens of other operators, and the outermost span includes their time.
// Steps are kept.
func (s *spanSet) compact() {
	slices.SortFunc(s.spans, func(a, b compactSpan) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.class, b.class), cmp.Compare(a.start, b.start), cmp.Compare(b.length, a.length), cmp.Compare(a.name, b.name))
	})
	kept := s.spans[:0]
	for _, x := range s.spans {
		if len(kept) > 0 && x.class != classStep {
			o := kept[len(kept)-1]
			if o.lane == x.lane && o.class == x.class && x.start+x.length <= o.start+o.length && x.length < o.length {
				s.nested++
				continue
			}
		}
		kept = append(kept, x)
	}
	s.spans = kept
}

// nameOf returns the name and class of an event by its category and name.
func (s *spanSet) nameOf(e *event) spanName {
	s.key = append(append(append(s.key[:0], e.cat...), 0), e.name...)
	if n, ok := s.named[string(s.key)]; ok {
		return n
	}
	name := unquoted(e.name)
	n := spanName{class: classOf(string(e.cat), name)}
	if len(s.names) >= maxNames || len(e.name)+len(e.cat) > maxNameBytes {
		if n.class != classIgnored {
			s.unnamed++
		}
		return n
	}
	if n.class != classIgnored {
		n.name = int32(len(s.names))
		s.names = append(s.names, name)
	}
	if len(s.named) < maxNames {
		s.named[string(s.key)] = n
	}
	return n
}

// unquoted returns a string with JSON's escapes resolved.
func unquoted(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	var text string
	if json.Unmarshal(append(append([]byte{'"'}, b...), '"'), &text) != nil {
		return string(b)
	}
	return text
}

// laneOf returns the index of the event's lane, or false if there are too many.
func (s *spanSet) laneOf(e *event) (int32, bool) {
	s.key = append(append(append(s.key[:0], e.pid...), '/'), e.tid...)
	if i, ok := s.byLane[string(s.key)]; ok {
		return i, true
	}
	if len(s.lanes) >= maxLanes || len(s.key) > maxNameBytes {
		return 0, false
	}
	i := int32(len(s.lanes))
	s.byLane[string(s.key)] = i
	s.lanes = append(s.lanes, lane{name: string(s.key), pid: string(e.pid)})
	return i, true
}

// rankInProcess matches the rank in the name of a process, if a trace has
// several ranks: "rank 3", "Rank: 3 (GPU 0)".
func rankInProcess() *regexp.Regexp { return regexp.MustCompile(`^(?i:rank)[ _:#-]*(\d{1,6})\b`) }

// metadata reads the rank from the name of a process.
func (s *spanSet) metadata(e *event) {
	if string(e.name) != "process_name" || len(s.byPid) >= maxLanes || len(e.pid) > maxNameBytes || len(e.args) > maxNameBytes {
		return
	}
	var args struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(e.args, &args) != nil {
		return
	}
	if m := rankInProcess().FindStringSubmatch(args.Name); m != nil {
		s.byPid[string(e.pid)], _ = strconv.Atoi(m[1]) // six digits at most
	}
}

// ranked reports whether the name of every process has a rank.
func (s *spanSet) ranked() bool {
	for _, l := range s.lanes {
		if _, ok := s.byPid[l.pid]; !ok {
			return false
		}
	}
	return len(s.lanes) > 0
}

// kind returns the kind of runs.Span for a class. If a device computes, the
// host only launches work; the same holds for NCCL's collectives.
func (s *spanSet) kind(c spanClass) string {
	switch {
	case c == classData:
		return runs.SpanData
	case c == classCompute, c == classHostCompute && !s.device:
		return runs.SpanCompute
	case c == classCommunicate, c == classHostEnqueue && !s.collective:
		return runs.SpanCommunication
	}
	return runs.SpanOther
}

// result returns the spans ordered by rank, lane and start. rank is used for
// processes whose name has none.
func (s *spanSet) result(rank int) []runs.Span {
	s.compact()
	if len(s.spans) == 0 {
		return nil
	}
	out := make([]runs.Span, len(s.spans))
	for i, x := range s.spans {
		l := &s.lanes[x.lane]
		out[i] = runs.Span{
			Rank: rank, Lane: l.name, Kind: s.kind(x.class), Name: s.names[x.name],
			Start: float64(x.start-s.first) / 1e9, Seconds: float64(x.length) / 1e9,
		}
		if r, ok := s.byPid[l.pid]; ok {
			out[i].Rank = r
		}
	}
	slices.SortStableFunc(out, func(a, b runs.Span) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), runs.NaturalCompare(a.Lane, b.Lane), cmp.Compare(a.Start, b.Start), cmp.Compare(b.Seconds, a.Seconds))
	})
	return out
}

// left returns a text for each kind of event that was left out.
func (s *spanSet) left() (says []string) {
	open := int64(0)
	for _, l := range s.lanes {
		open += int64(len(l.open))
	}
	for _, x := range []struct {
		n    int64
		text string
	}{
		{s.tooMany, "%d spans are not read: the trace has more than " + strconv.Itoa(maxSpans)},
		{s.unnamed, "%d spans have no name here: the trace has too many or too long names"},
		{s.noLane, "%d spans are not read: the trace has more than " + strconv.Itoa(maxLanes) + " threads"},
		{s.tooDeep, "%d spans are not read: too many lie in each other"},
		{s.untimed, "%d spans are not read: they lack their time"},
		{s.unopened, "%d ends of spans have no beginning"},
		{open, "%d spans that begin do not end"},
	} {
		if x.n > 0 {
			says = append(says, fmt.Sprintf(x.text, x.n))
		}
	}
	return says
}
