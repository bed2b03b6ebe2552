package columnartest

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// Column contains the values of a column of an Arrow or Parquet file. An empty
// cell is nil.
type Column []any

// ReadArrow returns the column names and columns of an Arrow file, read with
// the Arrow library.
func ReadArrow(t testing.TB, b []byte) (names []string, columns []Column) {
	t.Helper()
	r, err := ipc.NewFileReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	columns = make([]Column, r.Schema().NumFields())
	for _, f := range r.Schema().Fields() {
		names = append(names, f.Name)
	}
	for i := range r.NumRecords() {
		batch, err := r.RecordBatch(i)
		if err != nil {
			t.Fatal(err)
		}
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

// ReadParquet returns the column names and columns of a Parquet file. It uses a
// library other than the one that wrote the file.
func ReadParquet(t testing.TB, b []byte) (names []string, columns []Column) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	schema := r.MetaData().Schema
	columns = make([]Column, schema.NumColumns())
	for k := range columns {
		names = append(names, schema.Column(k).Name())
		for i := range r.NumRowGroups() {
			c, err := r.RowGroup(i).Column(k)
			if err != nil {
				t.Fatal(err)
			}
			rows := r.RowGroup(i).NumRows()
			levels := make([]int16, rows)
			var got []any
			switch c := c.(type) {
			case *file.ByteArrayColumnChunkReader:
				v := make([]parquet.ByteArray, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range v[:n] {
					got = append(got, string(x))
				}
			case *file.Int32ColumnChunkReader:
				v := make([]int32, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range v[:n] {
					got = append(got, int64(x))
				}
			case *file.Int64ColumnChunkReader:
				v := make([]int64, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range v[:n] {
					got = append(got, x)
				}
			case *file.Float64ColumnChunkReader:
				v := make([]float64, rows)
				_, n, err := c.ReadBatch(rows, v, levels, nil)
				if err != nil {
					t.Fatal(err)
				}
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
