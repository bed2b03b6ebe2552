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

func (s *studyReader) readLine(l *scan.LineReader, line []byte) {
	switch {
	case s.done:
		s.in.Report.AddIgnored(l.Number, "below an unusable header")
		return
	case s.columns == nil:
		s.readHeader(l.Number, string(line))
		return
	}
	if err := s.parseRow(line, l.Ended); err != nil {
		s.in.AddProblem(l.Number, "%v", err)
		return
	}
	s.in.Report.LinesUsed++
	n := int(s.row[0]) + 1 // the index counts from 0
	e := s.epochs.FindOrAdd(n, l)
	if e.Line != l.Number {
		s.in.AddProblem(l.Number, "duplicate row %d; the later one counts", n-1)
		*e = record.NewUnmeasuredEpoch(n, l.Number)
	}
	s.setEpoch(e)
}

// readHeader reads the header: line 1, or line 2 if line 1 is "".
func (s *studyReader) readHeader(line int, text string) {
	if line == 1 && text == emptyStudyHeader {
		s.in.Report.AddIgnored(1, `"" from a writer that failed`)
		return // the end of the header may follow
	}
	found := slices.DeleteFunc(studyHeaders(), func(h string) bool { return h != text })
	if len(found) == 0 && line == 2 {
		found = slices.DeleteFunc(studyHeaders(), func(h string) bool { return !strings.HasSuffix(h, text) })
	}
	if len(found) != 1 { // if two headers have the same end, the header stays unknown
		s.in.AddProblem(line, "expected a header such as %q, got %.80q; no row of this file is used", studyHeaders()[0], text)
		s.done = true
		return
	}
	s.columns = strings.Split(found[0], ",")
	for i, name := range [...]string{"time_per_epoch", "loss", "val_loss", "lr", "accuracy", "val_accuracy"} {
		s.fields[i] = slices.Index(s.columns, name)
	}
	if found[0] == text {
		s.in.Report.LinesUsed++
	} else {
		s.in.AddProblem(2, "the header is torn: %q is taken as the end of %q", text, found[0])
	}
}

// parseRow parses a row into s.row. An empty cell becomes NaN. ended states
// whether the line ended with a newline.
func (s *studyReader) parseRow(text []byte, ended bool) error {
	last := text[bytes.LastIndexByte(text, ',')+1:]
	switch n, dot := bytes.Count(text, []byte{','})+1, bytes.IndexByte(last, '.'); {
	case n == len(s.columns) && !ended && (dot < 0 || len(last)-dot-1 != 6): // the format is %.6f
		return fmt.Errorf("last line is torn: %.80q", text)
	case n != len(s.columns):
		return fmt.Errorf("expected %d cells, got %d: %.80q", len(s.columns), n, text)
	}
	s.next = s.next[:0]
	for i, column := range s.columns {
		var cell []byte
		cell, text, _ = bytes.Cut(text, []byte{','})
		v, ok := math.NaN(), true
		if len(cell) > 0 || i == 0 {
			v, ok = scan.ParseFloat(cell)
		}
		switch {
		case !ok:
			return fmt.Errorf("column %q: expected a number, got %.40q", column, cell)
		case i == 0 && (v < 0 || v > 1<<30 || v != math.Trunc(v)):
			return fmt.Errorf("index column: expected 0, 1, 2, …, got %.40q", cell)
		}
		s.next = append(s.next, v)
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
		s.in.AddProblem(e.Line, "got an epoch of %g s: the clock was set during the epoch; its time is not used", e.Seconds)
		e.Seconds = math.NaN()
	}
}
