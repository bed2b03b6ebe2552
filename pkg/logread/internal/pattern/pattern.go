// Package pattern states the properties of runs from the paths of their files, by patterns
// such as log_{workers}.csv that the user writes.
package pattern

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Pattern is a parsed pattern.
type Pattern struct {
	text string
	re   *regexp.Regexp
	set  []assignment // in the order of runs.Properties
}

// assignment sets a property to a number (the product of numbers and fields) or
// to a text with fields in braces.
type assignment struct {
	property runs.Property
	factors  []factor // nil for a text
	text     string
}

// factor is a number, or a field of the path if field is not empty.
type factor struct {
	n     int64
	field runs.Property
}

// isTextProperty reports whether the value of a property is a text.
func isTextProperty(p runs.Property) bool {
	return p == runs.PropertySeries || p == runs.PropertyModel
}

// fieldNames returns the names of the fields in braces: {workers}, {nodes} and
// so on.
func fieldNames() []string {
	var found []string
	for _, p := range runs.Properties() {
		found = append(found, "{"+string(p)+"}")
	}
	return found
}

// Parse parses a pattern. logread.ParsePattern describes the syntax.
func Parse(text string) (Pattern, error) {
	glob, value, named := strings.Cut(text, "=")
	if glob == "" || named && value == "" {
		return Pattern{}, fmt.Errorf(`parse pattern %q: expected the end of a path, and after = the name of a series, such as "log_hvd_{workers}.csv=PyTorch Horovod", or properties, such as "*.out=workers:1"`, text)
	}
	re, seen, err := parseGlob(glob)
	if err != nil {
		return Pattern{}, fmt.Errorf("parse pattern %q: %w", text, err)
	}
	p := Pattern{text: text, re: re}
	for _, property := range seen {
		a := assignment{property: property, factors: []factor{{field: property}}}
		if isTextProperty(property) {
			a = assignment{property: property, text: "{" + string(property) + "}"}
		}
		p.set = append(p.set, a)
	}
	var more []assignment
	switch {
	case isAssignmentList(value):
		more, err = parseAssignments(value, seen)
	case value != "":
		if name, known := misspelledProperty(value); known != "" {
			return Pattern{}, fmt.Errorf("parse pattern %q: unknown property %q (did you mean %s?); for a series of this name, write series:%s", text, name, known, value)
		}
		more, err = parseSeriesName(value, seen)
	}
	if err != nil {
		return Pattern{}, fmt.Errorf("parse pattern %q: %w", text, err)
	}
	for _, a := range more {
		p.set = slices.DeleteFunc(p.set, func(o assignment) bool { return o.property == a.property })
		p.set = append(p.set, a)
	}
	return p, nil
}

// parseGlob converts the part of a pattern before the = to a regular expression,
// and returns the fields that it contains.
func parseGlob(glob string) (*regexp.Regexp, []runs.Property, error) {
	var b strings.Builder
	b.WriteString("(?:^|/)")
	var seen []runs.Property
	for rest := glob; rest != ""; {
		var field string
		var length int
		switch {
		case strings.HasPrefix(rest, "**"):
			field, length = ".*", 2
		case rest[0] == '*':
			field, length = "[^/]*", 1
		case rest[0] == '{':
			end := strings.IndexByte(rest, '}')
			name := runs.Property("")
			if end > 0 {
				name = runs.Property(rest[1:end])
			}
			switch {
			case !slices.Contains(runs.Properties(), name):
				return nil, nil, fmt.Errorf("unknown field %q; use %s", rest[:max(end+1, 1)], english.Either(fieldNames()))
			case slices.Contains(seen, name):
				return nil, nil, fmt.Errorf("duplicate field {%s}; use each field once", name)
			case isTextProperty(name):
				field = "(?P<" + string(name) + ">[^/]+?)"
			default:
				field = "(?P<" + string(name) + ">[0-9]+)"
			}
			seen = append(seen, name)
			length = end + 1
		default:
			length = strings.IndexAny(rest, "*{")
			if length < 0 {
				length = len(rest)
			}
			field = regexp.QuoteMeta(rest[:length])
		}
		b.WriteString(field)
		rest = rest[length:]
	}
	b.WriteByte('$')
	re, err := regexp.Compile(b.String())
	return re, seen, err
}

