package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// lightningKind is the name of the format of Lightning's CSVLogger, which
// writes a row each time something is logged, with most cells empty. The
// columns epoch and step count from 0.
//
//	epoch,step,train_loss,val_acc,val_f1,val_loss
//	1,49,0.8741154670715332,,,
//	1,49,,0.52,0.48,0.91
const lightningKind = "Lightning metrics"

// isLightning reports whether the first line of head contains the columns epoch
// and step.
func isLightning(_ string, head []byte) bool {
	first, _, ok := bytes.Cut(head, []byte("\n"))
	if !ok || len(first) > 2000 {
		return false
	}
	columns := strings.Split(strings.TrimRight(string(first), "\r"), ",")
	return slices.Contains(columns, "epoch") && slices.Contains(columns, "step") && len(columns) > 2
}

// lightningColumn is a column of the table and the destination of its values.
type lightningColumn struct {
	name  string
	curve *record.Curve
	epoch func(*runs.Epoch) *float64 // field of an epoch; nil if the values only belong to the curve
}

// lightningField returns the field of an epoch that a column sets, or nil.
// Users choose the names of the columns, so only common names are recognized.
func lightningField(name string) (field func(*runs.Epoch) *float64) {
	name = strings.ToLower(strings.ReplaceAll(name, "/", "_"))
	name = strings.TrimSuffix(name, "_epoch")
	if strings.HasSuffix(name, "_step") {
		return nil
	}
	switch name {
	case "train_loss", "loss", "training_loss":
		field = func(e *runs.Epoch) *float64 { return &e.TrainLoss }
	case "val_loss", "valid_loss", "validation_loss":
		field = func(e *runs.Epoch) *float64 { return &e.ValLoss }
	case "train_acc", "train_accuracy", "acc", "accuracy":
		field = func(e *runs.Epoch) *float64 { return &e.Accuracy }
	case "val_acc", "val_accuracy", "valid_acc":
		field = func(e *runs.Epoch) *float64 { return &e.ValAccuracy }
	case "val_iou", "iou", "val_jaccard":
		field = func(e *runs.Epoch) *float64 { return &e.IoU }
	case "val_dice", "dice":
		field = func(e *runs.Epoch) *float64 { return &e.Dice }
	case "epoch_time", "epoch_seconds", "time_per", "train_time", "train_epoch_time":
		field = func(e *runs.Epoch) *float64 { return &e.Seconds }
	case "lr", "learning_rate", "lr-adam", "lr-sgd", "lr-adamw":
		field = func(e *runs.Epoch) *float64 { return &e.LearningRate }
	case "samples_per_second", "throughput", "train_throughput":
		field = func(e *runs.Epoch) *float64 { return &e.SamplesPerSecond }
	}
	return field
}

// maxColumns is the maximum number of columns that are read.
const maxColumns = 1000

// readLightning reads a table of Lightning's CSVLogger.
func readLightning(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	l := scan.NewLineReader(in.Reader, in.Size)
	r := &lightningReader{in: in, l: l, epochs: record.NewRankEpochs()}
	for {
		line, ok := l.Next()
		if !ok {
			break
		}
		if l.Number&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		in.Report.Lines++
		if l.Ended && r.readFastRow(line, false) > 0 {
			r.addRowCounts(1)
			r.readFastRows()
		} else {
			r.readLine(line)
		}
	}
	if l.Err != nil {
		return nil, fmt.Errorf("read %s after line %d: %w", in.Path, l.Number, l.Err)
	}
	return r.finish(), nil
}

// readLine reads a line: the header or a row of any form.
func (r *lightningReader) readLine(line []byte) {
	in, l := r.in, r.l
	switch {
	case l.TooLong:
		in.AddProblem(l.Number, "line is longer than %d bytes", scan.MaxLine)
	case r.columns == nil:
		r.readHeader(string(line))
		in.Report.LinesUsed++
	case len(line) == 0:
		in.Report.AddIgnored(l.Number, record.ReasonBlank)
	case !l.Ended:
		in.AddProblem(l.Number, "last line is torn: %.80q", line)
	default:
		r.readRow(l.Number, line)
	}
}

