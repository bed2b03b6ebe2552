package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/notebook"
)

// inNotebook makes the test a notebook's kernel, and returns what its cells show.
func inNotebook(t *testing.T) *transcript {
	t.Helper()
	shown := &transcript{}
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: func(v any, _ string, _ bool) error {
		_, err := fmt.Fprintln(shown, v)
		return err
	}})
	t.Cleanup(func() { notebook.SetHook(notebook.Hook{}) })
	return shown
}

// loggingBinary makes a script the lockstep command of the workers, which writes a line for each call to
// the returned file, and passes the call on to this executable.
func loggingBinary(t *testing.T) (calls string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	calls = filepath.Join(dir, "calls")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in *--check*) echo check;; *) echo "$1";; esac >>%s
case $1 in version) echo '{"build_id": "dev"}'; exit;; esac
exec %s "$@"
`, calls, self)
	path := filepath.Join(dir, "lockstep.sh")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", path)
	return calls
}

// TestPlannedOnce: a launch asks the lockstep command once for its version and once for each series
// whether its config is valid, also in a notebook, where a separate process runs the sweep.
func TestPlannedOnce(t *testing.T) {
	for name, isNotebook := range map[string]bool{"notebook": true, "command": false} {
		t.Run(name, func(t *testing.T) {
			ownQueue(t)
			if isNotebook {
				inNotebook(t)
			}
			calls := loggingBinary(t)
			s, _ := own(t, "sums", 1, 2)
			s.Vary = []string{"batch=2,4"}
			if _, err := launch(t, s); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			for call, want := range map[string]int{"version": 1, "check": 2, "train": 6} {
				if got := strings.Count("\n"+string(text), "\n"+call); got != want {
					t.Errorf("got %d calls of %s, want %d, in\n%s", got, call, want, text)
				}
			}
		})
	}
}

// TestPlanIsAValue: a plan says of each run what it does and why, and nothing of it is lost on the way to
// the process that runs the sweep.
func TestPlanIsAValue(t *testing.T) {
	ownQueue(t)
	s, _ := own(t, "sums", 1)
	if _, err := launch(t, s); err != nil {
		t.Fatal(err)
	}
	s.Workers, s.Output = []int{1, 2}, nil
	p, err := Plan(t.Context(), OnLocal, s)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Runs[0]; r.Action != ActionNone || r.Reason != "done" {
		t.Errorf("got %s (%s) for a finished run, want that there is nothing to do", r.Action, r.Reason)
	}
	r := p.Runs[1]
	if r.Action != ActionStart || r.Processes != 2 || r.Epochs != 2 || r.Dir != filepath.Join(p.Dir, "ddp-n2-s1") || r.Binding == nil {
		t.Errorf("got run %+v, want that it starts with 2 processes", r)
	}
	if environment := strings.Join(r.Environment, " "); !strings.Contains(environment, "RANK=0 WORLD_SIZE=2 ") || !strings.Contains(environment, "MASTER_PORT=PORT") {
		t.Errorf("got environment %s", environment)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read SweepPlan
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read.Runs, p.Runs) || !reflect.DeepEqual(read.Sweep, func() Sweep { s := p.Sweep; s.gracePeriod = 0; return s }()) {
		t.Errorf("got\n%+v\nwant\n%+v", read, p)
	}
	if read.String() != p.String() {
		t.Errorf("got\n%s\nwant\n%s", &read, p)
	}
}

// TestNotStartedByAnotherProcess: if the separate process does not start the sweep, the notebook gets its
// reason, and no record and no log remain.
func TestNotStartedByAnotherProcess(t *testing.T) {
	ownQueue(t)
	first, out := own(t, "waits", 1)
	j, err := Local(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "epoch 1 mean", 1)
	inNotebook(t)
	s, _ := own(t, "sums", 1)
	check := func(err error, want string) {
		t.Helper()
		wantError(t, err, want)
		if left, err := os.ReadDir(filepath.Join(s.Logs, "sums", queue.RecordsFolder)); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	busy := s
	busy.NoWait = true
	_, err = Local(t.Context(), busy)
	check(err, "launch sums: waits is running (pid ")
	var b *BusyError
	if !errors.As(err, &b) || b.Study != "waits" || b.PID != os.Getpid() {
		t.Errorf("got %#v, want that waits is running", err)
	}

	p, err := planSweep(t.Context(), OnLocal, "", s, false)
	if err != nil {
		t.Fatal(err)
	}
	p.Build = "other"
	_, err = p.startInSeparateProcess(t.Context())
	check(err, `got build "dev", want build "other" of the kernel: build both from the same sources`)

	p.Build, p.Binary = "dev", "/bin/sh"
	_, err = p.startInSeparateProcess(t.Context())
	check(err, "start sweep by /bin/sh launch: the process ended before it had started the sweep (is it the lockstep command?): ")

	// Another process has started to train the runs since they were planned.
	p, err = planSweep(t.Context(), OnLocal, "", s, false)
	if err != nil {
		t.Fatal(err)
	}
	p.Dir, p.Runs[0].Dir = j.Dir(), j.Status()[0].Dir
	_, err = p.startInSeparateProcess(t.Context())
	var owned *runsInUseError
	if !errors.As(err, &owned) {
		t.Errorf("got error %v, want that another process owns the runs", err)
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	_ = waitFor(t, j)
}

// TestAttachRefusesUnknownRecords: a record that a later version of lockstep has written is not guessed.
func TestAttachRefusesUnknownRecords(t *testing.T) {
	ownQueue(t)
	dir := t.TempDir()
	r := &queue.SweepRecord{Schema: queue.RecordSchema + 1, Build: "0123456789abcdef", ID: queue.NewSweepID(time.Now()), Study: "x", Dir: dir, State: StateRunning, Site: "local-test"}
	r.Path = queue.RecordPath(dir, r.ID)
	if err := os.Mkdir(filepath.Dir(r.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(); err != nil {
		t.Fatal(err)
	}
	_, err := Attach(dir)
	wantError(t, err, "attach ", fmt.Sprintf("got version %d (build 0123456789abcdef of lockstep), want at most %d: use the lockstep that launched the sweep", queue.RecordSchema+1, queue.RecordSchema))
}

// TestParseOn checks the places where a sweep may run.
func TestParseOn(t *testing.T) {
	for _, tt := range []struct{ on, kind, site, wantError string }{
		{"local", OnLocal, "", ""},
		{"mpi", OnMPI, "", ""},
		{"slurm", OnSlurm, "generic", ""},
		{"slurm:own.yaml", OnSlurm, "own.yaml", ""},
		{"mpi:x", "", "", "mpi has no site"},
		{"slrum", "", "", `unknown back end "slrum" (did you mean slurm?)`},
	} {
		kind, site, err := ParseOn(tt.on)
		if tt.wantError != "" {
			wantError(t, err, tt.wantError)
			continue
		}
		if err != nil || kind != tt.kind || site != tt.site {
			t.Errorf("%s: got %s, %s, %v, want %s, %s", tt.on, kind, site, err, tt.kind, tt.site)
		}
	}
}

// TestWhereRunsGo: the first line of a launch names the folder of the runs, and how many others it has.
func TestWhereRunsGo(t *testing.T) {
	ownQueue(t)
	s, out := own(t, "sums", 1)
	first := "folder of the runs: " + filepath.Join(s.Logs, "sums")
	if _, err := launch(t, s); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), first+"\n") {
		t.Errorf("got output\n%s\nwant first %s", out, first)
	}
	shown := inNotebook(t)
	s.Seeds = []int64{2, 3}
	j, err := launch(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if want := first + " (3 runs: 2 of this sweep, 1 older)"; j.Where() != want || !strings.HasPrefix(shown.String(), want+"\n") {
		t.Errorf("got %q, and the cell shows\n%s\nwant %s", j.Where(), shown, want)
	}
}
