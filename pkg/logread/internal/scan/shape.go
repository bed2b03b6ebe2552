package scan

import (
	"bytes"
)

// A program that logs a million times writes a million lines that differ only
// in their numbers. After a parser has read such a line, it records the line's
// shape: where the numbers are and what they mean. A later line of the same
// shape is read by comparing the text between the numbers and parsing these.
// Any other line goes to the parser, which defines what a line means.
// TestShapes compares both ways.

const (
	maxShapes = 4       // kept per parser
	maxSlots  = 64      // per shape
	maxShape  = 1 << 12 // bytes of a line; longer lines get no shape
)

// slotKind is the kind of text that a slot holds.
type slotKind uint8

// Kinds of slots.
const (
	SlotNumber slotKind = iota // a number that Decimal parses
	slotCount                  // digits, below 2^31
	slotText                   // of a JSON string without escapes
)

// slot is a place in a shape where lines differ.
type slot struct {
	kind     slotKind
	Field    int // meaning of the value, as the parser numbers it; 0 if it is not used
	from, to int // range in the shape's text
	Name     []byte
	Value    float64 // in the last line that matched
}

// Shape is what lines of the same form have in common.
type Shape struct {
	text  []byte // the line from which the shape was learned
	Slots []slot
	line  []byte // the same line, while the shape is learned
	bad   bool   // the line cannot be learned
	keys  uint   // set of the JSON keys found, as the parser numbers them
}

// match reports whether line has the shape, and sets the slots' values.
func (s *Shape) match(line []byte) bool {
	n, ok := s.matchFirst(line)
	return ok && n == len(line)
}

// matchFirst reports whether lines begins with a line of the shape, and returns
// the length of that line.
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

// at returns the index of part in the line that is learned. Both are slices of
// one buffer, so that their capacities tell the offset.
func (s *Shape) at(part []byte) int { return cap(s.line) - cap(part) }

// Add adds a slot for the value that part begins with. If the value is not of
// that kind, the shape becomes unusable. On a nil shape it does nothing.
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

// Key notes a key of a JSON object. If a key occurs twice, the shape becomes
// unusable, since the parser decides which value counts.
func (s *Shape) Key(number uint) {
	s.bad = s.bad || s.keys&(1<<number) != 0
	s.keys |= 1 << number
}

// RequireKey makes the shape unusable if the key was not met.
func (s *Shape) RequireKey(number uint) { s.bad = s.bad || s.keys&(1<<number) == 0 }

// RequireEnd makes the shape unusable if part does not end where its slot does.
func (s *Shape) RequireEnd(part []byte) { s.bad = s.bad || !s.ends(part) }

// Member adds a slot for a JSON value if it is a number, with or without
// quotes, or a string without a number. Any other value has to be the same on
// each line.
func (s *Shape) Member(value []byte, field int, name []byte) {
	text := Unquote(value)
	_, n := Decimal(text)
	switch {
	case n > 0 && n == len(text):
		s.Add(SlotNumber, text, field, name)
	case field != 0:
		if _, ok := ParseFloat(text); ok { // such as 1e5
			s.bad = true
		}
	case field == 0 && len(text) < len(value) && bytes.IndexByte(text, '\\') < 0:
		s.Add(slotText, text, 0, nil)
	}
}

// Members adds slots for the numbers among the members of a JSON object. field
// returns the meaning of a name.
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

// ends reports whether the last slot ends where part does.
func (s *Shape) ends(part []byte) bool {
	n := len(s.Slots)
	return n > 0 && s.Slots[n-1].to == s.at(part)+len(part)
}

// numberGoesOn reports whether c could continue the number before it.
func numberGoesOn(c byte) bool {
	return IsDigit(c) || bytes.IndexByte([]byte("+-._eExXpP"), c) >= 0
}

// Shapes are the shapes that a parser has learned.
type Shapes struct {
	known         [maxShapes]Shape
	n             int
	last          int   // index of the shape that matched last
	next          int   // index of the shape to overwrite next
	draft         Shape // the shape that is being learned
	Learned, Hits int
}

// Match returns the shape of the line, or nil if it has none that is known.
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

// MatchLast matches the beginning of lines against the shape that matched last.
// It returns the length of the line with its line end, or 0 if the line has
// another shape or does not end in lines.
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

// Learn begins a new shape from a line that the parser is about to read. It
// returns nil if learning is not worth it, since hardly any line resembled an
// earlier one.
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

// Keep stores the learned shape, if it is usable.
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
		c := Cursor{Rest: list[1:]} // after the bracket or the comma
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
