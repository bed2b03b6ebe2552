package suggest

import (
	"cmp"
	"slices"
	"strings"
)

// describedNumber is a number of a shape, with the words and punctuation near it.
type describedNumber struct {
	*slot
	name
	token     token
	unit      unitKind
	unitText  string // as in the first line
	ownPart   string // part of the data set that its name has
	part      string // part of the data set that its name or its section of the line has
	mentioned string // the last part of the data set that the line names before it
	bare      bool   // nothing names it
	ofTotal   bool   // it follows "/" or "of" after a number
	inner     bool   // it follows a number and is in parentheses, such as an average
	vetoed    bool   // a word shows that it is not measured now, or not of the training as a whole

	decision
}

type decision struct {
	as    string // the name of a field, or "" if its meaning is not known
	why   string
	scale string // unit that the line does not show beside the number, such as ms
}

type numberDescriber struct {
	line   string
	tokens []token
	from   int        // index of the first token of the gap
	pieces [][]string // of the gap, without those that name only a part of the data set
	piece  []string
	part   string   // of the section
	last   string   // named last
	vetoed bool     // a word shows that the numbers after it are not measured now
	next   string   // of the section in the next brackets
	outer  []string // parts outside of the brackets that are open
}

func (s *shape) describeNumbers() []describedNumber {
	r := &numberDescriber{line: s.first, tokens: s.tokens}
	var found []describedNumber
	for k, t := range r.tokens {
		if t.kind != numberToken {
			if k >= r.from {
				r.readToken(k)
			}
			continue
		}
		n := describedNumber{slot: &s.slots[len(found)], token: t, part: r.part, vetoed: r.vetoed, mentioned: r.last}
		var previous *describedNumber
		if len(found) > 0 {
			previous = &found[len(found)-1]
		}
		r.describeNumber(&n, previous)
		found = append(found, n)
	}
	return found
}

// readToken reads token k, which is not a number.
func (r *numberDescriber) readToken(k int) {
	t, next := r.tokens[k], token{}
	if k+1 < len(r.tokens) {
		next = r.tokens[k+1]
	}
	if t.space == '\t' {
		r.endWordGroup(t)
	}
	switch {
	case t.kind == wordToken:
		for _, w := range splitWords(t.text) {
			r.piece = append(r.piece, w)
			r.vetoed = r.vetoed || excludesMeasurement(w)
			r.last = cmp.Or(datasetPart(w), r.last)
		}
	case t.isMark("@"): // AP @ IoU=0.5
		r.vetoed = true
	case t.isMark("([{"):
		r.endWordGroup(next)
		r.outer = append(r.outer, r.part)
		r.part, r.next = cmp.Or(r.next, r.part), ""
	case t.isMark(")]}"):
		part := soleDatasetPart(r.piece)
		r.endWordGroup(next)
		if n := len(r.outer); n > 0 {
			r.part, r.outer = r.outer[n-1], r.outer[:n-1]
		}
		r.part = cmp.Or(part, r.part)
	case separatesWords(t, next), t.isMark(":="), t.isMark(`"`) && next.space != 0:
		r.endWordGroup(next)
	}
}

// separatesWords reports whether the words before and after token t do not belong together. next is
// the token after t.
func separatesWords(t, next token) bool {
	return t.kind == stampToken || t.isMark(",;|•·><➜→") || t.isMark("-–—/") && t.space != 0 && next.space != 0 || t.isMark(".") && next.space != 0 && next.kind == wordToken
}

func (r *numberDescriber) endWordGroup(next token) {
	part := soleDatasetPart(r.piece)
	switch {
	case part != "" && next.isMark("([{"):
		r.next = part
	case part != "" && next.kind != numberToken:
		r.part = part
	case len(r.piece) > 0:
		r.pieces = append(r.pieces, r.piece)
	}
	r.piece = nil
}

