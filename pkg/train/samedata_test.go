package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/runs"
)

// onPairs returns a small config with data from files in a new folder.
func onPairs(t *testing.T) Config {
	t.Helper()
	cfg := tiny()
	cfg.Epochs = 1
	cfg.Data = data.Config{Kind: data.KindPairs, Path: filepath.Join(t.TempDir(), "pairs"), TestImages: 2}
	if err := data.WriteCells(t.Context(), cfg.Data.Path, data.CellsOptions{Count: 8, Height: 16, Width: 16, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// swapFiles exchanges the contents of two files.
func swapFiles(t *testing.T, a, b string) {
	t.Helper()
	if err := errors.Join(os.Rename(a, a+".tmp"), os.Rename(b, a), os.Rename(a+".tmp", b)); err != nil {
		t.Fatal(err)
	}
}

// TestResumeWithOtherData: a run is not resumed with other data than before, unless its user
// accepts them, which is recorded. Moved data are the same.
func TestResumeWithOtherData(t *testing.T) {
	t.Parallel()
	cfg := onPairs(t)
	dir := filepath.Join(t.TempDir(), "run")
	resume := func(options WorkerOptions) (log string, err error) {
		t.Helper()
		cfg.Epochs++
		options.Dir, options.Resume = dir, true
		options.Log = func(line string) { log += line + "\n" }
		_, err = trainAll(t, cfg, 2, options)
		return log, err
	}
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(moved, os.DirFS(cfg.Data.Path)); err != nil {
		t.Fatal(err)
	}
	original := cfg.Data.Path
	cfg.Data.Path = moved
	if log, err := resume(WorkerOptions{}); err != nil || strings.Contains(log, "data") {
		t.Fatalf("moved data: %v\n%s", err, log)
	}
	swapFiles(t, filepath.Join(moved, "label", "3.png"), filepath.Join(moved, "label", "4.png"))
	before := readFolder(t, dir)
	_, err := resume(WorkerOptions{})
	names := regexp.MustCompile(`the data have changed since the run was trained: fingerprint was (v1:[0-9a-f]{12}) \(6 training samples and 2 held-out in 16 files of \d+ bytes, /.*/moved\), is (v1:[0-9a-f]{12}) \(6 training samples .*/moved\): the same names and the same total size of files, but other contents, and since then these files were written or renamed: /.*/moved/label/3\.png and /.*/moved/label/4\.png;`)
	if err == nil || !names.MatchString(err.Error()) {
		t.Fatalf("swapped labels: got %v, want both fingerprints", err)
	}
	wantError(t, err, "resume "+dir, "--accept-changed-data")
	if after := readFolder(t, dir); !slices.Equal(after, before) {
		t.Errorf("the refused resumption changed the run folder from\n%q to\n%q", before, after)
	}
	was, is := names.FindStringSubmatch(err.Error())[1], names.FindStringSubmatch(err.Error())[2]
	log, err := resume(WorkerOptions{AcceptChangedData: true})
	if want := "note: the run continues with other data, as --accept-changed-data allows: fingerprint was " + was; err != nil || !strings.Contains(log, want) || !strings.Contains(log, "), is "+is) {
		t.Fatalf("%v, no %q in\n%s", err, want, log)
	}
	// The accepted data are now those of the run.
	if log, err := resume(WorkerOptions{AcceptChangedData: true}); err != nil || strings.Contains(log, "other data") {
		t.Fatalf("%v\n%s", err, log)
	}
	cfg.Data.Path = original
	if _, err := resume(WorkerOptions{}); err == nil || !strings.Contains(err.Error(), "fingerprint was "+is) || !strings.Contains(err.Error(), "is "+was) {
		t.Errorf("the original data again: got %v", err)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var starts []string
	for _, w := range run.Starts {
		text := runs.ShortHash(w.DataHash)
		if w.AcceptedChangedData {
			text += " accepted"
		}
		starts = append(starts, text)
	}
	each := []string{was, was, is + " accepted", is}
	if want := append(each, each...); !slices.Equal(starts, want) {
		t.Errorf("got starts %q, want %q", starts, want)
	}
}

// readFolder returns the names and the contents of the files in dir, without those in folders.
func readFolder(t *testing.T, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), "collectives-") || e.Name() == runs.OwnersFile {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, e.Name(), string(text))
	}
	return files
}

// TestResumeWithoutFingerprint: a run folder without a fingerprint of the data is resumed with
// a note, and the fingerprint is recorded.
func TestResumeWithoutFingerprint(t *testing.T) {
	t.Parallel()
	cfg := onPairs(t)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	steps := filepath.Join(dir, "steps-0.jsonl")
	text, err := os.ReadFile(steps)
	if err != nil {
		t.Fatal(err)
	}
	older := regexp.MustCompile(`"data_hash":"[^"]*","data":{[^}]*}`).ReplaceAllString(string(text), `"data_hash":""`)
	if older == string(text) {
		t.Fatalf("no fingerprint in %s", text)
	}
	if err := os.WriteFile(steps, []byte(older), 0o644); err != nil {
		t.Fatal(err)
	}
	swapFiles(t, filepath.Join(cfg.Data.Path, "label", "3.png"), filepath.Join(cfg.Data.Path, "label", "4.png"))
	for epochs := 2; epochs <= 3; epochs++ {
		cfg.Epochs = epochs
		log := ""
		options := WorkerOptions{Dir: dir, Resume: true, Log: func(line string) { log += line + "\n" }}
		if _, err := trainAll(t, cfg, 1, options); err != nil {
			t.Fatal(err)
		}
		if want := epochs == 2; strings.Contains(log, "note: the run has no fingerprint of the data that it was trained on") != want {
			t.Errorf("epoch %d: want a note: %v; got\n%s", epochs, want, log)
		}
	}
	swapFiles(t, filepath.Join(cfg.Data.Path, "label", "3.png"), filepath.Join(cfg.Data.Path, "label", "4.png"))
	cfg.Epochs = 4
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
	wantError(t, err, "the data have changed since the run was trained")
}

// TestResumeWithOtherSamples: samples that a program passes to train have a fingerprint too.
func TestResumeWithOtherSamples(t *testing.T) {
	t.Parallel()
	cfg := tiny()
	cfg.Epochs = 1
	samples, err := OpenSamples(t.Context(), cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Samples: &samples}); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Samples: &samples, Resume: true}); err != nil {
		t.Fatal(err)
	}
	order := make([]int, samples.Train.Len())
	for i := range order {
		order[i] = i
	}
	order[4], order[5] = 5, 4
	samples.Train = data.Subset(samples.Train, order)
	cfg.Epochs = 3
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Samples: &samples, Resume: true})
	wantError(t, err, "the data have changed since the run was trained", "made by the program", "other samples")
}

func TestAcceptChangedDataNeedsResume(t *testing.T) {
	err := Worker{Config: "unet2d-cells", Run: filepath.Join(t.TempDir(), "run"), AcceptChangedData: true}.Train(t.Context())
	var wrong *UsageError
	if !errors.As(err, &wrong) {
		t.Errorf("got %v of type %T, want a UsageError", err, err)
	}
	wantError(t, err, "--accept-changed-data needs --resume")
}

// TestFingerprintEndsWithContext: an interrupt ends the reading of the files on all ranks.
func TestFingerprintEndsWithContext(t *testing.T) {
	t.Parallel()
	cfg := onPairs(t)
	samples, err := OpenSamples(t.Context(), cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, group := range collective.InProcess(1) {
		tr := &Trainer{cfg: cfg, group: group, trainingData: trainingData{samples: samples}, options: WorkerOptions{Dir: t.TempDir()}}
		if err := tr.fingerprintData(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want a canceled context", err)
		}
	}
}
