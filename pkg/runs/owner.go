package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"lockstep/pkg/internal/safeopen"
)

// OwnersFile is the name of the file in a run folder that is the run's lock and
// the record of its owners: one line of JSON per Owner, the newest last. It is
// never deleted, and only appended to or changed in its last line.
const OwnersFile = "owners.jsonl"

const (
	// heartbeatInterval is how often an owner renews its heartbeat.
	heartbeatInterval = 5 * time.Second
	// heartbeatTimeout is the age of the last heartbeat at which an owner counts
	// as dead where its lock cannot be queried.
	heartbeatTimeout = time.Minute
	// maxOwners bounds the file, which is held in memory.
	maxOwners = 64 << 20
)

// Owner is the process that writes a run, or has written it.
type Owner struct {
	Host      string    `json:"host"`
	BootID    string    `json:"boot_id,omitempty"` // of the machine's kernel; empty if unknown
	PID       int       `json:"pid"`
	Started   time.Time `json:"started"`   // when it took the lock, in whole seconds
	Heartbeat time.Time `json:"heartbeat"` // when it was last known to be alive, in whole seconds
	Released  bool      `json:"released,omitempty"`
}

// OwnedError reports that another process owns a run.
type OwnedError struct {
	Dir   string
	Owner Owner
}

// Error says who owns the run, since when, and what to do.
func (e *OwnedError) Error() string {
	o := e.Owner
	if o.PID == 0 {
		return fmt.Sprintf("run %s: another process owns it; wait until that has ended", e.Dir)
	}
	host, here := "", o.BootID != "" && o.BootID == bootID()
	if here && o.PID == os.Getpid() {
		return fmt.Sprintf("run %s: this process (pid %d) owns it already, since %s; wait until that has ended", e.Dir, o.PID, clock(o.Started))
	}
	if !here {
		host = " on " + o.Host
	}
	text := fmt.Sprintf("run %s: pid %d%s owns it since %s; wait until it has ended, or end it with \"kill %d\"%s and go on with --resume",
		e.Dir, o.PID, host, clock(o.Started), o.PID, host)
	if !here {
		text += fmt.Sprintf("; if it is dead already, its run can be resumed after %s, %v after its last heartbeat",
			clock(o.Heartbeat.Add(heartbeatTimeout)), heartbeatTimeout)
	}
	return text
}

// clock formats t as people say it: with the date unless it is today.
func clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// same reports whether o and p are the same taking of the lock.
func (o Owner) same(p Owner) bool {
	return o.Host == p.Host && o.BootID == p.BootID && o.PID == p.PID && o.Started.Equal(p.Started)
}

// OwnerOf returns the last owner of the run folder dir, and whether it is
// alive, thus still owns the run. It never takes the lock, and dir may be
// read-only. A folder that never had an owner, or does not exist, gives the
// zero Owner.
func OwnerOf(dir string) (owner Owner, alive bool, err error) {
	return thisMachine().ownerOf(dir)
}

// Owners returns all owners that the run folder dir ever had, oldest first;
// none for a folder that was written before there was such a record. Lines that
// cannot be read are in the problems.
func Owners(dir string) ([]Owner, []Problem, error) {
	path := filepath.Join(dir, OwnersFile)
	text, err := safeopen.ReadFile(dir, path, maxOwners)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read owners: %w", err)
	}
	var owners []Owner
	lines := newLineReader(bytes.NewReader(text), path)
	for lines.nextLine() {
		var o Owner
		if err := json.Unmarshal(lines.raw, &o); err != nil {
			lines.problem("%v", err)
			continue
		}
		owners = append(owners, o)
	}
	return owners, lines.problems, nil
}

// machine is what decides who owns a run on this machine; tests replace parts
// of it.
type machine struct {
	host, boot string
	now        func() time.Time
	lock       func(*os.File) (held bool, err error)
	query      func(*os.File) (held bool, err error)
}

func thisMachine() machine {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return machine{host: host, boot: bootID(), now: time.Now, lock: lockFile, query: queryLock}
}

// A process that has just taken the lock has not written its name yet. It gets
// this many tries to do so.
const (
	nameTries = 20
	nameWait  = 10 * time.Millisecond
)

func (m machine) ownerOf(dir string) (owner Owner, alive bool, err error) {
	path := filepath.Join(dir, OwnersFile)
	for range nameTries {
		f, err := safeopen.Open(dir, path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return Owner{}, false, nil
		}
		if err != nil {
			return Owner{}, false, fmt.Errorf("find owner of run %s: %w", dir, err)
		}
		held, err := m.query(f)
		var named bool
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			alive = held
			supported := err == nil
			if owner, named, err = lastOwner(f); err == nil && !held {
				alive = named && m.alive(owner, supported)
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return Owner{}, false, fmt.Errorf("find owner of run %s: %w", dir, err)
		}
		if !held || named && !owner.Released {
			return owner, alive, nil
		}
		time.Sleep(nameWait)
	}
	return Owner{}, alive, nil
}

// alive reports whether owner is alive if nobody has its lock, or nobody can
// know.
func (m machine) alive(owner Owner, lockSupported bool) bool {
	sameBoot := m.boot != "" && owner.BootID == m.boot
	switch {
	case owner.Released:
		return false
	case sameBoot && lockSupported:
		return false // its lock went with it
	case sameBoot && owner.Host == m.host && !exists(owner.PID):
		return false
	}
	return m.now().Sub(owner.Heartbeat) < heartbeatTimeout
}

// exists reports whether this machine has a process pid.
func exists(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lastOwner reads the last whole line of f. named is false if there is none, or
// it is no owner.
func lastOwner(f *os.File) (owner Owner, named bool, err error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxLine))
	if err != nil {
		return Owner{}, false, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	text = bytes.TrimRight(text, "\n")
	text = text[bytes.LastIndexByte(text, '\n')+1:]
	if json.Unmarshal(text, &owner) != nil || owner.PID == 0 {
		return Owner{}, false, nil
	}
	return owner, true, nil
}