// soleDatasetPart returns the part of the data set that words name, or "" if they name anything else.
func soleDatasetPart(words []string) string {
	part := ""
	for _, w := range words {
		p := datasetPart(w)
		if p == "" && w != "set" || part != "" && p != "" && p != part {
			return ""
		}
		part = cmp.Or(part, p)
	}
	return part
}

// describeNumber describes the number n from the words since the previous number, and then starts to
// collect the words after n.
func (r *numberDescriber) describeNumber(n *describedNumber, previous *describedNumber) {
	if len(r.piece) > 0 {
		r.pieces = append(r.pieces, r.piece)
	}
	var words []string
	for i := len(r.pieces) - 1; i >= 0 && words == nil; i-- {
		if slices.ContainsFunc(r.pieces[i], func(w string) bool { return !isNoise(w) && !isProgressWord(w) }) {
			words = r.pieces[i]
		}
	}
	n.bare = words == nil
	if gap := r.tokens[r.from:n.at]; previous != nil && len(gap) > 0 {
		n.inner = gap[0].isMark("(") && len(words) == 0
		if gap[0].isMark("(") {
			gap = gap[1:]
		}
		total := len(gap) == 1 && (gap[0].isMark("/") || gap[0].isWord("of von de sur")) || len(gap) == 2 && gap[0].isWord("out") && gap[1].isWord("of")
		n.ofTotal = total && previous.slot.whole && n.slot.whole
	}
	n.setName(resolveName(words, n.part), words)
	if n.ownPart != "" && n.field != nil && isCounter(n.field) { // "Val Epoch: 1 loss 0.5"
		r.part = n.ownPart
	}
	r.from, r.pieces, r.piece = n.at+1, nil, nil
	if n.token.unit == durationUnit {
		n.unit = timeUnitKind
	} else {
		begin := n.token.end - len(n.token.unit)
		var length int
		n.unit, length = unitAfter(r.line[begin:])
		n.unitText = strings.TrimSpace(r.line[begin : begin+length])
		for r.from < len(r.tokens) && r.tokens[r.from].end <= begin+length {
			r.from++
		}
	}
	n.vetoed = n.vetoed || r.excludesNumberBefore()
	if k := r.countWordsAfter(); n.bare && k > 0 {
		if n.bare = false; !n.token.clock { // a time of day precedes the name of the next number
			r.from += k
		}
	}
}

func (n *describedNumber) setName(x name, words []string) {
	n.name = x
	for _, w := range words {
		if p := datasetPart(w); p != "" {
			n.ownPart, n.part = p, p
		}
	}
}

// excludesNumberBefore reports whether the words after a number and its unit show that it is not what its
// name says, as in "600 s limit", "107 s remaining", "3 s (validation)" and "99 img/s, per GPU".
func (r *numberDescriber) excludesNumberBefore() bool {
	rest := r.tokens[r.from:]
	if len(rest) > 1 && (rest[0].isMark("(") || rest[0].isMark(",") && rest[1].isWord("per")) {
		rest = rest[1:]
	}
	excludes := false
	for _, t := range rest {
		switch {
		case t.kind == numberToken || t.isMark(":="): // the words name the next number
			return false
		case t.isMark("./-") && t.space == 0: // within a name, such as val.loss
			continue
		case t.kind != wordToken:
			return excludes
		}
		for _, w := range splitWords(t.text) {
			excludes = excludes || isOneOf(w, "limit max maximum min minimum timeout budget allowed remaining left go per each every") || datasetPart(w) == valPart || datasetPart(w) == testPart
		}
	}
	return excludes
}

// countWordsAfter returns the number of the next tokens if they are words after a number that do not
// name the next one, as in "3 s left," and "0.91 acc,".
func (r *numberDescriber) countWordsAfter() int {
	rest := r.tokens[r.from:]
	for k, t := range rest {
		switch {
		case t.kind == numberToken || t.isMark(":="):
			return 0
		case t.kind == stampToken || t.space == '\t' || t.isMark(",;|•·><()[]{}.-–—/"):
			return k
		}
	}
	return len(rest)
}
