package template

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// StandardFields returns the names of the standard fields.
func StandardFields() []string {
	var names []string
	for _, f := range fields.All() {
		if f.InTemplates {
			names = append(names, f.Name)
		}
	}
	return names
}

// Field is a field of a template.
type Field struct {
	Name string
	Kind fields.Kind
}

// Value is the value of a field in a line.
type Value struct {
	Number   float64 // in the units of the package's documentation; 0 for a text
	From, To int     // range of the value in the line, with its unit; From is -1 if a regular expression's group has no value
}

// Template is a parsed template. Several goroutines can use it at the same time.
type Template struct {
	text     string
	fields   []Field
	segments []segment
	open     bool // the template ends with *
	regexp   *regexp.Regexp
	groups   []int         // the regular expression's group of each field
	numbers  []numberField // how the number of each group is read
}

type segment struct {
	anywhere bool    // any text may precede the segment
	field    int     // index of the field of that text; -1 for *
	lead     literal // before the first number
	numbers  []numberField
}

// numberField is a field for a number, together with the literal text after it.
type numberField struct {
	field     int
	kind      fields.Kind
	factor    float64 // of the unit that the template contains; 0 if it contains none
	separated bool    // commas may separate thousands
	comma     bool    // a comma is the decimal mark
	plain     bool    // a number directly before after is complete, without a unit from the line
	after     literal
	next      elementAfterNumber
}

// literal is a part of a template without fields and without *.
type literal struct {
	text   string
	blanks bool // text contains blanks
}

func newLiteral(text string) literal { return literal{text, strings.Contains(text, " ")} }

// elementAfterNumber is what follows a number and the literal text after it.
type elementAfterNumber uint8

const (
	nextNumber elementAfterNumber = iota // another number
	nextAny                              // any text, if after is empty
	nextEnd                              // the end of the line
)

// String returns the text of the template.
func (t *Template) String() string { return t.text }

// Fields returns the fields in the order of Match's values. The caller must not modify the result.
func (t *Template) Fields() []Field { return t.fields }

// FieldIndex returns the index of the field with the given name, or -1.
func (t *Template) FieldIndex(name string) int {
	return slices.IndexFunc(t.fields, func(f Field) bool { return f.Name == name })
}

// Prefix returns the literal text at the beginning of the template, with which every matching line
// begins, or "".
func (t *Template) Prefix() string {
	if len(t.segments) == 0 || t.segments[0].anywhere {
		return ""
	}
	word, _, _ := strings.Cut(t.segments[0].lead.text, " ")
	return word
}

// EndsWithNumber reports whether matching lines end with a number. If such a line is cut off inside
// the number, it still matches.
func (t *Template) EndsWithNumber() bool {
	if t.regexp != nil || t.open {
		return false
	}
	s := &t.segments[len(t.segments)-1]
	n := len(s.numbers)
	return n > 0 && s.numbers[n-1].after.text == ""
}

// Parse parses a template. Its errors contain the position in the text, from 1.
func Parse(text string) (*Template, error) {
	t := &Template{text: text}
	var err error
	if expression, ok := strings.CutPrefix(text, "/"); ok && len(expression) > 1 && strings.HasSuffix(expression, "/") {
		err = t.parseRegexp(strings.TrimSuffix(expression, "/"))
	} else {
		p := parser{t: t, text: strings.TrimRight(text, " \t"), current: segment{field: -1}}
		err = p.parse()
	}
	if err != nil {
		return nil, fmt.Errorf("invalid template %q: %w", text, err)
	}
	return t, nil
}

// MustParse is Parse for a template in source code. It panics if the template is invalid.
func MustParse(text string) *Template {
	t, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return t
}

func (t *Template) parseRegexp(expression string) (err error) {
	if t.regexp, err = regexp.Compile(expression); err != nil {
		return err
	}
	for i, name := range t.regexp.SubexpNames() {
		if name == "" {
			continue
		}
		if err := t.addField(name); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		k := len(t.fields) - 1
		t.groups = append(t.groups, i)
		t.numbers = append(t.numbers, numberField{field: k, kind: t.fields[k].Kind, separated: true, next: nextEnd})
	}
	if len(t.fields) == 0 {
		return fmt.Errorf("the regular expression has no named group such as (?P<epoch>\\d+)")
	}
	return nil
}

func (t *Template) addField(name string) error {
	if t.FieldIndex(name) >= 0 {
		return fmt.Errorf("duplicate field {%s}", name)
	}
	f := Field{Name: name, Kind: fields.Metric}
	if known := fields.ByName(name); known != nil && known.InTemplates {
		f.Kind = known.Kind
	}
	t.fields = append(t.fields, f)
	return nil
}

type parser struct {
	t       *Template
	text    string
	at      int // index of the next character in text
	current segment
	literal strings.Builder // literal text since the last field or *
	last    elementBeforeLiteral
}

// elementBeforeLiteral is the element before a literal text.
type elementBeforeLiteral uint8

const (
	atStart elementBeforeLiteral = iota
	atNumber
	atText
	atStar
)

