package runs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCKSTEP_TEST_OWN"); dir != "" {
		os.Exit(ownAsChild(dir))
	}
	goleak.VerifyTestMain(m)
}

// wantOwned fails unless err is an OwnedError of the process pid.
func wantOwned(t *testing.T, err error, pid int) {
	t.Helper()
	var owned *OwnedError
	if !errors.As(err, &owned) || owned.Owner.PID != pid {
		t.Fatalf("error is %v, expected one of a run that pid %d owns", err, pid)
	}
}

func wantDead(t *testing.T, dir string) Owner {
	t.Helper()
	owner, alive, err := OwnerOf(dir)
	check(t, err)
	if alive {
		t.Errorf("%+v is alive", owner)
	}
	return owner
}

// writeOwners writes the list of owners of dir.
func writeOwners(t *testing.T, dir string, owners ...Owner) {
	t.Helper()
	var text []byte
	for _, o := range owners {
		line, err := json.Marshal(o)
		check(t, err)
		text = append(append(text, line...), '\n')
	}
	check(t, os.MkdirAll(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, OwnersFile), text, 0o644))
}

// ownerOnOtherMachine returns an owner on another machine, whose last heartbeat is this old.
func ownerOnOtherMachine(age time.Duration) Owner {
	beat := time.Now().Add(-age).UTC().Truncate(time.Second)
	return Owner{Host: "node7", BootID: "another", PID: 4711, Started: beat.Add(-time.Hour), Heartbeat: beat}
}

func TestOneOwnerInOneProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	wantDead(t, dir) // there is nothing
	w, err := Create(dir, sampleInfo())
	check(t, err)
	owner, alive, err := OwnerOf(dir)
	check(t, err)
	if !alive || owner.PID != os.Getpid() || owner.Host == "" || time.Since(owner.Heartbeat) > time.Minute || owner.Released {
		t.Errorf("alive is %v of %+v", alive, owner)
	}
	for range 2 {
		_, err = Create(dir, sampleInfo())
		wantOwned(t, err, os.Getpid())
		wantError(t, err, dir, "in use by this process", "since")
		_, _, err = Resume(dir)
		wantOwned(t, err, os.Getpid())
		wantOwned(t, RemoveTemporary(dir), os.Getpid())
	}
	check(t, w.Finish(StatusDone, nil))
	if owner := wantDead(t, dir); !owner.Released {
		t.Errorf("%+v is not released", owner)
	}
	w, _, err = Resume(dir)
	check(t, err)
	check(t, w.Finish(StatusDone, nil))
	owners, problems, err := Owners(dir)
	check(t, err)
	if len(owners) != 2 || len(problems) != 0 || !owners[0].Released || !owners[1].Released {
		t.Errorf("owners %+v, problems %v", owners, problems)
	}
}

// TestRefusedFolderStaysAsItIs: a folder that cannot be created or resumed gets no lock file.
func TestRefusedFolderStaysAsItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	check(t, os.Remove(filepath.Join(dir, OwnersFile)))
	_, err := Create(dir, sampleInfo())
	wantError(t, err, "already contains a run")
	other := t.TempDir()
	_, _, err = Resume(other)
	wantError(t, err, "not a run folder")
	for _, d := range []string{dir, other} {
		if _, err := os.Stat(filepath.Join(d, OwnersFile)); err == nil {
			t.Errorf("%s has an owner", d)
		}
	}
	wantDead(t, dir)
	owners, _, err := Owners(dir)
	check(t, err)
	equal(t, owners, []Owner(nil))
}

