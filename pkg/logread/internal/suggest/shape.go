package suggest

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

// File contains the lines of one log.
type File struct {
	Lines []Line
}

// Line is a line of a log without the labels of launchers and the time stamps of loggers.
type Line struct {
	Text  string
	Used  bool    // a known format reads the line
	Rank  int     // in the label; -1 if the line has none
	Clock float64 // time stamp in seconds, or NaN
}

// maxShapes limits the number of shapes, since a log of prose has as many as lines.
const maxShapes = 20000

// shape is a form of lines: the lines have the same words and punctuation, and differ in their
// numbers, in blanks before numbers and in the units that are attached to numbers.
type shape struct {
	tokens  []token // of the first line
	first   string  // the first line
	openEnd bool    // some lines have more words at their end, such as "(best so far)"
	lines   []place // in their order
	slots   []slot
}

// place is a line of the shape.
type place struct {
	file, line int
	rank       int
	clock      float64 // in seconds, or NaN
	evaluation bool    // the last line without numbers, such as "Evaluating ...", names a validation or a test
}

// isBefore reports whether the line p comes before o.
func (p place) isBefore(o place) bool { return p.file < o.file || p.file == o.file && p.line < o.line }

// slot is a number of the shape.
type slot struct {
	at           int // index in tokens
	values       []float64
	texts        []string // the first two different texts
	whole        bool     // all lines have a whole number
	commas       bool     // some lines have a number with a decimal comma
	unitsDiffer  bool     // the attached units differ
	blanksDiffer bool     // only some lines have a blank before the number
}

// findShapes returns the shapes of all lines that no known format reads, in the order of their first lines.
func findShapes(files []File) []*shape {
	var found []*shape
	byKey := map[string]*shape{} // nil for keys of lines that follow
	eachLine(files, func(_ place, _ string, tokens []token) {
		if len(byKey) < maxShapes {
			byKey[keyOf(tokens)] = nil
		}
	})
	eachLine(files, func(at place, text string, tokens []token) {
		key, whole, last := keyOf(tokens), len(tokens), len(tokens)
		for tokens[last-1].kind != numberToken {
			last--
		}
		for n := last; n < whole; n++ { // the shortest beginning with all numbers that is a line
			beginning := keyOf(tokens[:n])
			if _, ok := byKey[beginning]; ok {
				key, tokens = beginning, tokens[:n]
				break
			}
		}
		s, ok := byKey[key]
		if !ok {
			return // one shape too many
		}
		if s == nil {
			s = newShape(tokens, text)
			byKey[key] = s
			found = append(found, s)
		}
		s.openEnd = s.openEnd || len(tokens) < whole
		s.add(tokens, at)
	})
	return found
}

// eachLine calls use for each line with a number that no known format reads.
func eachLine(files []File, use func(at place, text string, tokens []token)) {
	for f, file := range files {
		commas, clocks := hasDecimalCommas(file), readClocks(file)
		evaluation := false
		for i, line := range file.Lines {
			text := strings.TrimSpace(line.Text)
			if !strings.ContainsAny(text, "0123456789") {
				for _, w := range splitWords(text) {
					if p := partOf(w); p != "" {
						evaluation = p != trainPart
					}
				}
				continue
			}
			if line.Used {
				continue
			}
			tokens := tokenize(text, commas && mayHaveCommas(text))
			if slices.ContainsFunc(tokens, func(t token) bool { return t.kind == numberToken }) {
				use(place{f, i, line.Rank, clocks[i], evaluation}, text, tokens)
			}
		}
	}
}

// timeOfDay matches the time of day that begins a line, after a date or in a label.
var timeOfDay = regexp.MustCompile(`^[^=]{0,40}?\b(\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?)\b`)

// readClocks returns the time of each line: its stamp, or the time of day at its beginning, in seconds since
// midnight of the first line. The latter is NaN for all lines if these times run backwards, since they are then
// no times of day.
func readClocks(file File) []float64 {
	clocks := make([]float64, len(file.Lines))
	last, midnight, valid := math.Inf(-1), 0.0, true
	for i, line := range file.Lines {
		clocks[i] = line.Clock
		m := timeOfDay.FindStringSubmatch(line.Text)
		if m == nil || line.Clock == line.Clock {
			continue
		}
		now := clockSeconds(m[1]) + midnight
		if now < last-43200 {
			now, midnight = now+86400, midnight+86400
		}
		valid = valid && now >= last-2 // the lines of several workers may be out of order
		clocks[i], last = now, max(last, now)
	}
	for i, line := range file.Lines {
		if !valid {
			clocks[i] = line.Clock
		}
	}
	return clocks
}

// newShape returns the shape of a line without occurrences.
func newShape(tokens []token, first string) *shape {
	s := &shape{tokens: tokens, first: first}
	for i, t := range tokens {
		if t.kind == numberToken {
			s.slots = append(s.slots, slot{at: i, whole: true})
		}
	}
	return s
}

// add adds a line to the shape.
func (s *shape) add(tokens []token, at place) {
	s.lines = append(s.lines, at)
	for k := range s.slots {
		x := &s.slots[k]
		t, first := tokens[x.at], s.tokens[x.at]
		x.values = append(x.values, t.value)
		x.whole, x.commas = x.whole && t.whole, x.commas || t.comma
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

// keyOf returns the key of lines that differ only in their numbers and dates.
func keyOf(tokens []token) string {
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
