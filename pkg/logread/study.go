package logread

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
)

// The CSV logs of the U-Net scaling study, as pandas wrote them: a nameless
// index column, numbers as %.6f, a row an epoch, and the run's own numbers
// (training_time, test_time, iou: seconds, seconds, over the test set)
// repeated on each row.
//
// Three defects occur in them: a file that holds only "" (the run wrote
// nothing), a header torn by two writers (line 1 is "", line 2 the tail of the
// header, good rows after it), and an empty cell for NaN.

// TrainingSeconds is the key of Info.Config under which the seconds of the
// whole training stand, where a log tells them.
const TrainingSeconds = "training_seconds"

// studyHeaders are the headers that occur.
func studyHeaders() []string {
	return []string{
		",time_per_epoch,loss,lr,training_time,test_time,iou",
		",time_per_epoch,loss,val_loss,lr,training_time,test_time,iou",
		",loss,val_loss,lr,training_time,test_time,iou",
		",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks",
	}
}

// studyEmpty is line 1 of the defective files.
const studyEmpty = `""`

// studyName is a file's name: log_4.csv, log_hvd_4.csv, log_g4_r2.csv.
type studyName struct {
	series  string // native or horovod
	workers int
	repeat  int // 0 where the name has none
}

// parseStudyName reads the base name of path.
func parseStudyName(path string) (studyName, bool) {
	m := regexp.MustCompile(`^log_(hvd_)?(?:g(\d+)_r(\d+)|(\d+))\.csv$`).FindStringSubmatch(filepath.Base(uncompressedName(path)))
	if m == nil {
		return studyName{}, false
	}
	n := studyName{series: "native"}
	if m[1] != "" {
		n.series = "horovod"
	}
	var err, repeatErr error
	n.workers, err = strconv.Atoi(m[2] + m[4])
	if m[3] != "" {
		n.repeat, repeatErr = strconv.Atoi(m[3])
	}
	return n, err == nil && repeatErr == nil && n.workers > 0
}

// studyKind is the kind's name.
const studyKind = "study CSV"

// isStudy says whether the file has one of the headers, or the name together
// with something that could be a damaged one.
func isStudy(path string, head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if slices.Contains(studyHeaders(), strings.TrimRight(string(first), "\r")) {
		return true
	}
	_, named := parseStudyName(path)
	return named
}

// readStudy reads a file of the study into a run.
func readStudy(_ context.Context, in *input) ([]*part, error) {
	sr := &studyReader{l: newLines(in.r, in.size), in: in}
	run := runs.Run{}
	last := 0
	sorted := true
	for sr.Next() {
		if n := len(run.Epochs); n == cap(run.Epochs) {
			run.Epochs = slices.Grow(run.Epochs, sr.l.room(n))
		}
		run.Epochs = append(run.Epochs, unmeasured(int(sr.row[0])+1, sr.l.number)) // the index counts from 0
		e := &run.Epochs[len(run.Epochs)-1]
		sr.set(e)
		sorted = sorted && e.Epoch > last
		last = e.Epoch
	}
	if !sorted {
		run.Epochs = laterRows(in, run.Epochs)
	}
	in.report.Lines, in.report.Records = int64(sr.l.number), int64(len(run.Epochs))
	if len(run.Epochs) == 0 {
		if len(in.report.Unused) == 0 {
			in.problem(0, "the file has a header and no epochs")
		}
		return nil, sr.Err()
	}
	name, _ := parseStudyName(in.path)
	if ranks := sr.last("ranks"); whole(ranks) {
		if name.workers > 0 && name.workers != int(ranks) {
			in.problem(0, "the name says %d workers, the column ranks %d; the column counts", name.workers, int(ranks))
		}
		run.Info.Workers = int(ranks)
	} else if name.workers > 0 {
		run.Info.Workers = name.workers
		in.report.assume("%d workers: from the name", name.workers)
	}
	if name.series != "" {
		in.report.assume("series %s: from the name", name.series)
	}
	run.Info.Series, run.Info.Seed = name.series, int64(name.repeat)
	run.Info.Status, run.Info.Config = runs.StatusDone, map[string]any{}
	for column, key := range map[string]string{
		"training_time": TrainingSeconds, "test_time": "test_seconds", "accuracy": "accuracy", "val_accuracy": "val_accuracy",
	} {
		if v := sr.last(column); !math.IsNaN(v) {
			run.Info.Config[key] = v
		}
	}
	if slices.Contains(sr.columns, "iou") {
		nan := math.NaN()
		run.Info.Test = &runs.Test{
			IoU: sr.last("iou"), Seconds: sr.last("test_time"),
			Loss: nan, Dice: nan, IoUConstant: nan, DiceConstant: nan, IoUUntrained: nan, DiceUntrained: nan,
		}
	}
	return []*part{{run: run, role: principal, seedTold: name.repeat > 0}}, sr.Err()
}

// laterRows leaves out the rows of epochs that stand there again further down.
func laterRows(in *input, epochs []runs.Epoch) []runs.Epoch {
	at := make(map[int]int, len(epochs))
	for i, e := range epochs {
		if first, again := at[e.Epoch]; again {
			in.problem(e.Line, "row %d stands here again; the later one counts", e.Epoch-1)
			epochs[first].Epoch = 0
		}
		at[e.Epoch] = i
	}
	slices.SortStableFunc(in.report.Unused, func(a, b runs.Problem) int { return a.Line - b.Line })
	return slices.DeleteFunc(epochs, func(e runs.Epoch) bool { return e.Epoch == 0 })
}

