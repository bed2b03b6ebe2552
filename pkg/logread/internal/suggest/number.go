package suggest

import (
	"cmp"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// number is a slot with the words and marks beside it.
type number struct {
	*slot
	name
	token     token
	unit      unitKind
	unitText  string // as in the first line
	ownPart   string // part of the data set that its name has
	part      string // part of the data set that its name or its section of the line has
	bare      bool   // nothing names it
	afterName bool   // the words after it name it
	ofTotal   bool   // it follows "/" or "of" after a number
	inner     bool   // it follows a number and is in parentheses, such as an average
	remains   bool   // the time that remains, as in the progress bar [00:33<00:10
	loader    bool   // the line is about loading data
	vetoed    bool   // a word before it shows that it is not measured now
	mentioned string // the last part of the data set that the line names before it
	// unitInHeading is set if the heading of the column has the unit.
	unitInHeading bool

	decision
}

// decision is what the evidence shows about a number.
type decision struct {
	as    string // the name of a field, or "" if its meaning is not known
	why   string
	scale string // unit that the line does not show beside the number, such as ms
}

// reader reads the words between the numbers of a line.
type reader struct {
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

// numbers returns the numbers of the shape.
func (s *shape) numbers() []number {
	r := &reader{tokens: s.tokens}
	var found []number
	loader := slices.ContainsFunc(s.tokens, func(t token) bool {
		return t.kind == wordToken && slices.ContainsFunc(splitWords(t.text), func(w string) bool {
			return strings.HasPrefix(w, "load") || strings.HasPrefix(w, "dataload")
		})
	})
	for k := 0; k < len(r.tokens); k++ {
		t := r.tokens[k]
		if t.kind != numberToken {
			if k >= r.from {
				r.read(k)
			}
			continue
		}
		n := number{slot: &s.slots[len(found)], token: t, part: r.part, loader: loader, vetoed: r.vetoed, mentioned: r.last}
		var previous *number
		if len(found) > 0 {
			previous = &found[len(found)-1]
		}
		r.describe(&n, previous)
		found = append(found, n)
	}
	return found
}

// read reads token k, which is no number.
func (r *reader) read(k int) {
	t := r.tokens[k]
	next := token{}
	if k+1 < len(r.tokens) {
		next = r.tokens[k+1]
	}
	if t.space == '\t' {
		r.endPiece(t)
	}
	switch {
	case t.kind == wordToken:
		for _, w := range splitWords(t.text) {
			r.piece = append(r.piece, w)
			r.vetoed = r.vetoed || isVeto(w)
			r.last = cmp.Or(partOf(w), r.last)
		}
		if n := len(r.piece); n > 1 && r.piece[n-2] == "held" && r.piece[n-1] == "out" {
			r.piece = append(r.piece[:n-2], "heldout")
		}
	case t.isMark("@"): // AP @ IoU=0.5
		r.vetoed = true
	case t.isMark("([{"):
		r.endPiece(next)
		r.outer = append(r.outer, r.part)
		if r.next != "" {
			r.part, r.next = r.next, ""
		}
	case t.isMark(")]}"):
		part := purePart(r.piece)
		r.endPiece(next)
		if n := len(r.outer); n > 0 {
			r.part, r.outer = r.outer[n-1], r.outer[:n-1]
		}
		if part != "" {
			r.part = part
		}
	case t.isMark(":=,;|•·><➜→"), t.isMark("-–—/") && t.space != 0 && next.space != 0, t.isMark(".") && next.space != 0 && next.kind == wordToken, t.isMark(`"`) && next.space != 0, t.kind == stampToken:
		r.endPiece(next)
	}
}

// endPiece ends the current piece before token next.
func (r *reader) endPiece(next token) {
	part := purePart(r.piece)
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

// purePart returns the part of the data set that words name, if they name nothing else.
func purePart(words []string) string {
	part := ""
	for _, w := range words {
		p := partOf(w)
		if p == "" && w != "set" || part != "" && p != "" && p != part {
			return ""
		}
		part += strings.TrimPrefix(p, part)
	}
	return part
}

// describe describes the number n at the end of the gap, and begins the next gap.
func (r *reader) describe(n *number, previous *number) {
	if len(r.piece) > 0 {
		r.pieces = append(r.pieces, r.piece)
	}
	var words []string
	for i := len(r.pieces) - 1; i >= 0 && words == nil; i-- {
		if slices.ContainsFunc(r.pieces[i], func(w string) bool { return !isNoise(w) && !isProgress(w) }) {
			words = r.pieces[i]
		}
	}
	n.bare = words == nil
	n.readGap(r.tokens[r.from:n.at], previous, words)
	n.setName(nameOf(words, n.part), words)
	if n.ownPart != "" && n.field != nil && isCounter(n.field) { // "Val Epoch: 1 loss 0.5"
		r.part = n.ownPart
	}
	rest := r.tokens[n.at+1:]
	after, ends := n.token.unit, []int{}
	if n.token.unit == durationUnit {
		after = ""
	}
	for _, t := range rest {
		if t.kind == numberToken {
			break
		}
		if t.space != 0 {
			after += " "
		}
		after += t.text
		ends = append(ends, len(after))
	}
	unit, length := unitAfter(after)
	if n.token.unit == durationUnit {
		unit, length = timeUnit, 0
	}
	n.unit, n.unitText = unit, strings.TrimLeft(after[:length], " ")
	r.from = n.at + 1
	for _, end := range ends {
		if end <= length {
			r.from++
		}
	}
	r.pieces, r.piece = nil, nil
	if end := r.nameAfter(n, words); end > 0 {
		r.from += end
	}
}

// readGap sets what the tokens between the previous number and n show.
func (n *number) readGap(gap []token, previous *number, words []string) {
	if previous == nil || len(gap) == 0 {
		return
	}
	n.remains = gap[0].isMark("<") && n.token.clock && previous.token.clock
	n.inner = gap[0].isMark("(") && len(words) == 0
	if gap[0].isMark("(") {
		gap = gap[1:]
	}
	total := len(gap) == 1 && (gap[0].isMark("/") || gap[0].isWord("of", "von", "de", "sur")) || len(gap) == 2 && gap[0].isWord("out") && gap[1].isWord("of")
	n.ofTotal = total && previous.slot.whole && n.slot.whole
}

// setName sets the name that words show.
func (n *number) setName(x name, words []string) {
	n.name = x
	for _, w := range words {
		if p := partOf(w); p != "" {
			n.ownPart, n.part = p, p
		}
	}
}

// nameAfter reads the words after the number n up to the next separator, and returns the number of
// their tokens if they belong to it. They name it if no words before it do: before is empty or ends
// with a connective.
func (r *reader) nameAfter(n *number, before []string) (tokens int) {
	rest := r.tokens[r.from:]
	var words []string
	k := 0
	for ; k < len(rest) && rest[k].kind != numberToken && rest[k].space != '\t'; k++ {
		if rest[k].isMark(":=") { // the words name the next number
			return 0
		}
		if rest[k].kind == stampToken || rest[k].isMark(",;|•·()[]{}><") || rest[k].isMark("-–—/") && rest[k].space != 0 || rest[k].isMark(".") && k+1 < len(rest) && rest[k+1].space != 0 {
			break
		}
		if rest[k].kind == wordToken {
			words = append(words, splitWords(rest[k].text)...)
		}
	}
	if k < len(rest) && rest[k].kind == numberToken { // "1 loss 0.35" names the next number
		if len(words) == 0 || !isConnective(words[len(words)-1]) {
			return 0
		}
	}
	if len(words) == 0 || n.field != nil || !n.bare && !isConnective(before[len(before)-1]) {
		return 0
	}
	x := nameOf(words, n.part)
	if n.unit == timeUnit && purePart(words) != "" { // 43.5s train
		x = nameOf(append(words, "time"), n.part)
	}
	if x.field == nil && n.unit == noUnit { // a count of something, if it is constant
		x.field = fields.LookupColumn(strings.Join(slices.DeleteFunc(words, isNoise), " "))
	}
	switch {
	case x.field != nil && (x.field.Kind == fields.Seconds) == (n.unit == timeUnit) && !n.token.clock:
		n.setName(x, words)
		n.afterName, n.bare = true, false
		return k
	case n.unit == timeUnit && slices.Equal(words, []string{"in", "total"}):
		return k
	}
	n.bare = false
	return 0
}
