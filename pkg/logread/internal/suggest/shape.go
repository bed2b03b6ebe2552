package suggest

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// File contains the lines of one log.
type File struct {
	Name  string
	Lines []Line
}

// Line is a line of a log without the labels of launchers and the time stamps of
// loggers.
type Line struct {
	Text string
	Used bool // a known format reads the line
}

// maxShapes limits the number of shapes, since a log of prose has as many as
// lines.
const maxShapes = 20000

// shape is a form of lines: the lines have the same words and punctuation, and
// differ in their numbers, in blanks beside punctuation and in the units that
// are attached to numbers.
type shape struct {
	tokens   []token        // of the first line, without blanks
	varying  []bool         // by token: a word that differs between the lines
	openEnd  bool           // some lines have more words at their end
	places   []place        // of the lines, in their order
	values   [][]float64    // by slot and line
	whole    []bool         // by slot: all lines have a whole number
	commas   []bool         // by slot: some lines have a number with a decimal comma
	variants []spelling     // the forms with their blanks and units, in the order of their first lines
	index    map[string]int // of variants by their key
	headings []string       // by slot: text of the column's heading above the lines
}

// place is the position of a line.
type place struct{ file, line int }

// compare compares the positions of two lines.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.file, o.file), cmp.Compare(p.line, o.line))
}

// spelling is a variant of a shape: its lines have blanks and units in the same
// places.
type spelling struct {
	tokens []token // of the first line, with blanks
	first  string
	lines  int
}

// shapeKey returns the key of the shape of a line without blanks, and the key of
// its spelling.
func shapeKey(tokens []token) (shape, spelling string) {
	var a, b strings.Builder
	for _, t := range tokens {
		switch {
		case t.kind == blankToken:
			b.WriteByte(' ')
		case t.isSlot():
			a.WriteString("\x00")
			b.WriteString("\x00" + t.unit)
			if t.kind == clockToken {
				b.WriteByte(':')
			}
		case t.kind == stampToken:
			a.WriteString("\x01")
			b.WriteString("\x01")
		default:
			a.WriteString(t.text)
			a.WriteByte('\x02')
			b.WriteString(t.text)
			b.WriteByte('\x02')
		}
	}
	return a.String(), b.String()
}

// findShapes returns the shapes of all lines that no known format reads, in the
// order of their first lines.
func findShapes(files []File) []*shape {
	var found []*shape
	byKey := map[string]*shape{}
	for f, file := range files {
		commas := hasDecimalCommas(file)
		for i, line := range file.Lines {
			if line.Used {
				continue
			}
			text := strings.TrimSpace(line.Text)
			if !strings.ContainsAny(text, "0123456789") {
				continue
			}
			tokens := tokenize(text, commas && mayHaveCommas(text))
			key, spelled := shapeKey(tokens)
			s := byKey[key]
			if s == nil {
				if len(found) >= maxShapes {
					continue
				}
				s = newShape(tokens)
				byKey[key] = s
				found = append(found, s)
			}
			s.add(tokens, spelled, text, place{f, i})
		}
	}
	found = joinVaryingWords(found)
	return joinLongerLines(found)
}

// newShape returns the shape of a line without occurrences.
func newShape(tokens []token) *shape {
	s := &shape{index: map[string]int{}}
	for _, t := range tokens {
		if t.kind != blankToken {
			s.tokens = append(s.tokens, t)
		}
		if t.isSlot() {
			s.values = append(s.values, nil)
			s.whole = append(s.whole, true)
			s.commas = append(s.commas, false)
		}
	}
	s.varying = make([]bool, len(s.tokens))
	return s
}

// add adds a line to the shape.
func (s *shape) add(tokens []token, spelled, text string, at place) {
	i, ok := s.index[spelled]
	if !ok {
		i = len(s.variants)
		s.index[spelled] = i
		s.variants = append(s.variants, spelling{tokens: tokens, first: text})
	}
	s.variants[i].lines++
	s.places = append(s.places, at)
	slot := 0
	for _, t := range tokens {
		if t.isSlot() {
			s.values[slot] = append(s.values[slot], t.value)
			s.whole[slot] = s.whole[slot] && t.kind == numberToken && t.whole
			s.commas[slot] = s.commas[slot] || t.comma
			slot++
		}
	}
}

// merge adds the lines of other shapes, whose slots must be the same, and sorts
// the lines by their places.
func (s *shape) merge(others []*shape) {
	for _, o := range others {
		s.variants = append(s.variants, o.variants...)
		s.places = append(s.places, o.places...)
		for k := range s.values {
			s.values[k] = append(s.values[k], o.values[k]...)
			s.whole[k] = s.whole[k] && o.whole[k]
			s.commas[k] = s.commas[k] || o.commas[k]
		}
	}
	order := make([]int, len(s.places))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return s.places[a].compare(s.places[b])
	})
	places := make([]place, len(order))
	for i, k := range order {
		places[i] = s.places[k]
	}
	s.places = places
	for slot, old := range s.values {
		sorted := make([]float64, len(order))
		for i, k := range order {
			sorted[i] = old[k]
		}
		s.values[slot] = sorted
	}
}