// lightningReader reads a table row by row.
type lightningReader struct {
	in          *record.Input
	l           *scan.LineReader
	columns     []lightningColumn
	epoch, step int // indexes of these columns; -1 if missing
	epochs      *record.RankEpochs
	cells       []lightningCell // of the current row
	rows        int
	// The form of the last row with a single value besides epoch and step: the
	// text before and after the value, and the value's column. The column is 0
	// if no row had a single value.
	before, after textPrefix
	column        int
	cell          textPrefix // the epoch cell of the previous row, with its comma
	cellEpoch     int        // the number in cell
	target        *float64   // destination of the column's values for targetEpoch; nil if not known yet
	targetEpoch   int
}

// readHeader reads the names of the columns.
func (r *lightningReader) readHeader(text string) {
	r.epoch, r.step = -1, -1
	names := strings.Split(text, ",")
	if len(names) > maxColumns {
		r.in.AddProblem(1, "the table has %d columns; only the first %d are used", len(names), maxColumns)
	}
	for i, name := range names {
		c := lightningColumn{name: name}
		switch {
		case name == "epoch":
			r.epoch = i
		case name == "step":
			r.step = i
		case name != "" && i < maxColumns:
			c.curve = record.NewCurve(name, -1, false)
			c.epoch = lightningField(name)
		}
		r.columns = append(r.columns, c)
	}
}

// maxFastRowBytes is larger than the total length in bytes of the epoch, the
// step and the value in a row of the usual form.
const maxFastRowBytes = 64

// readFastRows reads the following rows in the buffer as long as they have the
// form of the previous row.
func (r *lightningReader) readFastRows() {
	l, rows := r.l, 0
	for more := maxFastRowBytes + len(r.before.text) + len(r.after.text); l.End-l.Start >= more; rows++ {
		l.Number++
		n := r.readFastRow(l.Buf[l.Start:l.End], true)
		if n == 0 {
			l.Number--
			break
		}
		l.Start += n
	}
	r.in.Report.Lines += int64(rows)
	r.addRowCounts(rows)
}

// addRowCounts adds the given number of rows, which have one value each, to the
// report's counts.
func (r *lightningReader) addRowCounts(rows int) {
	r.in.Report.Records += int64(rows)
	r.in.Report.LinesUsed += int64(rows)
	r.rows += rows
}

