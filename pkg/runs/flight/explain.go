package flight

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"lockstep/pkg/internal/english"
)

// Place states where a rank ran, for example on which host.
type Place struct {
	Host string
	PID  int
}

const maxListedRanks = 8

// Explain returns a sentence about each rank for which other ranks waited when the records were
// written, in a collective operation or for a message, or that called another operation. places
// tells, by rank, where ranks without a record ran; it may be nil.
func Explain(records []Record, places map[int]Place) []string {
	if len(records) == 0 {
		return nil
	}
	e := explainer{byRank: map[int]*Record{}, places: places, seen: map[int]uint64{}, lost: map[int]string{}}
	for i := range records {
		r := &records[i]
		e.byRank[r.Rank] = r
		e.world = max(e.world, r.World)
		e.parseLastSeen(r.Error)
		e.failed = e.failed || r.Error != ""
		if l := r.Lost; l != nil {
			e.lost[l.Rank] = l.Reason
		}
		for _, c := range r.Calls {
			e.newest = max(e.newest, c.Number)
		}
	}
	e.findWaitingRanks()
	if e.call == nil { // all had finished it
		return e.explainMessages()
	}
	var all, unasked []string
	for rank := range e.world {
		if e.byRank[rank] == nil && !e.failed {
			unasked = append(unasked, strconv.Itoa(rank))
			continue
		}
		text := e.explainRank(rank)
		if text == "" {
			continue
		}
		if len(all) == maxListedRanks {
			return append(all, "more ranks were missing")
		}
		all = append(all, text)
	}
	if len(unasked) > 0 {
		all = append(all, fmt.Sprintf("rank %s waited in %s for others: send SIGUSR2 to rank %s too, to see which one has not entered it", english.JoinAnd(e.waiting), e.call, english.JoinAnd(unasked[:min(len(unasked), maxListedRanks)])))
	}
	return all
}

type explainer struct {
	byRank  map[int]*Record
	places  map[int]Place
	world   int
	newest  uint64         // number of the newest operation that a rank has entered
	call    *Call          // the newest operation, as one of the ranks that had not finished it recorded it; nil: none
	caller  int            // the rank of call
	waiting []string       // the ranks that had not finished the newest operation
	longest time.Duration  // for which one of them had waited
	seen    map[int]uint64 // the last operation of ranks, as the errors of others state it
	lost    map[int]string // why ranks have no stack, as others found out
	failed  bool           // an operation has failed; otherwise the records were asked for
}

// lastSeenPattern matches the part of an error of package collective that states in which
// collective operation a rank was last seen. Messages are counted separately.
var lastSeenPattern = regexp.MustCompile(`\brank (\d+)(?: is gone:)?[^;:(]*\(last seen in (?:all-reduce|broadcast|reduce-scatter|all-gather|barrier) (\d+)\)`)

// parseLastSeen notes in which operation the ranks in an error were last seen.
func (e *explainer) parseLastSeen(text string) {
	for _, m := range lastSeenPattern.FindAllStringSubmatch(text, -1) {
		rank, err := strconv.Atoi(m[1])
		number, nerr := strconv.ParseUint(m[2], 10, 64)
		if err == nil && nerr == nil {
			e.seen[rank] = max(e.seen[rank], number)
		}
	}
}

func (r *Record) findCall(number uint64) *Call {
	for i := range r.Calls {
		if r.Calls[i].Number == number {
			return &r.Calls[i]
		}
	}
	return nil
}

// findWaitingRanks finds the ranks that had not finished the newest operation.
func (e *explainer) findWaitingRanks() {
	for rank := range e.world {
		r := e.byRank[rank]
		if r == nil {
			continue
		}
		c := r.findCall(e.newest)
		if c == nil || !c.End.IsZero() && !c.Failed {
			continue
		}
		if e.call == nil {
			e.call, e.caller = c, rank
		}
		end := c.End
		if end.IsZero() {
			end = r.Written
		}
		e.longest = max(e.longest, end.Sub(c.Begin))
		e.waiting = append(e.waiting, strconv.Itoa(rank))
	}
}

