package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// otherRun creates a run folder of another program than Lockstep, as the
// launcher does, with the given files, and returns its path.
func otherRun(t *testing.T, dir string, workers int, files map[string]string) string {
	t.Helper()
	w, err := runs.Create(dir, runs.Info{Study: "mine", Series: "train", Workers: workers, Seed: 3, Nodes: 1, Command: []string{"python3", "train.py"}})
	check(t, err)
	check(t, w.Log("start python3 train.py with %d workers, 1 thread each", workers))
	check(t, w.AppendLoad(runs.Load{Epoch: 1, Seconds: 20, Cores: 4}))
	check(t, w.Log("done after 20.000 s"))
	check(t, w.Finish(runs.StatusDone, nil))
	write(t, dir, files)
	return dir
}

// sc21Lines returns the lines of two epochs. Each epoch takes the given seconds.
func sc21Lines(seconds, rate, loss float64) string {
	var b strings.Builder
	b.WriteString("2021-11-12 00:32:26,118 - root - INFO - Configuration name: base\n")
	for epoch := 1; epoch <= 2; epoch++ {
		fmt.Fprintf(&b, "2021-11-12 00:3%d:26,118 - root - INFO - Time taken for epoch %d is %g sec, avg %g samples/sec\n", 2+epoch, epoch, seconds, rate)
		fmt.Fprintf(&b, "2021-11-12 00:3%d:26,118 - root - INFO -   Avg train loss=%g\n", 2+epoch, loss)
	}
	return b.String()
}

// TestRunFolderOfAnotherProgram checks that the logs of the workers and the other
// files of the folder become one run, with the identity of run.json.
func TestRunFolderOfAnotherProgram(t *testing.T) {
	root := t.TempDir()
	events := string(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("lr", 0.25)), recordtest.EncodeEvent(2, 2, recordtest.EncodeScalar("lr", 0.125))))
	dir := otherRun(t, filepath.Join(root, "n8_gpu16", "seed9"), 2, map[string]string{
		"worker-0.log": sc21Lines(10, 100, 0.5), "worker-1.log": sc21Lines(12, 100, 0.25), "worker-7.log": sc21Lines(99, 1, 9), "empty.txt": "",
		"tb/events.out.tfevents.1.host.1.0": events, "hparams.yaml": "momentum: 0.75\n", "checkpoints/model.pt": "PK\x03\x04\x00\x00archive/data.pkl",
	})
	logs, reports := explained(t, root)
	if len(logs.Runs) != 1 {
		t.Fatalf("%d runs: %v", len(logs.Runs), logs.Reports)
	}
	r := logs.Runs[0]
	if i := r.Info; r.Dir != dir || i.Workers != 2 || i.Seed != 3 || i.Series != "train" || i.Study != "mine" || i.Nodes != 1 || i.Status != runs.StatusDone || len(i.Command) != 2 {
		t.Errorf("%s: %+v", r.Dir, r.Info)
	}
	if len(r.Epochs) != 2 || r.Epochs[0].Seconds != 12 || r.Epochs[0].SamplesPerSecond != 100 || r.Epochs[0].TrainLoss != 0.375 || r.File != filepath.Join(dir, "worker-0.log") || r.Kind != "SC21 log" {
		t.Errorf("%s of %s: %+v", r.Kind, r.File, r.Epochs)
	}
	if r.WallSeconds != r.Info.WallSeconds || r.WallSeconds <= 0 || r.WallSeconds > 10 {
		t.Errorf("%g s of wall time", r.WallSeconds)
	}
	if len(r.Curves) != 1 || r.Curves[0].Name != "lr" || len(r.Curves[0].Values) != 2 || r.Info.Config["momentum"] != 0.75 {
		t.Errorf("curves %+v, config %v", r.Curves, r.Info.Config)
	}
	if len(logs.Problems) > 0 || len(r.Problems) > 0 {
		t.Errorf("problems %v, %v", logs.Problems, r.Problems)
	}
	rel, err := filepath.Rel(root, dir)
	check(t, err)
	for name, want := range map[string]string{
		"worker-0.log": "belongs to the run in " + dir, "worker-1.log": "rank 1 of the run in " + dir, "worker-7.log": "belongs to the run in " + dir, "empty.txt": "the file is empty",
		"tb/events.out.tfevents.1.host.1.0": "belongs to the run in " + dir, "checkpoints/model.pt": "it is a pickle", "hparams.yaml": "belongs to the run in",
	} {
		if text := reports[filepath.Join(rel, name)].String(); !strings.Contains(text, want) {
			t.Errorf("%s: %q, expected %q", name, text, want)
		}
	}
	if r := reports[filepath.Join(rel, "out.log")]; r.Path != "" {
		t.Errorf("the launcher's own log was read: %s", r)
	}

	f, err := Follow(t.Context(), root)
	check(t, err)
	if !f.Next() {
		t.Fatal(f.Err())
	}
	if d := cmp.Diff(logs.Runs, f.Runs(), cmpopts.EquateNaNs()); d != "" {
		t.Errorf("followed (-read +followed)\n%s", d)
	}
}

