package suggest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// choose returns the candidates that are proposed.
func choose(all []*candidate, result *Result) []*candidate {
	of := func(kinds ...Kind) []*candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return !slices.Contains(kinds, c.kind) })
	}
	numberByOrder(all)
	openers, epochs, values, steps := of(Opener), of(Epoch), of(Value), of(Step)
	epochs = slices.DeleteFunc(epochs, func(c *candidate) bool { return !c.hasMeasure() && len(c.places) < 2 })
	kept := values[:0:0]
	for _, c := range values {
		if why := c.rejectValue(openers, epochs, steps); why != "" {
			result.Notes = append(result.Notes, fmt.Sprintf("no template for %d lines such as %q: %s", len(c.places), c.variants[0].first, why))
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) == 0 && !slices.ContainsFunc(steps, func(c *candidate) bool { return !c.has(epochField) }) {
		openers = nil
	}
	openers = firstOfEpoch(openers)
	skipRepeatedValues(slices.Concat(epochs, kept))
	kept = slices.DeleteFunc(kept, func(c *candidate) bool { return c.kind != Value })
	return slices.Concat(of(Setting), openers, epochs, kept, steps)
}

// numberByOrder removes the epoch from lines that end an epoch, if other lines
// without an epoch come before them and both are equally many: the n-th line of
// each form then belongs to epoch n.
func numberByOrder(all []*candidate) {
	var ends, values []*candidate
	for _, c := range all {
		switch {
		case (c.kind == Epoch || c.kind == Opener) && len(c.places) > 1:
			ends = append(ends, c)
		case c.kind == Value && len(c.places) > 1:
			values = append(values, c)
		case c.kind == Step && c.has(epochField):
			return
		}
	}
	if len(ends) != 1 || len(values) == 0 {
		return
	}
	end := ends[0]
	slot := slices.IndexFunc(end.meanings, func(m meaning) bool { return m.field == epochField })
	if s := end.numbers[slot].series; !s.byOne || s.min > 1 {
		return
	}
	before := slices.DeleteFunc(values, func(c *candidate) bool {
		return len(c.places) != len(end.places) || c.places[0].compare(end.places[0]) > 0 || c.places[0].file != end.places[0].file
	})
	if len(before) == 0 {
		return
	}
	for i, m := range end.meanings {
		if m.field == epochField || m.field == epochsField {
			end.meanings[i] = skip("lines of the same epoch come before this one: the n-th line of each form is epoch n")
		}
	}
	end.ordered = true
	end.setKind()
}

// skipRepeatedValues skips values that another line of the same epoch gives too. Of
// two lines, the one with the number of the epoch counts, then the one with more
// values.
func skipRepeatedValues(all []*candidate) {
	better := slices.Clone(all)
	slices.SortStableFunc(better, func(a, b *candidate) int {
		numbered := func(c *candidate) int {
			if c.kind == Epoch || c.ordered {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(numbered(a), numbered(b)), cmp.Compare(b.measures(), a.measures()))
	})
	for i, c := range better {
		for _, o := range better[i+1:] {
			for k, m := range o.meanings {
				if isMeasure(m.field) && c.has(m.field) && alternate(c, o) {
					o.meanings[k] = skip("another line of the epoch gives this value")
				}
			}
			o.setKind()
		}
	}
}

// measures returns the number of measured values of known meaning.
func (c *candidate) measures() int {
	n := 0
	for _, m := range c.meanings {
		if isMeasure(m.field) {
			n++
		}
	}
	return n
}

// alternate reports whether lines of the two forms follow each other by turns, so
// that each epoch has both.
func alternate(a, b *candidate) bool {
	if d := len(a.places) - len(b.places); d < -1 || d > 1 {
		return false
	}
	n, i := min(len(a.places), len(b.places)), 0
	if n == 0 || a.places[0].file != b.places[0].file {
		return false
	}
	first, second := a.places, b.places
	if second[0].compare(first[0]) < 0 {
		first, second = second, first
	}
	turns := 0
	for ; i < n; i++ {
		if first[i].compare(second[i]) < 0 && (i+1 >= len(first) || second[i].compare(first[i+1]) < 0) {
			turns++
		}
	}
	return 10*turns >= 9*n
}

// hasMeasure reports whether a number is a measured value of known meaning.
func (c *candidate) hasMeasure() bool {
	return slices.ContainsFunc(c.meanings, func(m meaning) bool { return isMeasure(m.field) })
}

// maxUnnumbered is the largest number of lines without an epoch number that are
// taken as one line per epoch.
const maxUnnumbered = 2000

// rejectValue returns the reason why lines without an epoch are not used, or "".
func (c *candidate) rejectValue(openers, epochs, steps []*candidate) string {
	if !slices.ContainsFunc(slices.Concat(openers, epochs, steps), func(o *candidate) bool { return o.has(epochField) }) {
		switch {
		case len(steps) > 0:
			return "they have neither an epoch nor a step"
		case len(c.places) < 2:
			return "there is only one such line"
		case len(c.places) > maxUnnumbered:
			return "too many for one line per epoch, and nothing numbers them"
		}
		return ""
	}
	numbered := slices.Concat(openers, epochs, steps)
	var marks []mark
	for _, o := range numbered {
		marks = append(marks, o.epochMarks()...)
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.place.compare(b.place) })
	outside, repeated := 0, 0
	last := mark{epoch: math.NaN()}
	for _, at := range c.places {
		i, _ := slices.BinarySearchFunc(marks, at, func(m mark, at place) int { return m.place.compare(at) })
		switch {
		case i == 0 || marks[i-1].file != at.file:
			outside++
			continue
		case last.file == at.file && last.epoch == marks[i-1].epoch:
			repeated++
		}
		last = marks[i-1]
	}
	switch {
	case outside > 0:
		return "the first of them is before the first line with an epoch"
	case 10*repeated > len(c.places):
		return "there are several of them in an epoch, and nothing numbers them"
	case len(c.places) == 1 && len(marks) > 2*len(numbered):
		return "there is only one such line"
	}
	return ""
}

// mark is a line with the number of an epoch.
type mark struct {
	place
	epoch float64
}

// epochMarks returns the lines of the candidate with their epochs, or nil if they
// have none.
func (c *candidate) epochMarks() []mark {
	slot := slices.IndexFunc(c.meanings, func(m meaning) bool { return m.field == epochField })
	if slot < 0 {
		return nil
	}
	var marks []mark
	for i, at := range c.places {
		marks = append(marks, mark{at, c.values[slot][i]})
	}
	return marks
}

// firstOfEpoch returns the openers whose lines come first: several lines with
// nothing but the number of the epoch, such as its beginning and its end, need
// only one template.
func firstOfEpoch(openers []*candidate) []*candidate {
	if len(openers) < 2 {
		return openers
	}
	first := slices.MinFunc(openers, func(a, b *candidate) int {
		return a.places[0].compare(b.places[0])
	})
	return slices.DeleteFunc(slices.Clone(openers), func(c *candidate) bool { return c != first && c.places[0].file == first.places[0].file })
}
