// Package table reads files with named columns or keys: CSV files, JSON documents,
// accounting tables and YAML configurations.
//
// Each format has a separate file, which begins with an example of its content, and
// one entry in the table of [Formats]. The order of the entries matters: the first
// format that recognizes a file reads it. Rows are read one at a time, documents
// at once. A row that cannot be used is reported as a problem with its line number; the
// other rows are read.
package table
