package columnar

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/logread/internal/columnar/columnartest"
	"lockstep/pkg/logread/internal/tidy"
)

// columnsOf returns the columns that a file with the rows must contain.
func columnsOf(rows []tidy.Row) []columnartest.Column {
	columns := make([]columnartest.Column, 9)
	opt := func(n, least int) any {
		if n < least {
			return nil
		}
		return int64(n)
	}
	for _, r := range rows {
		for i, v := range []any{r.Run, r.Series, int64(r.Workers), r.Seed, opt(r.Rank, 0), opt(r.Epoch, 1), opt(r.Step, 0), r.Name, r.Value} {
			columns[i] = append(columns[i], v)
		}
	}
	return columns
}

// many returns n rows, with special values and with texts that first occur in
// late rows.
func many(n int) (rows []tidy.Row) {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1}
	for i := range n {
		rows = append(rows, tidy.Row{
			Run: fmt.Sprint("run", i/1000), Series: "ä\x00\n", Workers: i, Seed: int64(i) << 40, Rank: i%3 - 1, Epoch: i % 2, Step: i%5 - 1,
			Name: fmt.Sprint("n", i%7), Value: special[i%len(special)],
		})
	}
	return rows
}

// TestColumnarGroups writes several groups of rows, the last of them
// incomplete.
func TestColumnarGroups(t *testing.T) {
	rows := many(2*rowsPerGroup + 10)
	give := func(use func(tidy.Row) error) error {
		for _, r := range rows {
			if err := use(r); err != nil {
				return err
			}
		}
		return nil
	}
	var a, p bytes.Buffer
	if err := errors.Join(WriteArrow(&a, give), WriteParquet(&p, give)); err != nil {
		t.Fatal(err)
	}
	want := columnsOf(rows)
	for name, got := range map[string][]columnartest.Column{
		"arrow":   func() []columnartest.Column { _, c := columnartest.ReadArrow(t, a.Bytes()); return c }(),
		"parquet": func() []columnartest.Column { _, c := columnartest.ReadParquet(t, p.Bytes()); return c }(),
	} {
		for k := range want {
			if len(got[k]) != len(want[k]) {
				t.Fatalf("%s, column %d: %d rows, expected %d", name, k, len(got[k]), len(want[k]))
			}
			for i := range want[k] {
				x, y := want[k][i], got[k][i]
				if f, ok := x.(float64); ok && (math.Float64bits(f) == math.Float64bits(y.(float64)) || math.IsNaN(f) && math.IsNaN(y.(float64))) {
					continue
				}
				if x != y {
					t.Fatalf("%s, column %d, row %d: %v, expected %v", name, k, i, y, x)
				}
			}
		}
	}
}

func TestColumnarErrors(t *testing.T) {
	full := errors.New("the disk is full")
	for name, w := range map[string]func() columnWriter{
		"arrow":   func() columnWriter { return newArrowWriter(failing{full}) },
		"parquet": func() columnWriter { return newParquetWriter(failing{full}) },
	} {
		err := writeColumns(w(), func(use func(tidy.Row) error) error { return use(tidy.Row{}) })
		if !errors.Is(err, full) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// A text that is missing in the dictionary.
	n := 0
	err := writeColumns(newArrowWriter(&bytes.Buffer{}), func(use func(tidy.Row) error) error {
		n++
		return use(tidy.Row{Name: fmt.Sprint(n)})
	})
	if err == nil || err.Error() != "write rows: the logs changed while their rows were written; write the rows again" {
		t.Errorf("error %v", err)
	}
}

// failing is a writer whose Write fails.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
