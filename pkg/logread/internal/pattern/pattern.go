// Package pattern states the properties of runs from the paths of their files, by patterns such as
// log_{workers}.csv that the user writes. It returns evidence and decides nothing.
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
	vocabulary "lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Pattern is a parsed pattern.
type Pattern struct {
	text string
	re   *regexp.Regexp
	set  []assignment // in the order in which evidence is returned
}

// assignment sets a property to a value: a text or a product of numbers, with fields in braces.
type assignment struct {
	property runs.Property
	value    string
}

func isTextProperty(p runs.Property) bool {
	return p == runs.PropertySeries || p == runs.PropertyModel
}

func wrappedPropertyNames(before, after string) (found []string) {
	for _, p := range runs.Properties() {
		found = append(found, before+string(p)+after)
	}
	return found
}

// Parse parses a pattern. logread.ParsePattern describes the syntax.
func Parse(text string) (Pattern, error) {
	glob, value, named := strings.Cut(text, "=")
	if glob == "" || named && value == "" {
		return Pattern{}, fmt.Errorf(`parse pattern %q: expected the end of a path, and after = the name of a series, such as "log_hvd_{workers}.csv=PyTorch Horovod", or properties, such as "*.out=workers:1"`, text)
	}
	p := Pattern{text: text}
	fields, err := p.parseGlob(glob)
	if err == nil && value != "" {
		err = p.parseProperties(value, fields)
	}
	if err != nil {
		return Pattern{}, fmt.Errorf("parse pattern %q: %w", text, err)
	}
	return p, nil
}

// fieldToken matches a field in braces, and globToken the parts of a path with a meaning.
var (
	fieldToken = regexp.MustCompile(`\{[^}]*\}?`)
	globToken  = regexp.MustCompile(`\*\*|\*|\{[^}]*\}?`)
)

// parseGlob parses the part of a pattern before the =. It returns the fields of the path, each with
// a possible value.
func (p *Pattern) parseGlob(glob string) (map[string]string, error) {
	var b strings.Builder
	fields := map[string]string{}
	end := 0
	for _, m := range append(globToken.FindAllStringIndex(glob, -1), []int{len(glob), len(glob)}) {
		b.WriteString(regexp.QuoteMeta(glob[end:m[0]]))
		token := glob[m[0]:m[1]]
		end = m[1]
		if form, ok := map[string]string{"": "", "*": "[^/]*", "**": ".*"}[token]; ok {
			b.WriteString(form)
			continue
		}
		name := strings.Trim(token, "{}")
		form := "[0-9]+"
		switch property := runs.Property(name); {
		case !slices.Contains(runs.Properties(), property) || token[len(token)-1] != '}':
			return nil, fmt.Errorf("unknown field %q; use %s", token, english.JoinOr(wrappedPropertyNames("{", "}")))
		case fields[name] != "":
			return nil, fmt.Errorf("duplicate field %s; use each field once", token)
		case isTextProperty(property):
			form = "[^/]+?"
		}
		fields[name] = "1"
		p.set = append(p.set, assignment{runs.Property(name), token})
		b.WriteString("(?P<" + name + ">" + form + ")")
	}
	re, err := regexp.Compile("(?:^|/)" + b.String() + "$")
	p.re = re
	return fields, err
}

// unknownPropertyPattern matches a text that is more likely an unknown property and its value, such as epochs:10,
// than the name of a series.
var unknownPropertyPattern = regexp.MustCompile(`^(\w+):\S`)

// parseProperties parses the text after the =: the name of a series, which may contain {series} if the path
// does, or a list such as workers:{nodes}*8,series:native. fields has a possible value of each field.
func (p *Pattern) parseProperties(text string, fields map[string]string) error {
	if _, _, ok := cutProperty(text); !ok {
		if m := unknownPropertyPattern.FindStringSubmatch(text); m != nil {
			known := wrappedPropertyNames("", "")
			likely := nearest.FindName(m[1], known, len(text)+8)
			if f := vocabulary.LookupColumn(m[1]); f != nil && slices.Contains(known, f.Name) { // such as gpus
				likely = f.Name
			}
			return fmt.Errorf("unknown property %q (did you mean %s?); the properties are %s; for a series of this name, write series:%s",
				m[1], likely, english.JoinAnd(known), text)
		}
		for name := range fields {
			if name != string(runs.PropertySeries) {
				delete(fields, name)
			}
		}
		text = "series:" + text
	}
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if last := len(items) - 1; last >= 0 {
			if property, _, _ := cutProperty(items[last]); isTextProperty(property) {
				if _, _, ok := cutProperty(item); !ok { // a text may contain commas
					items[last] += "," + item
					continue
				}
			}
		}
		items = append(items, item)
	}
	seen := map[runs.Property]bool{}
	for _, item := range items {
		property, value, ok := cutProperty(item)
		switch {
		case !ok:
			return fmt.Errorf("expected a property and its value, such as workers:4, got %q; the properties are %s", item, english.JoinAnd(wrappedPropertyNames("", "")))
		case seen[property]:
			return fmt.Errorf("duplicate property %s; set each property once", property)
		case value == "":
			return fmt.Errorf("property %s has no value", property)
		}
		if _, err := evaluateAssignment(assignment{property, value}, fields); err != nil {
			return err
		}
		seen[property] = true
		p.set = append(slices.DeleteFunc(p.set, func(a assignment) bool { return a.property == property }), assignment{property, value})
	}
	return nil
}

