package names

import (
	"slices"
	"strconv"
	"strings"
)

// MaxWorkersOrNodes is the largest number of workers or nodes that a name may have, larger than the number
// of nodes of the largest machines (Fugaku has 158,976).
const MaxWorkersOrNodes = 1 << 18

// Fields contains what one name says about a run.
type Fields struct {
	Workers int // number of workers; 0 if the name has none
	Nodes   int // number of nodes; 0 if the name has none
	Seed    int // seed or number of the repeat; -1 if the name has none
	// Number follows the word gpu, worker, rank or task, and may be a rank or the number of
	// workers. It is -1 if there is none. Word is that word in lower case, WordAt its offset in the
	// name, and At and End are the offsets of the number.
	Number          int
	Word            string
	WordAt, At, End int
	Rest            string // the name without the words and numbers of these fields
	// Leading is set if the name begins with the number in Workers or Nodes.
	Leading bool
}

// token is a word, a number, or a separator. "n2-s7" has the tokens n, 2, -, s and 7.
type token struct {
	text     string // a word is in lower case
	at       int    // offset in the name
	number   bool
	between  bool // a separator, or a letter that is not ASCII
	consumed bool // belongs to a field
}

type parser struct {
	tokens []token
	name   string
	fields Fields
}

// Parse parses the name of a folder, or of a file without its extensions.
func Parse(name string) Fields { return parseWithout(name, name) }

// parseWithout is like Parse, but Rest also has no words and numbers that are # in masked, which otherwise equals name.
func parseWithout(name, masked string) Fields {
	p := &parser{name: name, fields: Fields{Seed: -1, Number: -1, Rest: name}}
	if !strings.ContainsAny(name, "0123456789") {
		return p.fields
	}
	p.tokens = tokenize(name)
	for i := range p.tokens {
		t := &p.tokens[i]
		if t.number && !t.consumed && p.isStandaloneNumber(i) && !p.isPartOfDate(i) {
			p.readNumber(i)
		}
		t.consumed = t.consumed || masked[t.at] == '#' && name[t.at] != '#'
	}
	p.fields.Rest = p.maskedName()
	return p.fields
}

func tokenize(name string) []token {
	kind := func(c byte) int {
		switch {
		case c >= '0' && c <= '9':
			return 1
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			return 2
		}
		return 3
	}
	var tokens []token
	for at := 0; at < len(name); {
		end := at + 1
		for end < len(name) && kind(name[end]) == kind(name[at]) {
			end++
		}
		t := token{text: name[at:end], at: at, number: kind(name[at]) == 1, between: kind(name[at]) == 3}
		if !t.between {
			t.text = strings.ToLower(t.text)
		}
		tokens = append(tokens, t)
		at = end
	}
	return tokens
}

// isStandaloneNumber reports whether number i is a token of its own, as in 4GPU and n8, but not in
// h2d or 8x4gpu: it touches either no word, or one word that touches no other number.
func (p *parser) isStandaloneNumber(i int) bool {
	before, after := p.isWord(i-1), p.isWord(i+1)
	switch {
	case before && after:
		return false
	case before:
		return !p.isNumber(i - 2)
	case after:
		return !p.isNumber(i + 2)
	}
	return true
}

// isPartOfDate reports whether number i belongs to a date such as 2021-11-12.
func (p *parser) isPartOfDate(i int) bool {
	for year := i - 4; year <= i; year += 2 {
		if year < 0 {
			continue
		}
		if text := p.tokens[year].text; len(text) == 4 && (strings.HasPrefix(text, "19") || strings.HasPrefix(text, "20")) &&
			p.isNumber(year) && p.isNumber(year+2) && p.isNumber(year+4) && len(p.tokens[year+2].text) <= 2 && len(p.tokens[year+4].text) <= 2 {
			return true
		}
	}
	return false
}

func (p *parser) isWord(i int) bool {
	return i >= 0 && i < len(p.tokens) && !p.tokens[i].number && !p.tokens[i].between
}

func (p *parser) isNumber(i int) bool {
	return i >= 0 && i < len(p.tokens) && p.tokens[i].number
}

