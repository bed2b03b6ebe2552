package course

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "lockstep/pkg/engine/all"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// testTasks are the tasks of the tests. The twins' names only decide which runs are accepted.
const testTasks = `
tasks:
  - id: test/1
    text: Speed-up with two workers
    kind: numbers
    points: 3
    runs: [{config: resnet50v2-cifar10-laptop, workers: [1, 2]}]
    numbers:
      speedup: {metric: speedup, workers: 2}
    hints: [divide, "time of one worker / time of two"]
  - id: test/2
    text: Which one scales better?
    kind: choice
    points: 2
    runs:
      - {config: resnet50v2-cifar10-laptop, workers: [1, 2]}
      - {config: resnet152v2-cifar10-laptop, workers: [1, 2]}
    choices:
      better:
        question: Which one?
        options: {resnet50v2-cifar10-laptop: the small one, resnet152v2-cifar10-laptop: the large one}
        larger: {metric: speedup, workers: 2}
      mean:
        question: What is averaged?
        options: {gradients: gradients, images: images}
        answer: [gradients]
    hints: [compare]
  - id: test/3
    text: Why?
    kind: text
    points: 4
  - id: test/4
    text: Add up
    kind: code
    points: 2
    function:
      name: total
      cases:
        - {in: [[1, 2, 3]], out: 6}
        - {in: [[0.5]], out: 0.5}
      arguments: [{type: "[]float64", lengths: [n], min: -5, max: 5}]
      reference: |
        func total(values []float64) float64 {
            sum := 0.0
            for _, v := range values { sum += v }
            return sum
        }
    hints: [a loop]
  - id: test/5
    text: Published speed-up of 128 GPUs
    kind: numbers
    points: 1
    runs: [{config: published/resnet50-booster.csv, workers: [1, 128]}]
    numbers:
      speedup: {metric: speedup, workers: 128}
    hints: [divide]
`

// readTestTasks returns testTasks by id.
func readTestTasks(t *testing.T) map[string]*Task {
	t.Helper()
	all, err := parseTasks("09-test", []byte(testTasks))
	if err != nil {
		t.Fatal(err)
	}
	tasks := map[string]*Task{}
	for _, task := range all {
		tasks[task.ID] = task
	}
	return tasks
}

// testRun is a run to be written by its method write.
type testRun struct {
	config  string
	workers int
	seed    int64
	seconds []float64 // of each epoch
	change  func(*runs.Info)
	status  string // StatusDone if empty

	disturbed bool // by one other process on two cores
}

