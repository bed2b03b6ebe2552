package flight

import (
	"fmt"
	"strings"
	"time"
)

// minMessageWait is the minimum time that a rank must have waited for a message for Explain to
// mention it, unless an operation has failed. Between the messages of a step, ranks wait for less
// time.
const minMessageWait = time.Second

type messageWait struct {
	rank int
	call *Call
	time time.Duration
}

// explainMessages returns a sentence about each rank whose message others waited for, except ranks
// that waited themselves and so could not go on.
func (e *explainer) explainMessages() []string {
	longest := map[int]messageWait{} // by the rank that others waited for
	waits := map[int]bool{}
	for rank := range e.world {
		r := e.byRank[rank]
		if r == nil {
			continue
		}
		for i := range r.Calls {
			c := &r.Calls[i]
			w := messageWait{rank, c, r.waited(c)}
			if c.Number > 0 || !c.Failed && (e.failed || !c.End.IsZero() || w.time < minMessageWait) {
				continue
			}
			waits[rank] = true
			if old, ok := longest[c.Peer]; !ok || w.time > old.time {
				longest[c.Peer] = w
			}
		}
	}
	var last, all []string // last: about ranks that did not wait themselves
	for peer := range e.world {
		if w, ok := longest[peer]; ok {
			text := e.explainMessage(peer, w)
			all = append(all, text)
			if !waits[peer] {
				last = append(last, text)
			}
		}
	}
	if len(last) == 0 { // each waited for another one
		last = all
	}
	if len(last) > maxListedRanks {
		last = append(last[:maxListedRanks], "more ranks were missing")
	}
	return last
}

// waited returns how long the rank had waited for c when it wrote the record.
func (r *Record) waited(c *Call) time.Duration {
	if c.End.IsZero() {
		return r.Written.Sub(c.Begin)
	}
	return c.End.Sub(c.Begin)
}

// explainMessage describes a message that another rank waited for, and what is known of peer, which
// did not send or receive it.
func (e *explainer) explainMessage(peer int, w messageWait) string {
	r := e.byRank[peer]
	verb, direction := "receive", "from"
	if w.call.Kind == "receive" {
		verb, direction = "send", "to"
	}
	size := strings.TrimPrefix(w.call.sizeSuffix(), " of ")
	text := fmt.Sprintf("%s did not %s %s %s rank %d%s, which waited %s: ", e.describeRank(peer), verb, size, direction, w.rank, w.call.stepSuffix(), w.time.Round(time.Millisecond))
	switch {
	case r != nil:
		return text + r.describeLastCall()
	case !e.failed:
		return text + fmt.Sprintf("send SIGUSR2 to rank %d too, to see its last collective", peer)
	}
	return text + "it wrote no record, so it was killed, stopped or cut off, or failed elsewhere"
}
