package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

// damages are the ways in which a disk damages a file.
var damages = map[string]func(t *testing.T, path string){
	"flipped bit": func(t *testing.T, path string) {
		change(t, path, func(b []byte) []byte {
			b[len(b)-3] ^= 4
			return b
		})
	},
	"zeroed tail": func(t *testing.T, path string) {
		change(t, path, func(b []byte) []byte {
			clear(b[len(b)-512:])
			return b
		})
	},
	"cut tail": func(t *testing.T, path string) {
		change(t, path, func(b []byte) []byte { return b[:len(b)-512] })
	},
	"emptied": func(t *testing.T, path string) { change(t, path, func([]byte) []byte { return nil }) },
}

func change(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, how(b), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedCheckpoint: if the newest checkpoint is damaged, a resumed run reports and
// renames it, continues from the checkpoint before it, and ends with the same bits as an
// uninterrupted run.
func TestDamagedCheckpoint(t *testing.T) {
	cfg := tiny()
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	want := outcome(t, whole)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			var lines []string
			options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Log: func(line string) { lines = append(lines, line) }}
			short := cfg
			short.Epochs = 2
			if _, err := trainAll(t, short, 2, options); err != nil {
				t.Fatal(err)
			}
			newest := filepath.Join(options.Dir, checkpoint.FolderName, "epoch-0002.safetensors")
			damage(t, newest)

			checks, err := VerifyRun(t.Context(), options.Dir, "")
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "the checkpoint loads" })
			if err != nil || i < 0 || checks[i].OK || !strings.Contains(checks[i].Detail, newest) {
				t.Errorf("verify says %v, %v", checks, err)
			}

			options.Resume = true
			if _, err := trainAll(t, cfg, 2, options); err != nil {
				t.Fatal(err)
			}
			if got := replayed(t, options.Dir); got != want {
				t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
			}
			log, err := os.ReadFile(filepath.Join(options.Dir, "out.log"))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{strings.Join(lines, "\n"), string(log)} {
				for _, part := range []string{"note: checkpoint epoch-0002.safetensors is damaged (", "kept as epoch-0002.safetensors.damaged, and the run continues from epoch-0001.safetensors"} {
					if !strings.Contains(text, part) {
						t.Errorf("no %q in\n%s", part, text)
					}
				}
			}
			if _, err := os.Stat(newest + ".damaged"); err != nil {
				t.Error(err)
			}
			checks, err = VerifyRun(t.Context(), options.Dir, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range checks {
				if !c.OK && c.Name != "each rank was a separate process" { // these are goroutines
					t.Errorf("verify: %s: %s", c.Name, c.Detail)
				}
			}
		})
	}
}

// TestDamagedWithinAnEpoch: within an epoch, also the first, the second newest checkpoint is
// kept too.
func TestDamagedWithinAnEpoch(t *testing.T) {
	cfg := tiny()
	cfg.Checkpoint.EverySteps = 1
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	want := outcome(t, whole)
	for _, tt := range []struct {
		epoch, step int
		left        []string
	}{
		{1, 3, []string{"epoch-0001-step-000002.safetensors", "epoch-0001-step-000003.safetensors"}},
		{2, 1, []string{"epoch-0001.safetensors", "epoch-0002-step-000001.safetensors"}},
		{2, 3, []string{"epoch-0001.safetensors", "epoch-0002-step-000002.safetensors", "epoch-0002-step-000003.safetensors"}},
	} {
		t.Run(fmt.Sprintf("epoch %d, step %d", tt.epoch, tt.step), func(t *testing.T) {
			options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
			if err := interruptedAt(t, cfg, 1, options, tt.epoch, tt.step); err == nil {
				t.Fatal("it was not interrupted")
			}
			names := namesIn(t, options.Dir)
			if !slices.Equal(names, tt.left) {
				t.Fatalf("checkpoints %v, want %v", names, tt.left)
			}
			damages["flipped bit"](t, filepath.Join(options.Dir, checkpoint.FolderName, names[len(names)-1]))
			options.Resume = true
			if _, err := trainAll(t, cfg, 1, options); err != nil {
				t.Fatal(err)
			}
			if got := replayed(t, options.Dir); got != want {
				t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
			}
		})
	}
}

// TestNoWholeCheckpoint: if all checkpoints are damaged, the run neither starts from the
// beginning nor renames files.
func TestNoWholeCheckpoint(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(options.Dir, checkpoint.FolderName, "epoch-0001.safetensors")
	damages["zeroed tail"](t, path)
	cfg.Epochs, options.Resume = 2, true
	_, err := trainAll(t, cfg, 2, options)
	wantError(t, err, "resume "+options.Dir+": all checkpoints are damaged", path, "checksum", "restore a copy of one, or train again in another run folder")
	if names := namesIn(t, options.Dir); !slices.Equal(names, []string{"epoch-0001.safetensors"}) {
		t.Errorf("checkpoints %v are left", names)
	}
	_, err = OpenPredictor(t.Context(), options.Dir, "")
	var damaged *weights.DamagedError
	if !errors.As(err, &damaged) {
		t.Errorf("the predictor says %v", err)
	}
}

// TestCheckpointWithoutChecksums resumes from a checkpoint of an earlier version, which has no
// checksums.
func TestCheckpointWithoutChecksums(t *testing.T) {
	cfg := tiny()
	whole, options := filepath.Join(t.TempDir(), "whole"), WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	short := cfg
	short.Epochs = 2
	if _, err := trainAll(t, short, 1, options); err != nil {
		t.Fatal(err)
	}
	for _, name := range namesIn(t, options.Dir) {
		path := filepath.Join(options.Dir, checkpoint.FolderName, name)
		file, err := weights.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(weights.Encode(f, file.Tensors, file.Metadata), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	options.Resume = true
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
	if got, want := outcome(t, options.Dir), outcome(t, whole); got != want {
		t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
	}
	if log, err := os.ReadFile(filepath.Join(options.Dir, "out.log")); err != nil || strings.Contains(string(log), "note: checkpoint") {
		t.Errorf("out.log says (%v)\n%s", err, log)
	}
}

// TestUnknownCheckpointFormat: a checkpoint of a newer version is an error.
func TestUnknownCheckpointFormat(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(options.Dir, checkpoint.FolderName, "epoch-0001.safetensors")
	f, err := weights.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Metadata["format"] = "lockstep checkpoint 2"
	if err := weights.Write(path, f.Tensors, f.Metadata); err != nil {
		t.Fatal(err)
	}
	options.Resume, cfg.Epochs = true, 2
	_, err = trainAll(t, cfg, 1, options)
	wantError(t, err, path, `got format "lockstep checkpoint 2", want "lockstep checkpoint 1"`, "use the version of lockstep that wrote it")
	if run, err := runs.Read(options.Dir); err != nil || len(run.Epochs) != 1 {
		t.Errorf("%d epochs, %v", len(run.Epochs), err)
	}
}
