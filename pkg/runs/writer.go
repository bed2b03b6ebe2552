package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// Names of the files of a run folder.
const (
	infoFile   = "run.json"
	epochsFile = "epochs.csv"
	logFile    = "out.log"
)

// Writer writes the part of a run folder that belongs to the run as a whole;
// the process that owns the run (rank 0, or the launcher of another program)
// holds it, with the run's Lock. Its methods may be called from several
// goroutines; once another process has taken the run over, they return an
// *OwnedError and write nothing. Epoch and Finish return a *LostError once the run
// folder, or a file of it that the Writer writes, is gone.
type Writer struct {
	dir    string
	lock   *Lock
	opened time.Time // with the monotonic clock
	mu     sync.Mutex
	info   Info
	epochs *os.File
	log    *os.File
	loads  bool // a row of load.csv was written
	closed bool
}

// Create makes the run folder dir, with run.json, an epochs.csv that holds
// only its header, and an empty out.log. Info's Schema is set; an empty Status
// becomes StatusRunning and a zero Started the time of the call. A folder that
// already holds a run is refused: nothing of a run is ever written over. If
// another process owns the folder, the error is an *OwnedError.
func Create(dir string, info Info) (*Writer, error) {
	l, err := Acquire(dir, false)
	if err != nil {
		return nil, err
	}
	w, err := l.Create(info)
	if err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return w, nil
}

// Create is the function of this name, for the run folder that l locks. The
// Writer's Finish releases l; after an error the caller releases it.
func (l *Lock) Create(info Info) (*Writer, error) {
	dir := l.dir
	if err := vacant(dir); err != nil {
		return nil, err
	}
	if err := checkFiles(dir); err != nil {
		return nil, fmt.Errorf("create run folder %s: %w", dir, err)
	}
	if err := removeTemporary(dir); err != nil { // of a process that was killed before there was a run
		return nil, fmt.Errorf("create run folder %s: %w", dir, err)
	}
	info.Schema = SchemaVersion
	if info.Status == "" {
		info.Status = StatusRunning
	}
	if info.Started.IsZero() {
		info.Started = time.Now()
	}
	w := &Writer{dir: dir, lock: l, opened: time.Now(), info: info}
	// run.json comes first and whole: whenever a kill comes, there is either no
	// run yet or one that reads and can be resumed.
	if err := w.firstInfo(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(w.path(epochsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, occupied(dir, epochsFile)
	}
	if err != nil {
		return nil, unwritable("create", w.path(epochsFile), err)
	}
	w.epochs = f
	if _, err := f.WriteString(epochHeader + "\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("write header of %s: %w", f.Name(), err), f.Close())
	}
	if err := w.openLog(); err != nil {
		return nil, err
	}
	return w, nil
}

// vacant returns an error if dir holds a run.
func vacant(dir string) error {
	for _, name := range []string{infoFile, epochsFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return occupied(dir, name)
		}
	}
	return nil
}

// firstInfo makes run.json, where there is none. The link decides between two
// processes that create the same folder at once where the lock does not: on
// two machines whose file system has no locks.
func (w *Writer) firstInfo() error {
	text, err := w.encodeInfo()
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(w.path(infoFile), renameio.WithTempDir(w.dir), renameio.WithPermissions(0o644))
	if err != nil {
		return unwritable("create", w.path(infoFile), err)
	}
	defer func() { _ = f.Cleanup() }() // its own name, after it has the other
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write run.json: %w", err)
	}
	switch err = os.Link(f.Name(), w.path(infoFile)); {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return occupied(w.dir, infoFile)
	}
	// A file system without links: there O_EXCL of epochs.csv decides.
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write run.json: %w", err)
	}
	return nil
}

// Resume opens the run folder dir to append to it, and returns what it holds.
// A last line of epochs.csv that was torn by a kill is cut off (and stands in
// Run.Problems), and half-written files that it left are deleted. If another
// process owns the run, the error is an *OwnedError.
func Resume(dir string) (*Writer, Run, error) {
	if _, err := readInfo(dir); err != nil { // before a folder that is none gets a lock
		return nil, Run{Dir: dir}, fmt.Errorf("resume: %w", err)
	}
	l, err := Acquire(dir, true)
	if err != nil {
		return nil, Run{Dir: dir}, err
	}
	w, run, err := l.Resume()
	if err != nil {
		return nil, run, errors.Join(err, l.Release())
	}
	return w, run, nil
}

