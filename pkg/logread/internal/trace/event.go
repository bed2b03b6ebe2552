package trace

import (
	"math"
	"strconv"

	"lockstep/pkg/logread/internal/scan"
)

// traceEvent is one event of the trace. Its texts are slices of the scanner's
// buffer; escape sequences are not decoded.
type traceEvent struct {
	ph                byte
	cat, name         []byte
	pid, tid          []byte
	args              []byte
	ts, dur           int64 // nanoseconds
	timed, hasSeconds bool  // ts and dur are set
}

// parse parses an event. It returns false if the event is malformed.
func (e *traceEvent) parse(text []byte) bool {
	*e = traceEvent{}
	members := scan.ObjectIterator{Text: text}
	for key, value := range members.Members() {
		e.setField(key, scan.Unquote(value))
	}
	return !members.Bad
}

func (e *traceEvent) setField(key, value []byte) {
	switch string(key) {
	case "ph":
		if len(value) == 1 {
			e.ph = value[0]
		}
	case "cat":
		e.cat = value
	case "name":
		e.name = value
	case "pid":
		e.pid = value
	case "tid":
		e.tid = value
	case "ts":
		e.ts, e.timed = parseMicroseconds(value)
	case "dur":
		e.dur, e.hasSeconds = parseMicroseconds(value)
	case "args":
		e.args = value
	}
}

// maxMicroseconds is the largest accepted time. It is chosen so that the sum of
// two times in nanoseconds fits into an int64.
const maxMicroseconds = math.MaxInt64 / 4000

// parseMicroseconds parses a number of microseconds and returns it in
// nanoseconds. A float64 would lose the fraction of a time since 1970.
func parseMicroseconds(b []byte) (ns int64, ok bool) {
	i, sign := 0, int64(1)
	if len(b) > 0 && b[0] == '-' {
		i, sign = 1, -1
	}
	digits := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if ns = 10*ns + int64(b[i]-'0'); ns > maxMicroseconds {
			return 0, false
		}
		digits++
	}
	ns *= 1000
	if i < len(b) && b[i] == '.' {
		unit := int64(100)
		for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			ns += unit * int64(b[i]-'0')
			unit /= 10
			digits++
		}
	}
	if digits > 0 && i == len(b) {
		return sign * ns, true
	}
	v, err := strconv.ParseFloat(string(b), 64) // with an exponent
	if err != nil || math.IsNaN(v) || math.Abs(v) > maxMicroseconds {
		return 0, false
	}
	return int64(math.Round(v * 1000)), true
}
