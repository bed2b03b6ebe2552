// Package queue keeps the sweeps of a user on a machine in order: the queue of the sweeps that wait
// for each other, and the record of each sweep, by which other processes see its state. It also
// lists the user's sweeps on Slurm.
package queue

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
	"lockstep/pkg/runs"
)

// StateWaiting is the state of a sweep that waits for another, or for cores. Other states have the
// names of a run's, such as runs.StatusRunning.
const StateWaiting = "waiting"

// RecordsFolder is the name of a folder in each study's folder. It contains a record of each
// launched sweep, and the logs of the processes that run sweeps for notebooks.
const RecordsFolder = ".launch"

// RecordSchema is the version of the records that this program writes. Records without a version have 0
// and are understood too.
const RecordSchema = 1

// SweepRecord is the state of a sweep. Its process writes it to a file for other processes after each change.
type SweepRecord struct {
	Schema  int       `json:"schema"`
	Build   string    `json:"build"` // build id of the program that planned the sweep
	ID      string    `json:"id"`
	Study   string    `json:"study"`
	Dir     string    `json:"dir"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"` // when it was launched
	Ended   time.Time `json:"ended,omitzero"`
	State   string    `json:"state"`
	// WaitsFor describes the sweep or the cores that this sweep waits for.
	WaitsFor string      `json:"waits_for,omitempty"`
	Error    string      `json:"error,omitempty"`
	Detach   bool        `json:"detach,omitempty"`
	Kernel   int         `json:"kernel,omitempty"` // pid of the notebook's kernel that launched it; 0 if none
	Orphan   bool        `json:"orphan,omitempty"` // whether that kernel has ended
	Site     string      `json:"site,omitempty"`   // the site profile, if the runs are jobs of Slurm; then PID is 0
	Runs     []RunRecord `json:"runs"`

	Starting bool     `json:"starting,omitempty"` // whether its process may still refuse to start it
	Refusal  *Refusal `json:"refusal,omitempty"`  // why its process did not start it; nil if it did

	Path string `json:"-"` // of its file
}

// Refusal is why the separate process of a notebook's sweep did not start it.
type Refusal struct {
	Error string     `json:"error"`
	Owned bool       `json:"owned,omitempty"` // whether another process trains the runs by now
	Busy  *BusySweep `json:"busy,omitempty"`  // the sweep that it would have to wait for; nil if that is not the reason
}

// BusySweep describes a running sweep.
type BusySweep struct {
	Study string    `json:"study"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	Cores string    `json:"cores,omitempty"` // that other users' sweeps have
}

// RunRecord is the state of one run in a record.
type RunRecord struct {
	Name      string `json:"name"`
	Dir       string `json:"dir"`
	Label     string `json:"label,omitempty"` // of its series, in the workers' lines
	Workers   int    `json:"workers"`
	Processes int    `json:"processes,omitempty"` // that contain the workers
	Seed      int64  `json:"seed"`
	Program   bool   `json:"program,omitempty"` // whether it is a program other than lockstep

	State   string    `json:"state"`
	Error   string    `json:"error,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Epochs  int       `json:"epochs,omitempty"`
	Job     string    `json:"job,omitempty"` // id of its job of Slurm
	// StudyLogs is the folder for the run's study log, or "" if there is none. A process that
	// attaches to the sweep writes the log.
	StudyLogs string `json:"study_logs,omitempty"`
}

// NewSweepID returns an id for a sweep. The ids sort by the time of the launch.
func NewSweepID(now time.Time) string {
	return fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405.000000"), os.Getpid())
}

// RecordPath returns the path of the record of the sweep id in the study's folder dir.
func RecordPath(dir, id string) string { return filepath.Join(dir, RecordsFolder, id+".json") }

// LogPath returns the path of the log of a sweep that a notebook launched. The log contains the
// output of all workers.
func LogPath(dir, id string) string { return filepath.Join(dir, RecordsFolder, id+".log") }

