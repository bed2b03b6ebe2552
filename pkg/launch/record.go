package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// recordsFolder is the folder, inside a study's folder, with the record of each sweep that
// was launched. It also contains the logs of the processes that run sweeps of notebooks.
const recordsFolder = ".launch"

// sweepRecord is the state of a sweep. The process of the sweep writes it to a file for other
// processes after each change.
type sweepRecord struct {
	ID      string    `json:"id"`
	Study   string    `json:"study"`
	Dir     string    `json:"dir"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"` // when it was launched
	Ended   time.Time `json:"ended,omitzero"`
	State   string    `json:"state"`
	// WaitsFor describes the sweep that this one waits for.
	WaitsFor string      `json:"waits_for,omitempty"`
	Error    string      `json:"error,omitempty"`
	Detach   bool        `json:"detach,omitempty"`
	Kernel   int         `json:"kernel,omitempty"` // pid of the notebook's kernel that launched it; 0 if none
	Orphan   bool        `json:"orphan,omitempty"` // whether that kernel has ended
	Site     string      `json:"site,omitempty"`   // the site profile, if the runs are jobs of Slurm; then PID is 0
	Runs     []runRecord `json:"runs"`

	path string
}

// runRecord is the state of one run in a record.
type runRecord struct {
	Name    string    `json:"name"`
	Dir     string    `json:"dir"`
	Workers int       `json:"workers"`
	Seed    int64     `json:"seed"`
	State   string    `json:"state"`
	Error   string    `json:"error,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Epochs  int       `json:"epochs,omitempty"`
	Job     string    `json:"job,omitempty"` // id of its job of Slurm
	// StudyLogs is the folder of its study log, if a process that attaches to the sweep is to
	// write it.
	StudyLogs string `json:"study_logs,omitempty"`
}

// newSweepID returns an id for a sweep. The ids sort by the time of the launch.
func newSweepID(now time.Time) string {
	return fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405.000000"), os.Getpid())
}

// recordPath returns the path of the record of the sweep id in the study's folder dir.
func recordPath(dir, id string) string { return filepath.Join(dir, recordsFolder, id+".json") }

// logPath returns the path of the log of a sweep that a notebook launched, given the sweep's ID.
// The log contains the output of all workers.
func logPath(dir, id string) string { return filepath.Join(dir, recordsFolder, id+".log") }

// maxRecordBytes limits the size of a sweep's record in bytes, because it is read into
// memory.
const maxRecordBytes = 64 << 20

// readRecord reads a sweep's record.
func readRecord(path string) (*sweepRecord, error) {
	text, err := safeopen.ReadFile(filepath.Dir(path), path, maxRecordBytes)
	if err != nil {
		return nil, fmt.Errorf("read record of sweep: %w", err)
	}
	r := &sweepRecord{path: path}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read record of sweep %s: %w", path, err)
	}
	return r, nil
}

// write writes the record to its file.
func (r *sweepRecord) write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = wholefile.WriteBytes(r.path, append(text, '\n'), 0o644)
	}
	return wrapWriteError("write record of sweep", err)
}

// readRecords returns the sweeps of the study in dir, the last one first. Records that
// cannot be read are left out.
func readRecords(dir string) []*sweepRecord {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), recordsFolder, "*.json"))
	if err != nil {
		return nil
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	var all []*sweepRecord
	for _, path := range paths {
		if r, err := readRecord(path); err == nil {
			all = append(all, r)
		}
	}
	return all
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// escapeGlob returns a pattern for filepath.Glob that matches only path.
func escapeGlob(path string) string { return globEscaper.Replace(path) }

// hasEnded reports whether the sweep has ended, according to the record.
func (r *sweepRecord) hasEnded() bool { return r.State != StateWaiting && r.State != StateRunning }

// isAlive reports whether the process of the sweep is alive.
func (r *sweepRecord) isAlive() bool {
	folder, err := locksFolder()
	return err == nil && queueEntry{folder: folder, id: r.ID, state: entryWaiting}.isAlive()
}

// describe returns a message that says that the sweep is running, with the pid and the start
// time if they are known.
func (r *sweepRecord) describe() string {
	if r.PID == 0 {
		return r.Study + " is running"
	}
	return fmt.Sprintf("%s is running (pid %d, since %s)", r.Study, r.PID, formatTime(r.Started))
}

// formatTime formats t in local time to the minute, with the date unless that is today.
func formatTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("15:04")
}

// waitNote returns a message for the user of another sweep, which waits for r.
func (r *sweepRecord) waitNote() string {
	if r.PID == 0 {
		return fmt.Sprintf("waiting for %s; --now starts it anyway", r.Study)
	}
	return fmt.Sprintf("waiting for %s (pid %d, since %s); --now starts it anyway", r.Study, r.PID, formatTime(r.Started))
}

// errKilled is the cause of failure of a sweep whose process ended without writing a result.
var errKilled = errors.New("process was killed")
