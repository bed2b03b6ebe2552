package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"lockstep/pkg/internal/wholefile"
)

// Lock is the exclusive right of one process to write a run folder. The operating system releases
// it when the process ends, even if it is killed. Some network file systems do not share locks
// between machines. There, a heartbeat in the folder shows other machines that the owner is alive.
type Lock struct {
	dir     string
	machine lockEnvironment
	file    *os.File
	stat    os.FileInfo // of file when the lock was acquired
	offset  int64       // of the owner's line in file
	notices []string
	stop    chan struct{}

	background sync.WaitGroup // renews the heartbeat

	mu       sync.Mutex
	owner    Owner
	released bool
}

// Acquire acquires the lock of the run folder dir, which it creates if necessary. Unless resume is
// set, it is an error if the folder already contains a run. If another process owns the run, the
// error is an *OwnedError.
//
// Create and Resume acquire the lock themselves. A caller that must read the folder first, for
// example to find a checkpoint, acquires the lock and then calls Lock.Create or Lock.Resume.
func Acquire(dir string, resume bool) (*Lock, error) {
	return localLockEnvironment().acquire(dir, resume)
}

func (m lockEnvironment) acquire(dir string, resume bool) (*Lock, error) {
	// Check before anything is created, so that a refused folder stays unchanged.
	switch owner, alive, err := m.ownerOf(dir); {
	case err != nil:
		return nil, wrapWriteError("lock run folder", dir, err)
	case alive:
		return nil, &OwnedError{Dir: dir, Owner: owner}
	}
	if !resume {
		if err := checkNoRun(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, wrapWriteError("create run folder", dir, err)
	}
	l, err := m.lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if !resume { // another process may have created a run in the meantime
		err = checkNoRun(dir)
	}
	if err == nil {
		err = l.addOwner()
	}
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	l.background.Go(l.runHeartbeat)
	return l, nil
}

// lockFolder acquires the lock of dir but does not make this process the owner.
func (m lockEnvironment) lockFolder(dir string) (*Lock, error) {
	path := filepath.Join(dir, OwnersFile)
	l := &Lock{dir: dir, machine: m, stop: make(chan struct{})}
	f, _, err := openAndLock(path, os.O_RDWR|os.O_CREATE, func(f *os.File) (bool, error) {
		l.file, l.notices = f, nil
		return false, l.lock()
	})
	if f == nil {
		return nil, wrapWriteError("open", path, err)
	}
	if err == nil {
		l.stat, err = f.Stat()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// openAndLock opens the file at path and locks it with the function lock, whose results it
// returns. If the file has other names, as in a snapshot with hard links, these keep it, and
// openAndLock locks a copy. f is nil if path cannot be opened. It is closed on exec, so that a
// child does not inherit the lock.
func openAndLock(path string, flag int, lock func(*os.File) (held bool, err error)) (f *os.File, held bool, err error) {
	for {
		if f, err = os.OpenFile(path, flag, 0o644); err != nil {
			return nil, false, err
		}
		held, err = lock(f)
		if held || err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return f, held, err
		}
		if serr := wholefile.BreakHardLinks(path); serr != nil {
			return f, held, serr
		}
		// BreakHardLinks may have replaced the file since it was opened, here or in another process. The
		// old file's lock keeps nobody out.
		lerr := CheckNotLost(f)
		if _, lost := errors.AsType[*LostError](lerr); !lost {
			return f, held, errors.Join(err, lerr)
		}
		if err := f.Close(); err != nil {
			return nil, false, err
		}
	}
}

// lock locks the file and appends messages for the user to l.notices. The error is an
// *OwnedError if another process owns the run.
func (l *Lock) lock() error {
	var held bool
	var err error
	for range maxOwnerReads { // a process that only cleans up has the lock for a moment
		held, err = l.machine.lock(l.file)
		if !held {
			break
		}
		if owner, found, err := lastOwner(l.file); err == nil && found && !owner.Released {
			return &OwnedError{Dir: l.dir, Owner: owner}
		}
		time.Sleep(ownerRetryPause)
	}
	supported := err == nil
	if !supported && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	owner, found, err := lastOwner(l.file)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	case held:
		return &OwnedError{Dir: l.dir}
	case found && l.machine.mayBeAlive(owner, supported):
		return &OwnedError{Dir: l.dir, Owner: owner}
	case found && !owner.Released && owner.BootID != l.machine.boot:
		l.notices = append(l.notices, fmt.Sprintf("took the run over from pid %d on %s, whose last heartbeat was at %s",
			owner.PID, owner.Host, formatTime(owner.Heartbeat)))
	}
	if !supported {
		l.notices = append(l.notices, fmt.Sprintf("the file system of %s has no file locks: only a heartbeat in %s, which is valid for %v, keeps other processes from this run",
			l.dir, OwnersFile, heartbeatTimeout))
	}
	return nil
}

// addOwner appends a line that makes this process the owner of the run.
func (l *Lock) addOwner() error {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err
	}
	l.offset = int64(bytes.LastIndexByte(text, '\n') + 1)
	if err := l.file.Truncate(l.offset); err != nil { // removes a line torn by a kill
		return wrapWriteError("write", l.file.Name(), err)
	}
	now := l.machine.now().UTC().Truncate(time.Second)
	l.owner = Owner{Host: l.machine.host, BootID: l.machine.boot, PID: os.Getpid(), Started: now, Heartbeat: now}
	if err := l.writeOwner(); err != nil {
		return wrapWriteError("write", l.file.Name(), err)
	}
	if len(l.notices) == 0 {
		return nil
	}
	// If there are notices, the lock may not have kept out another machine: of two processes that
	// get here at the same time, the last one to write is the owner.
	time.Sleep(maxOwnerReads * ownerRetryPause)
	return l.checkStillOwned()
}

