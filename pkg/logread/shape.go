package logread

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
	slotNumber slotKind = iota // what decimal reads
	slotCount                  // digits, below 2^31
	slotText                   // of a JSON string, without an escape
)

// slot is a place of a shape where lines differ.
type slot struct {
	kind     slotKind
	field    int // what it is, as the grammar numbers it; 0: nothing that is used
	from, to int // in the shape's text
	name     []byte
	v        float64 // in the line that matched last
}

// shape is what lines have in common.
type shape struct {
	text  []byte // the line that it was learned from
	slots []slot
	line  []byte // the same, while it is learned
	bad   bool   // it cannot be learned
	keys  uint   // of a JSON object that were met, as the grammar numbers them
}

// match says whether line is of that shape, and sets the slots' values.
func (s *shape) match(line []byte) bool {
	n, ok := s.matchFirst(line)
	return ok && n == len(line)
}

// matchFirst says whether lines begins with one of that shape, and how long it
// is.
func (s *shape) matchFirst(lines []byte) (length int, ok bool) {
	from, line := 0, lines
	for i := range s.slots {
		x := &s.slots[i]
		same := s.text[from:x.from]
		if len(line) < len(same) || string(line[:len(same)]) != string(same) {
			return 0, false
		}
		line = line[len(same):]
		n := 0
		switch x.kind {
		case slotNumber:
			x.v, n = decimal(line)
		case slotCount:
			c := cursor{b: line}
			x.v = float64(c.count())
			n = len(line) - len(c.b)
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
func (s *shape) at(part []byte) int { return cap(s.line) - cap(part) }

// add adds the slot that part begins with, if it is of that kind. Of no shape it
// does nothing.
func (s *shape) add(kind slotKind, part []byte, field int, name []byte) {
	if s == nil {
		return
	}
	n := 0
	switch kind {
	case slotNumber:
		_, n = decimal(part)
	case slotCount:
		c := cursor{b: part}
		c.count()
		n = len(part) - len(c.b)
	case slotText:
		n = len(part)
	}
	from := s.at(part)
	last := 0
	if len(s.slots) > 0 {
		last = s.slots[len(s.slots)-1].to
	}
	if n == 0 && kind != slotText || from < last || from+n > len(s.line) || len(s.slots) == maxSlots {
		s.bad = true
		return
	}
	if kind != slotText && from+n < len(s.line) && numberGoesOn(s.line[from+n]) {
		s.bad = true
		return
	}
	x := slot{kind: kind, field: field, from: from, to: from + n}
	if len(name) > 0 {
		x.name = s.text[s.at(name) : s.at(name)+len(name)]
	}
	s.slots = append(s.slots, x)
}

// key notes that a key was met: of one that stands there twice the grammar says
// what counts.
func (s *shape) key(number uint) {
	s.bad = s.bad || s.keys&(1<<number) != 0
	s.keys |= 1 << number
}

// member adds the slot of a JSON value, if it is a number, in quotes or not, or
// a string without a number; what else it may be is the same on each line.
func (s *shape) member(value []byte, field int, name []byte) {
	text := quoted(value)
	_, n := decimal(text)
	switch {
	case n > 0 && n == len(text):
		s.add(slotNumber, text, field, name)
	case field != 0:
		if _, ok := parseFloat(text); ok { // 1e5: a value all the same
			s.bad = true
		}
	case field == 0 && len(text) < len(value) && bytes.IndexByte(text, '\\') < 0:
		s.add(slotText, text, 0, nil)
	}
}

// members adds the slots of the members of a JSON object that are numbers, as
// the fields that their names are.
func (s *shape) members(value []byte, field func(name []byte) int) {
	members := object{b: value}
	for {
		name, value, more := members.next()
		if !more {
			s.bad = s.bad || members.bad
			return
		}
		if text := quoted(value); len(text) == len(value) || field(name) != 0 {
			s.member(value, field(name), name)
		}
	}
}

// ends says whether the last slot ends where part does.
func (s *shape) ends(part []byte) bool {
	n := len(s.slots)
	return n > 0 && s.slots[n-1].to == s.at(part)+len(part)
}

// numberGoesOn says whether c could belong to the number in front of it.
func numberGoesOn(c byte) bool {
	return digit(c) || bytes.IndexByte([]byte("+-._eExXpP"), c) >= 0
}

// shapes are those that a grammar knows.
type shapes struct {
	known         [maxShapes]shape
	n             int
	last          int   // that matched last
	next          int   // to be overwritten
	draft         shape // that is learned
	learned, hits int
}

// match is the shape that the line is of; nil where there is none.
func (s *shapes) match(line []byte) *shape {
	for i, k := 0, s.last; i < s.n; i++ {
		if s.known[k].match(line) {
			s.last = k
			s.hits++
			return &s.known[k]
		}
		if k++; k >= s.n {
			k = 0
		}
	}
	return nil
}

// learn is a new shape, of a line into whose parts the grammar is going to look;
// nil where it is not worth it, for hardly a line is like one before.
func (s *shapes) learn(line []byte) *shape {
	if len(line) > maxShape || s.learned > 64+s.hits {
		return nil
	}
	s.learned++
	x := &s.draft
	x.text = append(x.text[:0], line...)
	x.line, x.slots, x.bad, x.keys = line, x.slots[:0], false, 0
	return x
}

// keep keeps the shape that was learned, where there is one.
func (s *shapes) keep(x *shape) {
	if x == nil || x.bad {
		return
	}
	x.line = nil
	s.known[s.next], s.draft = s.draft, s.known[s.next]
	s.last = s.next
	s.n = max(s.n, s.next+1)
	s.next = (s.next + 1) % maxShapes
}
