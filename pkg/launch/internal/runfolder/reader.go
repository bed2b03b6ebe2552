package runfolder

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// maxReadTimeFraction limits the fraction of a run's time that the launcher spends reading its folder, so
// that long logs do not slow the run down.
const maxReadTimeFraction = 0.02

// Reader reads the folder of a run repeatedly while another process writes it. The zero value has
// read nothing yet.
type Reader struct {
	Run  runs.Run  // as last read
	Time time.Time // when the last epoch in Run ended

	stamp string    // size and time of epochs.csv, or of the logs, when they were read
	next  time.Time // while the run is running, the folder is not read again before this time
}

// Reread reads the run folder dir again if epochs.csv has changed. foreign reports whether the
// run's program is not lockstep; then Reread reads the folder again if any file has changed. While
// the run is running, reading takes at most maxReadTimeFraction of the time, so as not to disturb the
// measurement.
func (r *Reader) Reread(dir string, running, foreign bool) {
	if foreign || len(r.Run.Info.Command) > 0 {
		r.rereadLogs(dir, running)
		return
	}
	now := time.Now()
	if running && now.Before(r.next) {
		return
	}
	stat, err := os.Stat(filepath.Join(dir, "epochs.csv"))
	if err != nil {
		return // not there yet
	}
	stamp := fmt.Sprint(stat.Size(), stat.ModTime().UnixNano())
	if stamp == r.stamp {
		return
	}
	read, err := runs.Read(dir)
	if err != nil {
		return
	}
	r.Run, r.stamp, r.Time = read, stamp, stat.ModTime()
	r.scheduleNext(now)
	if len(read.Info.Command) > 0 { // a run that another process launched
		r.rereadLogs(dir, running)
	}
}

// rereadLogs is Reread for a program other than lockstep: it reads the run folder with all logs.
func (r *Reader) rereadLogs(dir string, running bool) {
	now := time.Now()
	if running && now.Before(r.next) {
		return
	}
	stamp, err := fingerprintFiles(dir)
	if err != nil || stamp == r.stamp {
		return
	}
	read, err := ReadWithLogs(dir)
	if err != nil {
		return // run.json is not there yet
	}
	r.Run, r.stamp, r.Time = read, stamp, now
	r.scheduleNext(now)
}

// scheduleNext sets the earliest time at which the run folder is read again. begin is when the
// reading that has just ended began.
func (r *Reader) scheduleNext(begin time.Time) {
	r.next = time.Now().Add(time.Duration(float64(time.Since(begin)) / maxReadTimeFraction))
}

// ReadWithLogs reads the run folder dir of a program other than lockstep, with the logs of its
// workers.
func ReadWithLogs(dir string) (runs.Run, error) {
	logs, err := logread.Options{}.Read(context.Background(), dir)
	if err != nil {
		return runs.Run{}, err
	}
	for _, read := range logs.Runs {
		if read.Dir == dir {
			return read, nil
		}
	}
	return runs.Run{}, fmt.Errorf("read run %s: %w", dir, fs.ErrNotExist)
}

// fingerprintFiles returns a string that changes whenever a file in dir is created or modified.
func fingerprintFiles(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		if info, err := os.Lstat(filepath.Join(dir, e.Name())); err == nil {
			fmt.Fprintln(&b, e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String(), nil
}
