package tidy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"lockstep/pkg/internal/clean"
)

// ColumnNames returns the names of the columns in the order of Row's fields.
func ColumnNames() []string {
	return []string{"run", "series", "workers", "seed", "rank", "epoch", "step", "name", "value"}
}

// FormatPosition formats the rank, epoch and step of the row. It returns none for a number that
// does not apply.
func (r Row) FormatPosition(none string) (rank, epoch, step string) {
	text := func(n, least int) string {
		if n < least {
			return none
		}
		return strconv.Itoa(n)
	}
	return text(r.Rank, 0), text(r.Epoch, 1), text(r.Step, 0)
}

// WriteCSV writes the rows as CSV with a header.
func WriteCSV(w *bufio.Writer, rows RowIterator) error {
	cw := clean.NewCSVWriter(w)
	if err := cw.Write(ColumnNames()); err != nil {
		return err
	}
	err := rows(func(r Row) error {
		rank, epoch, step := r.FormatPosition("")
		return cw.Write([]string{
			r.Run, r.Series, strconv.Itoa(r.Workers), strconv.FormatInt(r.Seed, 10),
			rank, epoch, step, r.Name, clean.FormatNumber(r.Value),
		})
	})
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// WriteJSON writes the rows as a JSON array with one object per line.
func WriteJSON(w *bufio.Writer, rows RowIterator) error {
	before := "[\n"
	err := rows(func(r Row) error {
		text, err := r.formatJSON()
		if err != nil {
			return err
		}
		_, err = w.WriteString(before + text)
		before = ",\n"
		return err
	})
	if err != nil {
		return err
	}
	end := "\n]\n"
	if before == "[\n" { // there was no row
		end = "[]\n"
	}
	_, err = w.WriteString(end)
	return err
}

func (r Row) formatJSON() (string, error) {
	rank, epoch, step := r.FormatPosition("null")
	texts := make([]string, 3)
	for i, s := range []string{r.Run, r.Series, r.Name} {
		quoted, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		texts[i] = string(quoted)
	}
	v := strconv.FormatFloat(r.Value, 'g', -1, 64)
	if math.IsInf(r.Value, 0) || math.IsNaN(r.Value) { // JSON has no such numbers
		v = strconv.Quote(v)
	}
	return fmt.Sprintf(`{"run":%s,"series":%s,"workers":%d,"seed":%d,"rank":%s,"epoch":%s,"step":%s,"name":%s,"value":%s}`,
		texts[0], texts[1], r.Workers, r.Seed, rank, epoch, step, texts[2], v), nil
}