// studyReader reads a file of the study row by row.
type studyReader struct {
	l       *lines
	in      *input
	columns []string  // nil before the header
	fields  [6]int    // columns of what set sets
	row     []float64 // of the last good row, by column
	next    []float64 // room for the row that is read
	run     int       // the first column of the run's own numbers, the same on each row
	told    []byte    // their text in the last good row
	done    bool
}

// Next reads up to the next good row, which is then s.row.
func (s *studyReader) Next() bool {
	for !s.done {
		text, ok := s.l.next()
		if !ok {
			if s.columns == nil && s.l.number < 2 {
				s.in.problem(1, "the file holds no table: the run wrote nothing")
			}
			return false
		}
		switch {
		case s.l.cut:
			s.in.problem(s.l.number, "line is longer than %d bytes", maxLine)
			s.done = s.columns == nil
		case s.columns == nil:
			s.header(string(text))
		case len(text) == 0:
			s.in.report.ignore(s.l.number, blankLine)
		default:
			if err := s.parse(text, s.l.ended); err != nil {
				s.in.problem(s.l.number, "%v", err)
				continue
			}
			s.in.report.LinesUsed++
			return true
		}
	}
	return false
}

// blankLine is the reason for which an empty line is ignored.
const blankLine = "blank"

// Err is an error of reading, not of what was read (see problems).
func (s *studyReader) Err() error {
	if s.l.err != nil {
		return fmt.Errorf("read %s after line %d: %w", s.in.path, s.l.number, s.l.err)
	}
	return nil
}

// header reads line 1, or line 2 of a file whose line 1 is "".
func (s *studyReader) header(text string) {
	line := s.l.number
	switch {
	case line == 1 && text == studyEmpty:
		s.in.report.ignore(1, `"", as a writer that failed leaves it`)
		return // the tail of the header may follow
	case slices.Contains(studyHeaders(), text):
		s.columns = strings.Split(text, ",")
		s.setFields()
		s.in.report.LinesUsed++
		return
	case line == 2 && text != "":
		var found []string
		for _, h := range studyHeaders() {
			// Of two headers with the same tail nothing says which it was.
			if strings.HasSuffix(h, text) {
				found = append(found, h)
			}
		}
		if len(found) == 1 {
			s.columns = strings.Split(found[0], ",")
			s.setFields()
			s.in.problem(2, "the header is torn: %q is taken for the end of %q", text, found[0])
			return
		}
	}
	s.in.problem(line, "expected a header such as %q, got %.80q; no row of this file is used", studyHeaders()[0], text)
	s.done = true
}

// parse reads the cells of a row; an empty one is NaN.
func (s *studyReader) parse(text []byte, ended bool) error {
	if !ended {
		// The form %.6f shows whether a last line without its end is whole.
		last := text[bytes.LastIndexByte(text, ',')+1:]
		if dot := bytes.IndexByte(last, '.'); bytes.Count(text, []byte{','})+1 == len(s.columns) && (dot < 0 || len(last)-dot-1 != 6) {
			return fmt.Errorf("last line is torn: %.80q", text)
		}
	}
	s.next = s.next[:0]
	rest, told := text, []byte(nil)
	for i := range s.columns {
		if i == s.run {
			if told = rest; s.row != nil && bytes.Equal(told, s.told) {
				s.next = append(s.next, s.row[i:]...)
				break
			}
		}
		v, n := decimal(rest)
		if n == 0 || n < len(rest) && rest[n] != ',' {
			if n = bytes.IndexByte(rest, ','); n < 0 {
				n = len(rest)
			}
			v = math.NaN()
			var ok bool
			if n > 0 || i == 0 {
				if v, ok = parseFloat(rest[:n]); !ok {
					if got := bytes.Count(text, []byte{','}) + 1; got != len(s.columns) {
						return fmt.Errorf("expected %d cells, got %d: %.80q", len(s.columns), got, text)
					}
					return fmt.Errorf("column %q: expected a number, got %.40q", s.columns[i], rest[:n])
				}
			}
		}
		if i == 0 && (v < 0 || v > 1<<30 || v != math.Trunc(v)) {
			return fmt.Errorf("index column: expected 0, 1, 2, …, got %.40q", rest[:n])
		}
		s.next = append(s.next, v)
		if end := n == len(rest); end != (i == len(s.columns)-1) {
			return fmt.Errorf("expected %d cells, got %d: %.80q", len(s.columns), bytes.Count(text, []byte{','})+1, text)
		} else if !end {
			rest = rest[n+1:]
		}
	}
	s.row, s.next = s.next, s.row
	s.told = append(s.told[:0], told...)
	return nil
}

// set sets the values of an epoch to those of the current row.
func (s *studyReader) set(e *runs.Epoch) {
	for i, to := range [...]*float64{&e.Seconds, &e.TrainLoss, &e.ValLoss, &e.LearningRate, &e.Accuracy, &e.ValAccuracy} {
		if k := s.fields[i]; k > 0 {
			*to = s.row[k]
		}
	}
	if e.Seconds <= 0 {
		s.in.problem(s.l.number, "an epoch of %g s: the clock was set while it ran; its time is not used", e.Seconds)
		e.Seconds = math.NaN()
	}
}

// setFields finds the columns of an epoch's values, and those of the run.
func (s *studyReader) setFields() {
	s.run = slices.Index(s.columns, "training_time")
	for i, name := range [...]string{"time_per_epoch", "loss", "val_loss", "lr", "accuracy", "val_accuracy"} {
		s.fields[i] = slices.Index(s.columns, name)
	}
}

// last is a column's value in the last good row, NaN where there is none.
func (s *studyReader) last(column string) float64 {
	i := slices.Index(s.columns, column)
	if i < 1 || s.row == nil {
		return math.NaN()
	}
	return s.row[i]
}
