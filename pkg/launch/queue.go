package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// locksVariable names the folder of the sweeps' locks.
const locksVariable = "LOCKSTEP_LOCKS"

// The sweeps of a user on a machine each have a file in the folder of locks. Its
// process has it locked for as long as it lives, however it ends. Its name says
// how far the sweep is, and a rename, which keeps the lock, says so in one step.
const (
	entryWaiting = ".waiting"
	entryRunning = ".running"
	entryEnded   = ".ended"
)

const (
	queueFile = "queue.lock"
	// turnTime is the time between two looks of a waiting sweep at the queue.
	turnTime = 200 * time.Millisecond
	// keptEntries is how many sweeps that have ended are listed.
	keptEntries = 50
)

// locksFolder makes the folder of this user's locks and returns its path:
// $LOCKSTEP_LOCKS, else lockstep in $XDG_RUNTIME_DIR, else a folder in the
// temporary directory.
func locksFolder() (string, error) {
	dir := os.Getenv(locksVariable)
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); dir == "" && runtime != "" {
		if s, err := os.Stat(runtime); err == nil && s.IsDir() {
			dir = filepath.Join(runtime, "lockstep")
		}
	}
	shared := dir == ""
	if shared {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-%d", os.Getuid()))
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("make folder of locks: %w; set %s to a folder of your own", err, locksVariable)
	}
	if !shared {
		return dir, nil
	}
	// Anybody can make a folder of that name.
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return "", fmt.Errorf("make folder of locks %s: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || int(s.Uid) != os.Getuid() || s.Mode&0o022 != 0 {
		return "", fmt.Errorf("use folder of locks %s: it is not a folder that only you can write; set %s to a folder of your own", dir, locksVariable)
	}
	return dir, nil
}

// entry is the file of one sweep in the folder of locks.
type entry struct {
	folder string
	id     string
	state  string // one of the entry constants
	Record string `json:"record"` // path of the sweep's record
}

func (e entry) path() string { return filepath.Join(e.folder, e.id+e.state) }

// entries lists the sweeps in the order in which they were launched.
func entries(folder string) ([]entry, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	var all []entry
	for _, f := range files {
		state := filepath.Ext(f.Name())
		if state != entryWaiting && state != entryRunning && state != entryEnded {
			continue
		}
		e := entry{folder: folder, id: strings.TrimSuffix(f.Name(), state), state: state}
		text, err := os.ReadFile(e.path())
		if err != nil || json.Unmarshal(text, &e) != nil {
			continue // renamed or removed in the meantime
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// alive reports whether the process of the sweep lives. It may have renamed the
// file since it was listed.
func (e entry) alive() bool {
	for _, state := range []string{e.state, entryRunning, entryEnded} {
		e.state = state
		f, err := os.Open(e.path())
		if err != nil {
			continue
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		_ = f.Close() // and with it this lock
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	return false
}

// A place is what a sweep's own process holds of its entry.
type place struct {
	entry
	lock *os.File
}

// enter adds a sweep to the folder of locks. The caller has the queue's lock.
func enter(folder, id, record, state string) (*place, error) {
	p := &place{entry: entry{folder: folder, id: id, state: state, Record: record}}
	text, err := json.Marshal(p.entry)
	if err != nil {
		return nil, err
	}
	// It gets its name when it is whole and locked.
	f, err := os.CreateTemp(folder, id+"-*.new")
	if err != nil {
		return nil, fmt.Errorf("enter sweep: %w", err)
	}
	if _, err = f.Write(text); err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(f.Name(), p.path())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enter sweep: %w", err), f.Close(), os.Remove(f.Name()))
	}
	p.lock = f
	return p, nil
}

func (p *place) move(state string) error {
	from := p.path()
	p.state = state
	if err := os.Rename(from, p.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("enter sweep: %w", err)
	}
	return nil
}

// leave ends the sweep's place in the queue. It stays listed.
func (p *place) leave() error { return errors.Join(p.move(entryEnded), p.lock.Close()) }

// remove undoes enter.
func (p *place) remove() error { return errors.Join(os.Remove(p.path()), p.lock.Close()) }

// inQueue calls do while nobody else looks at the queue or changes it.
func inQueue(ctx context.Context, folder string, do func() error) (err error) {
	f, err := os.OpenFile(filepath.Join(folder, queueFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock queue of sweeps: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const again = 5 * time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock queue of sweeps %s: %w; set %s to a folder on a local disk", f.Name(), err, locksVariable)
		}
		select {
		case <-ctx.Done():
			return why(ctx)
		case <-time.After(again):
		}
	}
}

// before returns the sweep that p waits for: one that runs, else one that waits
// and was launched earlier; nil if it is p's turn. The caller has the queue's
// lock.
func (p *place) before() (*record, error) {
	all, err := entries(p.folder)
	if err != nil {
		return nil, err
	}
	var waiting *record
	for _, e := range all {
		if e.id == p.id || e.state == entryEnded || !e.alive() {
			continue
		}
		if e.state == entryWaiting && (e.id > p.id || waiting != nil) {
			continue
		}
		r, err := readRecord(e.Record)
		if err != nil { // its folder was deleted; it uses the machine all the same
			r = &record{Study: filepath.Base(filepath.Dir(filepath.Dir(e.Record)))}
		}
		if e.state == entryRunning {
			return r, nil
		}
		waiting = r
	}
	return waiting, nil
}

// turn moves p to the running sweeps if it is its turn, and otherwise returns
// the sweep that it waits for.
func (p *place) turn(ctx context.Context) (first *record, err error) {
	err = inQueue(ctx, p.folder, func() error {
		if first, err = p.before(); err != nil || first != nil {
			return err
		}
		return p.move(entryRunning)
	})
	return first, err
}

// prune removes the oldest entries of sweeps that have ended. The caller has the
// queue's lock.
func prune(folder string) error {
	all, err := entries(folder)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return e.state != entryEnded && e.alive() })
	for _, e := range all[:max(0, len(all)-keptEntries)] {
		if err := os.Remove(e.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old sweep: %w", err)
		}
	}
	return nil
}

// schedulerVariables are set in the jobs of Slurm, PBS, LSF, Grid Engine,
// HTCondor, Flux and OAR, which give a job its own part of the machine.
var schedulerVariables = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_AD", "FLUX_JOB_ID", "OAR_JOB_ID"}

// queues reports whether s waits for other sweeps.
func (s Sweep) queues() bool {
	if s.Now || os.Getenv("LOCKSTEP_RUN") != "" {
		return false
	}
	return !slices.ContainsFunc(schedulerVariables, func(name string) bool { return os.Getenv(name) != "" })
}

// A BusyError reports a sweep that would have to wait for another.
type BusyError struct {
	Study string // of the other
	PID   int
	Since time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; wait for it, or start anyway (Now, --now)", (&record{Study: e.Study, PID: e.PID, Started: e.Since}).runs())
}
