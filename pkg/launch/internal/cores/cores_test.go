//go:build linux

package cores

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
)

// TestMain makes the test binary a user's sweep: "sweep FOLDER CPUS WORKERS LIMIT" prints what happens to the
// sweep, and ends it when its standard input ends.
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "sweep" {
		if err := sweep(os.Args[2], os.Args[3:]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func sweep(folder string, args []string) error {
	cpus, _ := strconv.Atoi(args[0])
	workers, _ := strconv.Atoi(args[1])
	limit, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	c, err := NewClaim(folder, limit, flat(cpus), workers, 1)
	if err != nil {
		return err
	}
	last := ""
	disturbed, err := c.WaitForCores(context.Background(), func(p QueuePosition) {
		if p.String() != last {
			last = p.String()
			fmt.Println("waits for", p)
		}
	})
	if err != nil {
		return err
	}
	if disturbed != "" {
		fmt.Println("disturbed:", disturbed)
	}
	fmt.Println("has", topology.FormatCPUList(c.CPUs))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return c.Close()
}

// flat returns a machine whose CPUs are cores of one node.
func flat(cpus int) binding.CPUState {
	var ids []int
	for id := range cpus {
		ids = append(ids, id)
	}
	return binding.CPUState{Machine: topology.NewFlatMachine(ids), Online: ids, Quota: math.Inf(1)}
}

// user is the sweep of another user.
type user struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
}

// start starts the sweep of a user; only root can.
func start(t *testing.T, uid int, folder string, cpus, workers int, limit time.Duration) *user {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can act for several users")
	}
	u := &user{cmd: exec.Command("/proc/self/exe", "sweep", folder, strconv.Itoa(cpus), strconv.Itoa(workers), limit.String())}
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Pdeathsig: syscall.SIGKILL}
	u.cmd.Dir = "/"
	in, err := u.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.in, u.lines = in, bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill() // it may have ended; a sweep that waits does not see the end of its input
		u.end()
	})
	return u
}

// next returns the next line of the sweep that begins with the prefix, without the prefix.
func (u *user) next(t *testing.T, prefix string) string {
	t.Helper()
	var seen []string
	for u.lines.Scan() {
		if rest, ok := strings.CutPrefix(u.lines.Text(), prefix); ok {
			return rest
		}
		seen = append(seen, u.lines.Text())
		if strings.HasPrefix(u.lines.Text(), "has ") {
			break // its last line
		}
	}
	t.Fatalf("no line with %q after %q", prefix, seen)
	return ""
}

// end ends the sweep.
func (u *user) end() { _, _ = u.in.Close(), u.cmd.Wait() }

