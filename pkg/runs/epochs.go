package runs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/plaintext"
)

const epochFileHeader = "epoch,seconds,samples,padding_samples,samples_per_second,train_loss,val_loss,iou,dice,val_seconds,lr,accuracy,val_accuracy"

// maxLineBytes limits the length of a line in bytes, so that no file can fill the memory.
const maxLineBytes = 1 << 20

// unknownEpochOrStep is the epoch or step of a line that cannot be read.
const unknownEpochOrStep = -1

// epochColumn is a column of epochs.csv. Either count or value is set; it returns a pointer to the
// column's field of an Epoch.
type epochColumn struct {
	name  string
	count func(*Epoch) *int
	value func(*Epoch) *float64
}

func epochColumns() []epochColumn {
	return []epochColumn{
		{name: "epoch", count: func(e *Epoch) *int { return &e.Epoch }},
		{name: "seconds", value: func(e *Epoch) *float64 { return &e.Seconds }},
		{name: "samples", count: func(e *Epoch) *int { return &e.Samples }},
		{name: "padding_samples", count: func(e *Epoch) *int { return &e.PaddingSamples }},
		{name: "samples_per_second", value: func(e *Epoch) *float64 { return &e.SamplesPerSecond }},
		{name: "train_loss", value: func(e *Epoch) *float64 { return &e.TrainLoss }},
		{name: "val_loss", value: func(e *Epoch) *float64 { return &e.ValLoss }},
		{name: "iou", value: func(e *Epoch) *float64 { return &e.IoU }},
		{name: "dice", value: func(e *Epoch) *float64 { return &e.Dice }},
		{name: "val_seconds", value: func(e *Epoch) *float64 { return &e.ValSeconds }},
		{name: "lr", value: func(e *Epoch) *float64 { return &e.LearningRate }},
		{name: "accuracy", value: func(e *Epoch) *float64 { return &e.Accuracy }},
		{name: "val_accuracy", value: func(e *Epoch) *float64 { return &e.ValAccuracy }},
	}
}

// formatEpoch returns e as a row of epochs.csv without line end. Numbers have the shortest form
// that reads back exactly; NaN is an empty cell.
func formatEpoch(e Epoch) string {
	var cells []string
	for _, c := range epochColumns() {
		if c.count != nil {
			cells = append(cells, strconv.Itoa(*c.count(&e)))
		} else {
			cells = append(cells, formatCell(*c.value(&e)))
		}
	}
	return strings.Join(cells, ",")
}

