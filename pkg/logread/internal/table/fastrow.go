package table

import (
	"bytes"
	"encoding/binary"

	"lockstep/pkg/logread/internal/scan"
)

// fastRows is the fast path for the rows of a table that begin with an epoch and a step and
// have a single value in the same column as the last such row. Nearly all rows of Lightning's
// CSVLogger have this form.
type fastRows struct {
	t   *tableReader
	run *tableRun // nil if the table has no rows of this form
	// The form of the last row with a single value besides epoch and step: the
	// text before and after the value, and the value's column. The column is 0
	// if no row had a single value.
	before, after textPrefix
	column        int
	value         *column    // the column with that index
	cell          textPrefix // the epoch cell of the previous row, with its comma
	cellEpoch     int        // the number in cell
	target        *float64   // destination of the column's values for targetEpoch; nil if not known yet
	targetEpoch   int
}

// maxFastRowBytes is larger than the total length in bytes of the epoch, the
// step and the value in a row of the usual form.
const maxFastRowBytes = 64

// prepare decides whether the table can have rows of this form.
func (f *fastRows) prepare(t *tableReader) {
	f.t = t
	if t.layout != rowsAreSteps || t.form.delimiter != ',' || len(t.columns) < 3 || t.columns[0].field != fieldEpoch || t.columns[1].field != fieldStep {
		f.t = nil
		return
	}
	for i := range t.columns[2:] {
		c := &t.columns[2+i]
		if c.factor != 1 || c.form != (numberForm{decimal: '.'}) || c.run != "" || c.unused == "" && !c.toCurve {
			f.t = nil
		}
	}
}

// readRows reads the following rows in the buffer as long as they have the
// form of the previous row.
func (f *fastRows) readRows() {
	l, rows := f.t.l, 0
	for more := maxFastRowBytes + len(f.before.text) + len(f.after.text); l.End-l.Start >= more; rows++ {
		l.Number++
		n := f.readRow(l.Buf[l.Start:l.End], true)
		if n == 0 {
			l.Number--
			break
		}
		l.Start += n
	}
	f.t.in.Report.Lines += int64(rows)
	f.addRows(rows)
}

// addRows adds the given number of rows, which have one value each, to the
// report's counts.
func (f *fastRows) addRows(rows int) {
	f.t.in.Report.Records += int64(rows)
	f.t.in.Report.LinesUsed += int64(rows)
	f.t.rows += rows
}

// readRow reads a row of the usual form. If others is true, text contains more rows after this
// one. It returns the length of the row with its line end, or 0 if the row has another form,
// which readLine reads.
func (f *fastRows) readRow(text []byte, others bool) int {
	if f.column == 0 {
		return 0
	}
	epoch, at := f.cellEpoch, len(f.cell.text)
	if at == 0 || !f.cell.matches(text) { // usually the same as in the previous row
		v, n := scan.ParseShortInteger(text)
		if n == 0 || n == len(text) || text[n] != ',' {
			return 0
		}
		epoch, at = v, n+1
		f.cellEpoch = epoch
		f.cell.set(text[:at])
	}
	step, n := scan.ParseLongInteger(text[at:])
	if at += n; n == 0 {
		return 0
	}
	if !f.before.matches(text[at:]) {
		return 0
	}
	at += len(f.before.text)
	v, n := scan.ParseDecimal(text[at:])
	if at += n; n == 0 {
		return 0
	}
	if !f.after.matches(text[at:]) {
		return 0
	}
	at += len(f.after.text)
	switch {
	case !others && at == len(text):
	case others && at < len(text) && text[at] == '\n':
		at++
	default:
		return 0
	}
	c := f.value
	c.curve.Add(int64(step), v, 0)
	if epoch == 0 {
		f.t.zeroEpoch = true
	}
	if c.epoch != nil {
		if f.target == nil || f.targetEpoch != epoch {
			target := c.epoch(f.t.findOrAddEpoch(f.run, -1, epoch+1))
			f.target, f.targetEpoch = target, epoch
		}
		*f.target = v
	}
	return at
}

// textPrefix is a text that can be compared quickly with the beginning of
// another text.
type textPrefix struct {
	text       []byte
	word, mask uint64 // the same text as a word and the mask of its bytes, if it has at most eight
}

// set replaces the text.
func (p *textPrefix) set(text []byte) {
	p.text = append(p.text[:0], text...)
	p.word, p.mask = 0, 0
	if len(text) <= 8 {
		for i, c := range text {
			p.word |= uint64(c) << (8 * i)
			p.mask |= 0xff << (8 * i)
		}
	}
}

// matches reports whether b begins with the text.
func (p *textPrefix) matches(b []byte) bool {
	if w := b[:cap(b)]; len(w) >= 8 && len(p.text) <= 8 {
		return (binary.LittleEndian.Uint64(w)^p.word)&p.mask == 0 && len(b) >= len(p.text)
	}
	return bytes.HasPrefix(b, p.text)
}

// learn stores the form of the row in t.cells if it has a single value besides epoch and step.
func (f *fastRows) learn(t *tableReader, good bool, p *rowPlace) {
	if f.t == nil || !good || p.epoch < 1 || p.step < 0 {
		return
	}
	column := 0
	for i := 2; i < len(t.cells); i++ {
		if len(t.cells[i]) == 0 {
			continue
		}
		if column > 0 {
			return
		}
		column = i
	}
	if column == 0 {
		return
	}
	f.column = 0
	c, cell := &t.columns[column], t.cells[column]
	if _, n := scan.ParseDecimal(cell); n == 0 || n != len(cell) || c.curve == nil || c.curve.Rank >= 0 {
		return
	}
	f.before.set(bytes.Repeat([]byte{','}, column-1))
	f.after.set(bytes.Repeat([]byte{','}, len(t.cells)-1-column))
	f.run, f.column, f.value, f.target = c.curveOf, column, c, nil
}
