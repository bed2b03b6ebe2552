package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// spanClass is the class of a span by its category and name. Its final kind depends on the other
// spans, so it is determined at the end of the trace.
type spanClass uint8

const (
	classIgnored     spanClass = iota // not a span of the run
	classOther                        // neither data, computation nor communication
	classStep                         // a training step; never removed as nested
	classData                         // loading of a batch
	classCompute                      // computation on a device
	classCommunicate                  // communication between ranks
	classHostCompute                  // an operator on the host: computation, unless a device computes
	classHostEnqueue                  // the launch of a collective: communication, unless the collective itself is in the trace
)

// spanSet collects the spans of a trace in a form that needs little memory.
type spanSet struct {
	spans  []compactSpan
	names  []string
	lanes  []traceLane
	named  map[string]internedName // by category and name of the event
	byLane map[string]int32        // index in lanes by process and thread
	byPid  map[string]int          // rank by process, for processes with a rank in their name
	key    []byte                  // scratch buffer for map keys

	first                             int64 // start of the earliest span in nanoseconds
	hasSpan, hasDevice, hasCollective bool  // the trace has a span, a computation on a device, an execution of a collective
	compactAt                         int   // number of spans at which removeNested is called
	full                              bool  // removeNested is not called any more

	// Number of events that were omitted, by reason.
	nested, drawn, tooMany, unnamed, unopened, noLane, tooDeep, untimed int64
}

type compactSpan struct {
	start, length int64 // nanoseconds
	lane, name    int32
	class         spanClass
}

// internedName is the index of a name in spanSet.names and the class of its spans.
type internedName struct {
	name  int32
	class spanClass
}

// traceLane is one row of the trace: a thread of a process.
type traceLane struct {
	name, pid string
	open      []compactSpan // spans that an event B began and no event E has ended; innermost last
}

// omittedName replaces the names of spans that exceed the limits on the length and the number of
// names.
const omittedName = "(name left out)"

func newSpanSet() *spanSet {
	return &spanSet{
		names: []string{omittedName}, named: map[string]internedName{}, byLane: map[string]int32{},
		byPid: map[string]int{}, compactAt: 1 << 17,
	}
}

// addEvent adds the span that an event describes. An event may also only begin or end a span. Other
// events are ignored.
func (s *spanSet) addEvent(e *traceEvent) {
	switch e.ph {
	case 'M':
		s.readProcessRank(e)
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
		s.endSpan(e)
		return
	}
	n := s.internName(e)
	if n.class == classIgnored && e.ph == 'X' {
		if string(e.cat) == deviceAnnotation {
			s.drawn++
		}
		return
	}
	at, ok := s.findLane(e)
	if !ok {
		s.noLane++
		return
	}
	span := compactSpan{start: e.ts, length: e.dur, lane: at, name: n.name, class: n.class}
	if e.ph == 'X' {
		s.addSpan(span)
		return
	}
	if l := &s.lanes[at]; len(l.open) < maxOpenSpans {
		l.open = append(l.open, span)
	} else {
		s.tooDeep++
	}
}

func (s *spanSet) endSpan(e *traceEvent) {
	at, ok := s.findLane(e)
	if !ok || len(s.lanes[at].open) == 0 {
		s.unopened++
		return
	}
	l := &s.lanes[at]
	span := l.open[len(l.open)-1]
	l.open = l.open[:len(l.open)-1]
	if span.length = e.ts - span.start; span.length >= 0 && span.class != classIgnored {
		s.addSpan(span)
	}
}

func (s *spanSet) addSpan(span compactSpan) {
	switch span.class {
	case classCompute:
		s.hasDevice = true
	case classCommunicate:
		s.hasCollective = s.hasCollective || isCollectiveExecution(s.names[span.name])
	}
	if !s.hasSpan || span.start < s.first {
		s.first, s.hasSpan = span.start, true
	}
	if len(s.spans) >= s.compactAt && !s.full {
		s.removeNested()
		s.compactAt = min(max(s.compactAt, 2*len(s.spans)), maxSpans)
		s.full = len(s.spans) > maxSpans*3/4 // compacting again would gain little
	}
	if len(s.spans) >= maxSpans {
		s.tooMany++
		return
	}
	if len(s.spans) == cap(s.spans) {
		s.spans = record.Grow(s.spans, len(s.spans)+16) // append alone would copy more often
	}
	s.spans = append(s.spans, span)
}

