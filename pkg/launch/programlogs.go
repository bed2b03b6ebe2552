package launch

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

// maxReadShare limits the fraction of a run's time that the launcher spends reading its folder, so
// that long logs do not slow the run down.
const maxReadShare = 0.02

// saveLineTemplates adds the templates of lines to the rules for reading the logs in the study's
// folder dir.
func (s Sweep) saveLineTemplates(dir string) error {
	if len(s.Lines) == 0 {
		return nil
	}
	_, err := logread.Rules{Lines: s.Lines}.Save(dir)
	return wrapWriteError("keep the line templates", err)
}

// rereadLogs reads the run folder of another program again, with all of its logs, if a file
// in the folder has changed.
func (r *run) rereadLogs() {
	now := time.Now()
	if r.state == StateRunning && now.Before(r.nextRead) {
		return
	}
	stamp, err := stampFiles(r.dir)
	if err != nil || stamp == r.stamp {
		return
	}
	read, err := readWithLogs(r.dir)
	if err != nil {
		return // run.json is not there yet
	}
	r.read, r.stamp, r.readTime = read, stamp, now
	r.setNextRead(now)
}

// setNextRead sets the time of the next reading of the run folder, after one that has begun at
// the time begin and has ended now.
func (r *run) setNextRead(begin time.Time) {
	r.nextRead = time.Now().Add(time.Duration(float64(time.Since(begin)) / maxReadShare))
}

// readWithLogs reads the run folder dir of a program other than lockstep, with the logs of its
// workers.
func readWithLogs(dir string) (runs.Run, error) {
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

// stampFiles returns a string that changes whenever a file in dir is created or modified.
func stampFiles(dir string) (string, error) {
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