// parseSeriesName parses the name of a series, which may contain {series} if the
// path does.
func parseSeriesName(text string, seen []runs.Property) ([]assignment, error) {
	if _, rest, other := strings.Cut(strings.ReplaceAll(text, "{series}", ""), "{"); other {
		if name, _, closed := strings.Cut(rest, "}"); closed {
			rest = name + "}"
		}
		return nil, fmt.Errorf("unknown field %q after the =; use {series}", "{"+rest)
	}
	if strings.Contains(text, "{series}") && !slices.Contains(seen, runs.PropertySeries) {
		return nil, fmt.Errorf("{series} after the = needs {series} before the =")
	}
	return []assignment{{property: runs.PropertySeries, text: text}}, nil
}

// assignedProperty returns the property with which an item of a list begins, as
// in workers:4, and the text after the colon. ok is false if it begins with
// something else.
func assignedProperty(item string) (property runs.Property, value string, ok bool) {
	name, value, colon := strings.Cut(item, ":")
	property = runs.Property(strings.TrimSpace(name))
	return property, strings.TrimSpace(value), colon && slices.Contains(runs.Properties(), property)
}

// isAssignmentList reports whether text is a list of properties and not the name
// of a series.
func isAssignmentList(text string) bool {
	_, _, ok := assignedProperty(text)
	return ok
}

// misspelledProperty returns the name with which a text such as worker:4 begins, and the property
// that it resembles, or "" if it resembles none.
func misspelledProperty(text string) (name, known string) {
	name, _, colon := strings.Cut(text, ":")
	if !colon {
		return name, ""
	}
	return name, nearest.Name(name, propertyNames(), 2)
}

// parseAssignments parses a list such as workers:{nodes}*8,series:native. A text
// may contain commas.
func parseAssignments(list string, seen []runs.Property) ([]assignment, error) {
	var items []string
	for _, item := range strings.Split(list, ",") {
		if _, _, ok := assignedProperty(item); !ok && len(items) > 0 && isTextItem(items[len(items)-1]) {
			items[len(items)-1] += "," + item
			continue
		}
		items = append(items, item)
	}
	var set []assignment
	for _, item := range items {
		property, value, ok := assignedProperty(item)
		switch {
		case !ok:
			return nil, fmt.Errorf("expected a property and its value, such as workers:4, got %q; the properties are %s", item, english.List(propertyNames()))
		case slices.ContainsFunc(set, func(a assignment) bool { return a.property == property }):
			return nil, fmt.Errorf("duplicate property %s; set each property once", property)
		case value == "":
			return nil, fmt.Errorf("property %s has no value", property)
		}
		a := assignment{property: property, text: value}
		var err error
		if isTextProperty(property) {
			err = checkFields(value, seen)
		} else {
			a.text = ""
			a.factors, err = parseProduct(property, value, seen)
		}
		if err != nil {
			return nil, err
		}
		set = append(set, a)
	}
	return set, nil
}

// isTextItem reports whether an item of a list sets a text.
func isTextItem(item string) bool {
	property, _, ok := assignedProperty(item)
	return ok && isTextProperty(property)
}

// propertyNames returns the names of the properties.
func propertyNames() []string {
	var found []string
	for _, p := range runs.Properties() {
		found = append(found, string(p))
	}
	return found
}

// checkFields returns an error if a text contains a field that the path does not
// contain.
func checkFields(text string, seen []runs.Property) error {
	for _, p := range seen {
		text = strings.ReplaceAll(text, "{"+string(p)+"}", "")
	}
	if at := strings.IndexByte(text, '{'); at >= 0 {
		field, _, _ := strings.Cut(text[at:], "}")
		return fmt.Errorf("unknown field %q after the =; use a field that the path contains", field+"}")
	}
	return nil
}