// shared returns a folder for the sweeps of all users.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReadEntry: a file counts only if it is a possible one, belongs to the user and is locked by somebody who may
// write it. Nothing that a user puts in its place blocks the reader.
func TestReadEntry(t *testing.T) {
	self := os.Getuid()
	online := []int{0, 1, 2, 3}
	write := func(r claimRecord) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, _, err := writeLockedFile(dir, r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}
	}
	content := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			write(claimRecord{})(t, dir)
			if err := os.WriteFile(filepath.Join(dir, fileName), []byte(text), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	// unlocked writes a file whose process is dead, and opens it as another user can.
	unlocked := func(t *testing.T, dir string) *os.File {
		path := filepath.Join(dir, fileName)
		err := os.WriteFile(path, []byte(`{"cpus":[0]}`), 0o644)
		f, e := os.Open(path)
		if err = errors.Join(err, e); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	must := func(t *testing.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		want bool
	}{
		"has cores":     {write(claimRecord{CPUs: []int{0, 3}}), true},
		"waits":         {write(claimRecord{Needs: 4}), true},
		"under a quota": {write(claimRecord{Cores: 2, Group: "g"}), true},
		"nothing":       {func(*testing.T, string) {}, false},
		"dead process":  {func(t *testing.T, dir string) { unlocked(t, dir) }, false},
		"lock of flock": {func(t *testing.T, dir string) { must(t, unix.Flock(int(unlocked(t, dir).Fd()), unix.LOCK_EX)) }, false},
		"lock to read": {func(t *testing.T, dir string) {
			must(t, unix.FcntlFlock(unlocked(t, dir).Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}))
		}, false},
		"link": {func(t *testing.T, dir string) {
			other := t.TempDir()
			write(claimRecord{CPUs: []int{0}})(t, other)
			must(t, os.Symlink(filepath.Join(other, fileName), filepath.Join(dir, fileName)))
		}, false},
		"pipe":   {func(t *testing.T, dir string) { must(t, unix.Mkfifo(filepath.Join(dir, fileName), 0o644)) }, false},
		"folder": {func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, fileName), 0o755)) }, false},
		"leased": {func(t *testing.T, dir string) {
			_ = unlocked(t, dir).Close()
			f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
			must(t, err)
			t.Cleanup(func() { _ = f.Close() })
			_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
			must(t, err)
		}, false},
		"of another user": {func(t *testing.T, dir string) {
			if self != 0 {
				t.Skip("only root can act for several users")
			}
			write(claimRecord{CPUs: []int{0}})(t, dir)
			must(t, os.Chown(filepath.Join(dir, fileName), 61001, 61001))
		}, false},
		"huge":               {content(strings.Repeat(" ", maxFileBytes) + `{"cpus":[0]}`), false},
		"nonsense":           {content("[[[["), false},
		"torn":               {content(`{"cpus":[0`), false},
		"a core that is not": {content(`{"cpus":[0,4]}`), false},
		"too many cores":     {content(`{"cores":5}`), false},
		"the same core":      {content(`{"cpus":[0,0,0,0,0]}`), false},
		"less than none":     {content(`{"cores":-1}`), false},
		"needs too many":     {content(`{"needs":9}`), false},
		"a number too large": {content(`{"cores":99999999999999999999}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			dir, err := makeUserFolder(folder, self)
			must(t, err)
			c.make(t, dir)
			all, err := readOtherClaims(folder, -1, online)
			if err != nil || (len(all) == 1) != c.want {
				t.Errorf("got %+v, %v, want that it counts: %t", all, err, c.want)
			}
		})
	}
	for _, name := range []string{"0" + strconv.Itoa(self), "+" + strconv.Itoa(self), strconv.Itoa(self + 1), "x", "link"} {
		folder := t.TempDir()
		must(t, os.Mkdir(filepath.Join(folder, "x"), 0o755))
		write(claimRecord{CPUs: []int{0}})(t, filepath.Join(folder, "x"))
		switch name {
		case "x":
		case "link":
			must(t, os.Symlink("x", filepath.Join(folder, strconv.Itoa(self))))
		default:
			must(t, os.Rename(filepath.Join(folder, "x"), filepath.Join(folder, name)))
		}
		if all, err := readOtherClaims(folder, -1, online); err != nil || len(all) != 0 {
			t.Errorf("%s: got %+v, %v, want that a folder with another name does not count", name, all, err)
		}
	}
}

// TestFree: what the sweeps of other users leave, on machines with and without SMT and under quotas.
func TestFree(t *testing.T) {
	smt := binding.CPUState{Quota: math.Inf(1)} // 4 cores with 2 CPUs each: 0 and 4, 1 and 5, …
	for id := range 8 {
		smt.Machine.CPUs = append(smt.Machine.CPUs, topology.CPU{ID: id, Core: id % 4})
		smt.Online = append(smt.Online, id)
	}
	slices.SortFunc(smt.Machine.CPUs, func(a, b topology.CPU) int { return slices.Compare([]int{a.Core, a.ID}, []int{b.Core, b.ID}) })
	quota := flat(16)
	quota.Quota, quota.QuotaGroup = 4.5, "/hub"
	own := quota
	own.QuotaGroup = "/hub/anna"
	has := func(cpus ...int) userClaim { return userClaim{claimRecord: claimRecord{CPUs: cpus}} }
	counts := func(n int, group string) userClaim {
		return userClaim{claimRecord: claimRecord{Cores: n, Group: group}}
	}
	for name, c := range map[string]struct {
		machine                   binding.CPUState
		others                    []userClaim
		workers, threads          int
		total, needs, free, takes int
	}{
		"alone":                         {flat(4), nil, 2, 1, 4, 2, 4, 2},
		"threads":                       {flat(4), nil, 2, 2, 4, 4, 4, 4},
		"more than the machine":         {flat(4), nil, 8, 1, 4, 4, 4, 4},
		"another sweep":                 {flat(4), []userClaim{has(1)}, 2, 1, 4, 2, 3, 2},
		"waiting ones have none":        {flat(4), []userClaim{{claimRecord: claimRecord{Needs: 4}}}, 2, 1, 4, 2, 4, 2},
		"counted ones":                  {flat(4), []userClaim{counts(3, "")}, 2, 1, 4, 2, 1, 1},
		"all siblings":                  {smt, nil, 1, 1, 4, 1, 4, 2},
		"a core with a sibling is used": {smt, []userClaim{has(5)}, 4, 1, 4, 4, 3, 6},
		"more threads than cores":       {smt, []userClaim{has(1, 5)}, 5, 1, 8, 5, 6, 5},
		"quota":                         {quota, nil, 2, 1, 4, 2, 4, 2},
		"quota of all":                  {quota, []userClaim{counts(3, "/hub"), counts(9, "/other")}, 2, 1, 4, 2, 1, 1},
		"quota of each":                 {own, []userClaim{counts(4, "/hub/ben")}, 4, 1, 4, 4, 4, 4},
		"quota, but few cores":          {own, []userClaim{counts(4, "/hub/ben"), has(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)}, 4, 1, 4, 4, 2, 2},
		"more than there are":           {flat(2), []userClaim{counts(2, ""), has(0)}, 1, 1, 2, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c1, err := NewClaim(t.TempDir(), time.Minute, c.machine, c.workers, c.threads)
			if err != nil {
				t.Fatal(err)
			}
			left, free := c1.findFreeCores(c.others)
			if c1.totalCores() != c.total || c1.neededCores() != c.needs || free != c.free {
				t.Errorf("needs %d of %d, %d are free; want %d of %d, %d", c1.neededCores(), c1.totalCores(), free, c.needs, c.total, c.free)
			}
			n := min(free, c.needs)
			if n == 0 {
				return
			}
			if ok, err := c1.takeCores(left, n); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if len(c1.claimRecord.CPUs)+c1.claimRecord.Cores != c.takes || (c1.claimRecord.Cores > 0) == (c.machine.QuotaGroup == "") {
				t.Errorf("takes %+v, want %d CPUs", c1.claimRecord, c.takes)
			}
			if err := c1.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestQuietCores: cores that other processes are bound to are taken last.
func TestQuietCores(t *testing.T) {
	m := flat(4)
	m.Taken = []int{0, 1}
	for workers, want := range map[int]string{2: "2-3", 3: "0-2"} {
		c, err := NewClaim(t.TempDir(), time.Minute, m, workers, 1)
		if err != nil {
			t.Fatal(err)
		}
		if ok, _, err := c.TryTakeCores(); err != nil || !ok || topology.FormatCPUList(c.CPUs) != want {
			t.Errorf("%d workers: got %v, %v, %v, want the CPUs %s", workers, ok, c.CPUs, err, want)
		}
		if again, err := NewClaim(c.folder, time.Minute, m, 1, 1); !errors.Is(err, errAlreadyClaimed) {
			t.Errorf("a second sweep of the user: got %v, %v", again, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEightUsers: the sweeps of eight users, started at the same time, never have the same core, and each gets its
// cores. Two of them always fit.
func TestEightUsers(t *testing.T) {
	folder := shared(t)
	const cpus, count = 4, 8
	var all []*user
	for i := range count {
		all = append(all, start(t, 61001+i, folder, cpus, 1+i%2, time.Hour))
	}
	type event struct {
		who int
		has string
	}
	events := make(chan event)
	for i, u := range all {
		go func() {
			for u.lines.Scan() {
				if has, ok := strings.CutPrefix(u.lines.Text(), "has "); ok {
					events <- event{i, has}
				}
			}
		}()
	}
	used := map[int]int{} // by CPU: whose it is
	var running []int
	for range count {
		if len(running) == 2 {
			maps.DeleteFunc(used, func(_, who int) bool { return who == running[0] })
			all[running[0]].end()
			running = running[1:]
		}
		e := <-events
		ids, err := topology.ParseCPUList(e.has)
		if err != nil || len(ids) != 1+e.who%2 {
			t.Fatalf("user %d with %d workers has %q", e.who, 1+e.who%2, e.has)
		}
		for _, id := range ids {
			if who, ok := used[id]; ok {
				t.Errorf("user %d has CPU %d, which user %d has", e.who, id, who)
			}
			used[id] = e.who
		}
		running = append(running, e.who)
	}
}

// TestWaiting: a sweep waits for its cores in the order in which it has come, and starts after the limit. Who is
// stopped or dead holds up nobody.
func TestWaiting(t *testing.T) {
	t.Run("in order", func(t *testing.T) {
		folder := shared(t)
		first := start(t, 61001, folder, 2, 2, time.Hour)
		first.next(t, "has 0-1")
		second := start(t, 61003, folder, 2, 2, time.Hour)
		second.next(t, "waits for 2 cores: 0 of 2 are free, place 1 of 1")
		third := start(t, 61002, folder, 2, 1, time.Hour)
		third.next(t, "waits for 1 core: 0 of 2 are free, place 2 of 2")
		first.end()
		second.next(t, "has 0-1")
		third.next(t, "waits for 1 core: 0 of 2 are free, place 1 of 1")
		if err := second.cmd.Process.Kill(); err != nil { // its lock ends with it
			t.Fatal(err)
		}
		third.next(t, "has 0")
	})
	t.Run("behind a larger sweep", func(t *testing.T) {
		folder := shared(t)
		first := start(t, 61001, folder, 2, 1, time.Hour)
		first.next(t, "has 0")
		second := start(t, 61002, folder, 2, 2, time.Hour)
		second.next(t, "waits for 2 cores: 1 of 2 are free, place 1 of 1")
		third := start(t, 61003, folder, 2, 1, time.Hour) // the free core would suffice, but it is the second's turn
		third.next(t, "waits for 1 core: 1 of 2 are free, place 2 of 2")
		first.end()
		second.next(t, "has 0-1")
		third.next(t, "waits for 1 core: 0 of 2 are free, place 1 of 1")
		second.end()
		third.next(t, "has 0")
	})
	t.Run("after the limit", func(t *testing.T) {
		folder := shared(t)
		first := start(t, 61001, folder, 2, 1, time.Hour)
		first.next(t, "has 0")
		second := start(t, 61002, folder, 2, 2, 300*time.Millisecond)
		second.next(t, "waits for 2 cores: 1 of 2 are free, place 1 of 1")
		second.next(t, "disturbed: it needs 2 cores, and sweeps of other users left 1 when it started")
		second.next(t, "has 1")
		third := start(t, 61003, folder, 2, 1, 0)
		third.next(t, "disturbed: it needs 1 core, and sweeps of other users left 0 when it started")
	})
	t.Run("behind a stopped process", func(t *testing.T) {
		if testing.Short() {
			t.Skip("slow")
		}
		folder := shared(t)
		first := start(t, 61001, folder, 2, 2, time.Hour)
		first.next(t, "has ")
		second := start(t, 61002, folder, 2, 1, time.Hour)
		second.next(t, "waits for 1 core: 0 of 2 are free, place 1 of 1")
		third := start(t, 61003, folder, 2, 2, time.Hour)
		second.next(t, "waits for 1 core: 0 of 2 are free, place 1 of 2")
		third.next(t, "waits for 2 cores: 0 of 2 are free, place 2 of 2")
		if err := second.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		first.end()
		third.next(t, "has 0-1")
		if err := second.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		second.next(t, "waits for 1 core: 0 of 2 are free, place 1 of 1")
		third.end()
		second.next(t, "has 0")
	})
}

// TestCountWaiting: which sweeps are before another one, and which of them do not hold it up.
func TestCountWaiting(t *testing.T) {
	now := time.Now()
	waits := func(uid, needs int, ago time.Duration) userClaim {
		return userClaim{claimRecord: claimRecord{Needs: needs}, uid: uid, changed: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		others        []userClaim
		untouched     time.Duration // since when user 7 leaves free cores
		before, after int
	}{
		"alone":                           {nil, 0, 0, 0},
		"has its cores":                   {[]userClaim{{claimRecord: claimRecord{CPUs: []int{0}}, uid: 7, changed: now.Add(-time.Hour)}}, 0, 0, 0},
		"before and after":                {[]userClaim{waits(7, 2, 20*time.Second), waits(8, 1, 5*time.Second)}, 0, 1, 1},
		"at the same time":                {[]userClaim{waits(1, 2, 10*time.Second), waits(9, 2, 10*time.Second)}, 0, 1, 1},
		"should have started":             {[]userClaim{waits(7, 2, time.Minute+3*time.Second)}, 0, 0, 0},
		"too few cores for a long time":   {[]userClaim{waits(7, 2, 50*time.Second)}, time.Hour, 1, 0},
		"may take its cores":              {[]userClaim{waits(7, 1, 50*time.Second)}, time.Second, 1, 0},
		"leaves its cores":                {[]userClaim{waits(7, 1, 50*time.Second)}, 3 * time.Second, 0, 0},
		"the second cannot take them yet": {[]userClaim{waits(6, 2, 50*time.Second), waits(7, 1, 40*time.Second)}, 3 * time.Second, 2, 0},
	} {
		claim := Claim{limit: time.Minute, userClaim: waits(5, 1, 10*time.Second), untouched: map[int]time.Time{}}
		if c.untouched > 0 {
			claim.untouched[7] = now.Add(-c.untouched)
		}
		if before, after := claim.countWaitingSweeps(c.others, 1); before != c.before || after != c.after {
			t.Errorf("%s: got %d before and %d after, want %d and %d", name, before, after, c.before, c.after)
		}
	}
}

// TestTakenAtTheSameMoment: of two sweeps that have taken the same core, the later one gives it back.
func TestTakenAtTheSameMoment(t *testing.T) {
	folder := shared(t)
	c, err := NewClaim(folder, time.Minute, flat(2), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	start(t, 61001, folder, 2, 1, time.Hour).next(t, "has 0")
	if ok, err := c.takeCores(c.machine.Machine, 2); ok || err != nil { // as if it had looked before
		t.Errorf("the later sweep keeps the core: %v", err)
	}
	if ok, place, err := c.TryTakeCores(); ok || err != nil || place.String() != "2 cores: 1 of 2 are free, place 1 of 1" {
		t.Errorf("got %v, %v, %v, want that it waits", ok, place, err)
	}
}

// TestCheck: a folder that cannot be used gives an error that says what the administrator does.
func TestCheck(t *testing.T) {
	uid := strconv.Itoa(os.Getuid())
	parent := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(parent, "file"), nil, 0o600), os.MkdirAll(filepath.Join(parent, "taken"), 0o755),
		os.Symlink("/", filepath.Join(parent, "taken", uid))); err != nil {
		t.Fatal(err)
	}
	for name, cause := range map[string]string{"none": "no such file", "file": "not a directory", "taken": "is not a folder of the user " + uid} {
		folder := filepath.Join(parent, name)
		err := CheckClaimsFolder(folder)
		want := "install -d -o " + uid + " " + filepath.Join(folder, uid)
		if err == nil || !strings.Contains(err.Error(), cause) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %q and %q", err, cause, want)
		}
	}
	folder := filepath.Join(parent, "good")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := CheckClaimsFolder(folder); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(folder, uid)); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	t.Setenv(FolderVariable, folder)
	for text, ok := range map[string]bool{"": true, "90s": true, "0": true, "soon": false, "-1m": false, "10": false} {
		t.Setenv(LimitVariable, text)
		if _, limit, err := ReadSharingConfig(); (err == nil) != ok || (ok && text == "" && limit != defaultLimit) {
			t.Errorf("%q: got %v, %v", text, limit, err)
		}
	}
}