// write writes the run folder into the study's folder.
func (r testRun) write(t *testing.T, study string) string {
	t.Helper()
	config, err := train.Named(r.config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	info := runs.Info{Study: filepath.Base(study), Series: "ddp", Workers: r.workers, Seed: max(1, r.seed), BatchPerWorker: 8, GlobalBatch: 8 * r.workers, SamplesPerEpoch: 1280}
	if err := json.Unmarshal(text, &info.Config); err != nil {
		t.Fatal(err)
	}
	if r.change != nil {
		r.change(&info)
	}
	name := "ddp-n" + string(rune('0'+r.workers)) + "-s" + string(rune('0'+info.Seed))
	w, err := runs.Create(filepath.Join(study, name), info)
	if err != nil {
		t.Fatal(err)
	}
	for i, seconds := range r.seconds {
		if err := w.AppendEpoch(runs.Epoch{Epoch: i + 1, Seconds: seconds, Samples: 1280, SamplesPerSecond: 1280 / seconds}); err != nil {
			t.Fatal(err)
		}
		other := 0.0
		if r.disturbed {
			other = seconds
		}
		if err := w.AppendLoad(runs.Load{Epoch: i + 1, Seconds: seconds, Cores: 2, OwnSeconds: seconds, OtherSeconds: other}); err != nil {
			t.Fatal(err)
		}
	}
	if r.status == runs.StatusRunning {
		return w.Dir() // this process still writes it
	}
	if r.status == "" {
		r.status = runs.StatusDone
	}
	if err := w.Finish(r.status, nil); err != nil {
		t.Fatal(err)
	}
	return w.Dir()
}

const (
	small = "resnet50v2-cifar10-laptop"
	large = "resnet152v2-cifar10-laptop"
)

// writeStudy writes a study whose counted epochs take 10 s (mean; median 9) with one worker and
// 6 s with two. The first epoch, which does not count, takes 20 s.
func writeStudy(t *testing.T, dir, config string) string {
	t.Helper()
	study := filepath.Join(dir, config)
	testRun{config: config, workers: 1, seconds: []float64{20, 9, 9, 12}}.write(t, study)
	testRun{config: config, workers: 2, seconds: []float64{20, 6, 6, 6}}.write(t, study)
	return study
}

// check checks an answer, and returns the error's text.
func check(t *testing.T, task *Task, values map[string]any, studies ...string) (*Answer, string) {
	t.Helper()
	a := &Answer{Task: task.ID, Values: values, Attempts: 1}
	if err := task.checkAnswer(t.Context(), a, studies); err != nil {
		return nil, err.Error()
	}
	return a, ""
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	task := readTestTasks(t)["test/1"]
	study := writeStudy(t, t.TempDir(), small)
	for _, c := range []struct {
		name   string
		answer any
		want   string // part of the error; "" if right
	}{
		{"mean of the counted epochs", 10.0 / 6, ""},
		{"median of the counted epochs", 9.0 / 6, ""},
		{"within the tolerance", 10.0 / 6 * 1.019, ""},
		{"outside the tolerance", 10.0 / 6 * 1.03, "is not what your runs give"},
		{"another type", float32(1.5), ""},
		{"with the first epoch", 12.5 / 9.5, "seems to include epoch 1"},
		{"exchanged", 0.6, "exchanged"},
		{"percent", 150, "in percent"},
		{"not written yet", 0.0, "write your answer"},
		{"text", "1.5", "without quotes"},
		{"nothing", nil, "want a number"},
	} {
		_, got := check(t, task, map[string]any{"speedup": c.answer}, study)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got error %q, want %q", c.name, got, c.want)
		}
		if strings.Contains(got, "1.667") || strings.Contains(got, "1.5 ") {
			t.Errorf("%s: the error contains the right value: %s", c.name, got)
		}
	}
	a, _ := check(t, task, map[string]any{"speedup": 1.5}, study)
	if len(a.Runs) != 2 || a.Runs[0].Run != small+"/ddp-n1-s1" || len(a.Runs[0].SHA256) != 64 {
		t.Errorf("got runs %v", a.Runs)
	}
	if _, got := check(t, task, map[string]any{"speedup": 1.3}, study); !strings.Contains(got, "epochs 2 to 4 count") {
		t.Errorf("the error does not name the epochs that count: %s", got)
	}
	both := *task
	both.Numbers = map[string]Number{"speedup": task.Numbers["speedup"], "efficiency": {Metric: "efficiency", Config: small, Workers: 2}}
	if _, got := check(t, &both, map[string]any{"speedup": 0.6, "efficiency": 0.3}, study); !strings.Contains(got, "speedup = 0.600 is not") || !strings.Contains(got, "efficiency = 0.300 is not") {
		t.Errorf("the error does not name both wrong numbers: %s", got)
	}
	if _, got := check(t, task, map[string]any{"speed_up": 1.5}, study); !strings.Contains(got, `did you mean speedup?`) {
		t.Errorf("got %q for a misspelled key", got)
	}
}

// TestSlowMachine: a speed-up below 1 is right if the runs give it.
func TestSlowMachine(t *testing.T) {
	t.Parallel()
	study := filepath.Join(t.TempDir(), small)
	testRun{config: small, workers: 1, seconds: []float64{9, 8.9, 8.9}}.write(t, study)
	testRun{config: small, workers: 2, seconds: []float64{11, 10, 10}, disturbed: true}.write(t, study)
	a, got := check(t, readTestTasks(t)["test/1"], map[string]any{"speedup": 0.89}, study)
	if got != "" {
		t.Fatalf("an honest speed-up below 1 is refused: %s", got)
	}
	if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "ddp-n2-s1") || strings.Contains(a.Notes[0], "ddp-n1-s1") {
		t.Errorf("got notes %q, want the disturbed run", a.Notes)
	}
}

// recordedSeconds returns the times of a shipped run.
func recordedSeconds(t *testing.T) []float64 {
	t.Helper()
	all, err := readRuns(t.Context(), []string{"recorded/" + small})
	if err != nil {
		t.Fatal(err)
	}
	var seconds []float64
	for _, e := range all[0].Epochs {
		seconds = append(seconds, e.Seconds)
	}
	return seconds
}

