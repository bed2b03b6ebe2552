package scan

import (
	"bytes"
)

// A program that logs a million times writes a million lines that differ in
// their numbers alone. What a grammar found out about such a line it notes as
// its shape: where the numbers stand and what they are, and that all else is
// the same. A later line of that shape is read by comparing what is the same
// and by decimal; whatever differs otherwise is read by the grammar, which is
// what says what a line means. TestShapes holds the two against each other.

const (
	maxShapes = 4       // that a grammar knows at a time
	maxSlots  = 64      // of a shape
	maxShape  = 1 << 12 // bytes of a line that has one
)

// slotKind is what may stand in a slot.
type slotKind uint8

const (
	SlotNumber slotKind = iota // what decimal reads
	slotCount                  // digits, below 2^31
	slotText                   // of a JSON string, without an escape
)

// slot is a place of a shape where lines differ.
type slot struct {
	kind     slotKind
	Field    int // what it is, as the grammar numbers it; 0: nothing that is used
	from, to int // in the shape's text
	Name     []byte
	Value    float64 // in the line that matched last
}

// Shape is what lines have in common.
type Shape struct {
	text  []byte // the line that it was learned from
	Slots []slot
	line  []byte // the same, while it is learned
	bad   bool   // it cannot be learned
	keys  uint   // of a JSON object that were met, as the grammar numbers them
}

// match says whether line is of that shape, and sets the slots' values.
func (s *Shape) match(line []byte) bool {
	n, ok := s.matchFirst(line)
	return ok && n == len(line)
}

// matchFirst says whether lines begins with one of that shape, and how long it
// is.
func (s *Shape) matchFirst(lines []byte) (length int, ok bool) {
	from, line := 0, lines
	for i := range s.Slots {
		x := &s.Slots[i]
		same := s.text[from:x.from]
		if len(line) < len(same) || string(line[:len(same)]) != string(same) {
			return 0, false
		}
		line = line[len(same):]
		n := 0
		switch x.kind {
		case SlotNumber:
			x.Value, n = Decimal(line)
		case slotCount:
			c := Cursor{Rest: line}
			x.Value = float64(c.Count())
			n = len(line) - len(c.Rest)
		case slotText:
			if n = bytes.IndexByte(line, '"'); n < 0 || n > 0 && line[n-1] == '\\' {
				return 0, false
			}
			line, from = line[n:], x.to
			continue
		}
		if n == 0 {
			return 0, false
		}
		line, from = line[n:], x.to
	}
	same := s.text[from:]
	if len(line) < len(same) || string(line[:len(same)]) != string(same) {
		return 0, false
	}
	return len(lines) - len(line) + len(same), true
}

// at is where part begins in the line that is learned. Both are pieces of one
// buffer to whose end both may grow.
func (s *Shape) at(part []byte) int { return cap(s.line) - cap(part) }

// Add adds the slot that part begins with, if it is of that kind. Of no shape it
// does nothing.
func (s *Shape) Add(kind slotKind, part []byte, field int, name []byte) {
	if s == nil {
		return
	}
	n := 0
	switch kind {
	case SlotNumber:
		_, n = Decimal(part)
	case slotCount:
		c := Cursor{Rest: part}
		c.Count()
		n = len(part) - len(c.Rest)
	case slotText:
		n = len(part)
	}
	from := s.at(part)
	last := 0
	if len(s.Slots) > 0 {
		last = s.Slots[len(s.Slots)-1].to
	}
	if n == 0 && kind != slotText || from < last || from+n > len(s.line) || len(s.Slots) == maxSlots {
		s.bad = true
		return
	}
	if kind != slotText && from+n < len(s.line) && numberGoesOn(s.line[from+n]) {
		s.bad = true
		return
	}
	x := slot{kind: kind, Field: field, from: from, to: from + n}
	if len(name) > 0 {
		x.Name = s.text[s.at(name) : s.at(name)+len(name)]
	}
	s.Slots = append(s.Slots, x)
}

// Key notes that a key was met: of one that stands there twice the grammar says
// what counts.
func (s *Shape) Key(number uint) {
	s.bad = s.bad || s.keys&(1<<number) != 0
	s.keys |= 1 << number
}

// RequireKey makes the shape unusable if the key was not met.
func (s *Shape) RequireKey(number uint) { s.bad = s.bad || s.keys&(1<<number) == 0 }

