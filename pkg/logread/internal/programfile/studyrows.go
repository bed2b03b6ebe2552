package programfile

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// findHeader reads lines until it has read the header.
func (s *studyReader) findHeader() {
	for s.columns == nil && !s.done {
		text, ok := s.l.Next()
		if !ok {
			return
		}
		if s.l.TooLong {
			s.in.AddProblem(s.l.Number, "line is longer than %d bytes", scan.MaxLine)
			s.ignoreRest()
			return
		}
		s.readHeader(string(text))
	}
}

// nextRow reads up to the next good row and stores it in s.row. It returns
// false at the end.
func (s *studyReader) nextRow() bool {
	s.findHeader()
	for !s.done {
		text, ok := s.l.Next()
		if !ok {
			if s.columns == nil && s.l.Number < 2 {
				s.in.AddProblem(1, "the file contains no table: the run wrote nothing")
			}
			return false
		}
		switch {
		case s.l.TooLong:
			s.in.AddProblem(s.l.Number, "line is longer than %d bytes", scan.MaxLine)
		case len(text) == 0:
			s.in.Report.AddIgnored(s.l.Number, record.ReasonBlank)
		default:
			if err := s.readRow(text, s.l.Ended); err != nil {
				s.in.AddProblem(s.l.Number, "%v", err)
				continue
			}
			s.in.Report.LinesUsed++
			return true
		}
	}
	return false
}

// readHeader reads the header: line 1, or line 2 if line 1 is "".
func (s *studyReader) readHeader(text string) {
	line := s.l.Number
	switch {
	case line == 1 && text == emptyStudyHeader:
		s.in.Report.AddIgnored(1, `"" from a writer that failed`)
		return // the end of the header may follow
	case slices.Contains(studyHeaders(), text):
		s.columns = strings.Split(text, ",")
		s.findColumns()
		s.in.Report.LinesUsed++
		return
	case line == 2 && text != "":
		var found []string
		for _, h := range studyHeaders() {
			// If two headers have the same end, the header stays unknown.
			if strings.HasSuffix(h, text) {
				found = append(found, h)
			}
		}
		if len(found) == 1 {
			s.columns = strings.Split(found[0], ",")
			s.findColumns()
			s.in.AddProblem(2, "the header is torn: %q is taken as the end of %q", text, found[0])
			return
		}
	}
	s.in.AddProblem(line, "expected a header such as %q, got %.80q; no row of this file is used", studyHeaders()[0], text)
	s.ignoreRest()
}

// ignoreRest ignores all further lines, since the header is unusable.
func (s *studyReader) ignoreRest() {
	s.done = true
	for _, ok := s.l.Next(); ok; _, ok = s.l.Next() {
		s.in.Report.AddIgnored(s.l.Number, "below an unusable header")
	}
}

// readRow reads a row. An empty cell becomes NaN. ended states
// whether the line ended with a newline.
func (s *studyReader) readRow(text []byte, ended bool) error {
	if !ended {
		// The format %.6f shows whether a last line without its end is
		// complete.
		last := text[bytes.LastIndexByte(text, ',')+1:]
		if dot := bytes.IndexByte(last, '.'); bytes.Count(text, []byte{','})+1 == len(s.columns) && (dot < 0 || len(last)-dot-1 != 6) {
			return fmt.Errorf("last line is torn: %.80q", text)
		}
	}
	s.next = s.next[:0]
	rest := text
	for i := range s.columns {
		v, n := scan.ParseDecimal(rest)
		if n == 0 || n < len(rest) && rest[n] != ',' {
			if n = bytes.IndexByte(rest, ','); n < 0 {
				n = len(rest)
			}
			v = math.NaN()
			var ok bool
			if n > 0 || i == 0 {
				if v, ok = scan.ParseFloat(rest[:n]); !ok {
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
	return nil
}

// setEpoch sets the fields of e to the values of the current row.
func (s *studyReader) setEpoch(e *runs.Epoch) {
	for i, to := range [...]*float64{&e.Seconds, &e.TrainLoss, &e.ValLoss, &e.LearningRate, &e.Accuracy, &e.ValAccuracy} {
		if k := s.fields[i]; k > 0 {
			*to = s.row[k]
		}
	}
	if e.Seconds <= 0 {
		s.in.AddProblem(s.l.Number, "got an epoch of %g s: the clock was set during the epoch; its time is not used", e.Seconds)
		e.Seconds = math.NaN()
	}
}

// findColumns finds the columns of an epoch's values.
func (s *studyReader) findColumns() {
	for i, name := range [...]string{"time_per_epoch", "loss", "val_loss", "lr", "accuracy", "val_accuracy"} {
		s.fields[i] = slices.Index(s.columns, name)
	}
}

// lastValue returns a column's value in the last good row, or NaN.
func (s *studyReader) lastValue(column string) float64 {
	i := slices.Index(s.columns, column)
	if i < 1 || s.row == nil {
		return math.NaN()
	}
	return s.row[i]
}