// TestDevicesOfOneProcess: the command of a run of one process states how many devices it uses, unless its
// log says otherwise. Of several processes each may use some, and run.json may state that there is one.
func TestDevicesOfOneProcess(t *testing.T) {
	keras := kerasOf(2, "2.0")
	for _, c := range []struct {
		command            string
		workers, processes int
		log                string
		want               int
		explained          string // in the report of the folder
		problem            string
	}{
		{"python ResNet50.py --n_gpus 2", 1, 0, keras, 2, "known: workers 2: from the command line (python ResNet50.py --n_gpus 2)", ""},
		{"python ResNet50.py --num_gpus=2", 1, 0, keras, 2, "workers 2", ""},
		{"python ResNet50.py --gpus 4", 1, 0, "", 4, "workers 4", ""},
		{"./train --ngpus 3", 1, 0, keras, 3, "workers 3", ""},
		{"python ResNet50.py --n_gpus 1", 1, 0, keras, 1, "workers 1", ""},
		{"python ResNet50.py --batch 2", 1, 0, keras, 1, "", ""},
		{"python ResNet50.py --gpus 0", 1, 0, keras, 1, "", ""},
		{"python ResNet50.py --n_gpus 4", 4, 0, keras, 4, "", ""},
		{"python ResNet50.py --n_gpus 4", 2, 0, keras, 2, "", ""},
		{"python ResNet50.py --n_gpus 4", 4, 1, keras, 4, "", ""},
		{"python ResNet50.py --n_gpus 2", 1, 1, keras, 1, "", ""}, // started as one device
		{
			"python ResNet50.py --n_gpus 2", 1, 0, "Number of devices: 1\n" + keras, 1, "known: workers 1: from the content (worker-0.log)",
			"the content (worker-0.log) states 1 worker, but the command line (python ResNet50.py --n_gpus 2) states 2; the content counts",
		},
	} {
		root := t.TempDir()
		w, err := runs.Create(filepath.Join(root, "run"), runs.Info{Study: "mine", Series: "ResNet50", Workers: c.workers, Processes: c.processes, Seed: 1, Command: strings.Fields(c.command)})
		check(t, err)
		check(t, w.Finish(runs.StatusDone, nil))
		write(t, filepath.Join(root, "run"), map[string]string{"worker-0.log": c.log})
		logs, reports := explained(t, root)
		if len(logs.Runs) != 1 || logs.Runs[0].Info.Workers != c.want {
			t.Errorf("%s, %d in run.json: got %+v, want 1 run with %d workers", c.command, c.workers, logs.Runs, c.want)
		}
		report := reports["run"]
		if text := report.String(); !strings.Contains(text, c.explained) || c.explained == "" && strings.Contains(text, "known: workers") {
			t.Errorf("%s: got %q, want %q", c.command, text, c.explained)
		}
		if text := fmt.Sprint(logs.Problems, logs.Runs[0].Problems); !strings.Contains(text, c.problem) || (c.problem == "") != (text == "[] []") {
			t.Errorf("%s: got problems %s, want %q", c.command, text, c.problem)
		}
		f, err := Follow(t.Context(), root)
		check(t, err)
		if !f.Next() {
			t.Fatal(f.Err())
		}
		if d := cmp.Diff(logs.Runs, f.Runs(), cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s: followed (-read +followed)\n%s", c.command, d)
		}
	}
}

// TestProblemsOfWorkerLogs checks what is reported if the ranks logged different
// throughputs, if the log states another number of workers, and if the training
// started twice.
func TestProblemsOfWorkerLogs(t *testing.T) {
	dir := otherRun(t, filepath.Join(t.TempDir(), "run"), 2, map[string]string{
		"worker-0.log": sc21Lines(10, 100, 0.5) + sc21Lines(8, 125, 0.5), "worker-1.log": sc21Lines(10, 90, 0.5),
		"results.csv": "workers,epoch,seconds\n4,1,5\n4,2,5\n",
	})
	all, problems, err := Read(dir)
	check(t, err)
	if len(all) != 2 || all[1].Dir != dir+"#2" || all[1].Info.Workers != 2 || all[1].Info.Series != "train" || len(all[1].Epochs) != 2 || all[1].Epochs[0].Seconds != 8 {
		t.Fatalf("runs %+v", all)
	}
	if all[1].WallSeconds != 0 || all[1].Info.WallSeconds != 0 {
		t.Errorf("wall time %g and %g of the second run", all[1].WallSeconds, all[1].Info.WallSeconds)
	}
	seen := map[string]bool{}
	_, err = Rows(All, []string{dir}, func(r Row) error { seen[r.Run] = true; return nil }) // the second run has no files of steps
	check(t, err)
	if !seen[dir+"#2"] {
		t.Errorf("rows of %v, want some of the second run", seen)
	}
	for _, want := range []string{"the ranks logged different throughputs (100 and 90 samples/s in epoch 1)", "the log states 4 workers, but run.json 2"} {
		if text := fmt.Sprint(problems); !strings.Contains(text, want) {
			t.Errorf("problems %s, expected %q", text, want)
		}
	}
}