// removeNested removes each span inside another span of the same class and lane, except steps.
// Operators call dozens of other operators, and the outermost span includes their time.
func (s *spanSet) removeNested() {
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

// internName returns the index of an event's name and the class of its spans. It adds the name if
// it is new.
func (s *spanSet) internName(e *traceEvent) internedName {
	s.key = append(append(append(s.key[:0], e.cat...), 0), e.name...)
	if n, ok := s.named[string(s.key)]; ok {
		return n
	}
	name := scan.DecodeJSONString(e.name)
	n := internedName{class: classifySpan(string(e.cat), name)}
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

// findLane returns the index of the event's lane, which is added if it is new. ok is false if there
// are too many lanes or the new one's name is too long.
func (s *spanSet) findLane(e *traceEvent) (i int32, ok bool) {
	s.key = append(append(append(s.key[:0], e.pid...), '/'), e.tid...)
	if i, ok := s.byLane[string(s.key)]; ok {
		return i, true
	}
	if len(s.lanes) >= maxLanes || len(s.key) > maxNameBytes {
		return 0, false
	}
	i = int32(len(s.lanes))
	s.byLane[string(s.key)] = i
	s.lanes = append(s.lanes, traceLane{name: string(s.key), pid: string(e.pid)})
	return i, true
}

// processRankPattern matches the rank in a process's name, such as "rank 3" or "Rank: 3 (GPU 0)".
func processRankPattern() *regexp.Regexp { return regexp.MustCompile(`^(?i:rank)[ _:#-]*(\d{1,6})\b`) }

// readProcessRank stores the rank of a process if its name contains one.
func (s *spanSet) readProcessRank(e *traceEvent) {
	if string(e.name) != "process_name" || len(s.byPid) >= maxLanes || len(e.pid) > maxNameBytes || len(e.args) > maxNameBytes {
		return
	}
	var args struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(e.args, &args) != nil {
		return
	}
	if m := processRankPattern().FindStringSubmatch(args.Name); m != nil {
		s.byPid[string(e.pid)], _ = strconv.Atoi(m[1]) // six digits at most
	}
}

func (s *spanSet) allLanesHaveRanks() bool {
	return len(s.lanes) > 0 && !slices.ContainsFunc(s.lanes, func(l traceLane) bool {
		_, has := s.byPid[l.pid]
		return !has
	})
}

// spanKind returns the kind of runs.Span for a class. An operator on the host is computation only
// if no device computes in the trace. The launch of a collective is communication only if the trace
// lacks its execution.
func (s *spanSet) spanKind(c spanClass) string {
	switch {
	case c == classData:
		return runs.SpanData
	case c == classCompute, c == classHostCompute && !s.hasDevice:
		return runs.SpanCompute
	case c == classCommunicate, c == classHostEnqueue && !s.hasCollective:
		return runs.SpanCommunication
	}
	return runs.SpanOther
}

// appendSpans appends the spans to out. rank is the rank of processes that have no rank in their
// name.
func (s *spanSet) appendSpans(out []runs.Span, rank int) []runs.Span {
	out = record.Grow(out, len(s.spans))
	for _, x := range s.spans {
		l := &s.lanes[x.lane]
		of := rank
		if r, ok := s.byPid[l.pid]; ok {
			of = r
		}
		out = append(out, runs.Span{
			Rank: of, Lane: l.name, Kind: s.spanKind(x.class), Name: s.names[x.name],
			Start: float64(x.start-s.first) / 1e9, Seconds: float64(x.length) / 1e9,
		})
	}
	return out
}

// describeOmissions describes each kind of event that was left out.
func (s *spanSet) describeOmissions() (descriptions []string) {
	open := int64(0)
	for _, l := range s.lanes {
		open += int64(len(l.open))
	}
	for _, x := range []struct {
		n    int64
		text string
	}{
		{s.tooMany, "%d spans are not read: the trace has more than " + strconv.Itoa(maxSpans)},
		{s.unnamed, "the names of %d spans are left out: the trace has too many or too long names"},
		{s.noLane, "%d spans are not read: the trace has more than " + strconv.Itoa(maxLanes) + " threads"},
		{s.tooDeep, "%d spans are not read: nested too deeply"},
		{s.untimed, "%d spans are not read: start or duration missing"},
		{s.unopened, "%d span ends have no begin"},
		{open, "%d spans have no end"},
	} {
		if x.n > 0 {
			descriptions = append(descriptions, fmt.Sprintf(x.text, x.n))
		}
	}
	return descriptions
}
