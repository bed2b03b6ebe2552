package runs

import (
	"bytes"
	"cmp"
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

// Writer writes the files of a run folder that all ranks share. It belongs to the process that owns
// the run: rank 0, or the launcher of another program. Several goroutines may use it. Once another
// process has taken the run over, its methods return an *OwnedError and write nothing. AppendEpoch
// and Finish return a *LostError if the run folder, or a file that the Writer writes, is gone.
type Writer struct {
	dir    string
	lock   *Lock
	opened time.Time // with the monotonic clock
	mu     sync.Mutex
	info   Info
	epochs *os.File
	log    *os.File
	// appended contains the files to which appendRows has appended.
	appended map[string]bool
	closed   bool
}

// Create creates the run folder dir with run.json, an epochs.csv that contains only its
// header, and an empty out.log. It sets info.Schema; an empty Status becomes StatusRunning,
// and a zero Started the current time. It is an error if the folder already contains a run,
// and an *OwnedError if another process owns it.
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

// Create is like the function [Create], but uses the folder that l locks. Finish of the returned
// Writer releases l. After an error the caller must release it.
func (l *Lock) Create(info Info) (*Writer, error) {
	dir := l.dir
	if err := checkNoRun(dir); err != nil {
		return nil, err
	}
	if err := checkSafeToOpen(dir); err != nil {
		return nil, fmt.Errorf("create run folder %s: %w", dir, err)
	}
	if err := removeTemporary(dir); err != nil { // left by a process that was killed before it created a run
		return nil, fmt.Errorf("create run folder %s: %w", dir, err)
	}
	info.Schema = SchemaVersion
	info.Status = cmp.Or(info.Status, StatusRunning)
	if info.Started.IsZero() {
		info.Started = time.Now()
	}
	w := &Writer{dir: dir, lock: l, opened: time.Now(), info: info, appended: map[string]bool{}}
	// run.json is written first and in one step: after a kill at any moment, there is either no run
	// or one that can be read and resumed.
	if err := w.createInfo(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(w.path(epochsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, newRunExistsError(dir, epochsFile)
	}
	if err != nil {
		return nil, wrapWriteError("create", w.path(epochsFile), err)
	}
	w.epochs = f
	if _, err := f.WriteString(epochFileHeader + "\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("write header of %s: %w", f.Name(), err), f.Close())
	}
	if err := w.openLog(); err != nil {
		return nil, err
	}
	return w, nil
}

// checkNoRun returns an error if dir contains a run, or a part of one.
func checkNoRun(dir string) error {
	if name := findRunRecordFile(dir); name != "" {
		return newRunExistsError(dir, name)
	}
	return nil
}

// findRunRecordFile returns the name of a file in dir that shows that dir contains a run: run.json,
// epochs.csv or the steps of a rank. It returns "" if there is none.
func findRunRecordFile(dir string) string {
	for _, name := range []string{infoFile, epochsFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	if ranks, err := Ranks(dir); err == nil && len(ranks) > 0 {
		return filepath.Base(stepsPath(dir, ranks[0]))
	}
	return ""
}

// createInfo creates run.json; it is an error if it exists. os.Link lets only one process succeed
// even if two machines create the same folder at once on a file system without locks.
func (w *Writer) createInfo() error {
	text, err := w.encodeInfo()
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(w.path(infoFile), renameio.WithTempDir(w.dir), renameio.WithPermissions(0o644))
	if err != nil {
		return wrapWriteError("create", w.path(infoFile), err)
	}
	defer func() { _ = f.Cleanup() }() // removes the temporary name; the file keeps the name run.json
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
		return newRunExistsError(w.dir, infoFile)
	}
	// On a file system without links, creating epochs.csv with O_EXCL lets only one process
	// continue.
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write run.json: %w", err)
	}
	return nil
}

// Resume opens the run folder dir to append to it, and returns its content. It removes a last line
// of epochs.csv that was torn by a kill, which is then in Run.Problems, and half-written files. If
// another process owns the run, the error is an *OwnedError.
func Resume(dir string) (*Writer, Run, error) {
	if _, err := ReadInfo(dir); err != nil { // so that only run folders get a lock file
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

// Resume is like the function [Resume], but uses the folder that l locks. Finish of the returned
// Writer releases l. After an error the caller must release it.
func (l *Lock) Resume() (*Writer, Run, error) {
	dir := l.dir
	run, err := Read(dir)
	if err != nil {
		return nil, run, fmt.Errorf("resume: %w", err)
	}
	if err := checkSafeToOpen(dir); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	if err := removeTemporary(dir); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	w := &Writer{dir: dir, lock: l, opened: time.Now(), info: run.Info, appended: map[string]bool{}}
	if err := repairFile(w.path(epochsFile), epochFileHeader); err != nil {
		return nil, run, fmt.Errorf("resume run %s: %w", dir, err)
	}
	w.epochs, err = os.OpenFile(w.path(epochsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, run, wrapWriteError("resume", w.path(epochsFile), err)
	}
	if err := w.openLog(); err != nil {
		return nil, run, err
	}
	return w, run, nil
}

// checkSafeToOpen returns an error if a file in dir that a run appends to must not be opened, such
// as a link to a file outside of the folder.
func checkSafeToOpen(dir string) error {
	ranks, err := Ranks(dir)
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(dir, epochsFile), filepath.Join(dir, loadFileName), filepath.Join(dir, classesFile), filepath.Join(dir, logFile)}
	for _, rank := range ranks {
		paths = append(paths, stepsPath(dir, rank))
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

// openLog opens out.log and writes the notices of the lock to it. On failure it closes the open files.
func (w *Writer) openLog() (err error) {
	if err := wholefile.BreakHardLinks(w.path(logFile)); err != nil {
		return errors.Join(wrapWriteError("open", w.path(logFile), err), w.epochs.Close())
	}
	w.log, err = os.OpenFile(w.path(logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return errors.Join(wrapWriteError("open", w.path(logFile), err), w.epochs.Close())
	}
	for _, notice := range w.lock.Notices() {
		if err := w.Log("note: %s", notice); err != nil {
			return errors.Join(err, w.epochs.Close(), w.log.Close())
		}
	}
	return nil
}

// Notices returns messages for the user about the run's lock; see Lock.Notices.
func (w *Writer) Notices() []string { return w.lock.Notices() }

// temporaryNamePattern matches the names of temporary files that package renameio creates for the
// files and checkpoints of a run. A kill may leave such files.
var temporaryNamePattern = regexp.MustCompile(
	`^\.(run\.json|(epochs|classes|images|load|usage-\d+)\.csv|(owners|steps-\d+)\.jsonl|out\.log|epoch-\d+(-step-\d+)?\.safetensors|run-folder\.txt)\d+$`)

// RemoveTemporary deletes half-written files that a kill left in the run folder dir and its
// checkpoints, even if the run was not created yet; Create and Resume do so too. If a process owns
// the run, the error is an *OwnedError.
func RemoveTemporary(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, OwnersFile)); errors.Is(err, fs.ErrNotExist) {
		return removeTemporary(dir) // the folder never had an owner
	}
	l, err := localLockEnvironment().lockFolder(dir)
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
			if !temporaryNamePattern.MatchString(e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(place, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Dir returns the path of the run folder.
func (w *Writer) Dir() string { return w.dir }

// AppendEpoch appends a row to epochs.csv and waits until it is on disk.
func (w *Writer) AppendEpoch(e Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkFilesNotLost(); err != nil {
		return err
	}
	// The row and its line end are written in one call: if a kill tears the row, the line end is
	// missing, which every reader detects.
	if _, err := w.epochs.WriteString(formatEpoch(e) + "\n"); err != nil {
		return fmt.Errorf("write epoch %d to %s: %w", e.Epoch, w.epochs.Name(), err)
	}
	if err := w.epochs.Sync(); err != nil {
		return fmt.Errorf("write epoch %d to %s: %w", e.Epoch, w.epochs.Name(), err)
	}
	return nil
}

// TruncateAfter removes images.csv, and from epochs.csv and classes.csv the unreadable rows and the
// rows after epoch. The run is resumed from the checkpoint of this epoch.
func (w *Writer) TruncateAfter(epoch int) error {
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
	if err := w.truncateScoresAfter(epoch); err != nil {
		return fmt.Errorf("truncate scores: %w", err)
	}
	text := []byte(epochFileHeader + "\n")
	for _, e := range epochs {
		if e.Epoch <= epoch {
			text = append(append(text, formatEpoch(e)...), '\n')
		}
	}
	if err := w.replaceFile(epochsFile, text); err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	// replaceFile has created a new file; w.epochs is the old one, without a name.
	next, err := os.OpenFile(f.Name(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("truncate epochs: %w", err)
	}
	old := w.epochs
	w.epochs = next
	return old.Close()
}

// Log appends a line to out.log in the format of Python's root logger, which many readers
// understand: `2021-11-12 00:32:26,118 - root - INFO - …`.
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

// UpdateInfo calls change with the content of run.json, and then replaces the file in one step. It
// returns a *LostError if files of the run folder were lost.
func (w *Writer) UpdateInfo(change func(*Info)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkFilesNotLost(); err != nil {
		return err
	}
	change(&w.info)
	return w.writeInfo()
}

// Finish writes the final status, one of the Status constants, and the error of a failed run. It
// then closes the writer and releases the run's lock. If files of the run folder were lost, the
// status is StatusFailed in any case. Finish sets the wall time and the load, unless the run has an
// Info.Source. A second call does nothing.
func (w *Writer) Finish(status string, failure error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	var lost *LostError
	if failure == nil && errors.As(w.checkFilesNotLost(), &lost) {
		status, failure = StatusFailed, lost
	}
	w.info.Status, w.info.Ended = status, time.Now()
	replayed := w.info.Source != "" // its wall time and load were recorded elsewhere
	if !replayed {
		w.info.WallSeconds += time.Since(w.opened).Seconds()
	}
	if failure != nil {
		w.info.Error = failure.Error()
	}
	err := w.lock.Check()
	if err == nil {
		if loads, _, err := readLoads(w.dir); err == nil && !replayed { // if they cannot be read, the load is unknown
			w.info.Load = w.info.summarizeLoad(loads)
		}
		err = w.writeInfo()
	}
	err = errors.Join(err, w.epochs.Close(), w.log.Close())
	if release := w.lock.Release(); err == nil { // also returns an *OwnedError if the run was taken over
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
	if err := w.replaceFile(infoFile, text); err != nil {
		return fmt.Errorf("write run.json: %w", err)
	}
	return nil
}

// replaceFile writes the file name of the run folder in one step. The temporary file is in the same
// folder, so that Resume can delete it after a kill.
func (w *Writer) replaceFile(name string, text []byte) error {
	return wholefile.WriteBytes(w.path(name), text, 0o644)
}

// newRunExistsError names file, which shows that dir already contains a run.
func newRunExistsError(dir, file string) error {
	return fmt.Errorf("create run folder %s: the folder already contains a run (%s); choose another --series or --seed, continue it with --resume, or delete the folder", dir, file)
}

// wrapWriteError adds the action and the path to err, and how to choose another folder if this one
// is not writable.
func wrapWriteError(action, path string, err error) error {
	for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s %s: %w; choose a folder that you may write, by its path or with LOCKSTEP_LOGS", action, path, err)
		}
	}
	return fmt.Errorf("%s %s: %w", action, path, err)
}

// repairFile removes a torn last line from the file at path, which it creates if necessary. If no
// line remains, it writes the header, unless that is empty. Other names of the file, as in a
// snapshot with hard links, keep it as it is.
func repairFile(path, header string) (err error) {
	if err := wholefile.BreakHardLinks(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	complete := bytes.LastIndexByte(text, '\n') + 1
	if err := f.Truncate(int64(complete)); err != nil {
		return err
	}
	if complete > 0 || header == "" {
		return nil
	}
	_, err = f.WriteAt([]byte(header+"\n"), 0)
	return err
}
