package columnar

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"lockstep/pkg/logread/internal/tidy"
)

// WriteArrow writes the rows as an Arrow IPC file.
func WriteArrow(w io.Writer, rows tidy.Iterator) error { return writeColumns(newArrowWriter(w), rows) }

// WriteParquet writes the rows as a Parquet file.
func WriteParquet(w io.Writer, rows tidy.Iterator) error {
	return writeColumns(newParquetWriter(w), rows)
}

// rowsPerGroup is the number of rows that are written together: as a row group
// in Parquet, as a record batch in Arrow.
const rowsPerGroup = 1 << 16

// Indexes of the text columns of a group.
const (
	columnRun = iota
	columnSeries
	columnName
	textColumns
)

// Indexes of the numeric columns whose cells may be empty.
const (
	columnRank = iota
	columnEpoch
	columnStep
	countColumns
)

// dictionary assigns a number to each distinct text of a column.
type dictionary struct {
	texts []string
	index map[string]int32
}

// intern returns the number of text. A new text gets the next number.
func (d *dictionary) intern(text string) int32 {
	i, ok := d.index[text]
	if !ok {
		if d.index == nil {
			d.index = map[string]int32{}
		}
		i = int32(len(d.texts))
		d.index[text], d.texts = i, append(d.texts, text)
	}
	return i
}

// rowGroup contains consecutive rows, stored by column.
type rowGroup struct {
	texts   [textColumns][]int32 // numbers from the column's dictionary
	workers []int32
	seeds   []int64
	counts  [countColumns][]int64
	applies [countColumns][]bool // whether the number applies to the row
	values  []float64
}

// add appends a row. Its texts are added to the dictionaries d.
func (g *rowGroup) add(d *[textColumns]dictionary, r tidy.Row) {
	for i, text := range [textColumns]string{columnRun: r.Run, columnSeries: r.Series, columnName: r.Name} {
		g.texts[i] = append(g.texts[i], d[i].intern(text))
	}
	g.workers, g.seeds, g.values = append(g.workers, int32(r.Workers)), append(g.seeds, r.Seed), append(g.values, r.Value)
	least := [countColumns]int{columnRank: 0, columnEpoch: 1, columnStep: 0}
	for i, n := range [countColumns]int{columnRank: r.Rank, columnEpoch: r.Epoch, columnStep: r.Step} {
		g.counts[i], g.applies[i] = append(g.counts[i], int64(n)), append(g.applies[i], n >= least[i])
	}
}

// reset removes all rows and keeps the memory.
func (g *rowGroup) reset() {
	for i := range g.texts {
		g.texts[i] = g.texts[i][:0]
	}
	for i := range g.counts {
		g.counts[i], g.applies[i] = g.counts[i][:0], g.applies[i][:0]
	}
	g.workers, g.seeds, g.values = g.workers[:0], g.seeds[:0], g.values[:0]
}

// columnWriter writes groups of rows in one file format.
type columnWriter interface {
	// needsDictionariesFirst reports whether the format must know all texts
	// before the first row.
	needsDictionariesFirst() bool
	write(d *[textColumns]dictionary, g *rowGroup) error
	close() error
}

