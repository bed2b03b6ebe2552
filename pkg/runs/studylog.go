package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// horovodSeries is the series whose logs are named log_hvd_<workers>.csv in the U-Net study.
const horovodSeries = "horovod"

// StudyLogName returns the file name of a run's log in the U-Net study: log_4.csv for 4 workers, or
// log_hvd_4.csv for the series horovod.
func StudyLogName(info Info) string {
	if info.Series == horovodSeries {
		return fmt.Sprintf("log_hvd_%d.csv", info.Workers)
	}
	return fmt.Sprintf("log_%d.csv", info.Workers)
}

// studySource identifies the run from which a study log such as log_4.csv was written. The file
// .log_4.csv.json in the same folder contains it.
type studySource struct {
	Run     string    `json:"run"` // run folder, relative to the folder of the study log
	Started time.Time `json:"started"`
}

// maxStudySourceBytes limits the size of a file with a studySource, which is read into memory.
const maxStudySourceBytes = 1 << 20

func studySourcePath(file string) string {
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".json")
}

func readStudySource(file string) (studySource, error) {
	text, err := safeopen.ReadFile(filepath.Dir(file), studySourcePath(file), maxStudySourceBytes)
	if err != nil {
		return studySource{}, err
	}
	var s studySource
	if err := json.Unmarshal(text, &s); err != nil {
		return studySource{}, fmt.Errorf("read %s: %w", studySourcePath(file), err)
	}
	return s, nil
}

// StudyLogSource returns the run folder from which WriteStudyLog wrote file. ok is false for other files.
func StudyLogSource(file string) (dir string, ok bool) {
	s, err := readStudySource(file)
	if err != nil || s.Run == "" {
		return "", false
	}
	return filepath.Join(filepath.Dir(file), s.Run), true
}

// CheckStudyLog returns an error if WriteStudyLog would overwrite another run's file. For a run
// that has not started, info.Started is zero.
func CheckStudyLog(dir, runDir string, info Info) error {
	file := filepath.Join(dir, StudyLogName(info))
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	source, err := readStudySource(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write study log: %w", err)
	}
	wantDir, err := filepath.Abs(runDir)
	if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	sourceDir, err := filepath.Abs(filepath.Join(dir, source.Run))
	if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	if source.Run == "" || sourceDir != wantDir || !source.Started.Equal(info.Started) {
		return fmt.Errorf("write study log: %s exists and was not written from the run %s; delete the file or choose another folder", file, runDir)
	}
	return nil
}

// WriteStudyLog writes the epochs of run, whose folder is run.Dir, to a CSV file in dir for the
// notebooks of the U-Net scaling study, and returns its path. The file has an unnamed index column
// from 0, numbers as %.6f, and the run's training time, test time and IoU in each row; a value that
// was not measured is an empty cell. WriteStudyLog never overwrites the file of another run.
func WriteStudyLog(dir string, run Run) (string, error) {
	if err := CheckStudyLog(dir, run.Dir, run.Info); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	file := filepath.Join(dir, StudyLogName(run.Info))
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	to, err := filepath.Abs(run.Dir)
	if err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	if to, err = filepath.Rel(from, to); err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	source, err := json.Marshal(studySource{Run: to, Started: run.Info.Started})
	if err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	// Write the studySource first, because CheckStudyLog refuses a log without one.
	for _, f := range []struct {
		path string
		text []byte
	}{{studySourcePath(file), append(source, '\n')}, {file, formatStudyLog(run)}} {
		if err := wholefile.WriteBytes(f.path, f.text, 0o644); err != nil {
			return "", fmt.Errorf("write study log: %w", err)
		}
	}
	return file, nil
}

func formatStudyLog(run Run) []byte {
	cell := func(v float64) string {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return ""
		}
		return strconv.FormatFloat(v, 'f', 6, 64)
	}
	training, test, iou := 0.0, math.NaN(), math.NaN()
	for _, e := range run.Epochs {
		training += e.Seconds
	}
	if t := run.Info.Test; t != nil {
		test, iou = t.Seconds, t.IoU
	}
	var b strings.Builder
	b.WriteString(",time_per_epoch,loss,lr,training_time,test_time,iou\n")
	for _, e := range run.Epochs {
		fmt.Fprintf(&b, "%d,%s,%s,%s,%s,%s,%s\n", e.Epoch-1, cell(e.Seconds), cell(e.TrainLoss), cell(e.LearningRate), cell(training), cell(test), cell(iou))
	}
	return []byte(b.String())
}
