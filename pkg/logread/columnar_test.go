package logread

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/columnar/columnartest"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/logread/internal/tidy"
)

// TestColumnarFormats checks that the formats' own libraries read back the
// rows, with empty values where a column does not apply.
func TestColumnarFormats(t *testing.T) {
	dir := folder(t)
	var rows []Row
	_, err := Rows(All, []string{dir}, func(r Row) error { rows = append(rows, r); return nil })
	check(t, err)
	for format, read := range map[string]func(testing.TB, []byte) ([]string, []columnartest.Column){FormatArrow: columnartest.ReadArrow, FormatParquet: columnartest.ReadParquet} {
		var b bytes.Buffer
		problems, err := Write(&b, format, All, dir)
		check(t, err)
		if len(problems) != 1 {
			t.Errorf("%s: problems %v", format, problems)
		}
		names, columns := read(t, b.Bytes())
		if d := cmp.Diff(tidy.ColumnNames(), names); d != "" {
			t.Errorf("%s (-want +got)\n%s", format, d)
		}
		if d := cmp.Diff(columnsOfRows(rows), columns, cmpopts.EquateNaNs()); d != "" {
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

// TestCurveRows checks the rows of a curve in another program's log, including
// NaN and step 0.
func TestCurveRows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"4GPU/events.out.tfevents.1": string(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 0, recordtest.EncodeScalar("Loss/train", 0.5)), recordtest.EncodeEvent(2, 7, recordtest.EncodeScalar("Loss/train", float32(math.NaN()))))),
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

// columnsOfRows returns the columns that a file with the rows must contain.
func columnsOfRows(rows []Row) []columnartest.Column {
	columns := make([]columnartest.Column, len(tidy.ColumnNames()))
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
