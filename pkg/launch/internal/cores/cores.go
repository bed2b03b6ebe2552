// Package cores shares the cores of a machine among the sweeps of several users. A sweep that finds enough free
// cores takes them. Otherwise it waits, in the order in which the sweeps have come, and starts after a time that
// the administrator has set, even if the cores are not free then.
//
// The users meet in a folder that the administrator names. It has a folder for each user, with the user's id as
// its name, and in it the user's file: what the user's sweep has or waits for, and since when. A file counts only
// if it belongs to that user and a living process holds its lock, which needs the right to write the file. So no
// user can speak for another, or stay in the list after the end of the sweep. Nobody can hold a lock that others
// need: who has taken cores looks again, and gives them back if an earlier sweep has them.
package cores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/filelock"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
)

// Environment variables that an administrator sets to let the users of a machine share its cores.
const (
	FolderVariable = "LOCKSTEP_CORES"      // path of the folder; without it, cores are not shared
	LimitVariable  = "LOCKSTEP_CORES_WAIT" // how long a sweep waits at most, such as 10m
)

const (
	defaultLimit = 10 * time.Minute
	interval     = 200 * time.Millisecond // between two looks of a waiting sweep
	// settleTime is longer than a step of the clock of file times: of two files written at least
	// this long after each other, the second has the later time.
	settleTime = 20 * time.Millisecond
	// patience is how long a sweep may leave free cores that it waits for: its process may be stopped.
	patience = 2 * time.Second
)

// ReadSharingConfig returns what the administrator has set for the sharing of cores: the folder of the
// users' claims, and how long a sweep may wait for cores. folder is "" if cores are not shared.
func ReadSharingConfig() (folder string, limit time.Duration, err error) {
	folder, limit = os.Getenv(FolderVariable), defaultLimit
	if text := os.Getenv(LimitVariable); folder != "" && text != "" {
		if limit, err = time.ParseDuration(text); err != nil || limit < 0 {
			return folder, 0, fmt.Errorf("invalid %s=%s: the administrator must set a time such as 10m", LimitVariable, text)
		}
	}
	return folder, limit, nil
}

// CheckClaimsFolder returns an error if this user cannot share cores in the folder.
func CheckClaimsFolder(folder string) error {
	uid := os.Geteuid()
	dir, err := makeUserFolder(folder, uid)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, newFiles); err == nil {
			_, err = filelock.Lock(f)
			err = errors.Join(err, os.Remove(f.Name()), f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the administrator creates the folder on a local disk: install -d -o %d %s", err, uid, filepath.Join(folder, fmt.Sprint(uid)))
	}
	return nil
}

// errAlreadyClaimed is returned by NewClaim if another sweep of this user takes part already.
var errAlreadyClaimed = errors.New("another sweep of this user has cores")

// Claim is a sweep's claim to cores of a machine that several users share. The sweep either has the
// cores or waits for them.
type Claim struct {
	// CPUs lists the CPUs that the sweep has taken. It is nil while the sweep waits, and always nil
	// under a quota of CPU time, where only the number of cores counts.
	CPUs []int
	// Until is when the sweep starts at the latest, even without all cores that it needs.
	Until time.Time

	folder, dir      string
	machine          binding.CPUState
	workers, threads int
	limit            time.Duration

	userClaim                   // as last written
	file      *os.File          // of this user, locked; nil before it is written
	untouched map[int]time.Time // by user: since when the sweep leaves the free cores that it waits for
}

