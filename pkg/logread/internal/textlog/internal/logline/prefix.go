package logline

import (
	"bytes"
	"math"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// StripPrefix returns line without the text that launchers and loggers put before the message of a
// program: a label with the rank, a time stamp, a level. It sets log.Rank and log.Stamp.
//
//	0: line                               srun -l
//	[1,0]<stdout>:line                    mpirun --tag-output, horovodrun
//	[prterun-node1-123@1,0]<stdout>:line  mpirun --tag-output of Open MPI 5
//	[rank0]:line                          torchrun
//	0: [default1]:line                    srun -l of torchrun --tee, on each node
//	[titan] 2021-11-12 00:32:26,118 - root - INFO - line
//	2021-11-12 00:32:26,118 - root - INFO - line
//	2018-10-07 20:36:09,348 INFO line
//	2023-05-04 10:00:00.123456: line      nnU-Net
//	05/04/2024 10:00:00 - INFO - __main__ - line
//	[2024-05-04 10:00:00] line            Megatron-LM
//	[2023-05-04 10:00:00,123] [INFO] [timer.py:199:stop] [Rank 0] line
//	[INFO|trainer.py:2134] 2024-05-04 10:00:00,123 >> line
func (log *Log) StripPrefix(line []byte) []byte {
	m := scan.SkipBlanks(line)
	if len(m) < 3 {
		return m
	}
	if scan.IsDigit(m[0]) || m[0] == '[' {
		m = log.stripLabel(m)
		if len(m) > 0 && m[0] == '[' {
			m = log.stripInnerLabel(m)
		}
		if len(m) > 20 && m[0] == '[' {
			m = log.stripBrackets(m)
		}
		if len(m) > 20 && (scan.IsDigit(m[0]) || m[0] == '-') {
			m = log.stripTimeStamp(m)
		}
	}
	return m
}

// stripLabel returns m without a label that contains the rank, and sets log.Rank to this rank.
func (log *Log) stripLabel(m []byte) []byte {
	if scan.IsDigit(m[0]) {
		i, rank := 1, int(m[0]-'0')
		for i < len(m) && i < 8 && scan.IsDigit(m[i]) {
			rank = 10*rank + int(m[i]-'0')
			i++
		}
		if i == len(m) || m[i] != ':' || i+1 < len(m) && m[i+1] != ' ' {
			return m
		}
		return log.acceptLabel(m, scan.Cursor{Rest: m[i+1:]}, rank)
	}
	c := scan.Cursor{Rest: m}
	c.Expect("[")
	switch {
	case c.Accept("rank"), c.Accept("default"):
		rank := c.ReadInteger()
		c.Expect("]:")
		return log.acceptLabel(m, c, rank)
	case c.Accept("prterun-"):
		at := bytes.IndexByte(c.Rest[:min(len(c.Rest), 300)], '@') // after the host name and a process number
		c.Failed = at < 0
		c.Rest = c.Rest[at+1:]
		fallthrough
	case len(m) > 2 && scan.IsDigit(m[1]):
		rank := c.ReadInteger()
		if c.Accept(",") {
			rank = c.ReadInteger() // job, rank
		}
		c.Expect("]<std")
		if !c.Accept("out>:") {
			c.Expect("err>:")
		}
		return log.acceptLabel(m, c, rank)
	}
	return m
}

// acceptLabel sets log.Rank to rank and returns the rest of cursor c, which is the line after its
// label. If c failed or the rank is too large, it returns m and sets nothing.
func (log *Log) acceptLabel(m []byte, c scan.Cursor, rank int) []byte {
	if c.Failed || rank > record.MaxWorkers {
		return m
	}
	log.Rank = rank
	return scan.SkipBlanks(c.Rest)
}

// reservedRanksPerNode is the number of ranks reserved for each node if labels count the ranks
// within a node. Since the log does not state the real number of ranks per node, rank r of node n
// gets the number n·reservedRanksPerNode + r.
const reservedRanksPerNode = 1 << 10

// stripInnerLabel returns m, the text after a label, without a second label (of a rank within its
// node) and without the name of torchtitan. torchrun's label [defaultN] contains the local rank,
// and its label [rankN] the global rank.
func (log *Log) stripInnerLabel(m []byte) []byte {
	if node := log.Rank; node >= 0 {
		local := scan.HasPrefix(m, "[default")
		log.Rank = -1
		m = log.stripLabel(m)
		switch {
		case log.Rank < 0, local && (log.Rank >= reservedRanksPerNode || node > record.MaxWorkers/reservedRanksPerNode-1):
			log.Rank = node
		case local && node > 0:
			log.Rank += reservedRanksPerNode * node
			if !log.nodesReported {
				log.nodesReported = true
				log.In.Report.AddAssumption("labels such as [default1] count within a node: the ranks of node N are numbered from %d·N", reservedRanksPerNode)
			}
		}
	}
	if scan.HasPrefix(m, "[titan] ") {
		m = scan.SkipBlanks(m[len("[titan] "):])
	}
	return m
}

// stampLength is the length in bytes of a time stamp after its year: -11-12 00:32:26,118.
const stampLength = 19

// stripTimeStamp returns m without a time stamp and the level after it, and sets log.Stamp. Digits
// of the year may be missing, because processes that write to the same file overwrite parts of each
// other's lines.
func (log *Log) stripTimeStamp(m []byte) []byte {
	year := 0
	for year < 4 && scan.IsDigit(m[year]) {
		year++
	}
	if len(m) < year+stampLength {
		return m
	}
	if m[year] == '/' {
		return log.stripDateWithSlashes(m)
	}
	s := m[year : year+stampLength]
	if s[0] != '-' || s[3] != '-' || s[6] != ' ' && s[6] != 'T' || s[9] != ':' || s[12] != ':' || s[15] != ',' && s[15] != '.' || !scan.IsDigit(s[18]) {
		return m
	}
	log.Stamp = m[:year+stampLength]
	rest := m[year+stampLength:]
	if len(rest) > 3 && scan.IsDigit(rest[0]) && scan.IsDigit(rest[1]) && scan.IsDigit(rest[2]) && rest[3] == ':' { // microseconds
		log.MicroStamp = true
		rest = rest[4:]
	}
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if scan.HasPrefix(rest, ">> ") { // transformers
		return scan.SkipBlanks(rest[len(">> "):])
	}
	if len(rest) > 1 && rest[0] == '-' && rest[1] == ' ' {
		return log.stripNameAndLevel(rest)
	}
	for _, level := range [...]string{"INFO", "WARNING", "ERROR", "DEBUG", "[INFO]", "[WARNING]"} {
		if len(rest) > 0 && rest[0] == level[0] && scan.HasPrefix(rest, level) {
			rest = rest[len(level):]
			for len(rest) > 0 && (rest[0] == ' ' || rest[0] == ':') {
				rest = rest[1:]
			}
			return rest
		}
	}
	return rest
}

// stripDateWithSlashes returns m without a date such as 05/04/2024 10:00:00, the level and the
// name. The time is not used, since the order of month and day is unknown.
func (log *Log) stripDateWithSlashes(m []byte) []byte {
	const length = len("05/04/2024 10:00:00")
	if len(m) < length+2 || m[2] != '/' || m[5] != '/' || m[13] != ':' || m[16] != ':' || !scan.HasPrefix(m[length:], " - ") {
		return m
	}
	return log.stripNameAndLevel(m[length+1:])
}

// stripBrackets returns m without the brackets that loggers print before a message. They contain a
// time stamp, followed by a level, a source location and a rank. In transformers' logger they
// contain a level and a source location.
func (log *Log) stripBrackets(m []byte) []byte {
	if scan.HasPrefix(m, "[INFO|") || scan.HasPrefix(m, "[WARNING|") { // transformers
		if _, rest, found := bytes.Cut(m, []byte("] ")); found {
			m = rest
		}
		return m
	}
	if !scan.IsDigit(m[1]) {
		return m
	}
	end := bytes.IndexByte(m[:min(len(m), 40)], ']')
	if end < 20 || m[5] != '-' || m[8] != '-' || m[14] != ':' || m[17] != ':' {
		return m
	}
	log.stampBuffer = append(append(log.stampBuffer[:0], m[1:20]...), ",000"...)
	if end >= 24 && (m[20] == ',' || m[20] == '.') {
		copy(log.stampBuffer[20:], m[21:24])
	}
	log.Stamp = log.stampBuffer
	m = scan.SkipBlanks(m[end+1:])
	for _, start := range [...]string{"[INFO] ", "[WARNING] "} { // DeepSpeed
		place, rest, found := bytes.Cut(m[min(len(start), len(m)):], []byte("] "))
		if !found || !scan.HasPrefix(m, start) || !scan.HasPrefix(place, "[") {
			continue
		}
		if m = rest; scan.HasPrefix(m, "[Rank ") {
			if _, rest, found = bytes.Cut(m, []byte("] ")); found {
				m = rest
			}
		}
	}
	return m
}

// stripNameAndLevel returns m without "- name - LEVEL - ". It is fast if the previous line has the
// same text there.
func (log *Log) stripNameAndLevel(m []byte) []byte {
	if n := len(log.heading); n > 0 && bytes.HasPrefix(m, log.heading) {
		return bytes.TrimLeft(m[n:], " ")
	}
	_, rest, _ := bytes.Cut(m[2:], []byte(" - "))
	_, message, ok := bytes.Cut(rest, []byte(" - "))
	if n := len(m) - len(message); ok && n <= 200 {
		log.heading = append(log.heading[:0], m[:n]...)
	}
	return bytes.TrimLeft(message, " ")
}

// ClockToleranceMs is the time in milliseconds by which a stamp may precede the previous line's:
// lines written at the same time may be out of order.
const ClockToleranceMs = 1000

// UpdateTimes updates the start and end of the run from the time stamp of a line that is used. If
// the line has no rank and an earlier time stamp than the line before, the clock was set back,
// which UpdateTimes reports.
func (log *Log) UpdateTimes() {
	now, ok := log.StampMilliseconds()
	if !ok {
		return
	}
	run := log.Current
	if !run.HasTimes {
		run.HasTimes, run.Started, run.Ended = true, now, now
		if !log.zoneReported {
			log.zoneReported = true
			log.In.Report.AddAssumption("time stamps are taken as UTC, since the log has no time zone")
		}
	}
	if run.Ended-now > ClockToleranceMs && log.Rank < 0 {
		back := time.UnixMilli(run.Ended).Sub(time.UnixMilli(now))
		log.AddProblem("the clock goes back by %s; the seconds of the epochs are kept as logged", back)
	}
	if now > run.Ended || log.Rank < 0 {
		run.Ended = now
	}
}

// StampMilliseconds returns the time stamp of the current line in milliseconds since 1970, or ok
// false if it is invalid. It assumes UTC, since logs do not contain the time zone. It takes missing
// digits of the year from the previous time stamp.
func (log *Log) StampMilliseconds() (ms int64, ok bool) {
	year := len(log.Stamp) - stampLength
	date, clock, fraction := log.Stamp[:year+6], log.Stamp[year+7:year+15], log.Stamp[year+16:]
	if year < 4 && log.Current.HasTimes {
		date = append([]byte(time.UnixMilli(log.Current.Ended).UTC().Format("2006")[:4-year]), date...)
	}
	midnight, ok := log.day.Midnight(date)
	seconds, isTime := scan.ParseTimeOfDay(clock)
	for _, c := range fraction {
		ms = 10*ms + int64(c-'0')
		isTime = isTime && scan.IsDigit(c)
	}
	return midnight + 1000*seconds + ms, ok && isTime
}

// StampSeconds returns the time stamp of the current line in seconds since 1970, or NaN.
func (log *Log) StampSeconds() float64 {
	if len(log.Stamp) > 0 {
		if at, ok := log.StampMilliseconds(); ok {
			return float64(at) / 1000
		}
	}
	return math.NaN()
}