func TestRunsThatDoNotCount(t *testing.T) {
	t.Parallel()
	task := readTestTasks(t)["test/1"]
	seconds := []float64{20, 6, 6}
	for _, c := range []struct {
		name string
		runs []testRun
		want string
	}{
		{"no run", nil, "found no finished run of " + small + " with 1 worker"},
		{"missing count", []testRun{{config: small, workers: 1, seconds: seconds}}, "with 2 workers. Run the sweep"},
		{"unfinished", []testRun{{config: small, workers: 1, seconds: seconds}, {config: small, workers: 2, seconds: seconds, status: runs.StatusRunning}}, "ddp-n2-s1 (running). Start the sweep again with Resume"},
		{"failed", []testRun{{config: small, workers: 1, seconds: seconds, status: runs.StatusFailed}}, "ddp-n1-s1 (failed)"},
		{"other config", []testRun{{config: "unet2d-cells", workers: 1, seconds: seconds}}, "the runs are of unet2d-cells. Pass the folder"},
		{"other network of the same name", []testRun{{config: large, workers: 1, seconds: seconds, change: func(i *runs.Info) { i.Config["name"] = small }}}, small + " with model.blocks"},
		{"published", []testRun{{config: small, workers: 1, seconds: seconds, change: func(i *runs.Info) { i.Source = "published by the course" }}}, "no run of yours: its numbers are published by the course"},
		{"published, source removed", []testRun{{config: small, workers: 1, seconds: []float64{49, 45, 45, 45, 45}}, {config: small, workers: 2, seconds: seconds}}, "no run of yours: it has the times of published/resnet-cifar10-power.csv"},
		{"recorded, source removed", []testRun{{config: small, workers: 1, seconds: recordedSeconds(t)}}, "no run of yours: it has the times of recorded/" + small},
	} {
		study := filepath.Join(t.TempDir(), "study")
		if err := os.MkdirAll(study, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, r := range c.runs {
			r.write(t, study)
		}
		if _, got := check(t, task, map[string]any{"speedup": 1.5}, study); !strings.Contains(got, c.want) {
			t.Errorf("%s: got error %q, want %q", c.name, got, c.want)
		}
	}
	if _, got := check(t, task, map[string]any{"speedup": 1.5}, filepath.Join(t.TempDir(), "absent")); !strings.Contains(got, "start the sweep in a cell above") {
		t.Errorf("got %q for a study that does not exist", got)
	}
}

// TestForeignTask: a task with "foreign" accepts runs that the student did not train.
func TestForeignTask(t *testing.T) {
	t.Parallel()
	task := *readTestTasks(t)["test/1"]
	if _, got := check(t, &task, map[string]any{"speedup": 1.5}, "recorded/"+small); !strings.Contains(got, "is no run of yours") {
		t.Errorf("got error %q for recorded runs", got)
	}
	task.Foreign = true
	if _, got := check(t, &task, map[string]any{"speedup": 99}, "recorded/"+small); !strings.Contains(got, "is not what your runs give") {
		t.Errorf("got error %q for a wrong number of recorded runs", got)
	}
}

func TestFormatPoints(t *testing.T) {
	t.Parallel()
	for points, want := range map[float64]string{1: "1 point", 0.5: "0.5 points", 2: "2 points"} {
		if got := (&Task{Points: points}).formatPoints(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	task := readTestTasks(t)["test/2"]
	dir := t.TempDir()
	first, second := writeStudy(t, dir, small), filepath.Join(dir, large)
	testRun{config: large, workers: 1, seconds: []float64{20, 12, 12}}.write(t, second)
	testRun{config: large, workers: 2, seconds: []float64{20, 9, 9}}.write(t, second) // 1.33, the other has 1.5
	for _, c := range []struct{ better, mean, want string }{
		{small, "gradients", ""},
		{large, "gradients", "your runs say otherwise"},
		{small, "images", `your choice "images" (images) is not right`},
		{small, "gradient", "did you mean gradients?"},
		{"", "gradients", "no answer for better: write your answer"},
	} {
		_, got := check(t, task, map[string]any{"better": c.better, "mean": c.mean}, first, second)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: got error %q, want %q", c.better, c.mean, got, c.want)
		}
	}
	// Speed-ups that differ by less than the tolerance are equal.
	equal := filepath.Join(t.TempDir(), large)
	testRun{config: large, workers: 1, seconds: []float64{20, 10, 10}}.write(t, equal)
	testRun{config: large, workers: 2, seconds: []float64{20, 5.95, 5.95}}.write(t, equal)
	for _, better := range []string{small, large} {
		if _, got := check(t, task, map[string]any{"better": better, "mean": "gradients"}, first, equal); got != "" {
			t.Errorf("%s is refused for equal speed-ups: %s", better, got)
		}
	}
}

// TestPublished: a task about a published table needs no run of the student. 342m11.864s and
// 4m48.313s are the published times, and 71.214 their ratio.
func TestPublished(t *testing.T) {
	t.Parallel()
	task := readTestTasks(t)["test/5"]
	a, got := check(t, task, map[string]any{"speedup": 71.2})
	if got != "" || len(a.Runs) != 0 {
		t.Errorf("got %v and error %q", a, got)
	}
	if _, got := check(t, task, map[string]any{"speedup": 60}); !strings.Contains(got, "not what the table gives") {
		t.Errorf("got error %q", got)
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	task := readTestTasks(t)["test/4"]
	right := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum
	}
	for _, c := range []struct {
		name     string
		function any
		want     string
	}{
		{"right", right, ""},
		{"wrong", func([]float64) float64 { return 6 }, "total([0.5]) returned 6, which is wrong"},
		{"called", 6.0, "want the function itself"},
		{"panics", func(v []float64) float64 { return v[len(v)] }, "panic: runtime error: index out of range"},
		{"another parameter", func(string) float64 { return 0 }, "parameter 1: has type string"},
		{"two parameters", func(_, _ []float64) float64 { return 0 }, "has 2 parameters, want 1"},
		{"two results", func([]float64) (float64, error) { return 6, nil }, "returned 2 values, want one"},
		{"stub", func([]float64) float64 { return 0 }, "returned 0, which is wrong"},
		{"text", func([]float64) string { return "6" }, "which is wrong"},
	} {
		_, got := check(t, task, map[string]any{"total": c.function})
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got error %q, want %q", c.name, got, c.want)
		}
	}
}

// TestTaskFiles: a mistake in a task file is an error that names the task and what to write.
func TestTaskFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, changed, want string }{
		{"metric: speedup, workers: 2}\n    hints", "metrik: speedup, workers: 2}\n    hints", "metric"},
		{"metric: speedup, workers: 2}\n    hints", "metric: speedups, workers: 2}\n    hints", "did you mean speedup?"},
		{"metric: speedup, workers: 2}\n    hints", "metric: speedup, workers: 3}\n    hints", "not in the task's runs"},
		{"id: test/1", "id: Test 1", "invalid id"},
		{"kind: text", "kind: essay", `unknown kind "essay"`},
		{"points: 4", "points: -1", "invalid points"},
		{"points: 4", "points: four", "four"},
		{"answer: [gradients]", "answer: [weights]", `answer "weights" is not an option`},
		{"config: resnet50v2-cifar10-laptop, workers: [1, 2]}]", "config: resnet50, workers: [1, 2]}]", "resnet50"},
		{"hints: [a loop]", "hints: []", "has no hints"},
		{"lengths: [n]", "lengths: [n, m]", "needs a length for each level"},
		{`type: "[]float64"`, `type: "[]string"`, "unknown type"},
		{"published/resnet50-booster.csv", "published/absent.csv", "absent.csv"},
	} {
		if !strings.Contains(testTasks, c.old) {
			t.Fatalf("no %q in the tasks", c.old)
		}
		_, err := parseTasks("09-test", []byte(strings.Replace(testTasks, c.old, c.changed, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %q", c.changed, err, c.want)
		}
	}
	dir := t.TempDir()
	replaced := strings.ReplaceAll(testTasks, "points: 4", "points: 9")
	for _, name := range []string{"09-test.yaml", "10-copy.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(replaced), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadTasks(dir); err == nil || !strings.Contains(err.Error(), "09-test.yaml and 10-copy.yaml both have the task test/1") {
		t.Errorf("got error %v for two files with the same tasks", err)
	}
	if err := os.Remove(filepath.Join(dir, "10-copy.yaml")); err != nil {
		t.Fatal(err)
	}
	all, err := ReadTasks(dir)
	if err != nil {
		t.Fatal(err)
	}
	task, err := all.find("test/3")
	if err != nil || task.Points != 9 {
		t.Errorf("got task %v, %v; want 9 points", task, err)
	}
	if _, err := all.find("server/6"); err != nil {
		t.Errorf("the shipped tasks are gone: %v", err)
	}
}

// TestTasksBeside: YAML files that belong to no notebook are left alone.
func TestTasksBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": "model: {kind: unet2d}", "09-test.yaml": testTasks, "09-test.ipynb": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := TasksBeside(dir)
	if err != nil || len(all.of("09-test")) != 5 {
		t.Errorf("got %d tasks, %v", len(all.of("09-test")), err)
	}
	if _, err := ReadTasks(dir); err == nil || !strings.Contains(err.Error(), "config.yaml") {
		t.Errorf("got error %v for a folder of tasks with another YAML file", err)
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "course.Hint(\"server/6\", 2) shows a hint", 0: "numbered from 1", 9: "numbered from 1"} {
		text, err := Hint("server/6", n)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("hint %d: got %q, want %q", n, text, want)
		}
	}
	if _, err := Check("servr/6", nil); err == nil || !strings.Contains(err.Error(), "did you mean server/6?") {
		t.Errorf("got error %v for a misspelled task", err)
	}
}