// parseProduct parses a number, a field, or a product of them such as {nodes}*8.
func parseProduct(property runs.Property, text string, seen []runs.Property) ([]factor, error) {
	var factors []factor
	product := 1.0
	for word := range strings.SplitSeq(text, "*") {
		word = strings.TrimSpace(word)
		if field, ok := strings.CutPrefix(word, "{"); ok {
			field, closed := strings.CutSuffix(field, "}")
			name := runs.Property(field)
			if !closed || isTextProperty(name) || !slices.Contains(seen, name) {
				return nil, fmt.Errorf("unknown field %q in the value of %s; use a number, or a numeric field of the path", word, property)
			}
			factors = append(factors, factor{field: name})
			continue
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("value of %s: expected a number, a field such as {nodes}, or a product such as {nodes}*8, got %q", property, text)
		}
		factors = append(factors, factor{n: n})
		product *= float64(n)
	}
	if len(factors) == 1 && factors[0].field == "" || product > float64(largestValue(property)) {
		if why := refuseValue(property, product); why != "" {
			return nil, fmt.Errorf("%s", why)
		}
	}
	return factors, nil
}

// largestValue returns the largest number that is accepted for a property.
func largestValue(property runs.Property) int64 {
	switch property {
	case runs.PropertyWorkers, runs.PropertyNodes, runs.PropertyRank:
		return names.MaxCount
	case runs.PropertyBatch:
		return math.MaxInt32
	case runs.PropertySeed:
		return 1 << 53
	case runs.PropertySeries, runs.PropertyModel:
	}
	return 0
}

// refuseValue returns the reason why a number cannot be the value of a property,
// or "".
func refuseValue(property runs.Property, v float64) string {
	least := 1.0
	if property == runs.PropertySeed || property == runs.PropertyRank {
		least = 0
	}
	if most := largestValue(property); v < least || v > float64(most) {
		return fmt.Sprintf("%s %.0f is not plausible: expected a number from %.0f to %d", property, v, least, most)
	}
	return ""
}

// String returns the text from which the pattern was parsed.
func (p Pattern) String() string { return p.text }

// Match is what a pattern states about a file.
type Match struct {
	Claims   []record.Claim
	Rank     int      // -1 if the pattern does not state it
	Rest     string   // the path without the rank
	Problems []string // values that are not plausible
}

// Match returns what the pattern states about the file with the given path. ok is
// false if it does not match. The name of a compressed file matches with and
// without the extension of its compression.
func (p Pattern) Match(path string) (Match, bool) {
	path = filepath.ToSlash(path)
	m := p.re.FindStringSubmatchIndex(path)
	if m == nil {
		if bare := record.UncompressedName(path); bare != path {
			return p.Match(bare)
		}
		return Match{}, false
	}
	t := Match{Rank: -1, Rest: path}
	fields := map[runs.Property]string{}
	for i, name := range p.re.SubexpNames() {
		if i == 0 || name == "" {
			continue
		}
		text := path[m[2*i]:m[2*i+1]]
		if _, err := strconv.ParseInt(text, 10, 64); err != nil && !isTextProperty(runs.Property(name)) {
			return Match{}, false // too many digits: it is not a number of anything
		}
		fields[runs.Property(name)] = text
		if runs.Property(name) == runs.PropertyRank {
			t.Rest = path[:m[2*i]] + "*" + path[m[2*i+1]:]
		}
	}
	for _, a := range p.set {
		c := record.Claim{Property: a.property, Origin: runs.Origin{Source: runs.SourceUser, Detail: p.text}}
		if a.factors == nil {
			c.Text = a.text
			for name, value := range fields {
				c.Text = strings.ReplaceAll(c.Text, "{"+string(name)+"}", value)
			}
			t.Claims = append(t.Claims, c)
			continue
		}
		product := 1.0
		for _, f := range a.factors {
			v := float64(f.n)
			if f.field != "" {
				v, _ = strconv.ParseFloat(fields[f.field], 64) // digits
			}
			product *= v
		}
		if why := refuseValue(a.property, product); why != "" {
			t.Problems = append(t.Problems, fmt.Sprintf("the pattern %q: %s", p.text, why))
			continue
		}
		c.Number = int64(product)
		if a.property == runs.PropertyRank {
			t.Rank = int(c.Number)
		}
		t.Claims = append(t.Claims, c)
	}
	return t, true
}
