// Package table reads files with named columns or keys: CSV files, JSON documents,
// accounting tables and YAML configurations.
//
// One reader (general.go) reads any table with a header, in four steps. form.go and
// survey.go find the delimiter and how the numbers of each column are written.
// column.go assigns the columns to fields: by the mappings of the user, or by the
// synonyms in synonyms.go, which is the place to add the name of a column. The
// fields show what a row is: values at a step, an epoch, a complete run, or values
// at a time. tablerun.go and tablestore.go assign the rows to runs and store their
// values, and tablefinish.go decides what only the complete table shows, such as
// whether times are those of epochs or since the start. fastrow.go is a fast path for
// tables with one value per row.
//
// Each format has a separate file, which begins with an example of its content, and
// one entry in the table of [Formats]. The order of the entries matters: the first
// format that recognizes a file reads it. Rows are read one at a time, documents
// at once. A row that cannot be used is reported as a problem with its line number; the
// other rows are read.
package table
