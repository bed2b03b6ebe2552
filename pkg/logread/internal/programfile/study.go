package programfile

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

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/runs"
)

// The CSV logs of the U-Net scaling study, as pandas wrote them: an index
// column without a name, numbers as %.6f, one row per epoch, and the totals of
// the run (training_time and test_time in seconds, iou over the test set)
// repeated in each row.
//
// The files have three defects: a file with only "" (the run wrote nothing), a
// header torn by two writers (line 1 is "", line 2 is the end of the header,
// correct rows follow), and an empty cell instead of NaN.

func studyHeaders() []string {
	return []string{
		",time_per_epoch,loss,lr,training_time,test_time,iou",
		",time_per_epoch,loss,val_loss,lr,training_time,test_time,iou",
		",loss,val_loss,lr,training_time,test_time,iou",
		",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks",
	}
}

// emptyStudyHeader is the first line of some defective files; line 2 has the header.
const emptyStudyHeader = `""`

var studyNamePattern = regexp.MustCompile(`^(?:(.+)[-_.])?log_(hvd_)?(?:g(\d+)_r(\d+)|(\d+))\.csv$`)

// StudyEvidence returns what the file name of a study's log shows, such as log_4.csv,
// log_hvd_4.csv, log_g4_r2.csv or, with a prefix, unet_log_4.csv. It returns nil for another name.
func StudyEvidence(path string) []record.Evidence {
	m := studyNamePattern.FindStringSubmatch(filepath.Base(record.UncompressedName(path)))
	if m == nil {
		return nil
	}
	workers, err := strconv.Atoi(m[3] + m[5])
	if err != nil || workers < 1 || workers > names.MaxWorkersOrNodes {
		return nil
	}
	series := "native"
	if m[2] != "" {
		series = "horovod"
	}
	var p record.Part
	name := filepath.Base(path)
	p.AddEvidence(runs.PropertyWorkers, int64(workers), record.Stated, runs.SourceFileName, name)
	p.AddTextEvidence(runs.PropertySeries, strings.TrimSpace(m[1]+" "+series), runs.SourceFileName, name)
	if repeat, err := strconv.Atoi(m[4]); err == nil && repeat > 0 {
		p.AddEvidence(runs.PropertySeed, int64(repeat), record.Stated, runs.SourceFileName, name)
	}
	return p.Evidence
}

const studyKind = "study CSV"

// isStudyLog reports whether the file is a CSV log of the U-Net scaling study: its first line is
// one of the study's headers, or its name is one of the study's and the first line is not the
// header of another table. The name suffices because the header may be damaged.
func isStudyLog(path string, head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if slices.Contains(studyHeaders(), strings.TrimRight(string(first), "\r")) {
		return true
	}
	return StudyEvidence(path) != nil && !table.HasKnownHeader(head) // or it is another program's log with such a name
}

func readStudyLog(_ context.Context, in *record.Input) ([]*record.Part, error) {
	sr := &studyReader{in: in}
	if err := in.ReadLines(sr.readLine); err != nil {
		return nil, err
	}
	run := runs.Run{Epochs: sr.epochs.Epochs}
	in.Report.Records = int64(len(run.Epochs))
	if len(run.Epochs) == 0 {
		switch {
		case sr.columns == nil && !sr.done && in.Report.Lines < 2:
			in.AddProblem(1, "the file contains no table: the run wrote nothing")
		case len(in.Report.Unused) == 0:
			in.AddProblem(0, "the file has a header but no epochs")
		}
		return nil, nil
	}
	if ranks := sr.lastValue("ranks"); record.IsPlausibleCount(ranks) {
		run.Info.Workers = int(ranks)
	}
	run.Info.Status, run.Info.Config = runs.StatusDone, map[string]any{}
	for column, key := range map[string]string{
		"training_time": record.TrainingSecondsKey, "test_time": "test_seconds", "accuracy": "accuracy", "val_accuracy": "val_accuracy",
	} {
		if v := sr.lastValue(column); !math.IsNaN(v) {
			run.Info.Config[key] = v
		}
	}
	if slices.Contains(sr.columns, "iou") {
		run.Info.Test = record.NewUnmeasuredTest()
		run.Info.Test.IoU, run.Info.Test.Seconds = sr.lastValue("iou"), sr.lastValue("test_time")
	}
	return []*record.Part{{Run: run, Role: record.Principal}}, nil
}

type studyReader struct {
	in      *record.Input
	columns []string  // names from the header; nil before it was read
	fields  [6]int    // indexes of the columns that setEpochValues uses; at most 0 if missing
	row     []float64 // values of the last good row, by column
	next    []float64 // buffer for the row being read, and its cells
	cells   []scan.Cell
	done    bool // the header is unusable
	epochs  record.RankEpochs
}

// lastValue returns the value in the given column of the last valid row, or NaN if there is none.
func (s *studyReader) lastValue(column string) float64 {
	i := slices.Index(s.columns, column)
	if i < 1 || s.row == nil {
		return math.NaN()
	}
	return s.row[i]
}

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
	s.setEpochValues(e)
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

// parseRow parses a row into s.row. An empty cell becomes NaN. ended reports whether the line
// ended with a newline.
func (s *studyReader) parseRow(text []byte, ended bool) (err error) {
	if s.cells, err = scan.AppendCells(s.cells[:0], text, ',', false); err != nil {
		return err
	}
	last := s.cells[len(s.cells)-1].Text
	switch n, dot := len(s.cells), bytes.IndexByte(last, '.'); {
	case n == len(s.columns) && !ended && (dot < 0 || len(last)-dot-1 != 6): // the format is %.6f
		return fmt.Errorf("last line is torn: %.80q", text)
	case n != len(s.columns):
		return fmt.Errorf("expected %d cells, got %d: %.80q", len(s.columns), n, text)
	}
	s.next = s.next[:0]
	for i := range s.cells {
		cell := &s.cells[i]
		v, ok := math.NaN(), true
		switch {
		case cell.Length > 0 && cell.Length == len(cell.Text): // usually
			v = cell.Number
		case len(cell.Text) > 0 || i == 0:
			v, ok = scan.ParseFloat(cell.Text)
		}
		switch {
		case !ok:
			return fmt.Errorf("column %q: expected a number, got %.40q", s.columns[i], cell.Text)
		case i == 0 && (v < 0 || v > 1<<30 || v != math.Trunc(v)):
			return fmt.Errorf("index column: expected 0, 1, 2, …, got %.40q", cell.Text)
		}
		s.next = append(s.next, v)
	}
	s.row, s.next = s.next, s.row
	return nil
}

func (s *studyReader) setEpochValues(e *runs.Epoch) {
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
