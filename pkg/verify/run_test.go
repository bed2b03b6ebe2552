package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/train/traintest"
)

// TestVerifyRun checks that Run accepts an unchanged run folder and detects each change.
func TestVerifyRun(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(t *testing.T, dir string)
		want string // name of a check that must fail; empty: none
	}{
		{"honest", func(*testing.T, string) {}, "each rank was a separate process"}, // two goroutines are one process
		{"one process", func(t *testing.T, dir string) { edit(t, dir, func(i *runs.Info) { i.Processes = 1 }) }, ""},
		{"more processes", func(t *testing.T, dir string) { edit(t, dir, func(i *runs.Info) { i.Processes = 2 }) }, "each rank was a separate process"},
		{"another IoU", func(t *testing.T, dir string) { edit(t, dir, func(i *runs.Info) { i.Test.IoU = 0.99 }) }, "IoU of run.json"},
		{"another training loss", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "epochs.csv")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			cells := strings.Split(lines[2], ",")
			loss, err := strconv.ParseFloat(cells[5], 64)
			if err != nil {
				t.Fatal(err)
			}
			cells[5] = strconv.FormatFloat(loss*(1+1e-8), 'g', -1, 64)
			lines[2] = strings.Join(cells, ",")
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "epoch 2: training loss"},
		{"no checkpoint", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
		}, "the checkpoint loads"},
		{"more workers", func(t *testing.T, dir string) { edit(t, dir, func(i *runs.Info) { i.Workers = 1 }) }, "each rank wrote its steps file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			trainAll(t, traintest.Config(), 2, train.WorkerOptions{Dir: dir})
			c.lie(t, dir)
			checks, err := Run(t.Context(), dir, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			found := c.want == ""
			for _, k := range checks {
				if k.Name == c.want {
					found = !k.OK
				} else if !k.OK && (c.name == "honest" || c.want == "") {
					t.Errorf("honest run fails: %+v", k)
				}
			}
			if !found {
				t.Errorf("%q did not fail: %+v", c.want, checks)
			}
		})
	}
}

func edit(t *testing.T, dir string, change func(*runs.Info)) {
	t.Helper()
	w, _, err := runs.Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.UpdateInfo(change); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyRunChecksConfigs checks the comparison of the hashes of config and data that the
// step files contain.
func TestVerifyRunChecksConfigs(t *testing.T) {
	const name, sameData = "all ranks trained with the config of run.json", "all ranks trained on the same data, from the start to the end"
	dir := filepath.Join(t.TempDir(), "run")
	cfg := traintest.Config()
	cfg.Epochs = 1
	trainAll(t, cfg, 2, train.WorkerOptions{Dir: dir})
	cfg.Epochs = 2
	trainAll(t, cfg, 2, train.WorkerOptions{Dir: dir, Resume: true})
	// setData replaces the fingerprint in the last start of a rank by v1:1234, or by hash, and
	// adds the given fields.
	setData := func(t *testing.T, dir string, rank int, hash, fields string) {
		path := filepath.Join(dir, []string{"steps-0.jsonl", "steps-1.jsonl"}[rank])
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := strings.LastIndex(string(text), `"data_hash":"`)
		rest := regexp.MustCompile(`^"data_hash":"[^"]*"`).ReplaceAllString(string(text[i:]), fmt.Sprintf(`"data_hash":%q%s`, hash, fields))
		if err := os.WriteFile(path, []byte(string(text[:i])+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		check  string
		ok     bool
		detail string // a regular expression
	}{
		{"as it was", func(*testing.T, string) {}, name, true, "2 ranks, SHA-256 "},
		{"run.json changed", func(t *testing.T, dir string) { edit(t, dir, func(i *runs.Info) { i.Config["seed"] = 8.0 }) }, name, false, "rank 0 trained with another config"},
		{"config recorded by one rank", func(t *testing.T, dir string) { editSteps(t, dir, 1, `"config_hash":`, `"x":`) }, name, false, "rank 1 did not record its config"},
		{"no config recorded", func(t *testing.T, dir string) {
			for rank := range 2 {
				editSteps(t, dir, rank, `"config_hash":`, `"x":`)
			}
		}, name, true, "not recorded"},
		{"the same data", func(*testing.T, string) {}, sameData, true, `^v1:[0-9a-f]{12} \(\d+ training samples and \d+ held-out, generated\)$`},
		{
			"other data of a rank", func(t *testing.T, dir string) { setData(t, dir, 1, "v1:12", "") }, sameData, false,
			`rank 1 trained on other data than rank 0: v1:12 \(.*\), not v1:[0-9a-f]{12} `,
		},
		{"data changed", func(t *testing.T, dir string) {
			for rank := range 2 {
				setData(t, dir, rank, "v1:12", "")
			}
		}, sameData, false, `^the data changed when the run was resumed after step \d+, and nobody accepted it: from v1:[0-9a-f]{12} \(.*\) to v1:12 \([^;]*$`},
		{"data changed and accepted", func(t *testing.T, dir string) {
			for rank := range 2 {
				setData(t, dir, rank, "v1:12", `,"accepted_changed_data":true`)
			}
		}, sameData, true, `^the data changed .* which was accepted with --accept-changed-data: from v1:[0-9a-f]{12} \(.*\) to v1:12 \(`},
		{"data recorded by one rank", func(t *testing.T, dir string) { setData(t, dir, 1, "", "") }, sameData, false, "rank 1 did not record its data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "run")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			dir := copied
			tt.change(t, dir)
			checks, err := Run(t.Context(), dir, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == tt.check })
			if i < 0 || checks[i].OK != tt.ok || !regexp.MustCompile(tt.detail).MatchString(checks[i].Detail) {
				t.Errorf("got %+v, want %v, %q", checks, tt.ok, tt.detail)
			}
		})
	}
}

// editSteps replaces before in the step file of a rank by after, in all places.
func editSteps(t *testing.T, dir string, rank int, before, after string) {
	t.Helper()
	path := filepath.Join(dir, []string{"steps-0.jsonl", "steps-1.jsonl"}[rank])
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("no %q in %s", before, path)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), before, after)), 0o644); err != nil {
		t.Fatal(err)
	}
}
