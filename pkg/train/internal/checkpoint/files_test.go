package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// writeEmpty writes empty files with the given names to the folder of checkpoints of the run folder dir.
func writeEmpty(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, FolderName), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, FolderName, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// namesIn returns the names of the checkpoints in the run folder dir, oldest first.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	all, err := ListPaths(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range all {
		all[i] = filepath.Base(name)
	}
	return all
}

// TestCheckpointOrder: the numbers in the names of checkpoints are compared as numbers. Other
// names are no checkpoints.
func TestCheckpointOrder(t *testing.T) {
	dir := t.TempDir()
	want := []string{
		"epoch-0002.safetensors", "epoch-9999-step-999999.safetensors", "epoch-9999-step-1000000.safetensors", "epoch-9999.safetensors",
		"epoch-10000-step-000001.safetensors", "epoch-10000.safetensors", "epoch-100000.safetensors",
	}
	others := []string{
		"epoch-best.safetensors", "epoch-2.safetensors", "epoch-0003.safetensors.damaged", "epoch-0003 (copy).safetensors",
		"epoch-99999999999999999999.safetensors", "epoch-0001-step-000000.safetensors",
	}
	writeEmpty(t, dir, slices.Concat(want, others)...)
	if got := namesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestManyDigits: a run keeps its newest checkpoint, also if its name is before others in
// alphabetical order.
func TestManyDigits(t *testing.T) {
	dir := t.TempDir()
	writeEmpty(t, dir, "epoch-9998.safetensors", "epoch-9999.safetensors", "epoch-10000.safetensors", "epoch-10001.safetensors") // the last one is of another run
	if err := DeleteOld(dir, filepath.Join(FolderName, "epoch-10000.safetensors"), 2); err != nil {
		t.Fatal(err)
	}
	if got, want := namesIn(t, dir), []string{"epoch-9999.safetensors", "epoch-10000.safetensors", "epoch-10001.safetensors"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLastSaved: which checkpoint a run has saved, according to its record. Without
// one, as in the recorded runs, the rows of the epochs tell.
func TestLastSaved(t *testing.T) {
	for _, tt := range []struct {
		recorded, test string
		every, epochs  int
		want           SavePoint
	}{
		{"checkpoints/epoch-0003-step-000004.safetensors", "checkpoints/epoch-0002.safetensors", 1, 2, SavePoint{2, 4}},
		{"", "", 1, 0, SavePoint{}},
		{"", "", 1, 1, SavePoint{}}, // it may have been killed between the row and the checkpoint
		{"", "", 1, 2, SavePoint{1, 0}},
		{"", "", 5, 5, SavePoint{}},
		{"", "", 5, 12, SavePoint{10, 0}},
		{"", "checkpoints/epoch-0012.safetensors", 5, 12, SavePoint{12, 0}},
	} {
		run := runs.Run{Info: runs.Info{Checkpoint: tt.recorded}}
		if tt.test != "" {
			run.Info.Test = &runs.Test{Checkpoint: tt.test}
		}
		for e := range tt.epochs {
			run.Epochs = append(run.Epochs, runs.Epoch{Epoch: e + 1})
		}
		if got := LastSavePoint(run, tt.every); got != tt.want {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
}

// TestListOfRun: a run has recorded three epochs and the checkpoint of the third one. Each case
// lists the files in its folder of checkpoints.
func TestListOfRun(t *testing.T) {
	const second, third, fourth = "epoch-0002.safetensors ", "epoch-0003.safetensors ", "epoch-0004.safetensors "
	const thirdDamaged = "epoch-0003.safetensors.damaged "
	for _, tt := range []struct{ names, want string }{
		{second + third, ""},
		{second + third + "epoch-0004-step-000002.safetensors", ""}, // killed before run.json was written
		{second + thirdDamaged, ""},                                 // likewise, after it was resumed
		{thirdDamaged, "is missing"},
		{second, "is missing"},
		{"", "is missing"},
		{third + fourth, "is not of this run"},
	} {
		run := runs.Run{Dir: t.TempDir(), Info: runs.Info{Checkpoint: "checkpoints/epoch-0003.safetensors"}, Epochs: []runs.Epoch{{Epoch: 1}, {Epoch: 2}, {Epoch: 3}}}
		writeEmpty(t, run.Dir, strings.Fields(tt.names)...)
		_, err := ListCheckedPaths(run, 1)
		if tt.want == "" && err == nil {
			continue
		}
		if err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.names, err, tt.want)
		}
	}
}