// NewClaim returns the claim of a sweep that has no cores yet. folder and limit are the results of
// ReadSharingConfig. workers and threads are the number of workers of the largest run and the number of
// threads of each worker.
func NewClaim(folder string, limit time.Duration, machine binding.CPUState, workers, threads int) (*Claim, error) {
	c := &Claim{
		Until: time.Now().Add(limit), folder: folder, machine: machine, workers: workers, threads: threads, limit: limit,
		userClaim: userClaim{uid: os.Geteuid()}, untouched: map[int]time.Time{},
	}
	var err error
	if c.dir, err = makeUserFolder(folder, c.uid); err != nil {
		return nil, err
	}
	if len(machine.Machine.CPUs) == 0 {
		return nil, errors.New(machine.Problem)
	}
	if _, alive := readUserClaim(c.dir, c.uid); alive {
		return nil, errAlreadyClaimed
	}
	left, err := filepath.Glob(filepath.Join(c.dir, newFiles)) // by a process that was killed
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return c, err
}

func (c *Claim) writeClaimRecord(r claimRecord) error {
	r.Since = time.Now()
	f, changed, err := writeLockedFile(c.dir, r)
	if err != nil {
		return fmt.Errorf("share the cores with other users: %w", err)
	}
	if c.file != nil {
		_ = c.file.Close() // it was read by nobody but this process
	}
	c.file, c.claimRecord, c.changed = f, r, changed
	return nil
}

// Close gives the cores back.
func (c *Claim) Close() error {
	if c.file == nil {
		return nil
	}
	return errors.Join(os.Remove(filepath.Join(c.dir, fileName)), c.file.Close())
}

// hasQuota reports whether a quota of CPU time limits the sweep, so that cores are only counted.
func (c *Claim) hasQuota() bool { return c.machine.Quota < float64(len(c.machine.Machine.CPUs)) }

// countCores returns the number of cores of m. If the sweep has more threads than c.machine has
// cores, it returns the number of CPUs of m.
func (c *Claim) countCores(m topology.Machine) int {
	if cores := c.machine.Machine.CountHardware().Cores; c.workers*c.threads <= cores {
		return m.CountHardware().Cores
	}
	return len(m.CPUs)
}

// totalCores returns the number of cores that all users share, or the quota of CPU time if there is
// one.
func (c *Claim) totalCores() int {
	if c.hasQuota() {
		return max(1, int(c.machine.Quota))
	}
	return c.countCores(c.machine.Machine)
}

func (c *Claim) neededCores() int { return min(c.workers*c.threads, c.totalCores()) }

// findFreeCores returns the CPUs that no sweep in others has claimed, and the number n of free cores. A
// sweep under a quota claims no particular CPUs, but its cores are subtracted from n.
func (c *Claim) findFreeCores(others []userClaim) (left topology.Machine, n int) {
	left = c.machine.Machine
	all, ofQuota := 0, 0
	for _, o := range others {
		left = left.WithoutCores(o.CPUs)
		all += o.Cores
		if o.Group == c.machine.QuotaGroup {
			ofQuota += o.Cores
		}
	}
	n = c.countCores(left) - all
	if c.hasQuota() {
		n = min(len(left.CPUs)-all, c.totalCores()-ofQuota)
	}
	return left, max(0, n)
}

// takeCores claims n of the free cores; left contains their CPUs. ok is false if an earlier sweep has
// claimed one of them at the same moment.
func (c *Claim) takeCores(left topology.Machine, n int) (ok bool, err error) {
	r := claimRecord{Cores: n, Group: c.machine.QuotaGroup}
	if !c.hasQuota() {
		quiet := left.WithoutCores(c.machine.Taken) // without cores to which other processes are bound
		if c.countCores(quiet) < n {
			quiet = left
		}
		workers, threads := c.workers, c.threads
		if n < c.neededCores() {
			workers, threads = n, 1
		}
		r = claimRecord{CPUs: quiet.SelectCores(workers, threads)}
	}
	if err := c.writeClaimRecord(r); err != nil {
		return false, err
	}
	time.Sleep(settleTime) // from now on, all files that appear are later
	others, err := readOtherClaims(c.folder, c.uid, c.machine.Online)
	earlier := slices.DeleteFunc(others, c.isOlderThan)
	left, free := c.findFreeCores(earlier)
	ids := left.CPUIDs()
	ok = err == nil && free >= n && !slices.ContainsFunc(r.CPUs, func(id int) bool { return !slices.Contains(ids, id) })
	if ok {
		c.CPUs = r.CPUs
	}
	return ok, err
}

