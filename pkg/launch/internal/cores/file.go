package cores

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"lockstep/pkg/internal/filelock"
)

const (
	fileName = "sweep.json" // of the user's file in the user's folder
	newFiles = "new-*"      // names of files before they are complete
	// maxFileBytes limits the size of a file in bytes, which is read into memory.
	maxFileBytes = 64 << 10
	// maxReads limits how often a file is read that was replaced at the same moment.
	maxReads = 10
)

// claimRecord is the content of a user's file: what the sweep has, or waits for.
type claimRecord struct {
	CPUs  []int     `json:"cpus,omitempty"`  // that the sweep has
	Cores int       `json:"cores,omitempty"` // number of cores that the sweep has, under a quota of CPU time
	Group string    `json:"group,omitempty"` // folder of the control group with that quota
	Needs int       `json:"needs,omitempty"` // number of cores that the sweep waits for; 0 if it has started
	Since time.Time `json:"since"`
}

// fitsMachine reports whether the claim is possible on a machine with the CPUs in online.
func (r claimRecord) fitsMachine(online []int) bool {
	isOffline := func(id int) bool { return !slices.Contains(online, id) }
	most := len(online)
	return len(r.CPUs) <= most && !slices.ContainsFunc(r.CPUs, isOffline) && min(r.Cores, r.Needs) >= 0 && max(r.Cores, r.Needs) <= most
}

// userClaim is the file of a user whose sweep is alive.
type userClaim struct {
	claimRecord
	uid     int
	changed time.Time // by the kernel's clock: no user can choose it
}

func (e userClaim) isOlderThan(o userClaim) bool {
	return e.changed.Before(o.changed) || e.changed.Equal(o.changed) && e.uid < o.uid
}

// readOtherClaims returns the claims in the folder of all users except uid, in the order in which
// their files were written. It ignores claims that do not fit the CPUs in online.
func readOtherClaims(folder string, uid int, online []int) ([]userClaim, error) {
	users, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list the sweeps of all users: %w", err)
	}
	var all []userClaim
	for _, u := range users {
		id, err := strconv.ParseUint(u.Name(), 10, 32)
		if err != nil || strconv.FormatUint(id, 10) != u.Name() || int(id) == uid || !u.IsDir() {
			continue
		}
		if e, ok := readUserClaim(filepath.Join(folder, u.Name()), int(id)); ok && e.fitsMachine(online) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b userClaim) int {
		if a.isOlderThan(b) {
			return -1
		}
		return 1
	})
	return all, nil
}

// readUserClaim reads the claim of the user uid, a file in dir. ok is false unless the file belongs
// to that user and a living process holds its lock. readUserClaim never blocks, even if the user
// has put a named pipe or a file with a lease (fcntl(2)) in place of the file.
func readUserClaim(dir string, uid int) (e userClaim, ok bool) {
	path := filepath.Join(dir, fileName)
	for range maxReads {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return e, false
		}
		e, ok = readLockedFile(f, uid)
		was, err := f.Stat()
		_ = f.Close()
		if ok || err != nil {
			return e, ok
		}
		// The user's process locks a new file before it replaces the old one and unlocks that.
		if now, err := os.Lstat(path); err != nil || os.SameFile(was, now) {
			return e, false
		}
	}
	return e, false
}

func readLockedFile(f *os.File, uid int) (e userClaim, ok bool) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || fileOwner(info) != uid || info.Size() > maxFileBytes {
		return e, false
	}
	if held, err := filelock.IsLocked(f); err != nil || !held {
		return e, false
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	e.uid, e.changed = uid, changeTime(info)
	return e, err == nil && json.Unmarshal(text, &e.claimRecord) == nil
}

func fileOwner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func makeUserFolder(folder string, uid int) (string, error) {
	dir := filepath.Join(folder, strconv.Itoa(uid))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755) // whatever the umask: the others must read it
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err == nil && (!info.IsDir() || fileOwner(info) != uid) {
		err = fmt.Errorf("%s is not a folder of the user %d", dir, uid)
	}
	return dir, err
}

// writeLockedFile replaces the user's file in dir with a new one that contains r. It returns the
// open file, which is locked before others can open it, and the time of its last change.
func writeLockedFile(dir string, r claimRecord) (f *os.File, changed time.Time, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, changed, err
	}
	if f, err = os.CreateTemp(dir, newFiles); err != nil {
		return nil, changed, err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		_, err = filelock.Lock(f)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, fileName))
	}
	if err != nil {
		return nil, changed, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	info, err := f.Stat()
	if err != nil {
		return nil, changed, errors.Join(err, f.Close())
	}
	return f, changeTime(info), nil
}
