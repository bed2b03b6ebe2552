package logread

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// column is a column as a reader of the format gives it: nil where it is empty.
type column []any

// readArrow reads an Arrow file with Arrow's own reader.
func readArrow(t *testing.T, b []byte) (names []string, columns []column) {
	t.Helper()
	r, err := ipc.NewFileReader(bytes.NewReader(b))
	check(t, err)
	defer func() { check(t, r.Close()) }()
	columns = make([]column, r.Schema().NumFields())
	for _, f := range r.Schema().Fields() {
		names = append(names, f.Name)
	}
	for i := range r.NumRecords() {
		batch, err := r.RecordBatch(i)
		check(t, err)
		for k, values := range batch.Columns() {
			for n := range values.Len() {
				var v any
				switch a := values.(type) {
				case *array.Dictionary:
					v = a.Dictionary().(*array.String).Value(a.GetValueIndex(n))
				case *array.Int32:
					v = int64(a.Value(n))
				case *array.Int64:
					v = a.Value(n)
				case *array.Float64:
					v = a.Value(n)
				}
				if values.IsNull(n) {
					v = nil
				}
				columns[k] = append(columns[k], v)
			}
		}
	}
	return names, columns
}

// readParquet reads a Parquet file with another library than the one that
// wrote it.
func readParquet(t *testing.T, b []byte) (names []string, columns []column) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(b))
	check(t, err)
	defer func() { check(t, r.Close()) }()
	schema := r.MetaData().Schema
	columns = make([]column, schema.NumColumns())
	for k := range columns {
		names = append(names, schema.Column(k).Name())
		for i := range r.NumRowGroups() {
			c, err := r.RowGroup(i).Column(k)
			check(t, err)
			rows := r.RowGroup(i).NumRows()
			levels := make([]int16, rows)
			var got []any
			switch c := c.(type) {
			case *file.ByteArrayColumnChunkReader:
				v := make([]parquet.ByteArray, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				check(t, err)
				for _, x := range v[:n] {
					got = append(got, string(x))
				}
			case *file.Int32ColumnChunkReader:
				v := make([]int32, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				check(t, err)
				for _, x := range v[:n] {
					got = append(got, int64(x))
				}
			case *file.Int64ColumnChunkReader:
				v := make([]int64, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				check(t, err)
				for _, x := range v[:n] {
					got = append(got, x)
				}
			case *file.Float64ColumnChunkReader:
				v := make([]float64, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				check(t, err)
				for _, x := range v[:n] {
					got = append(got, x)
				}
			}
			for row := range rows {
				if schema.Column(k).MaxDefinitionLevel() > 0 && levels[row] == 0 {
					columns[k] = append(columns[k], nil)
					continue
				}
				columns[k] = append(columns[k], got[0])
				got = got[1:]
			}
		}
	}
	return names, columns
}

// columnsOf are the columns that rows should become.
func columnsOf(rows []Row) []column {
	columns := make([]column, len(columnNames()))
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

// TestColumnarFormats: what is read back by the formats' own readers are the
// rows, with what does not apply empty.
func TestColumnarFormats(t *testing.T) {
	dir := folder(t)
	var rows []Row
	_, err := Rows(All, []string{dir}, func(r Row) error { rows = append(rows, r); return nil })
	check(t, err)
	for format, read := range map[string]func(*testing.T, []byte) ([]string, []column){FormatArrow: readArrow, FormatParquet: readParquet} {
		var b bytes.Buffer
		problems, err := Write(&b, format, All, dir)
		check(t, err)
		if len(problems) != 1 {
			t.Errorf("%s: problems %v", format, problems)
		}
		names, columns := read(t, b.Bytes())
		if d := cmp.Diff(columnNames(), names); d != "" {
			t.Errorf("%s (-want +got)\n%s", format, d)
		}
		if d := cmp.Diff(columnsOf(rows), columns, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got)\n%s", format, d)
		}
		b.Reset()
		_, err = Write(&b, format, All, t.TempDir())
		check(t, err)
		if names, columns := read(t, b.Bytes()); len(names) != 9 || len(columns[0]) != 0 {
			t.Errorf("%s of nothing: %v, %v", format, names, columns)
		}
	}
}

// many gives n rows with values that are special, and texts that come late.
func many(n int) (rows []Row) {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1}
	for i := range n {
		rows = append(rows, Row{
			Run: fmt.Sprint("run", i/1000), Series: "ä\x00\n", Workers: i, Seed: int64(i) << 40, Rank: i%3 - 1, Epoch: i % 2, Step: i%5 - 1,
			Name: fmt.Sprint("n", i%7), Value: special[i%len(special)],
		})
	}
	return rows
}

// TestColumnarGroups: several groups, the last not full.
func TestColumnarGroups(t *testing.T) {
	rows := many(2*groupRows + 10)
	give := func(use func(Row) error) error {
		for _, r := range rows {
			if err := use(r); err != nil {
				return err
			}
		}
		return nil
	}
	var a, p bytes.Buffer
	check(t, writeColumns(newArrowWriter(&a), give))
	check(t, writeColumns(newParquetWriter(&p), give))
	want := columnsOf(rows)
	for name, got := range map[string][]column{
		"arrow":   func() []column { _, c := readArrow(t, a.Bytes()); return c }(),
		"parquet": func() []column { _, c := readParquet(t, p.Bytes()); return c }(),
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
		err := writeColumns(w(), func(use func(Row) error) error { return use(Row{}) })
		if !errors.Is(err, full) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// A text that was not there when the dictionary was made.
	n := 0
	err := writeColumns(newArrowWriter(&bytes.Buffer{}), func(use func(Row) error) error {
		n++
		return use(Row{Name: fmt.Sprint(n)})
	})
	if err == nil || err.Error() != "write rows: the logs changed while they were written; write them again" {
		t.Errorf("error %v", err)
	}
}

// failing is a writer that cannot write.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestCurveRows: the curves of a foreign log are rows with their names and
// steps, NaN and step 0 included.
func TestCurveRows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"4GPU/events.out.tfevents.1": string(eventFile(event(1, 0, simple("Loss/train", 0.5)), event(2, 7, simple("Loss/train", float32(math.NaN()))))),
		"4GPU/rank2.json":            `[{"ph":"X","name":"ncclAllReduce","cat":"kernel","ts":5,"dur":2,"pid":1,"tid":1}]`,
	})
	run := filepath.ToSlash(filepath.Join(dir, "4GPU"))
	var got []Row
	_, err := Rows(All, []string{dir}, func(r Row) error { r.Series = ""; got = append(got, r); return nil })
	check(t, err)
	want := []Row{
		{Run: run, Workers: 4, Rank: -1, Step: 0, Name: "Loss/train", Value: 0.5},
		{Run: run, Workers: 4, Rank: -1, Step: 7, Name: "Loss/train", Value: math.NaN()},
		{Run: run, Workers: 4, Rank: 2, Step: 1, Name: "communication_start_seconds/ncclAllReduce", Value: 0},
		{Run: run, Workers: 4, Rank: 2, Step: 1, Name: "communication_seconds/ncclAllReduce", Value: 2e-6},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
