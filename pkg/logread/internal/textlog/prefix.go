package textlog

import (
	"bytes"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// strip removes what precedes a program's own line: the label of a rank, a time
// stamp, a level. It sets t.rank and t.stamp.
//
//	0: line                               srun -l
//	[1,0]<stdout>:line                    mpirun --tag-output, horovodrun
//	[prterun-node1-123@1,0]<stdout>:line  mpirun --tag-output of Open MPI 5
//	[rank0]:line                          torchrun
//	0: [default1]:line                    srun -l of torchrun --tee, on each node
//	[titan] 2021-11-12 00:32:26,118 - root - INFO - line
//	2021-11-12 00:32:26,118 - root - INFO - line
//	2018-10-07 20:36:09,348 INFO line
func (t *textLog) strip(line []byte) []byte {
	m := scan.SkipBlanks(line)
	if len(m) < 3 {
		return m
	}
	if scan.IsDigit(m[0]) || m[0] == '[' {
		m = t.label(m)
		if len(m) > 0 && m[0] == '[' {
			m = t.inner(m)
		}
		if len(m) > 20 && (scan.IsDigit(m[0]) || m[0] == '-') {
			m = t.timeStamp(m)
		}
	}
	return m
}

// label removes the label of a rank.
func (t *textLog) label(m []byte) []byte {
	if scan.IsDigit(m[0]) {
		i, rank := 1, int(m[0]-'0')
		for i < len(m) && i < 8 && scan.IsDigit(m[i]) {
			rank = 10*rank + int(m[i]-'0')
			i++
		}
		if i == len(m) || m[i] != ':' || i+1 < len(m) && m[i+1] != ' ' {
			return m
		}
		return t.labelled(m, scan.Cursor{Rest: m[i+1:]}, rank)
	}
	c := scan.Cursor{Rest: m}
	c.Expect("[")
	switch {
	case c.Accept("rank"), c.Accept("default"):
		rank := c.Count()
		c.Expect("]:")
		return t.labelled(m, c, rank)
	case c.Accept("prterun-"):
		at := bytes.IndexByte(c.Rest[:min(len(c.Rest), 300)], '@') // after the host's name and a process
		c.Failed = at < 0
		c.Rest = c.Rest[at+1:]
		fallthrough
	case len(m) > 2 && scan.IsDigit(m[1]):
		rank := c.Count()
		if c.Accept(",") {
			rank = c.Count() // job, rank
		}
		c.Expect("]<std")
		if !c.Accept("out>:") {
			c.Expect("err>:")
		}
		return t.labelled(m, c, rank)
	}
	return m
}

// labelled sets the rank of a label, unless the label is malformed.
func (t *textLog) labelled(m []byte, c scan.Cursor, rank int) []byte {
	if c.Failed || rank > record.MaxWorkers {
		return m
	}
	t.rank = rank
	return scan.SkipBlanks(c.Rest)
}

// ranksPerNode is the distance between the numbers of two nodes' ranks, if labels
// count within a node and the number of ranks per node is unknown.
const ranksPerNode = 1 << 10

// inner removes what follows a label: the label of a rank within its node, and
// torchtitan's name. torchrun's [defaultN] counts the ranks of a node, its
// [rankN] those of all nodes.
func (t *textLog) inner(m []byte) []byte {
	if node := t.rank; node >= 0 {
		local := scan.HasPrefix(m, "[default")
		t.rank = -1
		m = t.label(m)
		switch {
		case t.rank < 0, local && (t.rank >= ranksPerNode || node > record.MaxWorkers/ranksPerNode-1):
			t.rank = node
		case local && node > 0:
			t.rank += ranksPerNode * node
			if !t.nodesReported {
				t.nodesReported = true
				t.in.Report.Assume("labels such as [default1] count within a node: the ranks of node N are numbered from %d·N on", ranksPerNode)
			}
		}
	}
	if scan.HasPrefix(m, "[titan] ") {
		m = scan.SkipBlanks(m[len("[titan] "):])
	}
	return m
}

// stampLength is the length of a time stamp after its year: -11-12
// 00:32:26,118.
const stampLength = 19

// timeStamp removes a time stamp and the level after it. Leading digits of the
// year may be missing, since several writers of one file tear each other's
// lines.
func (t *textLog) timeStamp(m []byte) []byte {
	year := 0
	for year < 4 && scan.IsDigit(m[year]) {
		year++
	}
	if len(m) < year+stampLength {
		return m
	}
	s := m[year : year+stampLength]
	if s[0] != '-' || s[3] != '-' || s[6] != ' ' && s[6] != 'T' || s[9] != ':' || s[12] != ':' || s[15] != ',' && s[15] != '.' || !scan.IsDigit(s[18]) {
		return m
	}
	t.stamp = m[:year+stampLength]
	rest := m[year+stampLength:]
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if len(rest) > 1 && rest[0] == '-' && rest[1] == ' ' {
		return t.nameAndLevel(rest)
	}
	for _, level := range [...]string{"INFO", "WARNING", "ERROR", "DEBUG", "[INFO]", "[WARNING]"} {
		if scan.HasPrefix(rest, level) {
			rest = rest[len(level):]
			for len(rest) > 0 && (rest[0] == ' ' || rest[0] == ':') {
				rest = rest[1:]
			}
			return rest
		}
	}
	return rest
}

// nameAndLevel removes "- name - LEVEL - ", up to the second dash after the
// name. It is usually the same as in the previous line.
func (t *textLog) nameAndLevel(m []byte) []byte {
	if n := len(t.heading); n > 0 && bytes.HasPrefix(m, t.heading) {
		return bytes.TrimLeft(m[n:], " ")
	}
	_, rest, _ := bytes.Cut(m[2:], []byte(" - "))
	_, message, ok := bytes.Cut(rest, []byte(" - "))
	if n := len(m) - len(message); ok && n <= 200 {
		t.heading = append(t.heading[:0], m[:n]...)
	}
	return bytes.TrimLeft(message, " ")
}

// clockTolerance is by how many milliseconds a stamp may precede the one above it:
// lines written at the same time need not be in order.
const clockTolerance = 1000

// clock updates the run's start and end from the time stamp of a used line. A
// stamp that precedes an earlier one of the same rank shows that the clock was
// set.
func (t *textLog) clock() {
	now, ok := t.milliseconds()
	if !ok {
		return
	}
	run := t.cur
	if !run.hasTimes {
		run.hasTimes, run.started, run.ended = true, now, now
		if !t.zoneReported {
			t.zoneReported = true
			t.in.Report.Assume("time stamps are of UTC, for the log does not say its zone")
		}
	}
	if run.ended-now > clockTolerance && t.rank < 0 {
		back := time.UnixMilli(run.ended).Sub(time.UnixMilli(now))
		t.in.Problem(t.l.Number, "the clock goes back by %s here; the epochs' seconds are the log's own and stay as they are", back)
	}
	if now > run.ended || t.rank < 0 {
		run.ended = now
	}
}

// milliseconds returns the time stamp of the current line in milliseconds since
// 1970, as UTC, since the log does not say its time zone. The day is only
// converted if it differs from that of the previous line.
func (t *textLog) milliseconds() (int64, bool) {
	year := len(t.stamp) - stampLength
	if day := t.stamp[:year+6]; !bytes.Equal(day, t.day.text) {
		t.newDay(day, year)
	}
	if t.day.bad {
		return 0, false
	}
	s := t.stamp[year:][:stampLength]
	two := func(i int) uint32 { // at most 99, or a large number if these are not digits
		a, b := uint32(s[i])-'0', uint32(s[i+1])-'0'
		if a > 9 || b > 9 {
			return 1 << 20
		}
		return 10*a + b
	}
	hour, minute, second, hundredths, thousandth := two(7), two(10), two(13), two(16), uint32(s[18])-'0'
	if hour|minute|second|hundredths >= 1<<20 || thousandth > 9 {
		return 0, false
	}
	return t.day.midnight + int64(((hour*60+minute)*60+second)*1000+10*hundredths+thousandth), true
}

// newDay converts a day whose year has so many digits.
func (t *textLog) newDay(day []byte, year int) {
	text := string(day)
	if missing := 4 - year; missing > 0 && t.cur.hasTimes {
		text = time.UnixMilli(t.cur.ended).UTC().Format("2006")[:missing] + text
	}
	t.day.set(day, text)
}

// calendar stores when a day began, usually the day of the previous line.
type calendar struct {
	text     []byte // the day as written
	midnight int64  // its beginning, in milliseconds since 1970
	bad      bool   // the text is not a day
}

// set sets the day. text is the day as written, whole the day with all its
// digits.
func (c *calendar) set(text []byte, whole string) {
	c.text = append(c.text[:0], text...)
	midnight, err := time.Parse("2006-01-02", whole)
	c.midnight, c.bad = midnight.UnixMilli(), err != nil
}
