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

	"lockstep/pkg/internal/filelock"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/safeopen"
)

// OwnersFile is the file in a run folder that serves as the run's lock and records its owners: one
// line of JSON per Owner, the newest last. The file is never deleted; only its last line changes.
const OwnersFile = "owners.jsonl"

const (
	// heartbeatInterval is how often an owner renews its heartbeat.
	heartbeatInterval = 5 * time.Second
	// heartbeatTimeout is the age of the last heartbeat at which an owner whose lock cannot be
	// queried counts as dead.
	heartbeatTimeout = time.Minute
	// maxOwners limits the size of the file in bytes, which is read into memory.
	maxOwners = 64 << 20
)

// Owner identifies a process that writes or wrote a run.
type Owner struct {
	Host      string    `json:"host"`
	BootID    string    `json:"boot_id,omitempty"` // of the machine's kernel; empty if unknown
	PID       int       `json:"pid"`
	Started   time.Time `json:"started"`   // when it acquired the lock, in whole seconds
	Heartbeat time.Time `json:"heartbeat"` // when it was last known to be alive, in whole seconds
	Released  bool      `json:"released,omitempty"`
}

// OwnedError reports that another process owns a run.
type OwnedError struct {
	Dir   string
	Owner Owner
}

// Error names the owner of the run and what the user can do.
func (e *OwnedError) Error() string {
	o := e.Owner
	if o.PID == 0 {
		return fmt.Sprintf("run %s: in use by another process; wait until that process has ended", e.Dir)
	}
	host, here := "", o.BootID != "" && o.BootID == process.BootID()
	if here && o.PID == os.Getpid() {
		return fmt.Sprintf("run %s: in use by this process (pid %d) since %s; wait until it has finished the run", e.Dir, o.PID, formatTime(o.Started))
	}
	if !here {
		host = " on " + o.Host
	}
	text := fmt.Sprintf("run %s: in use by pid %d%s since %s; wait until that process has ended, or end it with \"kill %d\"%s and continue the run with --resume",
		e.Dir, o.PID, host, formatTime(o.Started), o.PID, host)
	if !here {
		text += fmt.Sprintf("; if it is already dead, the run can be resumed after %s, %v after its last heartbeat",
			formatTime(o.Heartbeat.Add(heartbeatTimeout)), heartbeatTimeout)
	}
	return text
}

// formatTime formats t in local time, with the date unless that is today.
func formatTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

func (o Owner) isSameAcquisition(p Owner) bool {
	return o.Host == p.Host && o.BootID == p.BootID && o.PID == p.PID && o.Started.Equal(p.Started)
}

// OwnerOf returns the last owner of the run folder dir, and whether that process still owns the
// run. It does not acquire the lock, and dir may be read-only. The Owner is zero if dir does not
// exist or never had one.
func OwnerOf(dir string) (owner Owner, alive bool, err error) {
	return localLockEnvironment().ownerOf(dir)
}

// Owners returns all owners that the run folder dir ever had, oldest first. It returns none
// for a folder that has no list of owners. Lines that cannot be read are in the problems.
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
			lines.addProblem("%v", err)
			continue
		}
		owners = append(owners, o)
	}
	return owners, lines.problems, nil
}

// lockEnvironment is what decides on this machine who owns a run. Tests replace parts of it.
type lockEnvironment struct {
	host, boot string // host name and boot id
	now        func() time.Time
	lock       func(*os.File) (held bool, err error)
	query      func(*os.File) (held bool, err error)
}

func localLockEnvironment() lockEnvironment {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return lockEnvironment{host: host, boot: process.BootID(), now: time.Now, lock: filelock.Lock, query: filelock.IsLocked}
}

// A process that has just acquired the lock may not have written its Owner yet. Readers therefore
// try up to maxOwnerReads times.
const (
	maxOwnerReads   = 20
	ownerRetryPause = 10 * time.Millisecond
)

func (m lockEnvironment) ownerOf(dir string) (owner Owner, alive bool, err error) {
	path := filepath.Join(dir, OwnersFile)
	for range maxOwnerReads {
		f, err := safeopen.Open(dir, path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return Owner{}, false, nil
		}
		if err != nil {
			return Owner{}, false, fmt.Errorf("find owner of run %s: %w", dir, err)
		}
		held, err := m.query(f)
		var found bool
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			alive = held
			supported := err == nil
			if owner, found, err = lastOwner(f); err == nil && !held {
				alive = found && m.mayBeAlive(owner, supported)
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return Owner{}, false, fmt.Errorf("find owner of run %s: %w", dir, err)
		}
		if !held || found && !owner.Released {
			return owner, alive, nil
		}
		time.Sleep(ownerRetryPause)
	}
	return Owner{}, alive, nil
}

// mayBeAlive reports whether owner may be alive although no process holds the run's lock, or the
// lock cannot be queried. lockSupported is true if the file system has locks.
func (m lockEnvironment) mayBeAlive(owner Owner, lockSupported bool) bool {
	sameBoot := m.boot != "" && owner.BootID == m.boot
	switch {
	case owner.Released:
		return false
	case sameBoot && lockSupported:
		return false // it had the lock until it ended
	case sameBoot && owner.Host == m.host && !processExists(owner.PID):
		return false
	}
	return m.now().Sub(owner.Heartbeat) < heartbeatTimeout
}

func processExists(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lastOwner returns the Owner in the last complete line of f. found is false if there is none.
func lastOwner(f *os.File) (owner Owner, found bool, err error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxLineBytes))
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
