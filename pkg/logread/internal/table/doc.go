// Package table reads any table with a header, such as CSV and TSV files.
//
// The reader (general.go) works in four steps. form.go and survey.go find the delimiter and how
// the numbers of each column are written. column.go and lookup.go assign the columns to fields:
// by the mappings of the user, or by the names in package fields, which is the place to add the
// name of a column. The fields show what a row is (kind.go): values at a step, an epoch, a
// complete run, or values at a time. row.go, tablerun.go and tablestore.go assign the rows to
// runs and store their values, and tablefinish.go decides what only the complete table shows,
// such as whether times are those of epochs or since the start.
//
// Rows are read one at a time. A row that cannot be used is reported as a problem with its line
// number; the other rows are read.
package table
