package runs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLostFiles: a run fails if its files were deleted, moved or replaced, because anything
// it writes to them would be lost silently.
func TestLostFiles(t *testing.T) {
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	for name, tt := range map[string]struct {
		lose func(dir string) error
		path string // that the error names, below the folder
		kept bool   // run.json can still say so
	}{
		"folder deleted": {os.RemoveAll, OwnersFile, false},
		"folder moved":   {func(dir string) error { return os.Rename(dir, dir+".old") }, OwnersFile, false},
		"owners.jsonl":   {remove(OwnersFile), OwnersFile, false},
		"epochs.csv":     {remove(epochsFile), epochsFile, true},
		"out.log":        {remove(logFile), logFile, true},
		"run.json":       {remove(infoFile), infoFile, true},
		"epochs.csv replaced": {func(dir string) error {
			path := filepath.Join(dir, epochsFile)
			text, err := os.ReadFile(path)
			return errors.Join(err, os.Remove(path), os.WriteFile(path, text, 0o644))
		}, epochsFile, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			w, err := Create(dir, sampleInfo())
			check(t, err)
			check(t, w.AppendEpoch(sampleEpoch(1)))
			check(t, w.Check())
			check(t, tt.lose(dir))
			want := func(err error) {
				t.Helper()
				var lost *LostError
				if !errors.As(err, &lost) || lost.Path != filepath.Join(dir, tt.path) {
					t.Errorf("error is %v, want one that names %s", err, tt.path)
				}
			}
			want(w.Check())
			want(w.AppendEpoch(sampleEpoch(2)))
			want(w.Finish(StatusDone, nil))
			if !tt.kept {
				if _, err := os.Stat(filepath.Join(dir, infoFile)); err == nil && name != "owners.jsonl" {
					t.Error("the folder came back")
				}
				return
			}
			info, err := ReadInfo(dir)
			check(t, err)
			if info.Status != StatusFailed || info.Error == "" {
				t.Errorf("status is %q, error %q", info.Status, info.Error)
			}
		})
	}
}

// TestLostFilesOfRanks: the files of steps and events, and the rows of the load.
func TestLostFilesOfRanks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	defer func() { check(t, w.Finish(StatusDone, nil)) }()
	steps, err := OpenSteps(dir, 1, Worker{Rank: 1, WorldSize: 2})
	check(t, err)
	events, err := OpenEvents(dir, 0)
	check(t, err)
	check(t, w.AppendLoad(Load{Epoch: 1, Seconds: 1}))
	check(t, steps.AppendStep(Step{Epoch: 1, Step: 1}))
	check(t, errors.Join(steps.Flush(), events.Flush()))
	check(t, os.Remove(stepsPath(dir, 1)))
	check(t, os.Remove(events.f.Name()))
	check(t, os.Remove(filepath.Join(dir, loadFileName)))
	for name, err := range map[string]error{"steps": steps.Flush(), "events": events.Flush(), "load": w.AppendLoad(Load{Epoch: 2, Seconds: 1})} {
		var lost *LostError
		if !errors.As(err, &lost) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	check(t, errors.Join(steps.Close(), events.Close()))
}
