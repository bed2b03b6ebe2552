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

// epochHeader is the first line of epochs.csv.
const epochHeader = "epoch,seconds,samples,padding_samples,samples_per_second,train_loss,val_loss,iou,dice,val_seconds,lr,accuracy,val_accuracy"

// maxLine bounds a line, so that a file that is no text cannot fill memory.
const maxLine = 1 << 20

// unknownNumber is the epoch, or the step, of a line that cannot be read.
const unknownNumber = -1

// epochColumn is a column of epochs.csv: an int or a float of the Epoch.
type epochColumn struct {
	name  string
	count func(*Epoch) *int
	value func(*Epoch) *float64
}

// epochColumns are those of epochHeader, in its order.
func epochColumns() []epochColumn {
	count := func(name string, field func(*Epoch) *int) epochColumn {
		return epochColumn{name: name, count: field}
	}
	value := func(name string, field func(*Epoch) *float64) epochColumn {
		return epochColumn{name: name, value: field}
	}
	return []epochColumn{
		count("epoch", func(e *Epoch) *int { return &e.Epoch }),
		value("seconds", func(e *Epoch) *float64 { return &e.Seconds }),
		count("samples", func(e *Epoch) *int { return &e.Samples }),
		count("padding_samples", func(e *Epoch) *int { return &e.PaddingSamples }),
		value("samples_per_second", func(e *Epoch) *float64 { return &e.SamplesPerSecond }),
		value("train_loss", func(e *Epoch) *float64 { return &e.TrainLoss }),
		value("val_loss", func(e *Epoch) *float64 { return &e.ValLoss }),
		value("iou", func(e *Epoch) *float64 { return &e.IoU }),
		value("dice", func(e *Epoch) *float64 { return &e.Dice }),
		value("val_seconds", func(e *Epoch) *float64 { return &e.ValSeconds }),
		value("lr", func(e *Epoch) *float64 { return &e.LearningRate }),
		value("accuracy", func(e *Epoch) *float64 { return &e.Accuracy }),
		value("val_accuracy", func(e *Epoch) *float64 { return &e.ValAccuracy }),
	}
}

// formatEpoch is the row of e; numbers in the shortest form that reads back
// exactly, NaN as an empty cell.
func formatEpoch(e Epoch) string {
	var cells []string
	for _, c := range epochColumns() {
		switch {
		case c.count != nil:
			cells = append(cells, strconv.Itoa(*c.count(&e)))
		case math.IsNaN(*c.value(&e)):
			cells = append(cells, "")
		default:
			cells = append(cells, strconv.FormatFloat(*c.value(&e), 'g', -1, 64))
		}
	}
	return strings.Join(cells, ",")
}

// epochReader reads epochs.csv a row at a time.
type epochReader struct {
	lines   *lineReader
	columns []epochColumn // by the file's own header; zero for one that we do not know
	foreign bool          // its header has no column epoch
	epoch   Epoch
	last    int // epoch of the row before; unknownNumber where that cannot be read
}

// readEpochs reads what is readable of an epochs.csv; what is not is in the
// problems, by line. An epoch that stands there twice counts as last written.
func readEpochs(r io.Reader, name string) ([]Epoch, []Problem, error) {
	er := &epochReader{lines: newLineReader(r, name)}
	epochs := er.rest(nil)
	return epochs, er.lines.problems, er.lines.err
}

// rest adds to epochs those that follow. A row that does not follow the one before
// it is a problem.
func (r *epochReader) rest(epochs []Epoch) []Epoch {
	for r.next() {
		same := func(e Epoch) bool { return e.Epoch == r.epoch.Epoch }
		if i := slices.IndexFunc(epochs, same); i >= 0 {
			r.lines.problem("epoch %d stands here again; the later row counts", r.epoch.Epoch)
			epochs = slices.Delete(epochs, i, i+1)
		} else if r.last != unknownNumber && r.epoch.Epoch != r.last+1 {
			r.lines.problem("epoch %d follows epoch %d: rows are missing or out of order", r.epoch.Epoch, r.last)
		}
		r.last = r.epoch.Epoch
		epochs = append(epochs, r.epoch)
	}
	return epochs
}

