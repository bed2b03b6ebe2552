package textlog

import (
	"encoding/binary"
	"math"
	"sync"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// A long log of the SC21 logger has hundreds of thousands of lines, four per
// epoch. epochLineParser finds the values in lines of the usual form (a complete
// time stamp, the same heading as before) in place, several words of memory at a
// time, without finding the ends of the lines first, and several goroutines can
// do so in different parts of a log (ahead.go). Without it, BenchmarkText reads such
// a log on one core at 0.36 of the rate. Its text comes from the same templates as the
// rules of the table of formats, which read all other lines; sc21.go defines the meaning.
// TestEpochLines and FuzzEpochLines compare both.

const (
	// maxEpochLine is larger than the length of such a line in bytes, so that
	// parsing needs no checks for the end of the text.
	maxEpochLine = 256
	// maxOpening limits the bytes between the stamp and a line's first number.
	maxOpening = 56
	// noStamp is before every stamp, and differences between stamps and noStamp
	// do not overflow.
	noStamp = -1 << 62
)

// epochLineForm identifies one of the four lines that the SC21 logger writes
// per epoch. The constants are in the order of the lines.
type epochLineForm int

const (
	epochTimeLine epochLineForm = iota
	trainLossLine
	valLossLine
	valTimeLine
	epochLineForms // number of forms, a power of two
)

// lineOpening is the text between the stamp of a line and its first number.
type lineOpening struct {
	text, mask [maxOpening / 8]uint64
	length     int
}

// matches reports whether h begins with the opening's text.
func (o *lineOpening) matches(h *[maxOpening]byte) bool {
	word := func(i int) uint64 { return (binary.LittleEndian.Uint64(h[8*i:]) ^ o.text[i]) & o.mask[i] }
	return word(0)|word(1)|word(2)|word(3)|word(4)|word(5)|word(6) == 0
}

// epochLineParser parses the usual lines of the SC21 logger into epochs.
type epochLineParser struct {
	heading   string // the text between stamp and message in openings; empty before setHeading
	openings  [epochLineForms]lineOpening
	templates [epochLineForms]*template.Template
	values    [3]template.Value // of the line
	next      epochLineForm     // the most likely form of the next line

	day            *logline.Day
	stamp          [3]uint64 // words of the previous line's stamp, whose time is ended
	started, ended int64     // first and last stamp, in milliseconds since 1970

	epochs []runs.Epoch // parsed epochs; appended only up to the capacity
	blank  runs.Epoch   // an epoch without values
	line   int          // number of the last line that was parsed
}

// sc21Templates returns the templates of the lines that an epoch has.
var sc21Templates = sync.OnceValue(func() (t [epochLineForms]*template.Template) {
	for form, text := range [epochLineForms]string{
		epochTimeLine: sc21EpochLine, trainLossLine: sc21TrainLossLine, valLossLine: sc21ValLossLine, valTimeLine: sc21ValSecondsLine,
	} {
		t[form] = template.MustParse(text)
	}
	return t
})

// setHeading sets the text between the stamp and the message of the lines. It
// returns false if the text is too long.
func (s *epochLineParser) setHeading(heading []byte) bool {
	if s.heading != "" && s.heading == string(heading) {
		return true
	}
	s.heading = ""
	s.templates = sc21Templates()
	for i, tmpl := range s.templates {
		message := tmpl.Lead()
		if epochLineForm(i) != epochTimeLine {
			message = "  " + message
		}
		o := &s.openings[i]
		if o.length = 1 + len(heading) + len(message); o.length > maxOpening {
			return false
		}
		var text, mask [maxOpening]byte
		copy(text[copy(text[:], " ")+copy(text[1:], heading):], message)
		for i := range o.length {
			mask[i] = 0xff
		}
		for i := range o.text {
			o.text[i] = binary.LittleEndian.Uint64(text[8*i:])
			o.mask[i] = binary.LittleEndian.Uint64(mask[8*i:])
		}
	}
	s.heading = string(heading)
	return true
}

// parse parses lines that begin in the first limit bytes of b and returns the
// number of bytes parsed. It stops before a line of another form, or one that
// begins less than maxEpochLine bytes before the end of b.
func (s *epochLineParser) parse(b []byte, limit int) int {
	at := 0
	limit = min(limit, len(b)-maxEpochLine+1)
	for at < limit {
		ended := s.ended
		n := s.parseLine((*[maxEpochLine]byte)(b[at:]))
		if n == 0 {
			s.ended, s.stamp = ended, [3]uint64{} // the stamp of a line of another form does not count
			return at
		}
		s.line++
		at += n
	}
	return at
}

// parseLine parses the line at the beginning of p and returns its length, or 0
// if the line has another form.
func (s *epochLineParser) parseLine(p *[maxEpochLine]byte) int {
	w0, w1, w2 := binary.LittleEndian.Uint64(p[:]), binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(p[15:])
	if (w0^s.stamp[0])|(w1^s.stamp[1])|(w2^s.stamp[2]) != 0 && !s.parseStamp(p, w0, w1, w2) {
		return 0
	}
	h := (*[maxOpening]byte)(p[logline.StampBytes:])
	for range epochLineForms {
		form := s.next & (epochLineForms - 1)
		s.next = form + 1
		if o := &s.openings[form]; o.matches(h) {
			k := logline.StampBytes + o.length
			if n := s.parseNumbers(form, p[k:]); n > 0 {
				return k + n
			}
			return 0
		}
	}
	return 0
}

// parseStamp parses the stamp at the beginning of p. w0, w1 and w2 are the
// words at the indexes 0, 8 and 15 of p. It returns false if the stamp has
// another form or is more than ClockToleranceMs before the previous one.
func (s *epochLineParser) parseStamp(p *[maxEpochLine]byte, w0, w1, w2 uint64) bool {
	const date = 1<<24 - 1 // mask of the day's digits and the space in w1
	if (w0^s.stamp[0])|(w1^s.stamp[1])&date != 0 && !s.parseDay(p) {
		return false
	}
	// XOR with the expected text turns a digit into its value and a separator
	// into 0. For any other character, the result or the sum below has its
	// highest bit set.
	const digits, none = 0x76, 0x7f
	hourMinute := w1>>24 ^ ('0' | '0'<<8 | ':'<<16 | '0'<<24 | '0'<<32)
	second := w2>>8 ^ (':' | '0'<<8 | '0'<<16 | ','<<24 | '0'<<32 | '0'<<40 | '0'<<48)
	const hourMinuteMost = digits | digits<<8 | none<<16 | digits<<24 | digits<<32
	const secondMost = none | digits<<8 | digits<<16 | none<<24 | digits<<32 | digits<<40 | digits<<48
	if ((hourMinute+hourMinuteMost)|hourMinute|(second+secondMost)|second)&0x8080808080808080 != 0 {
		return false
	}
	of := func(w uint64, digit int) uint64 { return w >> (8 * digit) & 0xff }
	hour, minute := 10*of(hourMinute, 0)+of(hourMinute, 1), 10*of(hourMinute, 3)+of(hourMinute, 4)
	thousandths := 1000*(10*of(second, 1)+of(second, 2)) + 100*of(second, 4) + 10*of(second, 5) + of(second, 6)
	now := s.day.Midnight + int64((60*hour+minute)*60_000+thousandths)
	if s.ended-now > logline.ClockToleranceMs {
		return false
	}
	if s.ended == noStamp {
		s.started = now
	}
	s.ended, s.stamp[0], s.stamp[1], s.stamp[2] = now, w0, w1, w2 // stored word by word, as they are loaded
	return true
}

// parseDay parses the date at the beginning of p. It returns false if p does
// not begin with a date.
func (s *epochLineParser) parseDay(p *[maxEpochLine]byte) bool {
	if p[4] != '-' || p[7] != '-' || p[10] != ' ' || !scan.IsDigit(p[0]) {
		return false
	}
	if day := p[:len("2006-01-02")]; string(day) != string(s.day.Text) {
		s.day.Set(day, string(day))
	}
	return !s.day.Invalid
}

// parseNumbers parses the rest of a line of the given form after its opening.
// It returns the length of the rest including the line end, or 0 if it has
// another form.
func (s *epochLineParser) parseNumbers(form epochLineForm, m []byte) int {
	v := &s.values
	n := s.templates[form].MatchAfterLead(m, v[:])
	i := len(s.epochs)
	switch {
	case n == 0:
		return 0
	case form == epochTimeLine:
		number, seconds, rate := int(v[0].Number), v[1].Number, v[2].Number
		if !(seconds > 0) || math.IsInf(seconds, 0) || i == cap(s.epochs) || i > 0 && number <= s.epochs[i-1].Epoch {
			return 0
		}
		s.epochs = s.epochs[:i+1]
		e := &s.epochs[i]
		*e = s.blank
		e.Epoch, e.Line = number, s.line+1
		e.Seconds, e.SamplesPerSecond, e.Samples = seconds, rate, computeSamples(seconds, rate)
		return n
	case i == 0:
		return 0
	}
	e := &s.epochs[i-1]
	x := &e.ValSeconds // of a valTimeLine
	switch form {
	case trainLossLine:
		x = &e.TrainLoss
	case valLossLine:
		x = &e.ValLoss
	}
	if *x == *x { // the epoch has this value already: setLastEpoch reports it
		return 0
	}
	*x = v[0].Number
	return n
}
