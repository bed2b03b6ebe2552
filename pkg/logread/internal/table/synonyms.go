package table

import (
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

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

// DescribeFields returns a text that lists each field with its meaning and with the names of
// the columns that are mapped to it.
func DescribeFields() string {
	var b strings.Builder
	for _, f := range fields.All() {
		if f.InTables {
			fmt.Fprintf(&b, "%s: %s\n    %s\n", f.Name, f.About, strings.Join(strings.Fields(f.ColumnNames+" "+f.Names), ", "))
		}
	}
	return b.String()
}

// fieldNamed returns the field of columns with the name, or nil.
func fieldNamed(name string) *fields.Field {
	if f := fields.Named(name); f != nil && f.InTables {
		return f
	}
	return nil
}
