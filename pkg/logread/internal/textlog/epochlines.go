package textlog

import (
	"encoding/binary"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// A long log of the SC21 logger has four lines per epoch, a hundred thousand
// times. Lines of the usual form (a whole time stamp, the same heading as
// before, the program's own spelling) are parsed here in place, several words
// of memory at a time, without finding their end first. Any other line is left
// to sc21.go, which defines what a line means. TestEpochLines and
// FuzzEpochLines compare both.

const (
	stampBytes = len("2006-01-02 15:04:05,000")
	// epochLine is more bytes than such a line has, so that parsing needs no
	// checks for the end of the text.
	epochLine = 256
	// maxOpening limits the bytes between the stamp and a line's first number.
	maxOpening = 56
	// noStamp is earlier than every stamp; differences from it do not overflow.
	noStamp = -1 << 62
)

// usualForm is one of the forms of lines, in the order in which they come.
type usualForm int

const (
	epochTimeLine usualForm = iota
	trainLossLine
	valLossLine
	valTimeLine
	usualForms // their number, a power of two
)

// opening is the text between the stamp and the first number of a line.
type opening struct {
	text, mask [maxOpening / 8]uint64
	length     int
}

// matches reports whether h begins with the text.
func (o *opening) matches(h *[maxOpening]byte) bool {
	word := func(i int) uint64 { return (binary.LittleEndian.Uint64(h[8*i:]) ^ o.text[i]) & o.mask[i] }
	return word(0)|word(1)|word(2)|word(3)|word(4)|word(5)|word(6) == 0
}

// epochLines parses such lines into epochs.
type epochLines struct {
	openings [usualForms]opening
	next     usualForm // the most likely form of the next line

	day            *calendar
	stamp          [3]uint64 // of the previous line, whose time is in ended
	started, ended int64     // first and last stamp, in milliseconds since 1970

	epochs []runs.Epoch // epochs are appended up to its capacity
	blank  runs.Epoch
	line   int // number of the last line that was read
}

// setHeading sets the text between the stamp and the message. It returns false
// if the text is too long.
func (s *epochLines) setHeading(heading []byte) bool {
	messages := [usualForms]string{"Time taken for epoch ", "  Avg train loss=", "  Avg val loss=", "  Total validation time: "}
	for i, message := range messages {
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
	return true
}

// read reads lines that begin in the first limit bytes of b, up to a line of
// another form or too near the end of b, and returns the number of bytes read.
func (s *epochLines) read(b []byte, limit int) int {
	at := 0
	limit = min(limit, len(b)-epochLine+1)
	for at < limit {
		ended := s.ended
		n := s.oneLine((*[epochLine]byte)(b[at:]))
		if n == 0 {
			s.ended, s.stamp = ended, [3]uint64{} // the stamp of a line that was not read does not count
			return at
		}
		s.line++
		at += n
	}
	return at
}

// oneLine reads the line that p begins with and returns its length, or 0 if it
// has another form.
func (s *epochLines) oneLine(p *[epochLine]byte) int {
	w0, w1, w2 := binary.LittleEndian.Uint64(p[:]), binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(p[15:])
	if (w0^s.stamp[0])|(w1^s.stamp[1])|(w2^s.stamp[2]) != 0 && !s.newStamp(p, w0, w1, w2) {
		return 0
	}
	h := (*[maxOpening]byte)(p[stampBytes:])
	for range usualForms {
		form := s.next & (usualForms - 1)
		s.next = form + 1
		if o := &s.openings[form]; o.matches(h) {
			k := stampBytes + o.length
			if n := s.numbers(form, p[k:]); n > 0 {
				return k + n
			}
			return 0
		}
	}
	return 0
}

// newStamp parses the stamp that p begins with, whose words are w0, w1 and w2.
// It returns false if the stamp has another form or is more than a second
// before the previous one.
func (s *epochLines) newStamp(p *[epochLine]byte, w0, w1, w2 uint64) bool {
	const date = 1<<24 - 1 // mask for w1: two digits and the blank
	if (w0^s.stamp[0])|(w1^s.stamp[1])&date != 0 && !s.newDay(p) {
		return false
	}
	// XOR with the expected text leaves a digit's value, and 0 for a separator.
	// Anything larger has its highest bit set, or gets it by the addition.
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
	now := s.day.midnight + int64((60*hour+minute)*60_000+thousandths)
	if s.ended-now > clockTolerance {
		return false
	}
	if s.ended == noStamp {
		s.started = now
	}
	s.ended, s.stamp[0], s.stamp[1], s.stamp[2] = now, w0, w1, w2 // one word each, as they are loaded
	return true
}

// wholeStamp reports whether s begins with a stamp of the usual form.
func wholeStamp(s []byte) bool {
	// The words of "0000-00-", "00 00:00" and "0:00,000", and the words whose
	// addition sets the highest bit of any digit above 9 and of any other
	// character in place of a separator.
	const (
		year, yearMost     = 0x2d30302d30303030, 0x7f76767f76767676
		day, dayMost       = 0x30303a3030203030, 0x76767f76767f7676
		second, secondMost = 0x3030302c30303a30, 0x7676767f76767f76
	)
	x := binary.LittleEndian.Uint64(s) ^ year
	y := binary.LittleEndian.Uint64(s[8:]) ^ day
	z := binary.LittleEndian.Uint64(s[15:]) ^ second
	return ((x+yearMost)|x|(y+dayMost)|y|(z+secondMost)|z)&0x8080808080808080 == 0
}

// newDay parses the day that p begins with.
func (s *epochLines) newDay(p *[epochLine]byte) bool {
	if p[4] != '-' || p[7] != '-' || p[10] != ' ' || !scan.IsDigit(p[0]) {
		return false
	}
	if day := p[:len("2006-01-02")]; string(day) != string(s.day.text) {
		s.day.set(day, string(day))
	}
	return !s.day.bad
}

// numbers parses the numbers at the beginning of m up to the end of a line of
// that form, and returns their length with the line end, or 0 if they have
// another form.
func (s *epochLines) numbers(form usualForm, m []byte) int {
	if form == epochTimeLine {
		return s.time(m)
	}
	v, n := scan.Decimal(m)
	if n == 0 || len(s.epochs) == 0 {
		return 0
	}
	e := &s.epochs[len(s.epochs)-1]
	if form == valTimeLine {
		if !scan.HasPrefix(m[n:], " sec\n") {
			return 0
		}
		e.ValSeconds = v
		return n + len(" sec\n")
	}
	switch {
	case m[n] != '\n':
		return 0
	case form == trainLossLine:
		e.TrainLoss = v
	default:
		e.ValLoss = v
	}
	return n + 1
}

// time parses the numbers of an epoch's time, and adds the epoch.
func (s *epochLines) time(m []byte) int {
	number, k := scan.ShortCount(m)
	if k == 0 || !scan.HasPrefix(m[k:], " is ") {
		return 0
	}
	k += len(" is ")
	seconds, n := scan.Decimal(m[k:])
	if k += n; n == 0 || !scan.HasPrefix(m[k:], " sec, av") || !scan.HasPrefix(m[k+8:], "g ") || !(seconds > 0) {
		return 0
	}
	k += len(" sec, avg ")
	rate, n := scan.Decimal(m[k:])
	if k += n; n == 0 || !scan.HasPrefix(m[k:], " samples") || !scan.HasPrefix(m[k+8:], "/sec\n") {
		return 0
	}
	i := len(s.epochs)
	if i == cap(s.epochs) || i > 0 && number <= s.epochs[i-1].Epoch {
		return 0
	}
	s.epochs = s.epochs[:i+1]
	e := &s.epochs[i]
	*e = s.blank
	e.Epoch, e.Line = number, s.line+1
	e.Seconds, e.SamplesPerSecond, e.Samples = seconds, rate, wholeSamples(seconds, rate)
	return k + len(" samples/sec\n")
}
