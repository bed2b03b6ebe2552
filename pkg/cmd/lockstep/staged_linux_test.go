package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stagedRun launches a run of two workers on files, with data.stage in the folder. More
// epochs make it long enough to be killed.
type stagedRun struct {
	*place
	set, stage string
}

func newStagedRun(t *testing.T) *stagedRun {
	t.Helper()
	r := &stagedRun{place: newPlace(t)}
	r.set, r.stage = filepath.Join(r.dir, "set"), filepath.Join(r.dir, "stage")
	if err := os.Mkdir(r.stage, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.command(&out, "data", "make", "cells", r.set, "--count", "8", "--height", "16", "--width", "16").Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return r
}

func (r *stagedRun) args(more ...string) []string {
	return append([]string{"--data", r.set, "--set", "data.stage=" + r.stage}, more...)
}

// copies are the folders of data in the stage.
func (r *stagedRun) copies() []string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.stage, "lockstep-stage-*", "*", "data"))
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// empty fails where something is left in the stage.
func (r *stagedRun) empty() {
	r.t.Helper()
	entries, err := os.ReadDir(r.stage)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		r.t.Errorf("%s is left in the stage", e.Name())
	}
}

// killed starts a run, kills the rank (the launcher where it is negative) by kill -9
// when the run has written its first epoch, and waits for its end.
func (r *stagedRun) killed(series string, victim int) string {
	r.t.Helper()
	var out bytes.Buffer
	c := r.launch(&out, 2, 1, r.args("--series", series, "--epochs", "100000")...)
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	begun := filepath.Join(r.logs, "tiny", series+"-n2-s1", "epochs.csv")
	for range 3000 {
		if text, err := os.ReadFile(begun); err == nil && bytes.Count(text, []byte("\n")) > 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(r.copies()) != 1 {
		r.t.Errorf("while it trains there are copies %v, want one", r.copies())
	}
	if hit, _ := r.kill(c.Process.Pid, victim); !hit {
		r.t.Fatalf("rank %d was not there to be killed:\n%s", victim, &out)
	}
	if err := c.Wait(); err == nil {
		r.t.Errorf("the run ended well:\n%s", &out)
	}
	for range 500 {
		if len(r.processes()) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return out.String()
}

// TestStagedRun trains from a copy of the data to the bits of a run that reads the files
// where they are, and leaves no copy.
func TestStagedRun(t *testing.T) {
	r := newStagedRun(t)
	var out bytes.Buffer
	if err := r.launch(&out, 2, 1, "--study", "original", "--data", r.set).Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := r.launch(&out, 2, 1, r.args("--study", "staged")...).Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	r.empty()
	run := func(study string) string { return filepath.Join(r.logs, study, "ddp-n2-s1") }
	if got, want := final(t, run("staged")), final(t, run("original")); got != want {
		t.Errorf("staged data gave another result: %s", difference(got, want))
	}
	text, err := os.ReadFile(filepath.Join(run("staged"), "out.log"))
	if err != nil || !strings.Contains(string(text), "note: data staged to "+r.stage) {
		t.Errorf("out.log, %v:\n%s", err, text)
	}
	out.Reset()
	err = r.launch(&out, 2, 1, "--study", "none", "--data", r.set, "--set", "data.stage="+filepath.Join(r.dir, "nowhere")).Run()
	if err == nil || !strings.Contains(out.String(), "the folder does not exist on this machine") {
		t.Errorf("a stage that is not there: %v\n%s", err, &out)
	}
}

// TestStagedRunKilled kills one rank, after which the other removes the copy, and then a
// launcher, whose ranks the kernel kills: the next run removes that copy.
func TestStagedRunKilled(t *testing.T) {
	r := newStagedRun(t)
	for rank := range 2 {
		out := r.killed([]string{"first", "second"}[rank], rank)
		if copies := r.copies(); len(copies) > 0 {
			t.Errorf("after rank %d was killed %v is left:\n%s", rank, copies, out)
		}
		r.empty()
	}
	r.killed("all", -1)
	if len(r.copies()) != 1 {
		t.Fatalf("with no process left to remove it, copies are %v, want one", r.copies())
	}
	// Other data, so that the copy is not taken for them.
	if err := os.Rename(r.set, r.set+"2"); err != nil {
		t.Fatal(err)
	}
	r.set += "2"
	var out bytes.Buffer
	if err := r.launch(&out, 2, 1, r.args("--study", "next")...).Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	r.empty()
	r.leavesNothing(nil)
}
