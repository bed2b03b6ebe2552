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
)

// Lock is the right to write a run folder. One process at a time has it. The
// operating system releases it when the process ends, however it ends; another
// machine, which may share the folder but not the lock, sees by the heartbeat
// that the owner is alive.
type Lock struct {
	dir     string
	machine machine
	file    *os.File
	stat    os.FileInfo // of file
	offset  int64       // of the owner's line
	notices []string
	stop    chan struct{}
	beating sync.WaitGroup

	mu       sync.Mutex
	owner    Owner
	released bool
}

// Acquire takes the lock of the run folder dir, which it makes if it is not
// there. With resume false a folder that already holds a run is refused. If
// another process owns the run, the error is an *OwnedError.
//
// Create and Resume acquire the lock themselves. A caller that reads the folder
// before, such as to find a checkpoint, acquires it first, and calls the Lock's
// methods of the same names.
func Acquire(dir string, resume bool) (*Lock, error) {
	return thisMachine().acquire(dir, resume)
}

func (m machine) acquire(dir string, resume bool) (*Lock, error) {
	// Before anything is made: a folder that is refused stays as it is.
	switch owner, alive, err := m.ownerOf(dir); {
	case err != nil:
		return nil, unwritable("lock run folder", dir, err)
	case alive:
		return nil, &OwnedError{Dir: dir, Owner: owner}
	}
	if !resume {
		if err := vacant(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, unwritable("create run folder", dir, err)
	}
	l, err := m.lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if !resume { // somebody may have made a run in the meantime
		err = vacant(dir)
	}
	if err == nil {
		err = l.sign()
	}
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	l.beating.Go(l.beat)
	return l, nil
}

// lockFolder takes the lock of dir, without putting its name into the file.
func (m machine) lockFolder(dir string) (*Lock, error) {
	path := filepath.Join(dir, OwnersFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) // closed on exec: a child does not inherit the lock
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	l := &Lock{dir: dir, machine: m, file: f, stop: make(chan struct{})}
	if err = l.lock(); err == nil {
		l.stat, err = f.Stat()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (l *Lock) lock() error {
	var held bool
	var err error
	for range nameTries { // who only cleans up has it for a moment
		held, err = l.machine.lock(l.file)
		if !held {
			break
		}
		if owner, named, err := lastOwner(l.file); err == nil && named && !owner.Released {
			return &OwnedError{Dir: l.dir, Owner: owner}
		}
		time.Sleep(nameWait)
	}
	supported := err == nil
	if !supported && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	owner, named, err := lastOwner(l.file)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	case held:
		return &OwnedError{Dir: l.dir}
	case named && l.machine.alive(owner, supported):
		return &OwnedError{Dir: l.dir, Owner: owner}
	case named && !owner.Released && owner.BootID != l.machine.boot:
		l.notices = append(l.notices, fmt.Sprintf("took the run over from pid %d on %s, whose last heartbeat was at %s",
			owner.PID, owner.Host, clock(owner.Heartbeat)))
	}
	if !supported {
		l.notices = append(l.notices, fmt.Sprintf("the file system of %s has no file locks: another process is kept from this run by a heartbeat in %s alone, which counts for %v",
			l.dir, OwnersFile, heartbeatTimeout))
	}
	return nil
}

// sign adds this process to the file as its owner.
func (l *Lock) sign() error {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err
	}
	l.offset = int64(bytes.LastIndexByte(text, '\n') + 1)
	if err := l.file.Truncate(l.offset); err != nil { // a line that a kill tore
		return unwritable("write", l.file.Name(), err)
	}
	now := l.machine.now().UTC().Truncate(time.Second)
	l.owner = Owner{Host: l.machine.host, BootID: l.machine.boot, PID: os.Getpid(), Started: now, Heartbeat: now}
	if err := l.write(); err != nil {
		return unwritable("write", l.file.Name(), err)
	}
	if len(l.notices) == 0 {
		return nil
	}
	// The lock may not have kept out a process on another machine that does the
	// same at the same time: the last one to write is the owner.
	time.Sleep(nameTries * nameWait)
	return l.check()
}

// write writes the owner's line, which only grows when it is released: its
// times are in whole seconds.
func (l *Lock) write() error {
	text, err := json.Marshal(l.owner)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(text, '\n'), l.offset)
	return err
}

// Check reports with an *OwnedError that the run was taken over by another
// process, as happens to one that stood still for longer than its heartbeat
// counts, or that the run folder was replaced, and with a *LostError that the
// folder or the lock's file is gone.
func (l *Lock) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check()
}

func (l *Lock) check() error {
	switch stat, err := os.Stat(l.file.Name()); {
	case errors.Is(err, fs.ErrNotExist):
		return &LostError{l.file.Name()}
	case err == nil && !os.SameFile(stat, l.stat):
		owner, _, _ := l.machine.ownerOf(l.dir) // only for the message
		return &OwnedError{Dir: l.dir, Owner: owner}
	}
	owner, named, err := lastOwner(l.file)
	if err != nil {
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	}
	if named && !owner.same(l.owner) {
		return &OwnedError{Dir: l.dir, Owner: owner}
	}
	return nil
}

// beat renews the heartbeat until the lock is released.
func (l *Lock) beat() {
	ticks := time.NewTicker(heartbeatInterval)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticks.C:
			l.renew()
		}
	}
}

// renew writes a new heartbeat. An error is not reported: the next one may
// succeed, and Check says whether the run was taken over.
func (l *Lock) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released || l.check() != nil {
		return
	}
	l.owner.Heartbeat = l.machine.now().UTC().Truncate(time.Second)
	_ = l.write()
}

// Notices returns what a person should know about how the lock was taken: that
// the run was taken over from another machine, or that the file system has no
// locks. The first Writer also writes it to out.log.
func (l *Lock) Notices() []string { return l.notices }

// Release gives the lock up. The Writer that the Lock has made does it in
// Finish. A second call does nothing.
func (l *Lock) Release() error {
	l.mu.Lock()
	again := l.released
	l.released = true
	l.mu.Unlock()
	if again {
		return nil
	}
	close(l.stop)
	l.beating.Wait()
	err := l.Check()
	if err == nil {
		l.owner.Heartbeat, l.owner.Released = l.machine.now().UTC().Truncate(time.Second), true
		err = l.write()
	}
	if err = errors.Join(err, l.file.Close()); err != nil {
		return fmt.Errorf("release run: %w", err)
	}
	return nil
}