// Resume is the function of this name, for the run folder that l locks. The
// Writer's Finish releases l; after an error the caller releases it.
func (l *Lock) Resume() (*Writer, Run, error) {
	dir := l.dir
	run, err := Read(dir)
	if err != nil {
		return nil, run, fmt.Errorf("resume: %w", err)
	}
	if err := checkFiles(dir); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	if err := removeTemporary(dir); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	w := &Writer{dir: dir, lock: l, opened: time.Now(), info: run.Info}
	if err := mend(w.path(epochsFile), epochHeader); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	w.epochs, err = os.OpenFile(w.path(epochsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, run, unwritable("resume", w.path(epochsFile), err)
	}
	if err := w.openLog(); err != nil {
		return nil, run, err
	}
	return w, run, nil
}

// checkFiles returns an error if a file of dir that a run appends to must
// not be opened: a link out of the folder would have the run write elsewhere.
func checkFiles(dir string) error {
	ranks, err := Ranks(dir)
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(dir, epochsFile), filepath.Join(dir, loadFile), filepath.Join(dir, logFile)}
	for _, rank := range ranks {
		paths = append(paths, stepsFile(dir, rank))
	}
	for _, path := range paths {
		f, err := safeopen.Open(dir, path)
		switch {
		case err == nil:
			err = f.Close()
		case errors.Is(err, fs.ErrNotExist):
			if _, e := os.Lstat(path); e == nil {
				err = &safeopen.RefusedError{Path: path, Reason: "it is a link to a file that does not exist"}
			} else {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openLog opens out.log, and notes there what the lock has to say; on an error
// it closes what is open.
func (w *Writer) openLog() (err error) {
	w.log, err = os.OpenFile(w.path(logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return errors.Join(unwritable("open", w.path(logFile), err), w.epochs.Close())
	}
	for _, notice := range w.lock.Notices() {
		if err := w.Log("note: %s", notice); err != nil {
			return errors.Join(err, w.epochs.Close(), w.log.Close())
		}
	}
	return nil
}

// Notices returns what a person should know about how the run was locked; see
// Lock.Notices.
func (w *Writer) Notices() []string { return w.lock.Notices() }

// pending is the name of a file that renameio was writing for run.json,
// epochs.csv or a checkpoint when it was killed.
var pending = regexp.MustCompile(`^\.(run\.json|epochs\.csv|epoch-\d+(-step-\d+)?\.safetensors)\d+$`)

// RemoveTemporary deletes the half-written files that a kill left in the run folder dir
// and its checkpoints, whether or not there is a run yet. Create and Resume do
// it too. If a process owns the run, the error is an *OwnedError.
func RemoveTemporary(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, OwnersFile)); errors.Is(err, fs.ErrNotExist) {
		return removeTemporary(dir) // it never had an owner
	}
	l, err := thisMachine().lockFolder(dir)
	if err != nil {
		return err
	}
	return errors.Join(removeTemporary(dir), l.file.Close())
}

func removeTemporary(dir string) error {
	for _, place := range []string{dir, filepath.Join(dir, "checkpoints")} {
		entries, err := os.ReadDir(place)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !pending.MatchString(e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(place, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Dir is the run folder.
func (w *Writer) Dir() string { return w.dir }

// Info is run.json as last written.
func (w *Writer) Info() Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.info
}

// Epoch appends a row to epochs.csv and waits until it is on disk.
func (w *Writer) Epoch(e Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		return err
	}
	// One write call: a kill can tear the row only in the middle of it, which
	// the missing end of line shows to every reader.
	if _, err := w.epochs.WriteString(formatEpoch(e) + "\n"); err != nil {
		return fmt.Errorf("write epoch %d to %s: %w", e.Epoch, w.epochs.Name(), err)
	}
	if err := w.epochs.Sync(); err != nil {
		return fmt.Errorf("write epoch %d to %s: %w", e.Epoch, w.epochs.Name(), err)
	}
	return nil
}

// Truncate removes the rows after epoch, and those that cannot be read: a run
// that is resumed from the checkpoint of that epoch trains them again.
func (w *Writer) Truncate(epoch int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.lock.Check(); err != nil {
		return err
	}
	f, err := os.Open(w.epochs.Name())
	if err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	epochs, _, err := readEpochs(f, f.Name())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	text := []byte(epochHeader + "\n")
	for _, e := range epochs {
		if e.Epoch <= epoch {
			text = append(append(text, formatEpoch(e)...), '\n')
		}
	}
	if err := w.replace(epochsFile, text); err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	// The file is a new one now: what was open is the old one, without a name.
	next, err := os.OpenFile(f.Name(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	old := w.epochs
	w.epochs = next
	return old.Close()
}

// Log appends a line to out.log, with the time in front, in the form that
// Python's root logger gives it (`2021-11-12 00:32:26,118 - root - INFO - …`)
// and that readers of such logs know.
func (w *Writer) Log(format string, a ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.lock.Check(); err != nil {
		return err
	}
	stamp := time.Now().Format("2006-01-02 15:04:05,000")
	line := stamp + " - root - INFO - " + fmt.Sprintf(format, a...) + "\n"
	if _, err := w.log.WriteString(line); err != nil {
		return fmt.Errorf("write %s: %w", w.log.Name(), err)
	}
	return nil
}

// Update changes run.json: change is called with what it holds, then the file
// is replaced in one step.
func (w *Writer) Update(change func(*Info)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.lock.Check(); err != nil {
		return err
	}
	change(&w.info)
	return w.writeInfo()
}

// Finish writes how the run ended (one of the Status constants, and the error
// of a run that failed), closes the writer and releases the run's lock. A run
// that has lost files has failed, whatever status says. A second call does
// nothing.
func (w *Writer) Finish(status string, failure error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	var lost *LostError
	if failure == nil && errors.As(w.check(), &lost) {
		status, failure = StatusFailed, lost
	}
	w.info.Status, w.info.Ended = status, time.Now()
	w.info.WallSeconds += time.Since(w.opened).Seconds()
	if failure != nil {
		w.info.Error = failure.Error()
	}
	err := w.lock.Check()
	if err == nil {
		if loads, _, err := readLoads(w.dir); err == nil { // what cannot be read is not known
			w.info.Load = w.info.summary(loads)
		}
		err = w.writeInfo()
	}
	err = errors.Join(err, w.epochs.Close(), w.log.Close())
	if release := w.lock.Release(); err == nil { // which also says who took the run over
		err = release
	}
	if err == nil && lost != nil {
		err = lost
	}
	return err
}

func (w *Writer) path(name string) string { return filepath.Join(w.dir, name) }

func (w *Writer) encodeInfo() ([]byte, error) {
	text, err := json.MarshalIndent(w.info, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode run.json: %w", err)
	}
	return append(text, '\n'), nil
}

func (w *Writer) writeInfo() error {
	text, err := w.encodeInfo()
	if err != nil {
		return err
	}
	if err := w.replace(infoFile, text); err != nil {
		return fmt.Errorf("write run.json: %w", err)
	}
	return nil
}

// replace writes a file in one step. What a kill leaves of it lies beside it,
// where Resume finds it, and not in the folder of temporary files.
func (w *Writer) replace(name string, text []byte) error {
	return wholefile.WriteBytes(w.path(name), text, 0o644)
}

// occupied says that dir holds a run, and what to do.
func occupied(dir, file string) error {
	return fmt.Errorf("create run folder %s: it already holds a run (%s); choose another --series or --seed, continue it with --resume, or delete the folder", dir, file)
}

// unwritable adds, where the place is the cause, where else one may write.
func unwritable(what, path string, err error) error {
	for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s %s: %w; choose a folder that you may write, by its path or with LOCKSTEP_LOGS", what, path, err)
		}
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

// mend cuts a torn last line off the file, and gives it its header (when not
// empty) where the kill came before that was whole. A missing file is made.
func mend(path, header string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if err := f.Truncate(int64(whole)); err != nil {
		return err
	}
	if whole > 0 || header == "" {
		return nil
	}
	_, err = f.WriteAt([]byte(header+"\n"), 0)
	return err
}