// wordBefore returns the index of the word that number i follows, or -1. A single separator may be
// between them.
func (p *parser) wordBefore(i int) int {
	switch {
	case p.isWord(i - 1):
		return i - 1
	case p.isWord(i+1) || i < 2 || len(p.tokens[i-1].text) != 1 || !p.isWord(i-2) || p.isNumber(i-3):
		return -1
	}
	return i - 2
}

// wordAfter returns the index of the word after number i that belongs to it, or -1. There may be
// one separator between them. In that case a number of more than five digits (four if the word is
// singular) is taken as a job number and has no word. The word also belongs to another number if
// one follows it, as in job_123_gpu_4, unless that number has a word after it too, as in
// 4_gpus_2_nodes.
func (p *parser) wordAfter(i int) int {
	switch {
	case p.isWord(i + 1):
		return i + 1
	case p.isWord(i-1) || i+2 >= len(p.tokens) || len(p.tokens[i+1].text) != 1 || !p.isWord(i+2) || p.isNumber(i+3):
		return -1
	case len(p.tokens[i].text) > 5, len(p.tokens[i].text) == 5 && !strings.HasSuffix(p.tokens[i+2].text, "s"):
		return -1
	case p.isNumber(i+4) && !(p.isWord(i+6) && isCountNoun(p.tokens[i+6].text)) && !(p.isWord(i+5) && isCountNoun(p.tokens[i+5].text)):
		return -1
	}
	return i + 2
}

func isCountNoun(word string) bool {
	return slices.Contains([]string{"gpu", "gpus", "worker", "workers", "rank", "ranks", "proc", "procs", "device", "devices", "np", "ws", "world", "node", "nodes"}, word)
}

// phraseBefore returns the word at index i and the index of its first token. If the word before it
// belongs to the same term, as in world_size, num_gpus and n_gpus, it returns both words joined.
func (p *parser) phraseBefore(i int) (word string, first int) {
	word = p.tokens[i].text
	if i < 2 || !p.isWord(i-2) || !p.tokens[i-1].between {
		return word, i
	}
	switch before := p.tokens[i-2].text; {
	case before == "world" && word == "size":
		return "worldsize", i - 2
	case before == "num" || before == "n":
		return before + word, i - 2
	}
	return word, i
}

func (p *parser) readNumber(i int) {
	n, err := strconv.Atoi(p.tokens[i].text)
	if err != nil {
		return
	}
	if w := p.wordAfter(i); w >= 0 && p.readCountBeforeNoun(i, w, n) {
		return
	}
	if w := p.wordBefore(i); w >= 0 && !p.tokens[w].consumed {
		p.readNumberAfterWord(i, w, n)
	}
}

// canBeCount reports whether number i, whose value is n, can count workers or nodes. A number with a
// leading zero cannot.
func (p *parser) canBeCount(i, n int) bool {
	return n > 0 && n <= MaxWorkersOrNodes && p.tokens[i].text[0] != '0'
}

// readCountBeforeNoun stores the number n of token i as nodes or workers if token w, the word after it,
// says so, as in 4gpus but not in 4gpus_per_node. It reports whether it used the number.
func (p *parser) readCountBeforeNoun(i, w, n int) bool {
	word := p.tokens[w].text
	if !isCountNoun(word) || !p.canBeCount(i, n) || p.isWord(w+2) && p.tokens[w+2].text == "per" || p.isNumberedTitle(i, w) {
		return false
	}
	p.fields.Leading = p.fields.Leading || i == 0
	switch {
	case word == "node" || word == "nodes":
		p.setFieldFromTokens(&p.fields.Nodes, n, i, w)
	case strings.HasPrefix(word, "worker") && p.mentionsDataLoader():
		return false
	default:
		p.setFieldFromTokens(&p.fields.Workers, n, i, w)
	}
	return true
}

