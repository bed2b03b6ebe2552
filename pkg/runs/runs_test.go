package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sampleInfo() Info {
	return Info{
		Study: "cells", Series: "ddp", Workers: 2, Seed: 7,
		Started: time.Date(2024, 5, 1, 10, 0, 0, 123, time.UTC),
		Config:  map[string]any{"batch": 3.0, "name": "cells"},
		Engine:  "cpu", BatchPerWorker: 4, GlobalBatch: 8, ThreadsPerWorker: 1,
		Versions: map[string]string{"go": "go1.26"},
	}
}

func sampleEpoch(n int) Epoch {
	return Epoch{
		Epoch: n, Seconds: 1.5 / float64(n), Samples: 32, PaddingSamples: 1, SamplesPerSecond: 64.0 / 3 * float64(n),
		TrainLoss: 0.5, ValLoss: math.NaN(), IoU: 0.75, Dice: 6.0 / 7, ValSeconds: 0.1, LearningRate: 1e-3,
		Accuracy: 0.625, ValAccuracy: math.NaN(), Line: n + 1, // of the file with nothing but these
	}
}

func sampleStep(n int) Step {
	return Step{
		Epoch: 1 + n/3, Step: n, Samples: 8, Data: 0.01, Forward: 0.2, Backward: 0.4, Wait: 0.05,
		AllReduce: 0.1, Optimizer: 0.02, Loss: 1 / float64(n), UntilCollective: 0.3,
	}
}

// writeSample writes a finished run of two epochs and five steps.
func writeSample(t *testing.T, dir string) {
	t.Helper()
	w, err := Create(dir, sampleInfo())
	check(t, err)
	steps, err := OpenSteps(dir, 1, Worker{Rank: 1, LocalRank: 1, WorldSize: 2, PID: 42, Host: "h"})
	check(t, err)
	for n := 1; n <= 5; n++ {
		check(t, steps.AppendStep(sampleStep(n)))
	}
	check(t, steps.Close())
	check(t, w.AppendEpoch(sampleEpoch(1)))
	check(t, w.AppendEpoch(sampleEpoch(2)))
	check(t, w.Log("epoch %d", 2))
	check(t, w.UpdateInfo(func(i *Info) { i.Test = &Test{Samples: 6, Loss: 0.3, IoU: 0.8, Dice: math.NaN()} }))
	check(t, w.Finish(StatusDone, nil))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails unless the message of err contains each part.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, expected one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestFolderReadsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cells", "ddp-n2-s7")
	writeSample(t, dir)
	run, err := Read(dir)
	check(t, err)
	if run.Info.Schema != SchemaVersion || run.Info.Status != StatusDone || run.Info.Ended.IsZero() {
		t.Errorf("run.json: %+v", run.Info)
	}
	want := sampleInfo()
	want.Schema, want.Status, want.Ended = SchemaVersion, StatusDone, run.Info.Ended
	if want.WallSeconds = run.Info.WallSeconds; !(want.WallSeconds > 0) || run.WallSeconds != want.WallSeconds {
		t.Errorf("the run took %v s, and %v s", run.Info.WallSeconds, run.WallSeconds)
	}
	want.Test = &Test{Samples: 6, Loss: 0.3, IoU: 0.8, Dice: math.NaN()}
	equal(t, run.Info, want)
	equal(t, run.Epochs, []Epoch{sampleEpoch(1), sampleEpoch(2)})
	equal(t, run.Problems, []Problem(nil))
	worker, steps, problems, err := ReadSteps(dir, 1)
	check(t, err)
	equal(t, problems, []Problem(nil))
	equal(t, run.Workers, []Worker{worker})
	if worker.PID != 42 || len(steps) != 5 {
		t.Errorf("worker %+v, %d steps", worker, len(steps))
	}
	equal(t, steps[4], sampleStep(5))
	text, err := os.ReadFile(filepath.Join(dir, "epochs.csv"))
	check(t, err)
	if first, _, _ := strings.Cut(string(text), "\n"); first != "epoch,seconds,samples,padding_samples,samples_per_second,train_loss,val_loss,iou,dice,val_seconds,lr,accuracy,val_accuracy" {
		t.Errorf("header of epochs.csv: %s", first)
	}
}

func TestCreateRefusesSecondRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	before, err := os.ReadFile(filepath.Join(dir, "run.json"))
	check(t, err)
	_, err = Create(dir, sampleInfo())
	wantError(t, err, "already contains a run", "--series", "--seed", "--resume", "delete")
	after, err := os.ReadFile(filepath.Join(dir, "run.json"))
	check(t, err)
	equal(t, string(after), string(before))

	check(t, os.Remove(filepath.Join(dir, "run.json"))) // its epochs are still somebody's
	_, err = Create(dir, sampleInfo())
	wantError(t, err, "already contains a run", "epochs.csv")
}

func TestCreateBelowAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o644))
	_, err := Create(filepath.Join(file, "run"), sampleInfo())
	wantError(t, err, "create run folder", "choose a folder that you may write", "LOCKSTEP_LOGS")
}

func TestFinishWritesFailureOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	check(t, w.Finish(StatusFailed, errors.New("rank 1 was killed")))
	check(t, w.Finish(StatusDone, nil))
	run, err := Read(dir)
	check(t, err)
	if run.Info.Status != StatusFailed || run.Info.Error != "rank 1 was killed" {
		t.Errorf("status %s, error %q", run.Info.Status, run.Info.Error)
	}
}

// TestFinishKeepsRecordedTimes: the wall time and the load of a run that was not trained here are those of its source.
func TestFinishKeepsRecordedTimes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	info := sampleInfo()
	info.Source, info.WallSeconds, info.Load = "recorded on a machine", 12.5, &LoadSummary{Epochs: 9, OtherCores: 0.01}
	w, err := Create(dir, info)
	check(t, err)
	check(t, w.AppendLoad(Load{Epoch: 2, Seconds: 10, Cores: 1, OtherSeconds: 5}))
	check(t, w.Finish(StatusDone, nil))
	run, err := Read(dir)
	check(t, err)
	if got := run.Info; got.WallSeconds != 12.5 || got.Load == nil || *got.Load != *info.Load || got.Source != info.Source {
		t.Errorf("got %v s, the load %v and the source %q", got.WallSeconds, got.Load, got.Source)
	}
}

func TestResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	path := filepath.Join(dir, "epochs.csv")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString("3,0.5,32,1,6") // as a kill leaves it
	check(t, errors.Join(err, f.Close()))

	w, run, err := Resume(dir)
	check(t, err)
	equal(t, len(run.Epochs), 2)
	if len(run.Problems) != 1 || run.Problems[0].Line != 4 {
		t.Errorf("problems %+v, expected the torn line 4", run.Problems)
	}
	check(t, w.TruncateAfter(1))
	check(t, w.AppendEpoch(sampleEpoch(2)))
	check(t, w.AppendEpoch(sampleEpoch(3)))
	steps, err := OpenSteps(dir, 1, Worker{Rank: 1, WorldSize: 2, PID: 43})
	check(t, err)
	check(t, steps.AppendStep(sampleStep(4))) // step 4 and 5 are done again
	check(t, steps.Close())
	check(t, w.Finish(StatusDone, nil))

	run, err = Read(dir)
	check(t, err)
	equal(t, run.Epochs, []Epoch{sampleEpoch(1), sampleEpoch(2), sampleEpoch(3)})
	equal(t, run.Problems, []Problem(nil))
	equal(t, run.Workers[0].PID, 43)
	_, again, _, err := ReadSteps(dir, 1)
	check(t, err)
	equal(t, len(again), 4)
}

func TestResumeNeedsARun(t *testing.T) {
	_, _, err := Resume(t.TempDir())
	wantError(t, err, "not a run folder")
}

// TestStudyIsNoRun: where a run folder is wanted and a study is named, the error names its runs.
func TestStudyIsNoRun(t *testing.T) {
	for _, c := range []struct {
		runs int
		want string
	}{
		{1, "not a run folder; it contains 1 run (ddp-n1-s1): name one of them"},
		{10, "10 runs (ddp-n1-s1, ddp-n2-s1, ddp-n3-s1, ddp-n4-s1, ddp-n5-s1, …)"},
	} {
		study := t.TempDir()
		for n := range c.runs {
			dir := filepath.Join(study, fmt.Sprintf("ddp-n%d-s1", n+1))
			check(t, os.Mkdir(dir, 0o755))
			check(t, os.WriteFile(filepath.Join(dir, infoFile), nil, 0o644))
		}
		_, err := Read(study)
		wantError(t, err, c.want)
	}
}

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"only epochs":   {"epochs.csv", epochFileHeader + "\n", []string{"run.json is missing", "the folder contains epochs.csv"}},
		"newer schema":  {"run.json", `{"schema": 99}`, []string{"schema 99", "use a newer lockstep"}},
		"no schema":     {"run.json", `{"a": 1}`, []string{"no schema version", "restore run.json from a copy"}},
		"torn run.json": {"run.json", "{\n\"schema\": 1,\n\"wor", []string{"run.json:3", "restore it from a copy, or delete the folder and train again"}},
		"wrong type":    {"run.json", "{\n\"schema\": 1,\n\"workers\": \"two\"}", []string{"run.json:3", "workers"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644))
			_, err := Read(dir)
			wantError(t, err, c.want...)
		})
	}
}