// joinVaryingWords joins shapes that differ only in words that vary from line to line, such as
// the name of a checkpoint, and returns the remaining shapes.
func joinVaryingWords(all []*shape) []*shape {
	bySkeleton := map[string][]*shape{}
	for _, s := range all {
		bySkeleton[s.skeleton(nil)] = append(bySkeleton[s.skeleton(nil)], s)
	}
	gone := map[*shape]bool{}
	for _, s := range all {
		similar := bySkeleton[s.skeleton(nil)]
		if len(similar) < 3 || similar[0] != s {
			continue
		}
		varying := varyingWords(similar)
		byWords := map[string]*shape{}
		merged := map[*shape][]*shape{}
		for _, o := range similar {
			key := o.skeleton(varying)
			if first := byWords[key]; first == nil {
				byWords[key] = o
			} else {
				merged[first] = append(merged[first], o)
				gone[o] = true
			}
		}
		for first, others := range merged {
			copy(first.varying, varying)
			first.merge(others)
		}
	}
	return slices.DeleteFunc(all, func(s *shape) bool { return gone[s] })
}

// skeleton returns the shape's key without the words at the given positions, or
// without any word if varying is nil.
func (s *shape) skeleton(varying []bool) string {
	var b strings.Builder
	for i, t := range s.tokens {
		switch {
		case t.isSlot():
			b.WriteByte(0)
		case t.kind == stampToken:
			b.WriteByte(1)
		case t.kind == wordToken && (varying == nil || varying[i]):
			b.WriteByte(3)
		default:
			b.WriteString(t.text)
			b.WriteByte(2)
		}
	}
	return b.String()
}

// varyingWords reports for each token of the similar shapes whether it is an unknown word that
// takes many different values in their lines.
func varyingWords(similar []*shape) []bool {
	varying := make([]bool, len(similar[0].tokens))
	lines := 0
	for _, s := range similar {
		lines += len(s.places)
	}
	for i, t := range similar[0].tokens {
		if t.kind != wordToken {
			continue
		}
		words := map[string]bool{}
		known := false
		for _, s := range similar {
			words[s.tokens[i].text] = true
			known = known || isKnownWord(s.tokens[i].text)
		}
		varying[i] = !known && len(words) >= 3 && (3*len(words) >= lines || len(words) >= 8)
	}
	return varying
}

// joinLongerLines joins each shape with the shapes that have only more words and
// punctuation at their end, such as "(best so far)".
func joinLongerLines(all []*shape) []*shape {
	byKey := map[string]*shape{}
	for _, s := range all {
		byKey[s.skeleton(s.varying)] = s
	}
	gone := map[*shape]bool{}
	for _, s := range all {
		last := len(s.tokens) - 1
		for last >= 0 && !s.tokens[last].isSlot() {
			last--
		}
		var shorter *shape
		for n := len(s.tokens) - 1; n > last && shorter == nil; n-- {
			head := &shape{tokens: s.tokens[:n]}
			shorter = byKey[head.skeleton(s.varying[:n])]
		}
		if shorter == nil || gone[shorter] || shorter == s {
			continue
		}
		n := len(shorter.tokens)
		for i := range s.variants { // the spelling ends where the shorter line ends
			v := &s.variants[i]
			v.tokens = cutTokens(v.tokens, n)
		}
		shorter.merge([]*shape{s})
		shorter.openEnd = true
		gone[s] = true
	}
	return slices.DeleteFunc(all, func(s *shape) bool { return gone[s] })
}

// cutTokens returns the beginning of tokens with n tokens that are not blank.
func cutTokens(tokens []token, n int) []token {
	for i, t := range tokens {
		if n == 0 {
			return tokens[:i]
		}
		if t.kind != blankToken {
			n--
		}
	}
	return tokens
}

// series describes how the values of a slot change from line to line.
type series struct {
	n, distinct int
	whole       bool // all values are whole numbers
	min, max    float64
	byOne       bool // the values rise by one, from a small number, and may start again
	rises       bool // the values never fall within a file and differ
	falls       bool // the last values are smaller than the first
	restarts    int
}

// describeSeries describes the values of a slot.
func (s *shape) describeSeries(slot int) series {
	values := s.values[slot]
	d := series{n: len(values), whole: s.whole[slot], min: math.Inf(1), max: math.Inf(-1), rises: true}
	seen := map[float64]bool{}
	byOne, other := 0, 0
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if len(seen) <= 10000 {
			seen[v] = true
		}
		d.min, d.max = min(d.min, v), max(d.max, v)
		if i == 0 || s.places[i].file != s.places[i-1].file {
			continue
		}
		switch step := v - values[i-1]; {
		case step == 1:
			byOne++
		case step < 0:
			d.rises = false
			d.restarts++
			if v > d.min {
				other++
			}
		case step != 0:
			other++
		}
	}
	d.distinct = len(seen)
	d.rises = d.rises && d.distinct > 1
	d.byOne = d.whole && byOne > 0 && 10*other <= byOne && d.distinct > 1
	k := max(1, len(values)/4)
	d.falls = d.n >= 2 && median(values[len(values)-k:]) < median(values[:k])
	return d
}

// median returns the median of values that are not NaN, or NaN.
func median(values []float64) float64 {
	kept := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(kept) == 0 {
		return math.NaN()
	}
	slices.Sort(kept)
	return kept[len(kept)/2]
}