// MaxRecordBytes limits the size of a sweep's record in bytes, which is read into memory.
const MaxRecordBytes = 64 << 20

// ReadRecord reads a sweep's record.
func ReadRecord(path string) (*SweepRecord, error) {
	text, err := safeopen.ReadFile(filepath.Dir(path), path, MaxRecordBytes)
	if err != nil {
		return nil, fmt.Errorf("read record of sweep: %w", err)
	}
	r := &SweepRecord{Path: path}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read record of sweep %s: %w", path, err)
	}
	return r, nil
}

// CheckSchema returns an error if the record has a version that this program does not understand.
func (r *SweepRecord) CheckSchema() error {
	if r.Schema >= 0 && r.Schema <= RecordSchema {
		return nil
	}
	return fmt.Errorf("read record of sweep %s: got version %d (build %s of lockstep), want at most %d: use the lockstep that launched the sweep, or a newer one", r.Path, r.Schema, r.Build, RecordSchema)
}

// Write writes the record to its file.
func (r *SweepRecord) Write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = wholefile.WriteBytes(r.Path, append(text, '\n'), 0o644)
	}
	return err
}

// ReadRecords returns the sweeps of the study in dir, the last one first. Unreadable records are left out.
func ReadRecords(dir string) []*SweepRecord {
	paths, err := filepath.Glob(filepath.Join(EscapeGlob(dir), RecordsFolder, "*.json"))
	if err != nil {
		return nil
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	var all []*SweepRecord
	for _, path := range paths {
		if r, err := ReadRecord(path); err == nil {
			all = append(all, r)
		}
	}
	return all
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// EscapeGlob returns a pattern for filepath.Glob that matches only path.
func EscapeGlob(path string) string { return globEscaper.Replace(path) }

// HasEnded reports whether the sweep has ended, according to the record.
func (r *SweepRecord) HasEnded() bool {
	return r.State != StateWaiting && r.State != runs.StatusRunning
}

// HasLiveProcess reports whether the process of the sweep is alive.
func (r *SweepRecord) HasLiveProcess() bool {
	folder, err := FindLocksFolder()
	return err == nil && Entry{Folder: folder, ID: r.ID, State: EntryWaiting}.HasLiveProcess()
}

// DescribeRunning says that the sweep is running, with the pid and the start time if they are known.
func (r *SweepRecord) DescribeRunning() string {
	if r.PID == 0 {
		return r.Study + " is running"
	}
	return fmt.Sprintf("%s is running (pid %d, since %s)", r.Study, r.PID, FormatTime(r.Started))
}

// FormatTime formats t in local time to the minute, with the date unless that is today.
func FormatTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("15:04")
}

// WaitNote returns a message for the user of a sweep that waits for the end of r.
func (r *SweepRecord) WaitNote() string {
	if r.PID == 0 {
		return fmt.Sprintf("waiting for %s; --now starts it anyway", r.Study)
	}
	return fmt.Sprintf("waiting for %s (pid %d, since %s); --now starts it anyway", r.Study, r.PID, FormatTime(r.Started))
}

// ErrKilled is the cause of failure of a sweep whose process ended without writing a result.
var ErrKilled = errors.New("process was killed")

// AttachNote tells a user who has launched a sweep that the existing sweep r is shown instead.
func (r *SweepRecord) AttachNote() string {
	what := "already running"
	if r.State == StateWaiting {
		what = "already waiting"
	}
	return fmt.Sprintf("%s since %s as pid %d%s; showing it", what, FormatTime(r.Started), r.PID, r.FormatHost())
}

// FormatHost returns " on " and the sweep's host name, or "" for this machine.
func (r *SweepRecord) FormatHost() string {
	if host, err := os.Hostname(); err != nil || host == r.Host {
		return ""
	}
	return " on " + r.Host
}

// BelongsToThisProcess reports whether the sweep belongs to this process: either this process launched it, or the
// kernel that launched it has ended.
func (r *SweepRecord) BelongsToThisProcess() bool { return r.Orphan || r.Kernel == os.Getpid() }