// next reads up to the next good row.
func (r *epochReader) next() bool {
	if r.foreign || r.columns == nil && !r.header() {
		return false
	}
	for r.lines.next() {
		if r.lines.text == "" {
			continue
		}
		if err := r.row(r.lines.text); err != nil {
			r.lines.problem("%v", err)
			r.last = unknownNumber
			continue
		}
		return true
	}
	return false
}

// header reads the first line. Without the column epoch the file is none of
// ours, and no row of it is used.
func (r *epochReader) header() bool {
	if !r.lines.next() {
		return false
	}
	known := epochColumns()
	for _, name := range strings.Split(strings.TrimPrefix(r.lines.text, "\ufeff"), ",") {
		i := slices.IndexFunc(known, func(c epochColumn) bool { return c.name == name })
		if i < 0 {
			r.columns = append(r.columns, epochColumn{}) // a newer writer's: left alone
			continue
		}
		r.columns = append(r.columns, known[i])
	}
	if !slices.ContainsFunc(r.columns, func(c epochColumn) bool { return c.name == "epoch" }) {
		r.lines.problem("expected the header %s, got %.80q; no row of this file is used", epochHeader, r.lines.text)
		r.foreign = true
		return false
	}
	return true
}

// row reads a line into r.epoch.
func (r *epochReader) row(text string) error {
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
	}
	if r.epoch.Epoch < 1 {
		return fmt.Errorf("column epoch: expected 1 or more, got %d", r.epoch.Epoch)
	}
	return nil
}

// lineReader reads whole lines: a last one without its end is torn, because
// its last number may lack digits, and is reported instead of returned.
type lineReader struct {
	r        *bufio.Reader
	name     string
	line     int
	raw      []byte // the line with its end, until the next one is read
	text     string // the line without its end
	long     []byte // room for lines longer than r's buffer
	problems []Problem
	err      error // of reading, not of what was read
}

func newLineReader(r io.Reader, name string) *lineReader {
	l := &lineReader{r: bufio.NewReaderSize(r, 1<<16), name: name}
	if r == nil { // of a reader that gets the text in parts
		return l
	}
	if text, encoding := plaintext.Reader(l.r); encoding != "" {
		l.r = bufio.NewReaderSize(text, 1<<16)
	}
	return l
}

// next reads a line into text.
func (l *lineReader) next() bool {
	if !l.nextLine() {
		return false
	}
	l.text = strings.TrimSuffix(strings.TrimSuffix(string(l.raw), "\n"), "\r")
	return true
}

// nextLine reads a line into raw, without a copy where it is not long.
func (l *lineReader) nextLine() bool {
	l.long = l.long[:0]
	for l.err == nil {
		part, err := l.r.ReadSlice('\n')
		if len(l.long) > 0 || err != nil {
			if len(l.long) <= maxLine {
				l.long = append(l.long, part...)
			}
			part = l.long
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil:
			l.line++
			if len(part) > maxLine {
				l.problem("line is longer than %d bytes", maxLine)
				l.long = l.long[:0]
				continue
			}
			l.raw = part
			return true
		case errors.Is(err, io.EOF):
			if len(part) > 0 {
				l.line++
				if kept := bytes.TrimRight(part, "\x00"); len(kept) < len(part) {
					l.problem("it ends with %d NUL bytes, as a power cut leaves them; last line: %.80q", len(part)-len(kept), kept)
				} else {
					l.problem("last line is torn: %.80q", part)
				}
			}
			return false
		default:
			l.err = fmt.Errorf("read %s after line %d: %w", l.name, l.line, err)
		}
	}
	return false
}

// problem reports the current line.
func (l *lineReader) problem(format string, a ...any) {
	l.problems = append(l.problems, Problem{File: l.name, Line: l.line, Reason: fmt.Sprintf(format, a...)})
}
