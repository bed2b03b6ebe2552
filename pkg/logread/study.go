package logread

import (
	"bufio"
	"fmt"
	"io"
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
	m := regexp.MustCompile(`^log_(hvd_)?(?:g(\d+)_r(\d+)|(\d+))\.csv$`).FindStringSubmatch(filepath.Base(path))
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

// studyFolder names the study that a file belongs to: the nearest folder that
// is not called logs.
func studyFolder(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	dir := filepath.Dir(abs)
	for filepath.Base(dir) == "logs" && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return filepath.Base(dir)
}

// isStudy says whether the file has one of the headers, or the name together
// with something that could be a damaged one.
func isStudy(path string, head []byte) bool {
	if filepath.Ext(path) != ".csv" {
		return false
	}
	first, _, _ := strings.Cut(string(head), "\n")
	if slices.Contains(studyHeaders(), strings.TrimRight(first, "\r")) {
		return true
	}
	_, named := parseStudyName(path)
	return named
}

// readStudy reads a file of the study into a run.
func readStudy(path string, r io.Reader) (runs.Run, error) {
	sr := &studyReader{r: bufio.NewReader(r), path: path}
	run := runs.Run{Dir: path}
	for sr.Next() {
		same := func(e runs.Epoch) bool { return e.Epoch == sr.Epoch().Epoch }
		if i := slices.IndexFunc(run.Epochs, same); i >= 0 {
			sr.problem(sr.line, "row %d stands here again; the later one counts", sr.Epoch().Epoch-1)
			run.Epochs = slices.Delete(run.Epochs, i, i+1)
		}
		run.Epochs = append(run.Epochs, sr.Epoch())
	}
	name, named := parseStudyName(path)
	ranks := sr.last("ranks")
	switch {
	case ranks >= 1 && ranks <= 1<<20 && ranks == math.Trunc(ranks):
		if named && name.workers != int(ranks) {
			sr.problem(0, "the name says %d workers, the column ranks %d; the column counts", name.workers, int(ranks))
		}
		name.workers = int(ranks)
	case !named:
		sr.problem(0, "nothing says how many workers ran: expected the name log_<N>.csv or log_hvd_<N>.csv, or a column ranks")
	}
	if name.series == "" {
		name.series = strings.TrimSuffix(filepath.Base(path), ".csv")
	}
	if len(run.Epochs) == 0 && len(sr.problems) == 0 {
		sr.problem(0, "the file has a header and no epochs")
	}
	run.Problems = sr.problems
	if err := sr.Err(); err != nil {
		return run, err
	}
	if len(run.Epochs) == 0 || name.workers == 0 {
		return run, errNoRun
	}
	run.Info = runs.Info{
		Study: studyFolder(path), Series: name.series, Workers: name.workers,
		Seed: int64(name.repeat), Status: runs.StatusDone, Config: map[string]any{},
	}
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
	return run, nil
}

// studyReader reads a file of the study row by row.
type studyReader struct {
	r        *bufio.Reader
	path     string
	line     int
	columns  []string  // nil before the header
	row      []float64 // of the current row, by column
	epoch    runs.Epoch
	problems []runs.Problem
	done     bool
	err      error
}

// Next reads up to the next good row, whose epoch Epoch then returns.
func (s *studyReader) Next() bool {
	for !s.done {
		text, ended, ok := s.readLine()
		if !ok {
			return false
		}
		if s.columns == nil {
			s.header(text)
			continue
		}
		if text == "" {
			continue
		}
		row, err := s.parse(text, ended)
		if err != nil {
			s.problem(s.line, "%v", err)
			continue
		}
		s.row = row
		s.setEpoch()
		return true
	}
	return false
}

// Epoch is the row that Next read.
func (s *studyReader) Epoch() runs.Epoch { return s.epoch }

// Err is an error of reading, not of what was read (see problems).
func (s *studyReader) Err() error { return s.err }

func (s *studyReader) problem(line int, format string, a ...any) {
	s.problems = append(s.problems, runs.Problem{File: s.path, Line: line, Reason: fmt.Sprintf(format, a...)})
}

// readLine returns a line and whether its end was there.
func (s *studyReader) readLine() (text string, ended, ok bool) {
	text, err := s.r.ReadString('\n')
	if err != nil && err != io.EOF {
		s.err = fmt.Errorf("read %s after line %d: %w", s.path, s.line, err)
		return "", false, false
	}
	if text == "" {
		if s.line == 0 || s.columns == nil && s.line == 1 {
			s.problem(max(s.line, 1), "the file holds no table: the run wrote nothing")
		}
		return "", false, false
	}
	s.line++
	return strings.TrimRight(text, "\r\n"), strings.HasSuffix(text, "\n"), true
}

// header reads line 1, or line 2 of a file whose line 1 is "".
func (s *studyReader) header(text string) {
	switch {
	case s.line == 1 && text == studyEmpty:
		return // the tail of the header may follow
	case slices.Contains(studyHeaders(), text):
		s.columns = strings.Split(text, ",")
		return
	case s.line == 2 && text != "":
		var found []string
		for _, h := range studyHeaders() {
			// Of two headers with the same tail nothing says which it was.
			if strings.HasSuffix(h, text) {
				found = append(found, h)
			}
		}
		if len(found) == 1 {
			s.columns = strings.Split(found[0], ",")
			s.problem(2, "the header is torn: %q is taken for the end of %q", text, found[0])
			return
		}
	}
	s.problem(s.line, "expected a header such as %q, got %.80q; no row of this file is used", studyHeaders()[0], text)
	s.done = true
}

// parse reads the cells of a row; an empty one is NaN.
func (s *studyReader) parse(text string, ended bool) ([]float64, error) {
	cells := strings.Split(text, ",")
	if len(cells) != len(s.columns) {
		return nil, fmt.Errorf("expected %d cells, got %d: %.80q", len(s.columns), len(cells), text)
	}
	// The form %.6f shows whether a last line without its end is whole.
	last := cells[len(cells)-1]
	if dot := strings.IndexByte(last, '.'); !ended && (dot < 0 || len(last)-dot-1 != 6) {
		return nil, fmt.Errorf("last line is torn: %.80q", text)
	}
	row := make([]float64, len(cells))
	for i, c := range cells {
		row[i] = math.NaN()
		if c == "" && i > 0 {
			continue
		}
		v, err := strconv.ParseFloat(c, 64)
		if err != nil {
			return nil, fmt.Errorf("column %q: expected a number, got %.40q", s.columns[i], c)
		}
		row[i] = v
	}
	if i := row[0]; i < 0 || i > 1<<30 || i != math.Trunc(i) {
		return nil, fmt.Errorf("index column: expected 0, 1, 2, …, got %.40q", cells[0])
	}
	return row, nil
}

// setEpoch makes s.epoch of the current row. The index counts from 0.
func (s *studyReader) setEpoch() {
	nan := math.NaN()
	s.epoch = runs.Epoch{
		Epoch: int(s.row[0]) + 1, Seconds: s.last("time_per_epoch"), SamplesPerSecond: nan,
		TrainLoss: s.last("loss"), ValLoss: s.last("val_loss"),
		IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: s.last("lr"),
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
