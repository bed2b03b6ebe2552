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

// recordsFolder is the folder in a study's folder that holds, for each sweep
// that was launched, its record and, if it has one, the log of its process.
const recordsFolder = ".launch"

// record is a sweep as its process writes it down for others, each time that
// something changes.
type record struct {
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
	Kernel   int         `json:"kernel,omitempty"` // pid of the notebook's kernel that launched it; 0: none did
	Orphan   bool        `json:"orphan,omitempty"` // the kernel is gone
	Runs     []runRecord `json:"runs"`

	path string
}

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
}

// newID returns a name for a sweep. Names sort by the time of the launch.
func newID(now time.Time) string {
	return fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405.000000"), os.Getpid())
}

func recordPath(dir, id string) string { return filepath.Join(dir, recordsFolder, id+".json") }

// logPath is the file to which the process of the sweep that a notebook launched
// writes all lines of its workers.
func logPath(dir, id string) string { return filepath.Join(dir, recordsFolder, id+".log") }

// maxRecord bounds a sweep's record, which is held in memory.
const maxRecord = 64 << 20

func readRecord(path string) (*record, error) {
	text, err := safeopen.ReadFile(filepath.Dir(path), path, maxRecord)
	if err != nil {
		return nil, fmt.Errorf("read sweep: %w", err)
	}
	r := &record{path: path}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read sweep %s: %w", path, err)
	}
	return r, nil
}

func (r *record) write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = wholefile.WriteBytes(r.path, append(text, '\n'), 0o644)
	}
	return unwritable("write sweep", err)
}

// records lists the sweeps of the study in dir, the last one first. What cannot
// be read is left out.
func records(dir string) []*record {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), recordsFolder, "*.json"))
	if err != nil {
		return nil
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	var all []*record
	for _, path := range paths {
		if r, err := readRecord(path); err == nil {
			all = append(all, r)
		}
	}
	return all
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func escapeGlob(path string) string { return globEscaper.Replace(path) }

// over reports whether the sweep has ended, by what it wrote itself.
func (r *record) over() bool { return r.State != StateWaiting && r.State != StateRunning }

// alive reports whether the process of the sweep lives.
func (r *record) alive() bool {
	folder, err := locksFolder()
	return err == nil && entry{folder: folder, id: r.ID, state: entryWaiting}.alive()
}

// runs says who the sweep is.
func (r *record) runs() string {
	if r.PID == 0 {
		return r.Study + " is running"
	}
	return fmt.Sprintf("%s is running (pid %d, since %s)", r.Study, r.PID, clock(r.Started))
}

// clock is a time of day, with the date if that is not today's.
func clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("15:04")
}

// waiting says that a sweep waits for r.
func (r *record) waiting() string {
	if r.PID == 0 {
		return fmt.Sprintf("waiting for %s; --now starts it anyway", r.Study)
	}
	return fmt.Sprintf("waiting for %s (pid %d, since %s); --now starts it anyway", r.Study, r.PID, clock(r.Started))
}

var errKilled = errors.New("it was killed")