// RequireEnd makes the shape unusable if part does not end where its slot does.
func (s *Shape) RequireEnd(part []byte) { s.bad = s.bad || !s.ends(part) }

// Member adds the slot of a JSON value, if it is a number, in quotes or not, or
// a string without a number; what else it may be is the same on each line.
func (s *Shape) Member(value []byte, field int, name []byte) {
	text := Unquote(value)
	_, n := Decimal(text)
	switch {
	case n > 0 && n == len(text):
		s.Add(SlotNumber, text, field, name)
	case field != 0:
		if _, ok := ParseFloat(text); ok { // 1e5: a value all the same
			s.bad = true
		}
	case field == 0 && len(text) < len(value) && bytes.IndexByte(text, '\\') < 0:
		s.Add(slotText, text, 0, nil)
	}
}

// Members adds the slots of the members of a JSON object that are numbers, as
// the fields that their names are.
func (s *Shape) Members(value []byte, field func(name []byte) int) {
	members := Object{Text: value}
	for {
		name, value, more := members.Next()
		if !more {
			s.bad = s.bad || members.Bad
			return
		}
		if text := Unquote(value); len(text) == len(value) || field(name) != 0 {
			s.Member(value, field(name), name)
		}
	}
}

// ends says whether the last slot ends where part does.
func (s *Shape) ends(part []byte) bool {
	n := len(s.Slots)
	return n > 0 && s.Slots[n-1].to == s.at(part)+len(part)
}

// numberGoesOn says whether c could belong to the number in front of it.
func numberGoesOn(c byte) bool {
	return IsDigit(c) || bytes.IndexByte([]byte("+-._eExXpP"), c) >= 0
}

// Shapes are those that a grammar knows.
type Shapes struct {
	known         [maxShapes]Shape
	n             int
	last          int   // that matched last
	next          int   // to be overwritten
	draft         Shape // that is learned
	Learned, Hits int
}

// Match is the shape that the line is of; nil where there is none.
func (s *Shapes) Match(line []byte) *Shape {
	for i, k := 0, s.last; i < s.n; i++ {
		if s.known[k].match(line) {
			s.last = k
			s.Hits++
			return &s.known[k]
		}
		if k++; k >= s.n {
			k = 0
		}
	}
	return nil
}

// MatchLast matches the shape that matched last against the line that lines
// begins with. It returns the line's length with its end, or 0 if the line is of
// another shape or its end is not in lines.
func (s *Shapes) MatchLast(lines []byte) (x *Shape, length int) {
	if s.n == 0 {
		return nil, 0
	}
	x = &s.known[s.last]
	n, ok := x.matchFirst(lines)
	if !ok || n == len(lines) || lines[n] != '\n' {
		return nil, 0
	}
	s.Hits++
	return x, n + 1
}

// Learn is a new shape, of a line into whose parts the grammar is going to look;
// nil where it is not worth it, for hardly a line is like one before.
func (s *Shapes) Learn(line []byte) *Shape {
	if len(line) > maxShape || s.Learned > 64+s.Hits {
		return nil
	}
	s.Learned++
	x := &s.draft
	x.text = append(x.text[:0], line...)
	x.line, x.Slots, x.bad, x.keys = line, x.Slots[:0], false, 0
	return x
}

// Keep keeps the shape that was learned, where there is one.
func (s *Shapes) Keep(x *Shape) {
	if x == nil || x.bad {
		return
	}
	x.line = nil
	s.known[s.next], s.draft = s.draft, s.known[s.next]
	s.last = s.next
	s.n = max(s.n, s.next+1)
	s.next = (s.next + 1) % maxShapes
}

// Counts adds a slot for each number of a JSON list of counts; their fields are
// field, field+1, ….
func (s *Shape) Counts(list []byte, field int) {
	for n := 0; len(list) > 0; n++ {
		c := Cursor{Rest: list[1:]} // behind the bracket or the comma
		if c.SkipBlanks(); c.Accept("null") {
			s.bad = true
			return
		}
		s.Add(slotCount, c.Rest, field+n, nil)
		c.Count()
		if c.SkipBlanks(); c.Accept("]") || c.Failed {
			return
		}
		list = c.Rest
	}
}