// explainRank returns a sentence if other ranks waited for rank or if rank called a different
// operation. Otherwise it returns "".
func (e *explainer) explainRank(rank int) string {
	name, r := e.describeRank(rank), e.byRank[rank]
	waited := fmt.Sprintf("; %s waited up to %s", english.FormatCount(len(e.waiting), "rank"), e.longest.Round(time.Millisecond))
	if len(e.waiting) <= maxListedRanks {
		waited = fmt.Sprintf("; rank %s waited %s", e.waiting[0], e.longest.Round(time.Millisecond))
		if len(e.waiting) > 1 {
			waited = fmt.Sprintf("; ranks %s waited up to %s", english.JoinAnd(e.waiting), e.longest.Round(time.Millisecond))
		}
	}
	if r == nil {
		return e.explainSilentRank(name, rank) + waited
	}
	switch own := r.findCall(e.newest); {
	case own == nil:
		return fmt.Sprintf("%s never entered %s: %s", name, e.call, r.describeLastCall()) + waited + r.describeErrorOrStack()
	case own.Kind != e.call.Kind || own.Elements != e.call.Elements || own.Bits != e.call.Bits || own.Peer != e.call.Peer:
		return fmt.Sprintf("%s called %s as collective %d, but rank %d called %s: every rank must call the same operations in the same order", name, own.signature(), e.newest, e.caller, e.call.signature())
	case e.call.Failed && own.Begin.After(e.call.End):
		after, waited := own.Begin.Sub(e.call.Begin), e.call.End.Sub(e.call.Begin)
		return fmt.Sprintf("%s entered %s too late, %s after rank %d, which had waited %s", name, e.call, after.Round(time.Millisecond), e.caller, waited.Round(time.Millisecond)) + r.describeStack()
	}
	return ""
}

// describeRank returns the name of a rank with, if known, the place where it ran.
func (e *explainer) describeRank(rank int) string {
	place := e.places[rank]
	if r := e.byRank[rank]; r != nil {
		place = Place{r.Host, r.PID}
	}
	if place.Host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (process %d on %s)", rank, place.PID, place.Host)
}

func (r *Record) describeErrorOrStack() string {
	if r.Error != "" { // it failed by itself, and its stack is that of its end
		return "; its error: " + r.Error
	}
	return r.describeStack()
}

// describeStack states where the rank was when its record was requested. It returns "" if this is
// unknown.
func (r *Record) describeStack() string {
	if len(r.Stack) == 0 {
		return ""
	}
	return fmt.Sprintf("; its stack (%s): %s", StacksName(r.Rank), FormatStack(r.Stack[:min(len(r.Stack), maxFrames)]))
}

func (e *explainer) explainSilentRank(name string, rank int) string {
	cause := "it wrote no record, so it was killed, stopped or cut off, or failed elsewhere"
	if reason := e.lost[rank]; reason != "" {
		cause = "no stack: " + reason
	}
	number, known := e.seen[rank]
	switch {
	case !known:
		return fmt.Sprintf("%s did not finish %s: %s", name, e.call, cause)
	case number >= e.newest:
		return fmt.Sprintf("%s entered %s and did not finish it: %s", name, e.call, cause)
	}
	last := fmt.Sprintf("its last collective was number %d", number)
	if c := e.byRank[e.caller].findCall(number); c != nil { // all ranks call the same operations
		last = "its last collective was " + c.Describe()
	}
	return fmt.Sprintf("%s never entered %s: %s, and %s", name, e.call, last, cause)
}

func (r *Record) describeLastCall() string {
	for i := len(r.Calls) - 1; i >= 0; i-- {
		c := r.Calls[i]
		if c.Number == 0 {
			continue
		}
		state := "ended at " + c.End.Format("15:04:05.000")
		if c.End.IsZero() {
			state = "had not ended"
		}
		return fmt.Sprintf("its last collective, %s, %s", c.Describe(), state)
	}
	return "it had called no collective"
}

// String returns the operation with its number and, if known, place, such as
// "all-reduce 812 (bucket 2 of step 406)".
func (c Call) String() string {
	return fmt.Sprintf("%s %d", c.Kind, c.Number) + c.stepSuffix()
}

// stepSuffix returns the operation's place in the training, such as " (bucket 2 of step 406)", or "".
func (c Call) stepSuffix() string {
	switch {
	case c.Bucket != nil && c.Step > 0:
		return fmt.Sprintf(" (bucket %d of step %d)", *c.Bucket, c.Step)
	case c.Step > 0:
		return fmt.Sprintf(" (step %d)", c.Step)
	}
	return ""
}

// Describe returns String with the size, such as "all-reduce 812 of 1024 float32".
func (c Call) Describe() string { return c.String() + c.sizeSuffix() }

// sizeSuffix returns the size of the operation, such as " of 1024 float32", or "" for a barrier.
func (c Call) sizeSuffix() string {
	if c.Bits == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d float%d", c.Elements, c.Bits)
}

// signature returns the kind and size, such as "all-reduce of 1024 float32".
func (c Call) signature() string {
	text := c.Kind + c.sizeSuffix()
	if c.Kind == "broadcast" {
		text += fmt.Sprintf(" from rank %d", c.Peer)
	}
	return text
}
