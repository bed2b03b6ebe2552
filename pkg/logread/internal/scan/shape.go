package scan

import (
	"bytes"
)

// A program that logs a million times writes a million lines that differ only
// in their numbers. After a parser has read such a line, it records the line's
// shape: the positions and meanings of the numbers. A later line of the same
// shape is read by comparing the text between the numbers and parsing the
// numbers. Any other line goes to the parser, which defines what a line means.
// TestShapes compares the results of both.

const (
	maxShapes = 4       // shapes kept per parser
	maxSlots  = 64      // slots per shape
	maxShape  = 1 << 12 // bytes of a line; longer lines have no shape
)

// slotKind is the kind of text that a slot contains.
type slotKind uint8

// The kinds of slots.
const (
	SlotNumber slotKind = iota // number that ParseDecimal parses
	slotCount                  // integer without sign, below 2^31
	slotText                   // content of a JSON string without escape sequences
)

// slot is a position at which the lines of a shape differ.
type slot struct {
	kind     slotKind
	Field    int     // parser's number for the meaning of the value; 0 if the value is not used
	from, to int     // range in the shape's text
	Name     []byte  // name of the value, if the parser passed one
	Value    float64 // value in the last line that matched
}

// LineShape is the common form of lines that differ only in the contents of
// slots.
type LineShape struct {
	text     []byte // the line from which the shape was learned
	Slots    []slot
	line     []byte // the same line in the parser's buffer, while the shape is being learned
	unusable bool   // the shape is unusable
	keys     uint   // bit set of the parser's numbers of the JSON keys found
}

// match reports whether line has the shape, and if so sets the values of the
// slots.
func (s *LineShape) match(line []byte) bool {
	n, ok := s.matchFirstLine(line)
	return ok && n == len(line)
}

