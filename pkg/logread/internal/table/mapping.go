package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/logread/internal/fields"
)

// ColumnMapping assigns a column to a field. It takes precedence over synonyms.
type ColumnMapping struct {
	Field    string // one of FieldNames, or the name of a metric
	Column   string // name in the header
	position int    // number of the column from 1, if Column is a number; otherwise 0
	base     string // Column without the unit after its last colon, as in epoch_time:ms; empty if it has none
	factor   float64
}

// String returns the mapping in the syntax of ParseMappings.
func (m ColumnMapping) String() string {
	if strings.Contains(m.Column, ",") {
		return m.Field + `="` + m.Column + `"`
	}
	return m.Field + "=" + m.Column
}

// ParseMappings parses texts such as "workers=n_gpus,seconds=epoch_time". A column is given by its
// name in the header, in double quotes if it contains a comma, or by its position from 1. A unit
// may follow, as in seconds=epoch_time:ms. A field that is not one of FieldNames is a metric,
// unless it resembles one of them.
func ParseMappings(texts []string) ([]ColumnMapping, error) {
	var all []ColumnMapping
	for _, text := range texts {
		for rest := text + ","; rest != ""; {
			var item string
			item, rest = cutItem(rest)
			m, err := parseMapping(strings.TrimSpace(item))
			if err != nil {
				return nil, fmt.Errorf("parse columns %q: %w; the fields are %s, and any other name is a metric", text, err, strings.Join(FieldNames(), ", "))
			}
			if i := slices.IndexFunc(all, func(o ColumnMapping) bool { return o.Column == m.Column }); i >= 0 {
				return nil, fmt.Errorf("parse columns %q: column %q is mapped to both %s and %s", text, m.Column, all[i].Field, m.Field)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// cutItem cuts text at the first comma that is not in quotes.
func cutItem(text string) (item, rest string) {
	quoted := false
	for i, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

func parseMapping(item string) (ColumnMapping, error) {
	name, column, ok := strings.Cut(item, "=")
	m := ColumnMapping{Field: strings.TrimSpace(name), Column: strings.Trim(strings.TrimSpace(column), `"`)}
	if strings.Count(column, `"`)%2 != 0 {
		return m, fmt.Errorf(`missing " in %s`, item)
	}
	if !ok || m.Field == "" || m.Column == "" {
		return m, fmt.Errorf("expected FIELD=COLUMN, got %q", item)
	}
	if fieldNamed(m.Field) == nil {
		if known := nearest.FindName(m.Field, FieldNames(), min(len(m.Field)/4, 2)); known != "" {
			return m, fmt.Errorf("unknown field %q (did you mean %s?)", m.Field, known)
		}
	}
	number := m.Column
	if f, i := fieldNamed(m.Field), strings.LastIndexByte(m.Column, ':'); f != nil && i > 0 {
		if factor, ok := unitFactor(f.Kind, m.Column[i+1:]); ok {
			m.base, m.factor, number = m.Column[:i], factor, m.Column[:i]
		}
	}
	if n, err := strconv.Atoi(number); err == nil {
		if n < 1 || n > maxTableColumns {
			return m, fmt.Errorf("%s: got column %d, want 1 to %d", m.Field, n, maxTableColumns)
		}
		m.position = n
	}
	return m, nil
}

// findColumn returns the index of the mapped column in a header and the factor of the mapping's unit.
// index is -1 if there is no such column, and factor is 0 if the mapping has no unit. A column with
// the given name takes precedence over one at that position.
func (m ColumnMapping) findColumn(header []string) (index int, factor float64) {
	if i := slices.Index(header, m.Column); i >= 0 {
		return i, 0
	}
	if i := slices.Index(header, m.base); i >= 0 && m.base != "" {
		return i, m.factor
	}
	if m.position > 0 && m.position <= len(header) {
		return m.position - 1, m.factor
	}
	same := func(text string) int {
		return slices.IndexFunc(header, func(name string) bool {
			return fields.Normalize(name) == fields.Normalize(text) && name != "" && text != ""
		})
	}
	if i := same(m.Column); i >= 0 && m.position == 0 {
		return i, 0
	}
	if i := same(m.base); m.position == 0 {
		return i, m.factor
	}
	return -1, 0
}

// FieldNames returns the names of the fields to which columns can be mapped.
func FieldNames() []string {
	var names []string
	for _, f := range fields.All() {
		if f.InTables {
			names = append(names, f.Name)
		}
	}
	return names
}

// DescribeFields returns a text that lists each field with its meaning and the columns that are
// mapped to it.
func DescribeFields() string {
	var b strings.Builder
	for _, f := range fields.All() {
		if f.InTables {
			fmt.Fprintf(&b, "%s: %s\n    %s\n", f.Name, f.About, strings.Join(strings.Fields(f.ColumnNames+" "+f.Names), ", "))
		}
	}
	return b.String()
}

func fieldNamed(name string) *fields.Field {
	if f := fields.ByName(name); f != nil && f.InTables {
		return f
	}
	return nil
}