// isNumberedTitle reports whether number i and the unit w begin a numbered title, such as 10-gpu-basics: a
// separator is between them, the unit is singular, and words follow.
func (p *parser) isNumberedTitle(i, w int) bool {
	return i == 0 && w == 2 && !strings.HasSuffix(p.tokens[w].text, "s") && p.isWord(w+2) && !p.isNumber(w+3) && !p.isNumber(w+4)
}

func (p *parser) mentionsDataLoader() bool {
	return strings.Contains(strings.ToLower(p.name), "loader")
}

func (p *parser) readNumberAfterWord(i, w, n int) {
	word, first := p.phraseBefore(w)
	switch word {
	case "gpus", "ngpus", "ngpu", "numgpus", "numgpu", "workers", "nworkers", "ranks", "nranks", "numranks", "np", "ws", "world", "worldsize",
		"devices", "ndevices", "numdevices", "procs", "nprocs", "nproc", "numprocs", "ntasks":
		if p.canBeCount(i, n) && !(strings.HasSuffix(word, "workers") && p.mentionsDataLoader()) {
			p.setFieldFromTokens(&p.fields.Workers, n, first, i)
		}
	case "n":
		p.readNumberAfterN(i, n)
	case "nodes", "nnodes", "numnodes":
		if p.canBeCount(i, n) {
			p.setFieldFromTokens(&p.fields.Nodes, n, first, i)
		}
	case "gpu", "worker", "rank", "task":
		if digits := len(p.tokens[i].text); p.fields.Number < 0 && n <= MaxWorkersOrNodes && (digits <= 4 || word == "rank") {
			p.fields.Number, p.fields.Word, p.fields.WordAt = n, word, p.tokens[first].at
			p.fields.At, p.fields.End = p.tokens[i].at, p.tokens[i].at+len(p.tokens[i].text)
			p.consumeTokens(first, i)
		}
	case "seed":
		p.setSeedFromTokens(n, first, i)
	default:
		if isRepeatWord(word) && len(p.tokens[i].text) <= maxRepeatDigits { // more digits are those of a job or a date
			p.setSeedFromTokens(n, first, i)
		}
	}
}

const maxRepeatDigits = 3

// readNumberAfterN interprets a number n after the letter n. In the names of Lockstep's run
// folders, where -s and the seed follow, it is the number of workers; otherwise it is the number of
// nodes.
func (p *parser) readNumberAfterN(i, n int) {
	if !p.isWord(i-1) || !p.canBeCount(i, n) {
		return
	}
	if i+3 < len(p.tokens) && p.tokens[i+1].text == "-" && p.tokens[i+2].text == "s" && p.isNumber(i+3) {
		if seed, err := strconv.Atoi(p.tokens[i+3].text); err == nil {
			p.setFieldFromTokens(&p.fields.Workers, n, i-1, i)
			p.setSeedFromTokens(seed, i+2, i+3)
			return
		}
	}
	if p.isWord(i+2) && slices.Contains([]string{"standard", "highmem", "highcpu", "ultramem", "megamem"}, p.tokens[i+2].text) {
		return // a machine type, such as n1-standard-8
	}
	p.setFieldFromTokens(&p.fields.Nodes, n, i-1, i)
}

// setFieldFromTokens sets *field to n and consumes the tokens from first to last. It keeps a value that an
// earlier part of the name has set.
func (p *parser) setFieldFromTokens(field *int, n, first, last int) {
	if *field == 0 {
		*field = n
	}
	p.consumeTokens(first, last)
}

func (p *parser) setSeedFromTokens(n, first, last int) {
	if p.fields.Seed < 0 {
		p.fields.Seed = n
	}
	p.consumeTokens(first, last)
}

func (p *parser) consumeTokens(first, last int) {
	for i := first; i <= last; i++ {
		p.tokens[i].consumed = true
	}
}

// maskedName returns the name with an underscore in place of each recognized field.
func (p *parser) maskedName() string {
	var b strings.Builder
	for i, t := range p.tokens {
		switch {
		case !t.consumed:
			b.WriteString(p.name[t.at : t.at+len(t.text)])
		case i == 0 || !p.tokens[i-1].consumed:
			b.WriteByte('_')
		}
	}
	return b.String()
}
