package table

import (
	"bytes"
	"encoding/binary"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// fastRows is the fast path for the rows of a table that begin with an epoch and a step and
// have values in the same columns as an earlier such row. Nearly all rows of Lightning's
// CSVLogger have one of two forms: the values of a step, and those of a validation.
type fastRows struct {
	t      *tableReader
	forms  [2]rowForm
	last   int                    // index of the form of the last row
	values [maxFastValues]float64 // of the current row
	stored int64                  // values that the report does not count yet

	cell      textPrefix  // the epoch cell of the previous row, with its comma
	cellEpoch int         // the number in cell
	epoch     *runs.Epoch // epoch of the last value that belongs to one; nil if not known
	epochOf   *tableRun   // run of epoch
	number    int         // number of epoch in the table
}

// rowForm is the form of a row.
type rowForm struct {
	run   *tableRun
	cells []fastCell // the cells that are not empty, after the epoch and the step
	after textPrefix // the commas after the last value
}

// fastCell is a cell that contains a value.
type fastCell struct {
	before textPrefix // the commas before the value
	column *column
	target *float64    // destination of the value in the epoch of
	of     *runs.Epoch // nil if target is not known yet
}

// maxFastValues is the largest number of values in a row of a fast form.
const maxFastValues = 8

// maxFastCellBytes is larger than the length in bytes of an epoch, a step or a value in a row of
// a fast form.
const maxFastCellBytes = 32

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

// readRows reads the following rows in the buffer as long as they have a known form.
func (f *fastRows) readRows() {
	l, rows := f.t.l, 0
	for more := (2+maxFastValues)*maxFastCellBytes + len(f.t.columns); l.End-l.Start >= more; rows++ {
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

// addRows adds the given number of rows, which readRow has read, to the report's counts.
func (f *fastRows) addRows(rows int) {
	f.t.in.Report.Records += f.stored
	f.t.in.Report.LinesUsed += int64(rows)
	f.t.rows += rows
	f.stored = 0
}

// forget forgets the forms of the rows.
func (f *fastRows) forget() { f.forms = [2]rowForm{} }

// readRow reads a row of a known form. If others is true, text contains more rows after this
// one. It returns the length of the row with its line end, or 0 if the row has another form,
// which readLine reads.
func (f *fastRows) readRow(text []byte, others bool) int {
	if f.forms[f.last].run == nil {
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
	rest := text[at:]
	form := &f.forms[f.last]
	if n = form.parse(rest, others, &f.values); n == 0 {
		form = &f.forms[1-f.last]
		if form.run == nil {
			return 0
		}
		if n = form.parse(rest, others, &f.values); n == 0 {
			return 0
		}
		f.last = 1 - f.last
	}
	if epoch == 0 {
		f.t.zeroEpoch = true
	}
	f.stored += int64(len(form.cells))
	for i := range form.cells {
		c, v := &form.cells[i], f.values[i&(maxFastValues-1)]
		c.column.curve.Add(int64(step), v, 0)
		if c.column.epoch == nil {
			continue
		}
		if f.epoch == nil || f.number != epoch || c.of != f.epoch {
			f.findTarget(form, c, epoch)
		}
		*c.target = v
	}
	return at + n
}

// findTarget finds the destination of the value of a cell in an epoch.
func (f *fastRows) findTarget(form *rowForm, c *fastCell, epoch int) {
	if f.epoch == nil || f.number != epoch || f.epochOf != form.run {
		e := f.t.findOrAddEpoch(form.run, -1, epoch+1)
		f.epoch, f.number, f.epochOf = e, epoch, form.run
	}
	c.target, c.of = c.column.epoch(f.epoch), f.epoch
}

// parse parses the values of a row with this form. text begins after the step. It returns the
// length of the row's rest with its line end, or 0 if the row has another form.
func (r *rowForm) parse(text []byte, others bool, values *[maxFastValues]float64) int {
	at := 0
	for i := range r.cells {
		before := &r.cells[i].before
		if !before.matches(text[at:]) {
			return 0
		}
		at += len(before.text)
		v, n := scan.ParseDecimal(text[at:])
		if n == 0 {
			return 0
		}
		values[i&(maxFastValues-1)] = v
		at += n
	}
	if !r.after.matches(text[at:]) {
		return 0
	}
	at += len(r.after.text)
	switch {
	case !others && at == len(text):
		return at
	case others && at < len(text) && text[at] == '\n':
		return at + 1
	}
	return 0
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

// newTextPrefix returns the prefix with the given text.
func newTextPrefix(text []byte) (p textPrefix) {
	p.set(text)
	return p
}

// matches reports whether b begins with the text.
func (p *textPrefix) matches(b []byte) bool {
	if w := b[:cap(b)]; len(w) >= 8 && len(p.text) <= 8 {
		return (binary.LittleEndian.Uint64(w)^p.word)&p.mask == 0 && len(b) >= len(p.text)
	}
	return bytes.HasPrefix(b, p.text)
}

// learn stores the form of the row in t.cells, in place of the one that was not used last.
func (f *fastRows) learn(t *tableReader, good bool, p *rowPlace) {
	if f.t == nil || !good || p.epoch < 1 || p.step < 0 {
		return
	}
	form, last := rowForm{}, 1
	for i := 2; i < len(t.cells); i++ {
		c, cell := &t.columns[i], t.cells[i]
		if len(cell) == 0 {
			continue
		}
		_, n := scan.ParseDecimal(cell)
		if len(form.cells) == maxFastValues || n == 0 || n != len(cell) || c.curve == nil || c.curve.Rank >= 0 || form.run != nil && c.curveOf != form.run {
			return
		}
		form.run = c.curveOf
		form.cells = append(form.cells, fastCell{before: newTextPrefix(bytes.Repeat([]byte{','}, i-last)), column: c})
		last = i
	}
	if form.run == nil {
		return
	}
	form.after = newTextPrefix(bytes.Repeat([]byte{','}, len(t.cells)-1-last))
	f.last = 1 - f.last
	f.forms[f.last] = form
}