// TryTakeCores takes the cores that the sweep needs, and returns true, if they are free and no sweep
// waits before it. Otherwise it returns false and the sweep's place among those that wait.
func (c *Claim) TryTakeCores() (bool, QueuePosition, error) {
	others, err := readOtherClaims(c.folder, c.uid, c.machine.Online)
	if err != nil {
		return false, QueuePosition{}, err
	}
	left, free := c.findFreeCores(others)
	before, after := c.countWaitingSweeps(others, free)
	if before == 0 && free >= c.neededCores() {
		if ok, err := c.takeCores(left, c.neededCores()); ok || err != nil {
			return ok, QueuePosition{}, err
		}
	}
	if c.Needs == 0 {
		err = c.writeClaimRecord(claimRecord{Needs: c.neededCores()})
	}
	return false, QueuePosition{c.neededCores(), free, c.totalCores(), before + 1, before + 1 + after}, err
}

// QueuePosition describes a sweep that waits for cores. needs, free and total count cores: those that
// the sweep needs, those that are free now, and all. place, from 1, is the sweep's place among the
// waiting sweeps, and waiting is their number.
type QueuePosition struct{ needs, free, total, place, waiting int }

// String returns a message such as "2 cores: 1 of 2 are free, place 2 of 3".
func (p QueuePosition) String() string {
	return fmt.Sprintf("%s: %d of %d are free, place %d of %d", english.FormatCount(p.needs, "core"), p.free, p.total, p.place, p.waiting)
}

// countWaitingSweeps returns how many sweeps in others wait before this one, and how many after it. free
// is the number of free cores. A sweep no longer counts if it has waited for longer than the limit,
// or has left enough free cores unused for a while.
func (c *Claim) countWaitingSweeps(others []userClaim, free int) (before, after int) {
	now := time.Now()
	for _, o := range others {
		since, leaves := c.untouched[o.uid]
		switch {
		case o.Needs == 0 || now.Sub(o.changed) > c.limit+patience:
		case c.Needs > 0 && c.isOlderThan(o):
			after++
		case before > 0 || o.Needs > free:
			delete(c.untouched, o.uid)
			before++
		case !leaves:
			c.untouched[o.uid] = now
			before++
		case now.Sub(since) < patience:
			before++
		}
	}
	return before, after
}

// WaitForCores waits until the sweep has the cores that it needs, and meanwhile calls show with the sweep's
// place. If too few cores are free at Until, Wait takes those that are. disturbed then says why
// other sweeps disturb this one; otherwise it is "".
func (c *Claim) WaitForCores(ctx context.Context, show func(QueuePosition)) (disturbed string, err error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		ok, place, err := c.TryTakeCores()
		if ok || err != nil {
			return "", err
		}
		if !time.Now().Before(c.Until) {
			return c.takeFreeCores()
		}
		show(place)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
	}
}

// takeFreeCores ends the wait although too few cores are free. It takes the free ones, unless
// another sweep waits before this one.
func (c *Claim) takeFreeCores() (disturbed string, err error) {
	others, err := readOtherClaims(c.folder, c.uid, c.machine.Online)
	if err != nil {
		return "", err
	}
	left, n := c.findFreeCores(others)
	before, _ := c.countWaitingSweeps(others, n)
	if n = min(n, c.neededCores()); before > 0 {
		n = 0
	}
	ok := false
	if n > 0 {
		if ok, err = c.takeCores(left, n); err != nil {
			return "", err
		}
	}
	if !ok {
		n, err = 0, c.writeClaimRecord(claimRecord{})
	}
	return fmt.Sprintf("it needs %s, and sweeps of other users left %d when it started", english.FormatCount(c.neededCores(), "core"), n), err
}