// TestOtherMachine: a lock of another machine may not be visible here. Its owner counts as
// alive for a minute after its last heartbeat.
func TestOtherMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	pending := filepath.Join(dir, ".run.json123")
	check(t, os.WriteFile(pending, nil, 0o644))
	for _, age := range []time.Duration{-time.Hour, 0, 50 * time.Second} {
		writeOwners(t, dir, ownerOnOtherMachine(age))
		_, alive, err := OwnerOf(dir)
		check(t, err)
		if !alive {
			t.Errorf("dead %v after its last heartbeat", age)
		}
		_, _, err = Resume(dir)
		wantOwned(t, err, 4711)
		wantError(t, err, "in use by pid 4711 on node7 since", `"kill 4711" on node7`, "--resume", "1m0s after its last heartbeat")
		wantOwned(t, RemoveTemporary(dir), 4711)
	}
	if _, err := os.Stat(pending); err != nil {
		t.Errorf("a file of the owner was removed: %v", err)
	}

	released := ownerOnOtherMachine(0)
	released.Released = true
	writeOwners(t, dir, released)
	wantDead(t, dir)
	w, _, err := Resume(dir)
	check(t, err)
	equal(t, w.Notices(), []string(nil)) // it has given it up itself
	check(t, w.Finish(StatusDone, nil))

	writeOwners(t, dir, ownerOnOtherMachine(61*time.Second))
	wantDead(t, dir)
	w, _, err = Resume(dir)
	check(t, err)
	check(t, w.Finish(StatusDone, nil))
	log, err := os.ReadFile(filepath.Join(dir, "out.log"))
	check(t, err)
	want := "took the run over from pid 4711 on node7, whose last heartbeat was at "
	if len(w.Notices()) != 1 || !strings.Contains(w.Notices()[0], want) || !strings.Contains(string(log), "note: "+want) {
		t.Errorf("notices %q, out.log\n%s", w.Notices(), log)
	}
	owners, _, err := Owners(dir)
	check(t, err)
	if len(owners) != 2 || owners[0].PID != 4711 || owners[1].PID != os.Getpid() {
		t.Errorf("owners %+v", owners)
	}
}

// TestTakenOver: an owner that was stopped for too long no longer writes.
func TestTakenOver(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"the next line": func(dir string) error {
			line, err := json.Marshal(ownerOnOtherMachine(0))
			if err != nil {
				return err
			}
			f, err := os.OpenFile(filepath.Join(dir, OwnersFile), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(append(line, '\n'))
			return errors.Join(err, f.Close())
		},
		"another file": func(dir string) error { // the folder was deleted and made anew
			line, err := json.Marshal(ownerOnOtherMachine(0))
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(filepath.Join(dir, OwnersFile)), os.WriteFile(filepath.Join(dir, OwnersFile), append(line, '\n'), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			w, err := Create(dir, sampleInfo())
			check(t, err)
			check(t, w.AppendEpoch(sampleEpoch(1)))
			check(t, take(dir))
			contents := func() string {
				var all []string
				for _, name := range []string{infoFile, epochsFile, logFile, OwnersFile} {
					text, err := os.ReadFile(filepath.Join(dir, name))
					check(t, err)
					all = append(all, string(text))
				}
				return strings.Join(all, "\n")
			}
			before := contents()
			w.lock.renewHeartbeat()
			wantOwned(t, w.AppendEpoch(sampleEpoch(2)), 4711)
			wantOwned(t, w.TruncateAfter(0), 4711)
			wantOwned(t, w.Log("here"), 4711)
			wantOwned(t, w.UpdateInfo(func(i *Info) { i.Engine = "x" }), 4711)
			wantOwned(t, w.Finish(StatusDone, nil), 4711)
			equal(t, contents(), before)
		})
	}
}

// TestHeartbeat: the heartbeat is renewed in place, and the file stays readable.
func TestHeartbeat(t *testing.T) {
	m := localLockEnvironment()
	now := time.Now()
	m.now = func() time.Time { return now }
	dir := filepath.Join(t.TempDir(), "run")
	l, err := m.acquire(dir, false)
	check(t, err)
	now = now.Add(time.Hour)
	l.renewHeartbeat()
	owners, problems, err := Owners(dir)
	check(t, err)
	if len(owners) != 1 || len(problems) != 0 || owners[0].Heartbeat.Sub(owners[0].Started) != time.Hour {
		t.Errorf("owners %+v, problems %v", owners, problems)
	}
	check(t, l.Release())
	check(t, l.Release())
	wantDead(t, dir)
}

