package suggest

import (
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/textlog"
)

// maxLineShapes limits the number of shapes: a log of prose has as many as lines.
const maxLineShapes = 20000

// shape represents lines that have the same words and punctuation. The lines may differ in their
// numbers, in blanks before numbers, and in units directly after numbers.
type shape struct {
	tokens  []token // of the first line
	first   string  // the first line
	openEnd bool    // some lines have more words at their end, such as "(best so far)"
	lines   []place // in their order
	slots   []slot
}

type place struct {
	file, line int
	rank       int
	clock      float64 // in seconds, or NaN
}

func (p place) isBefore(o place) bool { return p.file < o.file || p.file == o.file && p.line < o.line }

type slot struct {
	at           int // index in tokens
	values       []float64
	texts        []string // the first two different texts
	whole        bool     // all lines have a whole number
	unitsDiffer  bool     // the attached units differ
	blanksDiffer bool     // only some lines have a blank before the number
}

// findLineShapes returns the shapes of all lines that no known format reads, in the order of their first lines.
func findLineShapes(files [][]textlog.Message) []*shape {
	var found []*shape
	byKey := map[string]*shape{} // nil for keys of lines that follow
	forEachNumberLine(files, func(_ place, _ string, tokens []token) {
		if len(byKey) < maxLineShapes {
			byKey[shapeKey(tokens)] = nil
		}
	})
	forEachNumberLine(files, func(at place, text string, tokens []token) {
		whole, last := len(tokens), len(tokens)
		for tokens[last-1].kind != numberToken {
			last--
		}
		key, s, ok := "", (*shape)(nil), false
		for n := last; n <= whole && !ok; n++ { // the shortest beginning with all numbers that is a line
			key = shapeKey(tokens[:n])
			if s, ok = byKey[key]; ok {
				tokens = tokens[:n]
			}
		}
		if !ok {
			return // one shape too many
		}
		if s == nil {
			s = &shape{tokens: tokens, first: text}
			for i, t := range tokens {
				if t.kind == numberToken {
					s.slots = append(s.slots, slot{at: i, whole: true})
				}
			}
			byKey[key] = s
			found = append(found, s)
		}
		s.openEnd = s.openEnd || len(tokens) < whole
		s.addLine(tokens, at)
	})
	return found
}

// forEachNumberLine calls use for each line with a number that no known format reads.
func forEachNumberLine(files [][]textlog.Message, use func(at place, text string, tokens []token)) {
	for f, lines := range files {
		for i, line := range lines {
			text := strings.TrimSpace(line.Text)
			if line.System || !strings.ContainsAny(text, "0123456789") {
				continue
			}
			tokens := tokenize(text)
			if slices.ContainsFunc(tokens, func(t token) bool { return t.kind == numberToken }) {
				use(place{f, i, line.Rank, line.Clock}, text, tokens)
			}
		}
	}
}

func (s *shape) addLine(tokens []token, at place) {
	for _, t := range tokens {
		if t.kind == stampToken && t.clock && math.IsNaN(at.clock) {
			at.clock = t.value
		}
	}
	s.lines = append(s.lines, at)
	for k := range s.slots {
		x := &s.slots[k]
		t, first := tokens[x.at], s.tokens[x.at]
		x.values = append(x.values, t.value)
		x.whole = x.whole && t.whole
		x.unitsDiffer = x.unitsDiffer || t.unit != first.unit
		x.blanksDiffer = x.blanksDiffer || (t.space == 0) != (first.space == 0)
		text := t.text
		if t.unit != durationUnit {
			text += t.unit
		}
		if len(x.texts) < 2 && !slices.Contains(x.texts, text) {
			x.texts = append(x.texts, text)
		}
	}
}

// shapeKey returns the key of lines that differ only in their numbers and dates.
func shapeKey(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		switch t.kind {
		case numberToken:
			b.WriteByte(0)
		case stampToken:
			b.WriteByte(1)
		case wordToken, markToken:
			if t.space != 0 {
				b.WriteByte(' ')
			}
			b.WriteString(t.text)
			b.WriteByte(2)
		}
	}
	return b.String()
}