// writeColumns writes the rows with w, in groups of rowsPerGroup.
func writeColumns(w columnWriter, rows tidy.Iterator) error {
	var d [textColumns]dictionary
	var g rowGroup
	if w.needsDictionariesFirst() {
		err := rows(func(r tidy.Row) error {
			d[columnRun].intern(r.Run)
			d[columnSeries].intern(r.Series)
			d[columnName].intern(r.Name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	known := [textColumns]int{len(d[0].texts), len(d[1].texts), len(d[2].texts)}
	flush := func() error {
		for i := range d {
			if w.needsDictionariesFirst() && len(d[i].texts) > known[i] {
				return errors.New("the logs changed while their rows were written; write the rows again")
			}
		}
		err := w.write(&d, &g)
		g.reset()
		return err
	}
	err := rows(func(r tidy.Row) error {
		g.add(&d, r)
		if len(g.values) < rowsPerGroup {
			return nil
		}
		return flush()
	})
	if err != nil {
		return errors.Join(err, w.close())
	}
	if len(g.values) > 0 {
		if err := flush(); err != nil {
			return errors.Join(fmt.Errorf("write rows: %w", err), w.close())
		}
	}
	return w.close()
}

// arrowWriter writes an Arrow file with dictionary-encoded texts. In this
// format, one dictionary per column precedes all record batches.
type arrowWriter struct {
	w      *ipc.FileWriter
	schema *arrow.Schema
	dicts  [textColumns]arrow.Array
	err    error
}

// newArrowWriter returns a writer of an Arrow file. If the header of the file
// cannot be written, the first call of write returns the error.
func newArrowWriter(w io.Writer) *arrowWriter {
	text := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	s := arrow.NewSchema([]arrow.Field{
		{Name: "run", Type: text},
		{Name: "series", Type: text},
		{Name: "workers", Type: arrow.PrimitiveTypes.Int32},
		{Name: "seed", Type: arrow.PrimitiveTypes.Int64},
		{Name: "rank", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "epoch", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "step", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "name", Type: text},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	a := &arrowWriter{schema: s}
	a.w, a.err = ipc.NewFileWriter(w, ipc.WithSchema(s))
	return a
}

func (a *arrowWriter) needsDictionariesFirst() bool { return true }

func (a *arrowWriter) write(d *[textColumns]dictionary, g *rowGroup) error {
	if a.err != nil {
		return a.err
	}
	mem := memory.DefaultAllocator
	text := func(column int) arrow.Array {
		if a.dicts[column] == nil {
			b := array.NewStringBuilder(mem)
			b.AppendValues(d[column].texts, nil)
			a.dicts[column] = b.NewArray()
		}
		b := array.NewInt32Builder(mem)
		b.AppendValues(g.texts[column], nil)
		return array.NewDictionaryArray(a.schema.Field(0).Type, b.NewArray(), a.dicts[column])
	}
	ints := func(v []int64, valid []bool) arrow.Array {
		b := array.NewInt64Builder(mem)
		b.AppendValues(v, valid)
		return b.NewArray()
	}
	workers := array.NewInt32Builder(mem)
	workers.AppendValues(g.workers, nil)
	values := array.NewFloat64Builder(mem)
	values.AppendValues(g.values, nil)
	batch := array.NewRecordBatch(a.schema, []arrow.Array{
		text(columnRun), text(columnSeries), workers.NewArray(), ints(g.seeds, nil),
		ints(g.counts[columnRank], g.applies[columnRank]), ints(g.counts[columnEpoch], g.applies[columnEpoch]),
		ints(g.counts[columnStep], g.applies[columnStep]), text(columnName), values.NewArray(),
	}, int64(len(g.values)))
	defer batch.Release()
	return a.w.Write(batch)
}

func (a *arrowWriter) close() error {
	if a.err != nil {
		return a.err
	}
	return a.w.Close()
}

// parquetRow is a row in the form that the Parquet library encodes. A number is
// nil if the row has no such value.
type parquetRow struct {
	Run     string  `parquet:"run,dict"`
	Series  string  `parquet:"series,dict"`
	Workers int32   `parquet:"workers"`
	Seed    int64   `parquet:"seed"`
	Rank    *int64  `parquet:"rank,optional"`
	Epoch   *int64  `parquet:"epoch,optional"`
	Step    *int64  `parquet:"step,optional"`
	Name    string  `parquet:"name,dict"`
	Value   float64 `parquet:"value"`
}

// parquetWriter writes a Parquet file. The library builds the dictionaries, one
// per row group.
type parquetWriter struct {
	w    *parquet.GenericWriter[parquetRow]
	rows []parquetRow // buffer for the rows of a group
}

// newParquetWriter returns a writer of a Parquet file, compressed with zstd.
func newParquetWriter(w io.Writer) *parquetWriter {
	return &parquetWriter{w: parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("lockstep", "", ""))}
}

func (p *parquetWriter) needsDictionariesFirst() bool { return false }

func (p *parquetWriter) write(d *[textColumns]dictionary, g *rowGroup) error {
	p.rows = p.rows[:0]
	count := func(column, i int) *int64 {
		if !g.applies[column][i] {
			return nil
		}
		return &g.counts[column][i]
	}
	text := func(column, i int) string { return d[column].texts[g.texts[column][i]] }
	for i, v := range g.values {
		p.rows = append(p.rows, parquetRow{
			Run: text(columnRun, i), Series: text(columnSeries, i), Workers: g.workers[i], Seed: g.seeds[i],
			Rank: count(columnRank, i), Epoch: count(columnEpoch, i), Step: count(columnStep, i),
			Name: text(columnName, i), Value: v,
		})
	}
	if _, err := p.w.Write(p.rows); err != nil {
		return err
	}
	return p.w.Flush() // a row group
}

func (p *parquetWriter) close() error { return p.w.Close() }