func TestEpochLinesThatCannotBeUsed(t *testing.T) {
	text := epochFileHeader + "\n" +
		"1,2,3,0,1.5,0.1,,0.9,,,0.001,,\n" +
		"2,two,3,0,1.5,0.1,,0.9,,,0.001,,\n" +
		"3,2\n" +
		"0,2,3,0,1.5,0.1,,0.9,,,0.001,,\n" +
		"\n" +
		"1,4,3,0,1.5,0.1,,0.9,,,0.001,,\r\n" +
		"5,2,3,0,1.5,0.1,,0.9,,,0.00"
	epochs, problems, err := readEpochs(strings.NewReader(text), "epochs.csv")
	check(t, err)
	if len(epochs) != 1 || epochs[0].Seconds != 4 {
		t.Errorf("epochs %+v", epochs)
	}
	want := []Problem{
		{"epochs.csv", 3, `column seconds: expected a number, got "two"`},
		{"epochs.csv", 4, "expected 13 cells, got 2"},
		{"epochs.csv", 5, "column epoch: expected 1 or more, got 0"},
		{"epochs.csv", 7, "duplicate epoch 1: the later row counts"},
		{"epochs.csv", 8, `last line is torn: "5,2,3,0,1.5,0.1,,0.9,,,0.00"`},
	}
	equal(t, problems, want)
}

func TestColumnsAreFoundByName(t *testing.T) {
	epochs, problems, err := readEpochs(strings.NewReader("seconds,later_column,epoch\n2.5,x,1\n"), "e")
	check(t, err)
	equal(t, problems, []Problem(nil))
	if len(epochs) != 1 || epochs[0].Seconds != 2.5 || !math.IsNaN(epochs[0].IoU) {
		t.Errorf("epochs %+v", epochs)
	}
	epochs, problems, err = readEpochs(strings.NewReader("a,b\n1,2\n"), "e")
	check(t, err)
	if len(epochs) != 0 || len(problems) != 1 || problems[0].Line != 1 {
		t.Errorf("epochs %v, problems %v", epochs, problems)
	}
}

// TestReadsAfterAKillAnywhere truncates each file to every length: exactly the complete lines
// must be read.
func TestReadsAfterAKillAnywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	for _, name := range []string{"epochs.csv", "steps-1.jsonl"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		check(t, err)
		for n := range len(text) + 1 {
			check(t, os.WriteFile(path, text[:n], 0o644))
			run, err := Read(dir)
			check(t, err)
			_, steps, _, err := ReadSteps(dir, 1)
			check(t, err)
			lines := strings.Count(string(text[:n]), "\n")
			torn := n > 0 && text[n-1] != '\n'
			rows := len(run.Epochs)
			if name != "epochs.csv" {
				rows = len(steps)
			}
			if want := max(lines-1, 0); rows != want || (len(run.Problems) > 0) != torn {
				t.Fatalf("%s cut after %d bytes: %d rows, expected %d; problems %v", name, n, rows, want, run.Problems)
			}
			for _, p := range run.Problems {
				if p.Line != lines+1 || p.File != path {
					t.Fatalf("%s cut after %d bytes: %+v, expected line %d", name, n, p, lines+1)
				}
			}
		}
		check(t, os.WriteFile(path, text, 0o644))
	}
}

// TestResumesAfterAKillAnywhere truncates epochs.csv to every length and resumes the run.
func TestResumesAfterAKillAnywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	path := filepath.Join(dir, "epochs.csv")
	text, err := os.ReadFile(path)
	check(t, err)
	for n := 0; n <= len(text); n += 3 { // each row waits for the disk
		check(t, os.WriteFile(path, text[:n], 0o644))
		w, before, err := Resume(dir)
		check(t, err)
		next := sampleEpoch(len(before.Epochs) + 1)
		check(t, w.AppendEpoch(next))
		check(t, w.Finish(StatusDone, nil))
		run, err := Read(dir)
		check(t, err)
		equal(t, run.Epochs, append(before.Epochs, next))
		equal(t, run.Problems, []Problem(nil))
	}
}

