package model_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

// TestProgramIsAWorker builds the program that notebooks/own-model.ipynb shows,
// and launches it as two workers.
func TestProgramIsAWorker(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "mine", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 40 {
		t.Errorf("the program has %d lines: it should be some 30", n)
	}
	notebook, err := os.ReadFile(filepath.Join("..", "..", "notebooks", "own-model.ipynb"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Cells []struct{ Source []string }
	}
	if err := json.Unmarshal(notebook, &doc); err != nil {
		t.Fatal(err)
	}
	fullName := false
	for _, c := range doc.Cells {
		fullName = fullName || strings.Contains(strings.Join(c.Source, ""), strings.TrimSpace(string(source)))
	}
	if !fullName {
		t.Error("the notebook does not show the program as it is in testdata/mine")
	}

	dir := t.TempDir()
	program := filepath.Join(dir, "mine")
	build := exec.Command("go", "build", "-o", program, "./testdata/mine")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(dir, "train.yaml")
	text := "name: mine\nmodel: {kind: own, task: segmentation}\ndata: {kind: cells, count: 10, height: 16, width: 16, test_images: 2}\nbatch: 2\nepochs: 1\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", program)
	t.Setenv("LOCKSTEP_LOCKS", filepath.Join(dir, "locks"))
	job, err := launch.Local(t.Context(), launch.Sweep{Config: config, Logs: filepath.Join(dir, "logs"), Workers: []int{2}, Oversubscribe: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(job.Status()[0].Dir)
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := run.Info.Config["model"].(map[string]any)["spec"].(map[string]any)
	layers, _ := spec["layers"].([]any)
	if len(layers) != 10 { // three convolutions with a ReLU each, pool, transposed convolution, sum and head
		t.Errorf("run.json has the network with %d layers, want 10: %v", len(layers), spec)
	}
}