func formatCell(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

type epochReader struct {
	lines   *lineReader
	columns []epochColumn // of the file's header; the zero epochColumn for an unknown column
	foreign bool          // whether the header has no column epoch
	epoch   Epoch
	last    int // epoch of the previous row; unknownEpochOrStep if that row cannot be read
}

// readEpochs reads the rows of an epochs.csv. Rows that cannot be read become problems. If an epoch
// has several rows, the last one counts.
func readEpochs(r io.Reader, name string) ([]Epoch, []Problem, error) {
	er := &epochReader{lines: newLineReader(r, name)}
	epochs := er.appendRows(nil)
	return epochs, er.lines.problems, er.lines.err
}

// appendRows appends the remaining rows to epochs. A row that does not follow the previous epoch is
// a problem.
func (r *epochReader) appendRows(epochs []Epoch) []Epoch {
	for r.next() {
		same := func(e Epoch) bool { return e.Epoch == r.epoch.Epoch }
		if i := slices.IndexFunc(epochs, same); i >= 0 {
			r.lines.addProblem("duplicate epoch %d: the later row counts", r.epoch.Epoch)
			epochs = slices.Delete(epochs, i, i+1)
		} else if r.last != unknownEpochOrStep && r.epoch.Epoch != r.last+1 {
			r.lines.addProblem("epoch %d follows epoch %d: rows are missing or out of order", r.epoch.Epoch, r.last)
		}
		r.last = r.epoch.Epoch
		epochs = append(epochs, r.epoch)
	}
	return epochs
}

func (r *epochReader) next() bool {
	if r.foreign || r.columns == nil && !r.readHeader() {
		return false
	}
	for r.lines.next() {
		if r.lines.text == "" {
			continue
		}
		if err := r.parseRow(r.lines.text); err != nil {
			r.lines.addProblem("%v", err)
			r.last = unknownEpochOrStep
			continue
		}
		r.removeInvalidTimes()
		return true
	}
	return false
}

// removeInvalidTimes removes negative and infinite times and rates from r.epoch, and reports each as a
// problem. parseRow reports NaN.
func (r *epochReader) removeInvalidTimes() {
	for _, c := range r.columns {
		if !c.isTime() {
			continue
		}
		if v := c.value(&r.epoch); *v < 0 || math.IsInf(*v, 0) {
			r.lines.addProblem("column %s: got %g, which is no possible value; it is not used", c.name, *v)
			*v = math.NaN()
		}
	}
}

func (c epochColumn) isTime() bool {
	return c.value != nil && (strings.HasSuffix(c.name, "seconds") || c.name == "samples_per_second")
}

// readHeader reads the first line into r.columns. It returns false if the file is empty or has no
// column epoch: then another program wrote it, and no row is used.
func (r *epochReader) readHeader() bool {
	if !r.lines.next() {
		return false
	}
	known := epochColumns()
	for _, name := range strings.Split(strings.TrimPrefix(r.lines.text, "\ufeff"), ",") {
		i := slices.IndexFunc(known, func(c epochColumn) bool { return c.name == name })
		if i < 0 {
			r.columns = append(r.columns, epochColumn{}) // written by a newer version: ignored
			continue
		}
		r.columns = append(r.columns, known[i])
	}
	if !slices.ContainsFunc(r.columns, func(c epochColumn) bool { return c.name == "epoch" }) {
		r.lines.addProblem("expected the header %s, got %.80q; no row of this file is used", epochFileHeader, r.lines.text)
		r.foreign = true
		return false
	}
	return true
}

func (r *epochReader) parseRow(text string) error {
	nan := math.NaN()
	r.epoch = Epoch{
		Seconds: nan, SamplesPerSecond: nan, TrainLoss: nan, ValLoss: nan,
		IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		Line: r.lines.line,
	}
	cells := strings.Split(text, ",")
	if len(cells) != len(r.columns) {
		return fmt.Errorf("expected %d cells, got %d", len(r.columns), len(cells))
	}
	for i, c := range r.columns {
		var err error
		switch {
		case c.count != nil:
			*c.count(&r.epoch), err = strconv.Atoi(cells[i])
		case c.value != nil && cells[i] != "":
			*c.value(&r.epoch), err = strconv.ParseFloat(cells[i], 64)
		}
		if err != nil {
			return fmt.Errorf("column %s: expected a number, got %.40q", c.name, cells[i])
		}
		if c.isTime() && cells[i] != "" && math.IsNaN(*c.value(&r.epoch)) {
			r.lines.addProblem("column %s: got %.40q, which is no possible value; it is not used", c.name, cells[i])
		}
	}
	if r.epoch.Epoch < 1 {
		return fmt.Errorf("column epoch: expected 1 or more, got %d", r.epoch.Epoch)
	}
	return nil
}

// lineReader reads complete lines. If the last line has no line end, digits of its last number may
// be missing. lineReader then reports a problem instead of returning the line.
type lineReader struct {
	r        *bufio.Reader
	name     string
	line     int
	raw      []byte // the line with its line end, valid until the next line is read
	text     string // the line without its line end
	long     []byte // buffer for lines longer than r's buffer
	problems []Problem
	err      error // error of the underlying reader; faults in the text are problems
}

// newLineReader returns a lineReader of r. name is the file's name in problems. If r is nil, the
// caller sets the field r before it reads.
func newLineReader(r io.Reader, name string) *lineReader {
	l := &lineReader{r: bufio.NewReaderSize(r, 1<<16), name: name}
	if r == nil {
		return l
	}
	if text, encoding := plaintext.NewReader(l.r); encoding != "" {
		l.r = bufio.NewReaderSize(text, 1<<16)
	}
	return l
}

func (l *lineReader) next() bool {
	if !l.nextLine() {
		return false
	}
	l.text = strings.TrimSuffix(strings.TrimSuffix(string(l.raw), "\n"), "\r")
	return true
}

// nextLine reads the next line into l.raw, and reports whether there is one. It copies only lines
// that are longer than the buffer.
func (l *lineReader) nextLine() bool {
	l.long = l.long[:0]
	for l.err == nil {
		part, err := l.r.ReadSlice('\n')
		if len(l.long) > 0 || err != nil {
			if len(l.long) <= maxLineBytes {
				l.long = append(l.long, part...)
			}
			part = l.long
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil:
			l.line++
			if len(part) > maxLineBytes {
				l.addProblem("line is longer than %d bytes", maxLineBytes)
				l.long = l.long[:0]
				continue
			}
			l.raw = part
			return true
		case errors.Is(err, io.EOF):
			if len(part) > 0 {
				l.line++
				if kept := bytes.TrimRight(part, "\x00"); len(kept) < len(part) {
					l.addProblem("file ends with %d NUL bytes, as after a power cut; last line: %.80q", len(part)-len(kept), kept)
				} else {
					l.addProblem("last line is torn: %.80q", part)
				}
			}
			return false
		default:
			l.err = fmt.Errorf("read %s after line %d: %w", l.name, l.line, err)
		}
	}
	return false
}

func (l *lineReader) addProblem(format string, a ...any) {
	l.problems = append(l.problems, Problem{File: l.name, Line: l.line, Reason: fmt.Sprintf(format, a...)})
}
