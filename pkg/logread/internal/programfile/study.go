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
	"sync"

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

// studyHeaders returns the headers that logs of the study are known to have.
func studyHeaders() []string {
	return []string{
		",time_per_epoch,loss,lr,training_time,test_time,iou",
		",time_per_epoch,loss,val_loss,lr,training_time,test_time,iou",
		",loss,val_loss,lr,training_time,test_time,iou",
		",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks",
	}
}

// emptyStudyHeader is the first line of some defective files of the study; the
// header follows in line 2.
const emptyStudyHeader = `""`

// StudyName contains the fields of a file name such as log_4.csv, log_hvd_4.csv or
// log_g4_r2.csv. The name may have a prefix, as in unet_log_4.csv.
type StudyName struct {
	Series  string // native or horovod, after the prefix if there is one
	Workers int
	Repeat  int // 0 if the name has none
}

// studyNamePattern matches the names of the study's files.
var studyNamePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(.+)[-_.])?log_(hvd_)?(?:g(\d+)_r(\d+)|(\d+))\.csv$`)
})

// ParseStudyName parses the base name of path. ok is false if it has another form.
func ParseStudyName(path string) (name StudyName, ok bool) {
	m := studyNamePattern().FindStringSubmatch(filepath.Base(record.UncompressedName(path)))
	if m == nil {
		return StudyName{}, false
	}
	n := StudyName{Series: "native"}
	if m[2] != "" {
		n.Series = "horovod"
	}
	if m[1] != "" {
		n.Series = m[1] + " " + n.Series
	}
	var err, repeatErr error
	n.Workers, err = strconv.Atoi(m[3] + m[5])
	if m[4] != "" {
		n.Repeat, repeatErr = strconv.Atoi(m[4])
	}
	return n, err == nil && repeatErr == nil && n.Workers > 0 && n.Workers <= names.MaxCount
}

// IsStudyName reports whether path has a file name of the study's logs:
// log_4.csv, log_hvd_4.csv or log_g4_r2.csv.
func IsStudyName(path string) bool {
	_, ok := ParseStudyName(path)
	return ok
}

// studyKind is the name of the format of the study's logs.
const studyKind = "study CSV"

// isStudyLog reports whether the file is a CSV log of the U-Net scaling study: its first line
// is one of the study's headers, or it has a file name of the study and not the header of another
// table. The name suffices because the header may be damaged.
func isStudyLog(path string, head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if slices.Contains(studyHeaders(), strings.TrimRight(string(first), "\r")) {
		return true
	}
	if _, named := ParseStudyName(path); !named {
		return false
	}
	return !table.HasKnownHeader(head) // another program's log with such a name
}

// readStudyLog reads a log of the study into one run.
func readStudyLog(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	sr := &studyReader{in: in}
	if chunks := in.Split(); len(chunks) > 1 {
		sr.readChunks(ctx, chunks)
	} else {
		sr.l = scan.NewLineReader(in.Reader, in.Size)
		sr.read()
		in.Report.Lines = int64(sr.l.Number)
	}
	run := runs.Run{Epochs: sr.epochs}
	if sr.unsorted {
		run.Epochs = removeRepeatedEpochs(in, run.Epochs)
	}
	in.Report.Records = int64(len(run.Epochs))
	if len(run.Epochs) == 0 {
		if len(in.Report.Unused) == 0 {
			in.AddProblem(0, "the file has a header but no epochs")
		}
		return nil, sr.err
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
		nan := math.NaN()
		run.Info.Test = &runs.Test{
			IoU: sr.lastValue("iou"), Seconds: sr.lastValue("test_time"),
			Loss: nan, Dice: nan, IoUConstant: nan, DiceConstant: nan, IoUUntrained: nan, DiceUntrained: nan,
		}
	}
	return []*record.Part{{Run: run, Role: record.Principal}}, sr.err
}

// removeRepeatedEpochs removes each row whose epoch occurs again in a later
// row, and reports the removed row as a problem.
func removeRepeatedEpochs(in *record.Input, epochs []runs.Epoch) []runs.Epoch {
	at := make(map[int]int, len(epochs))
	for i, e := range epochs {
		if first, again := at[e.Epoch]; again {
			in.AddProblem(e.Line, "duplicate row %d; the later one counts", e.Epoch-1)
			epochs[first].Epoch = 0
		}
		at[e.Epoch] = i
	}
	slices.SortStableFunc(in.Report.Unused, func(a, b runs.Problem) int { return a.Line - b.Line })
	return slices.DeleteFunc(epochs, func(e runs.Epoch) bool { return e.Epoch == 0 })
}

// studyReader reads a log of the study row by row.
type studyReader struct {
	l             *scan.LineReader
	in            *record.Input
	columns       []string  // names from the header; nil before it was read
	fields        [6]int    // indexes of the columns that setEpoch uses; at most 0 if missing
	row           []float64 // values of the last good row, by column
	next          []float64 // buffer for the row being read
	firstTotal    int       // index of the first of the columns with totals, which are the same in each row
	totals        []byte    // text of the totals in the last good row
	rateAndTotals []byte    // text of the learning rate and the totals in the last good row; nil if not known
	done          bool      // the header is unusable or the reader is at the end

	epochs   []runs.Epoch
	unsorted bool  // an epoch follows a later one or the same one
	err      error // error of reading the file, not of its content
}

// read reads all rows into s.epochs.
func (s *studyReader) read() {
	blank := record.NewUnmeasuredEpoch(0, 0)
	for s.nextRow() {
		n := len(s.epochs)
		if n == cap(s.epochs) {
			s.epochs = slices.Grow(s.epochs, s.l.EstimateRemaining(n))
		}
		s.epochs = s.epochs[:n+1]
		e := &s.epochs[n]
		*e = blank
		e.Epoch, e.Line = int(s.row[0])+1, s.l.Number // the index counts from 0
		s.setEpoch(e)
		if n > 0 && e.Epoch <= s.epochs[n-1].Epoch || e.Epoch < 1 {
			s.unsorted = true
		}
	}
	if s.l.Err != nil {
		s.err = fmt.Errorf("read %s after line %d: %w", s.in.Path, s.l.Number, s.l.Err)
	}
}

// readChunks reads each chunk of the file in a separate goroutine. The epochs
// of all chunks are stored in one array. Each chunk writes to its own section,
// whose length is estimated.
func (s *studyReader) readChunks(ctx context.Context, chunks []record.Chunk) {
	const margin = 1.03                 // 3 % more rows than estimated
	start := make([]int, len(chunks)+1) // of each chunk's section in all
	for i, p := range chunks {
		start[i+1] = start[i] + int(margin*p.Lines) + 16
	}
	all := make([]runs.Epoch, start[len(chunks)])
	readers := make([]*studyReader, len(chunks))
	var wg sync.WaitGroup
	for i, p := range chunks {
		r := &studyReader{in: s.in.ChunkInput(ctx, p), epochs: all[start[i]:start[i]:start[i+1]]}
		r.l = scan.NewLineReader(r.in.Reader, r.in.Size)
		readers[i] = r
		if i == 0 {
			r.findHeader()
			continue
		}
		if r.columns = readers[0].columns; r.columns == nil { // the file is not a table
			wg.Go(r.ignoreRest)
			continue
		}
		r.findColumns()
		wg.Go(r.read)
	}
	readers[0].read()
	wg.Wait()
	for i, r := range readers {
		if cap(r.epochs) != start[i+1]-start[i] { // the chunk had more rows than its section, so append has moved them
			all = nil
		}
	}
	s.joinChunks(all, readers)
}

// joinChunks concatenates the epochs of the chunks' readers. all is the array
// that contains their sections; it is nil if a reader's epochs did not fit into
// its section.
func (s *studyReader) joinChunks(all []runs.Epoch, readers []*studyReader) {
	total := 0
	for _, r := range readers {
		total += len(r.epochs)
	}
	if all == nil {
		all = make([]runs.Epoch, total)
	}
	s.columns, s.fields, s.firstTotal = readers[0].columns, readers[0].fields, readers[0].firstTotal
	n := 0
	for _, r := range readers {
		s.unsorted = s.unsorted || r.unsorted || n > 0 && len(r.epochs) > 0 && r.epochs[0].Epoch <= all[n-1].Epoch
		before := int(s.in.Report.Lines)
		for i := range r.epochs { // epochs only move towards the front, so none is overwritten before it is moved
			all[n] = r.epochs[i]
			all[n].Line += before
			n++
		}
		if r.row != nil {
			s.row = r.row
		}
		if s.err == nil && r.l.Err != nil {
			s.err = fmt.Errorf("read %s after line %d: %w", s.in.Path, before+r.l.Number, r.l.Err)
		}
		r.in.Report.Lines = int64(r.l.Number)
		s.in.Report.Append(r.in.Report)
	}
	s.epochs = all[:n]
}
