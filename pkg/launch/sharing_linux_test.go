package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/internal/filelock"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/cores"
)

// sharedWith lets the sweeps of the test share the cores with another user, whose sweep has the given CPUs until
// release is called.
func sharedWith(t *testing.T, limit string, cpus []int) (release func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can act for several users")
	}
	ownQueue(t)
	folder := t.TempDir()
	t.Setenv(cores.FolderVariable, folder)
	t.Setenv(cores.LimitVariable, limit)
	other := filepath.Join(folder, "61001")
	err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, 61001, 61001))
	path := filepath.Join(other, "sweep.json")
	text := strings.ReplaceAll(fmt.Sprint(cpus), " ", ",")
	err = errors.Join(err, os.WriteFile(path, []byte(`{"cpus":`+text+`}`), 0o644), os.Chown(path, 61001, 61001))
	f, e := os.OpenFile(path, os.O_RDWR, 0)
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if held, err := filelock.Lock(f); held || err != nil {
		t.Fatal(held, err)
	}
	return func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// allowed returns the CPUs of this process.
func allowed(t *testing.T) []int {
	t.Helper()
	cpus, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// TestSweepWaitsForCores: while another user has all cores, a sweep waits and shows its place. Then it takes the
// cores, and gives them back.
func TestSweepWaitsForCores(t *testing.T) {
	release := sharedWith(t, "1h", allowed(t))
	s, out := shell(t, "true", 1)
	busy := s
	busy.NoWait, busy.Study = true, "busy"
	_, err := Local(context.Background(), busy)
	var b *BusyError
	if !errors.As(err, &b) {
		t.Errorf("got %v, want a BusyError", err)
	}
	wantError(t, err, "launch busy: other users' sweeps have the cores; this one needs 1 core: 0 of ", "place 1 of 1; wait for them, or start anyway (Now, --now)")

	j, err := Local(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(j.Note(), "waiting for 1 core: 0 of ") || !strings.Contains(j.Note(), " are free, place 1 of 1; starts at the latest at ") || j.Status()[0].State != StateWaiting {
		t.Errorf("note %q, status %+v", j.Note(), j.Status())
	}
	if jobs, err := Jobs(); err != nil || !strings.Contains(jobs.String(), "waiting for 1 core") {
		t.Errorf("jobs\n%v\n%v", jobs, err)
	}
	second := s // of this user: it waits for the first, and has no place of its own
	second.Study = "second"
	j2, err := Local(context.Background(), second)
	if err != nil || !strings.HasPrefix(j2.Note(), "waiting for scripts (pid ") {
		t.Errorf("%v, note %q", err, j2.Note())
	}
	release()
	if err := errors.Join(waitFor(t, j), waitFor(t, j2)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{j.Dir(), j2.Dir()} {
		if info := read(t, filepath.Join(dir, "script-n1-s1")).Info; info.Binding.Disturbed != "" || len(info.Notes) > 0 {
			t.Errorf("run.json: %+v, notes %q", info.Binding, info.Notes)
		}
	}
	if n := strings.Count(out.String(), "waiting for 1 core"); n != 1 {
		t.Errorf("the place is shown %d times:\n%s", n, out)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv(cores.FolderVariable), strconv.Itoa(os.Getuid()), "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestSweepStartsWithoutCores: after the limit, and with Now at once, a sweep starts although another user has the
// cores. Its workers are not bound, and its runs are marked.
func TestSweepStartsWithoutCores(t *testing.T) {
	sharedWith(t, "1h", allowed(t))
	const want = "it needs 1 core, and sweeps of other users left 0 when it started"
	for name, change := range map[string]func(*Sweep){
		"limit": func(*Sweep) { t.Setenv(cores.LimitVariable, "1ms") },
		"now":   func(s *Sweep) { t.Setenv(cores.LimitVariable, "1h"); s.Now = true },
	} {
		s, out := own(t, "sums", 1)
		s.Study, s.Oversubscribe = name, false
		change(&s)
		j, err := launch(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b := read(t, filepath.Join(j.Dir(), "ddp-n1-s1")).Info.Binding
		if b == nil || b.Disturbed != want || b.Mode != BindNone || b.Reason == "" {
			t.Errorf("%s: run.json has the binding %+v, want that it is disturbed: %s", name, b, want)
		}
		s, out = shell(t, "true", 1)
		change(&s)
		if j, err = launch(t, s); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if info := read(t, filepath.Join(j.Dir(), "script-n1-s1")).Info; len(info.Notes) != 1 || info.Notes[0] != "other sweeps disturb the times of this run: "+want {
			t.Errorf("%s: run.json has the notes %q", name, info.Notes)
		}
	}
	t.Setenv("LOCKSTEP_RUN", "x") // a sweep in a run has the cores of that run
	s, _ := shell(t, "true", 1)
	if j, err := launch(t, s); err != nil || j.Note() != "" {
		t.Errorf("got %v, note %q", err, j.Note())
	}
}

// TestSweepTakesFreeCores: a sweep is bound to cores that no other user has.
func TestSweepTakesFreeCores(t *testing.T) {
	cpus := allowed(t)
	if len(cpus) < 2 || binding.ReadCPUState().Quota < float64(len(cpus)) {
		t.Skip("this process has one CPU, or a quota of CPU time")
	}
	sharedWith(t, "1h", cpus[:1])
	s, out := own(t, "sums", 1)
	s.Bind = BindCores // in a container, too
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := read(t, filepath.Join(j.Dir(), "ddp-n1-s1")).Info.Binding
	if b == nil || len(b.CPUs) != 1 || b.Allowed != topology.FormatCPUList(cpus) {
		t.Fatalf("run.json has the binding %+v", b)
	}
	if got, err := topology.ParseCPUList(b.CPUs[0]); err != nil || len(got) == 0 || got[0] == cpus[0] {
		t.Errorf("the worker is bound to %s, but another user has CPU %d", b.CPUs[0], cpus[0])
	}
}

// TestSharingNeedsAFolder: without a folder that the user can write, the sweep starts with a note.
func TestSharingNeedsAFolder(t *testing.T) {
	ownQueue(t)
	t.Setenv(cores.FolderVariable, filepath.Join(t.TempDir(), "none"))
	s, _ := shell(t, "true", 1)
	j, err := launch(t, s)
	if err != nil || !strings.HasPrefix(j.Note(), "note: this sweep starts whether or not other users' sweeps use the cores: ") || !strings.Contains(j.Note(), "the administrator creates the folder") {
		t.Errorf("got %v, note %q", err, j.Note())
	}
	t.Setenv(cores.FolderVariable, t.TempDir())
	t.Setenv(cores.LimitVariable, "soon")
	s, _ = shell(t, "true", 1)
	if j, err = launch(t, s); err != nil || !strings.Contains(j.Note(), "invalid LOCKSTEP_CORES_WAIT=soon: the administrator must set a time such as 10m") {
		t.Errorf("got %v, note %q", err, j.Note())
	}
}