// writeOwner writes the owner's line over its previous version. The new line is never shorter: its
// times are whole seconds, and the release of the run only adds a field.
func (l *Lock) writeOwner() error {
	text, err := json.Marshal(l.owner)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(text, '\n'), l.offset)
	return err
}

// Check returns an *OwnedError if another process has taken the run over, as is possible after the
// owner was stopped for longer than a heartbeat is valid, or if the run folder was replaced. It
// returns a *LostError if the folder or the lock's file is gone.
func (l *Lock) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkStillOwned()
}

func (l *Lock) checkStillOwned() error {
	switch stat, err := os.Stat(l.file.Name()); {
	case errors.Is(err, fs.ErrNotExist):
		return &LostError{l.file.Name()}
	case err == nil && !os.SameFile(stat, l.stat):
		owner, _, _ := l.machine.ownerOf(l.dir) // only for the message
		return &OwnedError{Dir: l.dir, Owner: owner}
	}
	owner, found, err := lastOwner(l.file)
	if err != nil {
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	}
	if found && !owner.isSameAcquisition(l.owner) {
		return &OwnedError{Dir: l.dir, Owner: owner}
	}
	return nil
}

func (l *Lock) runHeartbeat() {
	ticks := time.NewTicker(heartbeatInterval)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticks.C:
			l.renewHeartbeat()
		}
	}
}

// renewHeartbeat writes a heartbeat. It ignores errors, because the next one may succeed and Check
// detects that the run was taken over.
func (l *Lock) renewHeartbeat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released || l.checkStillOwned() != nil {
		return
	}
	l.owner.Heartbeat = l.machine.now().UTC().Truncate(time.Second)
	_ = l.writeOwner()
}

// Notices returns messages for the user, also written to out.log: that the run was taken over from
// another machine, or that the file system has no locks.
func (l *Lock) Notices() []string { return l.notices }

// Release releases the lock. Writer.Finish calls it for the Writer's lock. A second call does nothing.
func (l *Lock) Release() error {
	l.mu.Lock()
	again := l.released
	l.released = true
	l.mu.Unlock()
	if again {
		return nil
	}
	close(l.stop)
	l.background.Wait()
	err := l.Check()
	if err == nil {
		l.owner.Heartbeat, l.owner.Released = l.machine.now().UTC().Truncate(time.Second), true
		err = l.writeOwner()
	}
	if err = errors.Join(err, l.file.Close()); err != nil {
		return fmt.Errorf("release run: %w", err)
	}
	return nil
}
