// Package tidy turns runs into rows with one measured value each, and writes rows as CSV and
// JSON.
package tidy

// Row is one measured value. Its fields have the meaning of the fields of
// logread.Row, to which it is converted.
type Row struct {
	Run     string
	Series  string
	Workers int
	Seed    int64
	Rank    int // -1 if it does not apply
	Epoch   int // 0 if it does not apply
	Step    int // -1 if it does not apply
	Name    string
	Value   float64
}

// Iterator calls use for each row to write.
type Iterator func(use func(Row) error) error
