package logread

import (
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
)

// ColumnFields returns a text that lists the fields to which columns are mapped: name, meaning, and
// the columns that are recognized without a mapping. Case, blanks and punctuation in the names of
// columns do not count. A unit may follow a name, as in "epoch_time (ms)" or epoch_time_ms.
func ColumnFields() string { return table.DescribeFields() }

func (l *Logs) addColumnUses(r *record.Report) {
	if len(r.Header) > 0 {
		l.headers = append(l.headers, r.Path+": "+strings.Join(r.Header, ", "))
	}
	for _, m := range r.Mapped {
		record.PutInMap(&l.columns, m, true)
	}
}

// maxListedHeaders is the number of files whose columns an error lists.
const maxListedHeaders = 5

func (l *Logs) checkColumnsUsed(o Options) error {
	mappings, err := table.ParseMappings(o.Columns)
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	for _, m := range mappings {
		if l.columns[m.String()] {
			continue
		}
		found := "no table was found"
		if n := len(l.headers); n > 0 {
			found = "the columns found are\n  " + strings.Join(l.headers[:min(n, maxListedHeaders)], "\n  ")
			if n > maxListedHeaders {
				found += fmt.Sprintf("\n  and the columns of %d more files", n-maxListedHeaders)
			}
		}
		return fmt.Errorf("read logs: no table has the column %q of the mapping %s; %s", m.Column, m, found)
	}
	return nil
}