// matchFirstLine reports whether lines begins with a line of the shape, returns
// the length of that line without its line end, and sets the values of the
// slots.
func (s *LineShape) matchFirstLine(lines []byte) (length int, ok bool) {
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
			x.Value, n = ParseDecimal(line)
		case slotCount:
			c := Cursor{Rest: line}
			x.Value = float64(c.ReadInteger())
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

// offset returns the index of part in the line that is being learned. part must
// have been sliced from the line without a limit on its capacity, because the
// offset is the difference of the two capacities.
func (s *LineShape) offset(part []byte) int { return cap(s.line) - cap(part) }

// AddSlot adds a slot for the value at the beginning of part, a slice of the
// line. field is the parser's number for the meaning of the value, or 0 if the
// value is not used. name is the value's name, a slice of the line, or nil. If
// the value is not of the given kind, the shape becomes unusable. On a nil
// shape, AddSlot does nothing.
func (s *LineShape) AddSlot(kind slotKind, part []byte, field int, name []byte) {
	if s == nil {
		return
	}
	n := 0
	switch kind {
	case SlotNumber:
		_, n = ParseDecimal(part)
	case slotCount:
		c := Cursor{Rest: part}
		c.ReadInteger()
		n = len(part) - len(c.Rest)
	case slotText:
		n = len(part)
	}
	from := s.offset(part)
	last := 0
	if len(s.Slots) > 0 {
		last = s.Slots[len(s.Slots)-1].to
	}
	if n == 0 && kind != slotText || from < last || from+n > len(s.line) || len(s.Slots) == maxSlots {
		s.unusable = true
		return
	}
	if kind != slotText && from+n < len(s.line) && mayContinueNumber(s.line[from+n]) {
		s.unusable = true
		return
	}
	x := slot{kind: kind, Field: field, from: from, to: from + n}
	if len(name) > 0 {
		x.Name = s.text[s.offset(name) : s.offset(name)+len(name)]
	}
	s.Slots = append(s.Slots, x)
}

// AddKey records that the line has a JSON key, which the parser identifies by a
// number. If a key occurs twice, the shape becomes unusable, since only the
// parser knows which value counts.
func (s *LineShape) AddKey(number uint) {
	s.unusable = s.unusable || s.keys&(1<<number) != 0
	s.keys |= 1 << number
}

// RequireKey makes the shape unusable if AddKey was not called with number.
func (s *LineShape) RequireKey(number uint) { s.unusable = s.unusable || s.keys&(1<<number) == 0 }

// RequireEnd makes the shape unusable unless the line's last slot ends at the
// end of part.
func (s *LineShape) RequireEnd(part []byte) { s.unusable = s.unusable || !s.endsWithSlot(part) }

// AddMember adds a slot for a JSON value if it is a number, with or without
// quotes, or a string that does not contain a number. Any other value must be
// the same on each line.
func (s *LineShape) AddMember(value []byte, field int, name []byte) {
	text := Unquote(value)
	_, n := ParseDecimal(text)
	switch {
	case n > 0 && n == len(text):
		s.AddSlot(SlotNumber, text, field, name)
	case field != 0:
		if _, ok := ParseFloat(text); ok { // such as 1e5
			s.unusable = true
		}
	case field == 0 && len(text) < len(value) && bytes.IndexByte(text, '\\') < 0:
		s.AddSlot(slotText, text, 0, nil)
	}
}

// AddMembers adds slots for the members of the JSON object value that are
// numbers. field returns the parser's number for the meaning of the member with
// the given name, or 0 if the member is not used.
func (s *LineShape) AddMembers(value []byte, field func(name []byte) int) {
	members := ObjectIterator{Text: value}
	for {
		name, value, more := members.Next()
		if !more {
			s.unusable = s.unusable || members.Bad
			return
		}
		if text := Unquote(value); len(text) == len(value) || field(name) != 0 {
			s.AddMember(value, field(name), name)
		}
	}
}

// endsWithSlot reports whether the last slot ends at the end of part.
func (s *LineShape) endsWithSlot(part []byte) bool {
	n := len(s.Slots)
	return n > 0 && s.Slots[n-1].to == s.offset(part)+len(part)
}

// mayContinueNumber reports whether c, which follows a number, may be part of
// that number.
func mayContinueNumber(c byte) bool {
	return IsDigit(c) || bytes.IndexByte([]byte("+-._eExXpP"), c) >= 0
}

// ShapeCache contains the most recent shapes that a parser has learned.
type ShapeCache struct {
	known         [maxShapes]LineShape
	n             int
	last          int       // index of the shape that matched last
	next          int       // index of the shape to overwrite next
	draft         LineShape // the shape that is being learned
	Learned, Hits int       // number of lines learned, and of lines that matched a shape
}

// Match returns the shape of line with the values of its slots set, or nil if
// no learned shape matches.
func (s *ShapeCache) Match(line []byte) *LineShape {
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
// It returns that shape and the length of the line with its line end, or nil
// and 0 if the line has another shape or is incomplete.
func (s *ShapeCache) MatchLast(lines []byte) (x *LineShape, length int) {
	if s.n == 0 {
		return nil, 0
	}
	x = &s.known[s.last]
	n, ok := x.matchFirstLine(lines)
	if !ok || n == len(lines) || lines[n] != '\n' {
		return nil, 0
	}
	s.Hits++
	return x, n + 1
}

// Learn returns a new shape for a line that the parser is about to read. It
// returns nil if learning is not worthwhile, because few lines have matched an
// earlier shape.
func (s *ShapeCache) Learn(line []byte) *LineShape {
	if len(line) > maxShape || s.Learned > 64+s.Hits {
		return nil
	}
	s.Learned++
	x := &s.draft
	x.text = append(x.text[:0], line...)
	x.line, x.Slots, x.unusable, x.keys = line, x.Slots[:0], false, 0
	return x
}

// Keep stores the shape that Learn returned, unless it is nil or unusable.
func (s *ShapeCache) Keep(x *LineShape) {
	if x == nil || x.unusable {
		return
	}
	x.line = nil
	s.known[s.next], s.draft = s.draft, s.known[s.next]
	s.last = s.next
	s.n = max(s.n, s.next+1)
	s.next = (s.next + 1) % maxShapes
}

// AddIntegers adds a slot for each integer of a JSON list. The slots get the
// fields field, field+1, ….
func (s *LineShape) AddIntegers(list []byte, field int) {
	for n := 0; len(list) > 0; n++ {
		c := Cursor{Rest: list[1:]} // after the bracket or the comma
		if c.SkipBlanks(); c.Accept("null") {
			s.unusable = true
			return
		}
		s.AddSlot(slotCount, c.Rest, field+n, nil)
		c.ReadInteger()
		if c.SkipBlanks(); c.Accept("]") || c.Failed {
			return
		}
		list = c.Rest
	}
}