func TestFindInNaturalOrder(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"b-n10-s1", "b-n2-s1", "b-n1-s1", "a/x-n1-s1", ".hidden/run", "b-n1-s1/checkpoints"} {
		check(t, os.MkdirAll(filepath.Join(root, name), 0o755))
		check(t, os.WriteFile(filepath.Join(root, name, "run.json"), nil, 0o644))
	}
	scratch := t.TempDir()
	check(t, os.WriteFile(filepath.Join(scratch, "run.json"), nil, 0o644))
	for name, to := range map[string]string{"a/x-n4-s1": scratch, "a/x-n5-s1": "../b-n2-s1", "root": ".", "dangling": "none"} {
		check(t, os.Symlink(to, filepath.Join(root, name)))
	}
	found, err := Find(root)
	check(t, err)
	for i := range found {
		found[i], err = filepath.Rel(root, found[i])
		check(t, err)
	}
	equal(t, found, []string{"a/x-n1-s1", "a/x-n4-s1", "b-n1-s1", "b-n2-s1", "b-n10-s1"})
	_, err = Find(filepath.Join(root, "nowhere"))
	wantError(t, err, "find runs", "nowhere")
}

func TestResolveLogs(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	work := filepath.Join(root, "project", "notebooks")
	check(t, os.MkdirAll(work, 0o755))
	t.Chdir(work)
	t.Setenv("LOCKSTEP_LOGS", "")

	_, err = ResolveLogs("demo")
	wantError(t, err, "$LOCKSTEP_LOGS", "logs/", work)

	logs := filepath.Join(root, "project", "logs")
	check(t, os.Mkdir(logs, 0o755))
	for path, want := range map[string]string{
		"logs":           logs,
		"logs/demo":      filepath.Join(logs, "demo"),
		"demo/a":         filepath.Join(logs, "demo", "a"),
		"./demo":         filepath.Join(work, "demo"),
		"../x":           filepath.Join(root, "project", "x"),
		root + "/a/../b": filepath.Join(root, "b"),
	} {
		got, err := ResolveLogs(path)
		check(t, err)
		equal(t, got, want)
	}
	t.Setenv("LOCKSTEP_LOGS", filepath.Join(root, "scratch"))
	got, err := ResolveLogs("logs/demo")
	check(t, err)
	equal(t, got, filepath.Join(root, "scratch", "demo"))
}

// Commands that write create the logs folder, once; commands that read do not.
func TestResolveOrCreateLogs(t *testing.T) {
	work, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	t.Chdir(work)
	t.Setenv("LOCKSTEP_LOGS", "")
	_, err = LocateLogs("demo")
	wantError(t, err, "demo")
	if _, err := os.Stat("logs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading leaves logs/: %v", err)
	}
	logs := filepath.Join(work, "logs")
	for _, want := range []string{"created " + logs + ", the folder of all runs\n", ""} {
		var said strings.Builder
		got, err := ResolveOrCreateLogs("demo", &said)
		check(t, err)
		equal(t, got, filepath.Join(logs, "demo"))
		equal(t, said.String(), want)
	}
	if entries, err := os.ReadDir(logs); err != nil || len(entries) != 1 || entries[0].Name() != logsMarkerName {
		t.Errorf("logs/ holds %v, %v, want the marker only", entries, err)
	}
}