// readFastRow is the fast path for a row that begins with epoch and step and
// has its single value in the same column as the last such row. Nearly all rows
// have this form. If others is true, text contains more rows after this one. It
// returns the length of the row with its line end, or 0 if the row has another
// form, which readRow reads.
func (r *lightningReader) readFastRow(text []byte, others bool) int {
	if r.column == 0 {
		return 0
	}
	epoch, at := r.cellEpoch, len(r.cell.text)
	if at == 0 || !r.cell.matches(text) { // usually the same as in the previous row
		v, n := scan.ParseShortInteger(text)
		if n == 0 || n == len(text) || text[n] != ',' {
			return 0
		}
		epoch, at = v, n+1
		r.cellEpoch = epoch
		r.cell.set(text[:at])
	}
	step, n := scan.ParseLongInteger(text[at:])
	if at += n; n == 0 {
		return 0
	}
	if !r.before.matches(text[at:]) {
		return 0
	}
	at += len(r.before.text)
	v, n := scan.ParseDecimal(text[at:])
	if at += n; n == 0 {
		return 0
	}
	if !r.after.matches(text[at:]) {
		return 0
	}
	at += len(r.after.text)
	switch {
	case !others && at == len(text):
	case others && at < len(text) && text[at] == '\n':
		at++
	default:
		return 0
	}
	c := &r.columns[r.column]
	c.curve.Add(int64(step), v, 0)
	if c.epoch != nil {
		if r.target == nil || r.targetEpoch != epoch {
			r.target, r.targetEpoch = c.epoch(r.findOrAddEpoch(epoch)), epoch
		}
		*r.target = v
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

// learnRowForm stores the form of a row whose single value is in the given
// column, for readFastRow.
func (r *lightningReader) learnRowForm(text []byte, column int) {
	r.column = 0
	second := bytes.IndexByte(text, ',') + 1
	second += bytes.IndexByte(text[second:], ',') // before the third cell
	from := second
	for from < len(text) && text[from] == ',' {
		from++
	}
	_, n := scan.ParseDecimal(text[from:])
	if r.epoch != 0 || r.step != 1 || n == 0 || from-second != column-1 {
		return
	}
	r.before.set(text[second:from])
	r.after.set(text[from+n:])
	r.column, r.target = column, nil
}

// addValue adds the value of a cell to its curve and, if the column describes
// epochs, to its epoch. A negative epoch or step means that it is unknown.
func (r *lightningReader) addValue(c *lightningColumn, epoch, step int, v float64) {
	c.curve.Add(int64(max(step, 0)), v, 0)
	r.in.Report.Records++
	if c.epoch != nil && epoch >= 0 {
		*c.epoch(r.findOrAddEpoch(epoch)) = v
	}
}

// readRow reads a row of any form. Its values belong to the epoch and step in
// the row.
func (r *lightningReader) readRow(line int, text []byte) {
	r.cells = r.cells[:0]
	epoch, step := -1, -1
	rest := text
	last := len(r.columns) - 1
	for i := range r.columns {
		if len(rest) > 0 && rest[0] == ',' && i < last { // most cells are empty
			rest = rest[1:]
			continue
		}
		v, n := scan.ParseDecimal(rest)
		if n == 0 && len(rest) > 0 || n < len(rest) && rest[n] != ',' {
			if n = bytes.IndexByte(rest, ','); n < 0 {
				n = len(rest)
			}
			v = 0
			if n > 0 {
				var ok bool
				if v, ok = scan.ParseFloat(rest[:n]); !ok {
					r.in.AddProblem(line, "column %q: expected a number, got %.40q", r.columns[i].name, rest[:n])
					return
				}
			}
		}
		switch {
		case n == 0:
		case i != r.epoch && i != r.step:
			r.cells = append(r.cells, lightningCell{i, v})
		case !(v >= 0 && v < 1<<53) || v != float64(int64(v)) || i == r.epoch && v >= 1<<31:
			r.in.AddProblem(line, "column %q: expected 0, 1, 2, …, got %.40q", r.columns[i].name, rest[:n])
			return
		case i == r.epoch:
			epoch = int(v)
		default:
			step = int(v)
		}
		if end := n == len(rest); end != (i == last) {
			r.in.AddProblem(line, "expected %d cells, got %d: %.80q", len(r.columns), bytes.Count(text, []byte{','})+1, text)
			return
		} else if !end {
			rest = rest[n+1:]
		}
	}
	good := false
	for _, cell := range r.cells {
		c := &r.columns[cell.column]
		if c.curve == nil {
			continue
		}
		good = true
		r.addValue(c, epoch, step, cell.v)
	}
	if good && len(r.cells) == 1 && epoch >= 0 && step >= 0 {
		r.learnRowForm(text, r.cells[0].column)
	}
	if good {
		r.in.Report.LinesUsed++
		r.rows++
	} else {
		r.in.Report.AddIgnored(line, "a row without a value")
	}
}

// lightningCell is the value of a cell that is not empty.
type lightningCell struct {
	column int
	v      float64
}

// findOrAddEpoch returns epoch n, counted from 0, and adds it if it is new.
func (r *lightningReader) findOrAddEpoch(n int) *runs.Epoch {
	if e := r.epochs.Find(n + 1); e != nil {
		return e
	}
	r.target = nil // adding may move the other epochs
	return r.epochs.Add(n+1, r.l)
}

// finish returns the run that the table describes, or nil if it has no values.
func (r *lightningReader) finish() []*record.Part {
	if r.rows == 0 {
		if len(r.in.Report.Unused) == 0 {
			r.in.AddProblem(0, "the file has a header but no values")
		}
		return nil
	}
	var run runs.Run
	run.Epochs = r.epochs.Epochs
	if !slices.IsSortedFunc(run.Epochs, record.CompareEpochs) {
		slices.SortFunc(run.Epochs, record.CompareEpochs)
	}
	if len(run.Epochs) > 0 {
		r.in.Report.AddAssumption("if a value was logged several times in an epoch, the last one counts; Lightning counts epochs from 0, here they count from 1")
	}
	for _, c := range r.columns {
		if c.curve != nil && c.curve.Points > 0 {
			run.Curves = append(run.Curves, c.curve.Finish(r.in.Report))
		}
	}
	return []*record.Part{{Run: run, Role: record.Principal}}
}
