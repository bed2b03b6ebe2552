package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
)

// TestLeftOverCheckpoint: a checkpoint that was in the folder before the run began is kept under
// another name. The run neither deletes its own checkpoints because of it nor continues from it.
func TestLeftOverCheckpoint(t *testing.T) {
	cfg := tiny()
	cfg.Checkpoint.Keep = 1
	other, dir := filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: other}); err != nil {
		t.Fatal(err)
	}
	leftOver := filepath.Join(dir, checkpoint.FolderName, "epoch-0050.safetensors")
	copyFile(t, filepath.Join(other, checkpoint.FolderName, "epoch-0003.safetensors"), leftOver)
	cfg.Epochs = 2
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, dir); !slices.Equal(got, []string{"epoch-0002.safetensors"}) {
		t.Errorf("got checkpoints %q, want only the run's own", got)
	}
	wantLog(t, dir, "note: checkpoint epoch-0050.safetensors was in the folder before this run began; it is kept as epoch-0050.safetensors.other-run and not used")

	// One that is put there later is refused.
	if err := os.Rename(leftOver+checkpoint.OtherRunSuffix, leftOver); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 3
	_, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
	wantError(t, err, "resume "+dir+": "+leftOver+" is not of this run, whose record ends with epoch 2: move the file out of the folder")
	_, err = OpenPredictor(t.Context(), dir, "")
	wantError(t, err, leftOver+" is not of this run")

	// So is one with a name that the run may have written.
	name := filepath.Join(dir, checkpoint.FolderName, "epoch-0002.safetensors")
	if err := os.Rename(leftOver, name); err != nil {
		t.Fatal(err)
	}
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
	wantError(t, err, "checkpoint "+name+": the file contains the checkpoint epoch-0003.safetensors")
}

// TestMissingParts: a run whose record is ahead of its checkpoints, or whose record has lost a
// file, is not resumed, and its record stays as it is. A finished run stays finished.
func TestMissingParts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		remove  string
		refused string // empty: resumed
		more    bool   // train more epochs
	}{
		{"all checkpoints", "checkpoints", "checkpoints/epoch-0002.safetensors is missing, the newest checkpoint of a run that has recorded 2 epochs: restore it from a copy, or train again", true},
		{"newest checkpoint", "checkpoints/epoch-0002.safetensors", "create an empty file of that name, and --resume continues from epoch-0001.safetensors", true},
		{"steps of a rank", "steps-1.jsonl", "steps-1.jsonl is missing, although the run has a checkpoint of step 10: restore the file from a copy", true},
		{"epochs", "epochs.csv", "epochs.csv is missing, although the run has a checkpoint of step 10", true},
		{"run.json", "run.json", "run.json is missing, although the folder contains epochs.csv", true},
		{"run.json and epochs.csv", "[re][up][no]*s*[nv]", "run.json is missing, although the folder contains steps-0.jsonl", true},
		{"checkpoints of a finished run", "checkpoints", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := tiny()
			cfg.Epochs = 2
			dir := filepath.Join(t.TempDir(), "run")
			first, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(dir, tt.remove))
			if err != nil || len(found) == 0 {
				t.Fatalf("found %q, %v", found, err)
			}
			for _, path := range found {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			before := readRecord(t, dir)
			if tt.more {
				cfg.Epochs = 3
			}
			again, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true})
			if after := readRecord(t, dir); after != before {
				t.Errorf("the record has changed from\n%s\nto\n%s", before, after)
			}
			if tt.refused != "" {
				wantError(t, err, tt.refused)
				return
			}
			if err != nil || !reflect.DeepEqual(again[0].Test, first[0].Test) || len(again[0].Epochs) != 2 {
				t.Errorf("got %+v, %v, want the result of the finished run", again[0], err)
			}
		})
	}
}

// TestNoCheckpointYet: a run that was ended before its first checkpoint was due is resumed from
// the beginning.
func TestNoCheckpointYet(t *testing.T) {
	cfg := tiny()
	cfg.Checkpoint.Every = 3
	whole, dir := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("as after a kill")
	_, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, EpochDone: func(e runs.Epoch) error {
		if e.Epoch == 2 {
			return lost
		}
		return nil
	}})
	if !errors.Is(err, lost) {
		t.Fatal(err)
	}
	// A failed run saves its last epoch, unlike a killed one.
	if err := os.RemoveAll(filepath.Join(dir, checkpoint.FolderName)); err != nil {
		t.Fatal(err)
	}
	editInfo(t, dir, func(i *runs.Info) { i.Checkpoint = "" })
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	if replayed(t, dir) != replayed(t, whole) {
		t.Error("the resumed run has another outcome")
	}
}

// TestLinkedCheckpoints: the folder of checkpoints may be a link to another disk, but not to the
// folder of another run.
func TestLinkedCheckpoints(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	root, scratch := t.TempDir(), t.TempDir()
	run := func(name string) string { return filepath.Join(root, name) }
	link := func(name, to string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(run(name), 0o755), os.Symlink(to, filepath.Join(run(name), checkpoint.FolderName))); err != nil {
			t.Fatal(err)
		}
	}
	link("a", scratch)
	options := WorkerOptions{Dir: run("a")}
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(scratch, "epoch-0001.safetensors")); err != nil {
		t.Error(err)
	}
	link("b", scratch)
	_, err := trainAll(t, cfg, 1, WorkerOptions{Dir: run("b")})
	wantError(t, err, fmt.Sprintf("runs %s and %s have the same folder of checkpoints, %s", run("a"), run("b"), scratch))

	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: run("c")}); err != nil { // without a link
		t.Fatal(err)
	}
	link("d", filepath.Join(run("c"), checkpoint.FolderName))
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: run("d")})
	wantError(t, err, fmt.Sprintf("runs %s and %s have the same folder of checkpoints", run("c"), run("d")))

	link("e", filepath.Join(root, "nowhere"))
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: run("e")})
	wantError(t, err, "is a link to "+filepath.Join(root, "nowhere")+", which does not exist: create that folder, or remove the link")

	// The first run goes on, also after it was moved.
	if err := os.Rename(run("a"), run("moved")); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs, options.Dir, options.Resume = 2, run("moved"), true
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
}

func editInfo(t *testing.T, dir string, change func(*runs.Info)) {
	t.Helper()
	w, _, err := runs.Resume(dir)
	if err == nil {
		err = errors.Join(w.UpdateInfo(change), w.Finish(runs.StatusFailed, nil))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readRecord returns the content of the files in the run folder dir that record its result.
func readRecord(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"run.json", "epochs.csv", "steps-0.jsonl", "steps-1.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			text = []byte("missing\n")
		}
		fmt.Fprintf(&b, "%s: %s", name, text)
	}
	return b.String()
}

func wantLog(t *testing.T, dir, want string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "out.log"))
	if err != nil || !strings.Contains(string(log), want) {
		t.Errorf("no %q in out.log (%v):\n%s", want, err, log)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}
