package train

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMissingRowsOfTheRun: --resume and "verify run" report missing and duplicate rows and
// steps.
func TestMissingRowsOfTheRun(t *testing.T) {
	cfg := tiny()
	lines := func(change func(lines [][]byte) [][]byte) func([]byte) []byte {
		return func(text []byte) []byte { return bytes.Join(change(bytes.SplitAfter(text, []byte("\n"))), nil) }
	}
	without := func(i, n int) func([]byte) []byte {
		return lines(func(l [][]byte) [][]byte { return slices.Delete(l, i, i+n) })
	}
	twice := func(i int) func([]byte) []byte {
		return lines(func(l [][]byte) [][]byte { return slices.Insert(l, i, l[i]) })
	}
	for i, tt := range []struct {
		file   string
		damage func([]byte) []byte
		want   string
	}{
		{"epochs.csv", without(1, 1), "epochs.csv:2: epoch 2 follows epoch 0: rows are missing"},
		{"epochs.csv", without(2, 1), "epochs.csv ends with epoch 1, but the checkpoint is of epoch 2: rows are missing"},
		{"epochs.csv", twice(1), "epochs.csv:3: duplicate epoch 1"},
		{"steps-0.jsonl", without(2, 1), "steps-0.jsonl:3: step 3 follows step 1: lines are missing"},
		{"steps-0.jsonl", without(16, 3), "the steps of rank 0 end with step 15, but the checkpoint is of step 18: lines are missing"},
		{"steps-0.jsonl", twice(3), "steps-0.jsonl:5: duplicate step 3"},
	} {
		t.Run(fmt.Sprintf("%d, %s", i, tt.file), func(t *testing.T) {
			options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
			short := cfg
			short.Epochs = 2
			if _, err := trainAll(t, short, 1, options); err != nil {
				t.Fatal(err)
			}
			change(t, filepath.Join(options.Dir, tt.file), tt.damage)
			checks, err := VerifyRun(t.Context(), options.Dir, "")
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(checks, func(c Check) bool { return !c.OK })
			if i < 0 {
				t.Fatal("verify run finds nothing")
			}
			options.Resume = true
			if _, err := trainAll(t, cfg, 1, options); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(options.Dir, "out.log"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(log), " - note: ") || !strings.Contains(string(log), tt.want) {
				t.Errorf("no %q in\n%s", tt.want, log)
			}
		})
	}
}