// failf returns an error with the position, from 1, of the byte at index at.
func (p *parser) failf(at int, format string, a ...any) error {
	position := len([]rune(p.text[:min(at, len(p.text))])) + 1
	return fmt.Errorf("character %d: %s", position, fmt.Sprintf(format, a...))
}

func (p *parser) parse() error {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case strings.HasPrefix(p.text[p.at:], "{{"), strings.HasPrefix(p.text[p.at:], "}}"):
			p.literal.WriteByte(c)
			p.at += 2
		case c == '*' || wildcardLength(p.text[p.at:]) > 0:
			n := max(1, wildcardLength(p.text[p.at:]))
			if p.last == atText && p.literal.Len() == 0 {
				return p.failf(p.at, "got %s after a field of a text, want other text between them", p.text[p.at:p.at+n])
			}
			if p.last != atStar || p.literal.Len() > 0 {
				p.beginSegment(-1, atStar)
			}
			p.at += n
		case c == '{':
			if err := p.parseField(); err != nil {
				return err
			}
		case c == ' ' || c == '\t':
			p.literal.WriteByte(' ')
			for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
				p.at++
			}
		default:
			p.literal.WriteByte(c)
			p.at++
		}
	}
	if len(p.t.fields) == 0 {
		return p.failf(p.at, "got no field, want at least one such as {epoch} or {train_loss}")
	}
	p.endLiteral(nextEnd)
	p.t.open = p.last == atStar && p.current.lead.text == "" && len(p.current.numbers) == 0
	if !p.t.open {
		p.t.segments = append(p.t.segments, p.current)
	}
	return nil
}

// wildcardLength returns the length of {?}, {?1} and so on at the beginning of text, or 0. They match any
// text, as * does; package suggest writes them for unknown values.
func wildcardLength(text string) int {
	if !strings.HasPrefix(text, "{?") {
		return 0
	}
	n := len(text) - len(strings.TrimLeft(text[2:], "0123456789"))
	if n == len(text) || text[n] != '}' {
		return 0
	}
	return n + 1
}

func (p *parser) parseField() error {
	n := strings.IndexByte(p.text[p.at:], '}')
	if n < 0 {
		return p.failf(p.at, "got { without }, want {name} for a field or {{ for a brace")
	}
	begin := p.at
	name, unit, hasUnit := strings.Cut(p.text[p.at+1:p.at+n], ":")
	if !isFieldName(name) {
		return p.failf(p.at+1, "got the field {%s}, want a name of letters, digits and the characters _-./", name)
	}
	p.at += n + 1
	if p.last != atStart && p.last != atStar && p.literal.Len() == 0 {
		return p.failf(begin, "got {%s} directly after another field, want text or * between them", name)
	}
	if err := p.t.addField(name); err != nil {
		return p.failf(begin, "%v", err)
	}
	k := len(p.t.fields) - 1
	kind := p.t.fields[k].Kind
	if kind == fields.Text {
		if p.last == atStar && p.literal.Len() == 0 {
			return p.failf(begin, "got {%s} directly after *, want text between them: both match any text", name)
		}
		if hasUnit {
			return p.failf(begin, "got the unit %q for {%s}, want none: it is a text", unit, name)
		}
		p.beginSegment(k, atText)
		return nil
	}
	p.endLiteral(nextNumber)
	x := numberField{field: k, kind: kind, separated: true}
	if rest, ok := strings.CutPrefix(unit, ","); ok && kind != fields.Whole {
		x.comma, unit, hasUnit = true, rest, rest != ""
	}
	if hasUnit {
		if x.factor = literalUnitFactor(kind, unit, true); x.factor == 0 {
			return p.failf(begin+1+len(name)+1, "got the unit %q for {%s}, want %s", unit, name, describeUnits(kind))
		}
	}
	p.current.numbers = append(p.current.numbers, x)
	p.last = atNumber
	return nil
}

// beginSegment begins a segment. Any text may precede it in a line; field is the index of the field
// for this text, or -1 if there is none.
func (p *parser) beginSegment(field int, last elementBeforeLiteral) {
	p.endLiteral(nextAny)
	p.t.segments = append(p.t.segments, p.current)
	p.current = segment{anywhere: true, field: field}
	p.last = last
}

func (p *parser) endLiteral(next elementAfterNumber) {
	text := p.literal.String()
	p.literal.Reset()
	if len(p.current.numbers) == 0 {
		p.current.lead = newLiteral(text)
		return
	}
	x := &p.current.numbers[len(p.current.numbers)-1]
	x.after, x.next = newLiteral(text), next
	if x.factor == 0 {
		x.factor = literalUnitFactor(x.kind, text, false)
	}
	x.plain = text != "" && !x.comma && (x.factor > 0 || excludesUnit(x.kind, text))
	if len(text) > 0 && text[0] == ',' && (len(text) > 1 && text[1] != ' ' || len(text) == 1 && next == nextNumber) {
		x.separated = false // such as {a},{b}
	}
}

func isFieldName(name string) bool {
	return scan.IsName([]byte(strings.ReplaceAll(name, "/", "_")))
}
