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

// seriesHorovod is the series that the U-Net study's names tell from others.
const seriesHorovod = "horovod"

// StudyLogName returns the name of a run's file in the form of the U-Net study:
// log_4.csv, or log_hvd_4.csv for the series horovod.
func StudyLogName(info Info) string {
	if info.Series == seriesHorovod {
		return fmt.Sprintf("log_hvd_%d.csv", info.Workers)
	}
	return fmt.Sprintf("log_%d.csv", info.Workers)
}

// studySource is what .log_4.csv.json beside log_4.csv says: which run it is a
// copy of.
type studySource struct {
	Run     string    `json:"run"` // its folder, relative to that of the file
	Started time.Time `json:"started"`
}

// maxSource bounds the file, which is held in memory.
const maxSource = 1 << 20

func sourcePath(file string) string {
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".json")
}

func readSource(file string) (studySource, error) {
	text, err := safeopen.ReadFile(filepath.Dir(file), sourcePath(file), maxSource)
	if err != nil {
		return studySource{}, err
	}
	var s studySource
	if err := json.Unmarshal(text, &s); err != nil {
		return studySource{}, fmt.Errorf("read %s: %w", sourcePath(file), err)
	}
	return s, nil
}

// StudyLogSource returns the run folder that a file is a copy of, as
// WriteStudyLog notes it beside the file. ok is false for other files.
func StudyLogSource(file string) (dir string, ok bool) {
	s, err := readSource(file)
	if err != nil || s.Run == "" {
		return "", false
	}
	return filepath.Join(filepath.Dir(file), s.Run), true
}

// CheckStudyLog returns an error if WriteStudyLog would have to write over the
// file of another run. A run that has not begun has no start.
func CheckStudyLog(dir, runDir string, info Info) error {
	file := filepath.Join(dir, StudyLogName(info))
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	source, err := readSource(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write study log: %w", err)
	}
	mine, err := filepath.Abs(runDir)
	if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	its, err := filepath.Abs(filepath.Join(dir, source.Run))
	if err != nil {
		return fmt.Errorf("write study log: %w", err)
	}
	if source.Run == "" || its != mine || !source.Started.Equal(info.Started) {
		return fmt.Errorf("write study log: %s is not of this run (%s): delete it, or choose another folder", file, runDir)
	}
	return nil
}

// WriteStudyLog writes the epochs of the run in runDir into dir in the form of
// the U-Net scaling study, so that the study's notebooks read them: a nameless
// index from 0, numbers as %.6f, and the run's training time, test time and IoU
// on each row. What was not measured is an empty cell. It returns the file's
// path. It never writes over the file of another run.
func WriteStudyLog(dir, runDir string) (string, error) {
	run, err := Read(runDir)
	if err != nil {
		return "", fmt.Errorf("write study log: %w", err)
	}
	if err := CheckStudyLog(dir, runDir, run.Info); err != nil {
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
	to, err := filepath.Abs(runDir)
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
	// The source comes first: a log without one would be taken for another's.
	for _, f := range []struct {
		path string
		text []byte
	}{{sourcePath(file), append(source, '\n')}, {file, studyLog(run)}} {
		if err := wholefile.WriteBytes(f.path, f.text, 0o644); err != nil {
			return "", fmt.Errorf("write study log: %w", err)
		}
	}
	return file, nil
}

// studyLog returns the file's text.
func studyLog(run Run) []byte {
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