// TestNoLocks: on a file system without locks, the heartbeat decides whether the owner is
// alive and, on the owner's machine, whether its process exists.
func TestNoLocks(t *testing.T) {
	m := localLockEnvironment()
	unsupported := func(*os.File) (bool, error) { return false, errors.ErrUnsupported }
	m.lock, m.query = unsupported, unsupported
	dir := filepath.Join(t.TempDir(), "run")
	l, err := m.acquire(dir, false)
	check(t, err)
	if n := l.Notices(); len(n) != 1 || !strings.Contains(n[0], "has no file locks") || !strings.Contains(n[0], "for 1m0s") {
		t.Errorf("notices %q", n)
	}
	_, alive, err := m.ownerOf(dir)
	check(t, err)
	_, again := m.acquire(dir, false)
	wantOwned(t, again, os.Getpid())
	if !alive {
		t.Error("the owner is dead")
	}
	later := m
	later.now = func() time.Time { return time.Now().Add(time.Hour) } // it stood still
	if _, alive, err = later.ownerOf(dir); alive || err != nil {
		t.Errorf("alive an hour after its heartbeat, %v", err)
	}
	check(t, l.Release())
	l, err = m.acquire(dir, false)
	check(t, err)
	check(t, l.Release())

	gone := l.owner
	gone.PID, gone.Released = 1<<22+1, false // above the kernel's largest
	if m.boot != "" {
		writeOwners(t, dir, gone)
		if _, alive, err = m.ownerOf(dir); alive || err != nil {
			t.Errorf("a process that is not there is alive, %v", err)
		}
	}
}

// TestTornOwner: the owner was killed while it wrote its line.
func TestTornOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	path := filepath.Join(dir, OwnersFile)
	whole, err := os.ReadFile(path)
	check(t, err)
	for _, torn := range []string{`{"host":"a","pi`, "{}\n", "\n", `"x"` + "\n"} {
		check(t, os.WriteFile(path, append(whole, torn...), 0o644))
		wantDead(t, dir)
		w, _, err := Resume(dir)
		check(t, err)
		_, alive, err := OwnerOf(dir)
		check(t, err)
		if !alive {
			t.Errorf("after %q: the owner is dead", torn)
		}
		check(t, w.Finish(StatusDone, nil))
		wantDead(t, dir)
	}
}

// TestLockOfSnapshot: the lock of a run whose files have other names, as in a snapshot with hard
// links, is taken by one of several processes, and the file of the snapshot stays as it is.
func TestLockOfSnapshot(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		l, err := Acquire(dir, false)
		if err == nil {
			err = l.Release()
		}
		path, snapshot := filepath.Join(dir, OwnersFile), filepath.Join(t.TempDir(), OwnersFile)
		if err = errors.Join(err, os.Link(path, snapshot)); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		locks := make([]*Lock, 4)
		var all sync.WaitGroup
		for i := range locks {
			all.Go(func() {
				var owned *OwnedError
				l, err := Acquire(dir, true)
				if err != nil && !errors.As(err, &owned) {
					t.Error(err)
				}
				locks[i] = l
			})
		}
		all.Wait()
		locks = slices.DeleteFunc(locks, func(l *Lock) bool { return l == nil })
		if len(locks) != 1 {
			t.Fatalf("%d processes have the lock, want one", len(locks))
		}
		if err := errors.Join(locks[0].Check(), locks[0].Release()); err != nil {
			t.Error(err)
		}
		if after, err := os.ReadFile(snapshot); err != nil || string(after) != string(before) {
			t.Errorf("the snapshot has changed (%v):\n%s", err, after)
		}
	}
}