// cutProperty cuts an item of a list such as workers:4 at the colon. ok is false if it does not
// begin with a property.
func cutProperty(item string) (property runs.Property, value string, ok bool) {
	name, value, colon := strings.Cut(item, ":")
	property = runs.Property(strings.TrimSpace(name))
	return property, strings.TrimSpace(value), colon && slices.Contains(runs.Properties(), property)
}

func evaluateAssignment(a assignment, fields map[string]string) (record.Evidence, error) {
	unknown := ""
	text := fieldToken.ReplaceAllStringFunc(a.value, func(token string) string {
		value, ok := fields[strings.Trim(token, "{}")]
		if !ok || token[len(token)-1] != '}' {
			unknown = token
		}
		return value
	})
	e := record.Evidence{Property: a.property, Text: text}
	if unknown != "" {
		return e, fmt.Errorf("unknown field %q after the =, in the value of %s; use a field that the path contains", unknown, a.property)
	}
	if isTextProperty(a.property) {
		return e, nil
	}
	product := 1.0
	for word := range strings.SplitSeq(text, "*") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil {
			return e, fmt.Errorf("value of %s: expected a number, a field such as {nodes}, or a product such as {nodes}*8, got %q", a.property, a.value)
		}
		product *= float64(n)
	}
	least, most := 1.0, float64(names.MaxWorkersOrNodes)
	switch a.property {
	case runs.PropertyBatch:
		most = math.MaxInt32
	case runs.PropertySeed:
		least, most = 0, 1<<53
	case runs.PropertyRank:
		least = 0
	}
	if product < least || product > most {
		return e, fmt.Errorf("%s %.0f is not plausible: expected a number from %.0f to %.0f", a.property, product, least, most)
	}
	e.Number, e.Text = int64(product), ""
	return e, nil
}

func (p Pattern) String() string { return p.text }

// Match is what a pattern states about a file.
type Match struct {
	Evidence []record.Evidence
	Rank     int      // -1 if the pattern does not state it
	Rest     string   // the path without the rank
	Problems []string // values that are not plausible
}

// Match returns what the pattern states about the file with the given path. ok is false if it does
// not match. A compressed file matches with and without the extension of its compression.
func (p Pattern) Match(path string) (Match, bool) {
	path = filepath.ToSlash(path)
	at := p.re.FindStringSubmatchIndex(path)
	if at == nil {
		if bare := record.UncompressedName(path); bare != path {
			return p.Match(bare)
		}
		return Match{}, false
	}
	m := Match{Rank: -1, Rest: path}
	fields := map[string]string{}
	for i, name := range p.re.SubexpNames() {
		if name == "" {
			continue
		}
		text := path[at[2*i]:at[2*i+1]]
		if _, err := strconv.ParseInt(text, 10, 64); err != nil && !isTextProperty(runs.Property(name)) {
			return Match{}, false // too many digits: it is not a number of anything
		}
		if fields[name] = text; runs.Property(name) == runs.PropertyRank {
			m.Rest = path[:at[2*i]] + "*" + path[at[2*i+1]:]
		}
	}
	for _, a := range p.set {
		e, err := evaluateAssignment(a, fields)
		if err != nil {
			m.Problems = append(m.Problems, fmt.Sprintf("the pattern %q: %s", p.text, err))
			continue
		}
		e.Origin = runs.Origin{Source: runs.SourceUser, Detail: p.text}
		if a.property == runs.PropertyRank {
			m.Rank = int(e.Number)
		}
		m.Evidence = append(m.Evidence, e)
	}
	return m, true
}
