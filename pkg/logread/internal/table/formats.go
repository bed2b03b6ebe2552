package table

import "lockstep/pkg/logread/internal/record"

// Format returns the format of tables of which at least one column is known. mappings are those
// of the user.
func Format(mappings []Mapping) record.Format {
	return record.Format{Name: tableKind, Recognizes: isTable(mappings), Read: readTable(mappings)}
}

// MappedFormats returns the format of tables with a column that the user has mapped, which is
// tried before the formats of known programs. It returns nil if there are no mappings.
func MappedFormats(mappings []Mapping) []record.Format {
	if len(mappings) == 0 {
		return nil
	}
	return []record.Format{{Name: tableKind, Recognizes: hasMappedColumn(mappings), Read: readTable(mappings)}}
}