// TestWhereNewRunsGo: new runs are written to a parent's logs folder only if it is for Lockstep's runs.
// Reading finds any.
func TestWhereNewRunsGo(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(project string) error // what is in the parent beside its folder logs
		parent  bool
	}{
		"another program's": {func(string) error { return nil }, false},
		"with other files":  {func(p string) error { return os.WriteFile(filepath.Join(p, "logs", "server.log"), nil, 0o600) }, false},
		"made by Lockstep":  {func(p string) error { return os.WriteFile(filepath.Join(p, "logs", logsMarkerName), nil, 0o600) }, true},
		"with Lockstep's run": {func(p string) error {
			w, err := Create(filepath.Join(p, "logs", "study", "ddp-n1-s1"), Info{Study: "study"})
			return errors.Join(err, w.Finish(StatusDone, nil))
		}, true},
		"with another run.json": {func(p string) error {
			dir := filepath.Join(p, "logs", "run-1")
			return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"id": 17}`), 0o600))
		}, false},
		"of Lockstep's sources": {func(p string) error {
			return os.WriteFile(filepath.Join(p, "go.mod"), []byte("module lockstep\n\ngo 1.26\n"), 0o600)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			project, err := filepath.EvalSymlinks(t.TempDir())
			check(t, err)
			work := filepath.Join(project, "notebooks")
			check(t, errors.Join(os.Mkdir(filepath.Join(project, "logs"), 0o755), os.Mkdir(work, 0o755)))
			check(t, tt.prepare(project))
			t.Chdir(work)
			t.Setenv("LOCKSTEP_LOGS", "")
			want := filepath.Join(work, "logs", "demo")
			if tt.parent {
				want = filepath.Join(project, "logs", "demo")
			}
			read, err := ResolveLogs("demo")
			check(t, err)
			equal(t, read, filepath.Join(project, "logs", "demo"))
			planned, err := PlanLogs("logs/demo")
			check(t, err)
			equal(t, planned, want)
			for range 2 { // then there is a folder logs
				got, err := ResolveOrCreateLogs("demo", io.Discard)
				check(t, err)
				equal(t, got, want)
			}
			own := filepath.Join(project, "own")
			check(t, os.MkdirAll(filepath.Join(own, "logs"), 0o755)) // the user made it
			t.Chdir(own)
			var said strings.Builder
			got, err := ResolveOrCreateLogs("demo", &said)
			check(t, err)
			equal(t, got, filepath.Join(own, "logs", "demo"))
			equal(t, said.String(), "")
		})
	}
}

func TestDescribeHost(t *testing.T) {
	h := DescribeHost()
	if h.OS == "" || h.Arch == "" || h.Cores < 1 {
		t.Errorf("host %+v", h)
	}
	if h.OS == "linux" && h.MemoryBytes < 1<<20 {
		t.Errorf("memory %d bytes, expected what /proc/meminfo says", h.MemoryBytes)
	}
}

func TestNaturalCompare(t *testing.T) {
	ordered := []string{"", "a", "a1", "a01", "a2", "a10", "a10b", "a100", "b"}
	for i, a := range ordered {
		for j, b := range ordered {
			if c := NaturalCompare(a, b); (c < 0) != (i < j) || (c == 0) != (i == j) {
				if !strings.Contains(a+b, "01") { // a1 and a01 are equal as numbers: only an order is promised
					t.Errorf("NaturalCompare(%q, %q) = %d", a, b, c)
				}
			}
			if (NaturalCompare(a, b) < 0) != (NaturalCompare(b, a) > 0) {
				t.Errorf("NaturalCompare(%q, %q) is not antisymmetric", a, b)
			}
		}
	}
}

// TestWorkersWithoutSteps: ReadWorkers finds the workers of a resumed run, and lines that two
// writers tore, without parsing the steps.
func TestWorkersWithoutSteps(t *testing.T) {
	text := `{"rank":0,"world_size":2,"pid":1}` + "\n" + `{"epoch":1,"step":1,"loss":0.5}` + "\n" +
		`{"epoch":1,"st{"epoch":1,"step":2,"loss":0.5}` + "\n" + `{"rank":0,"world_size":2,"pid":2}` + "\n\n" + `{"epoch":1,"step":3,"lo`
	workers, problems, err := readWorkers(strings.NewReader(text), "steps")
	check(t, err)
	whole, steps, all, err := readSteps(strings.NewReader(text), "steps")
	check(t, err)
	equal(t, workers[len(workers)-1], whole)
	equal(t, problems, all)
	if len(workers) != 2 || workers[0].PID != 1 || workers[1].PID != 2 || len(steps) != 1 || len(problems) != 2 || problems[0].Line != 3 || problems[1].Line != 6 {
		t.Errorf("workers %+v, %d steps, problems %v", workers, len(steps), problems)
	}
}

// TestEvaluatedPart: with a third part for the final test, the epochs are scored on a validation part.
func TestEvaluatedPart(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: HeldOutPart, `{"config": {"data": {"test_images": 6}}}`: HeldOutPart,
		`{"config": {"data": {"test_images": 6, "validation_images": 4}}}`: ValidationPart,
	} {
		var info Info
		check(t, json.Unmarshal([]byte(text), &info))
		equal(t, info.EvaluatedPart(), want)
	}
}
