package runs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeRows writes a run that is done, with the given epochs and the given lines of rank 0's
// steps file.
func writeRows(t *testing.T, epochs []int, steps ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	info := sampleInfo()
	info.Config = map[string]any{"epochs": 4}
	w, err := Create(dir, info)
	check(t, err)
	for _, e := range epochs {
		check(t, w.AppendEpoch(sampleEpoch(e)))
	}
	check(t, w.Finish(StatusDone, nil))
	check(t, os.WriteFile(stepsPath(dir, 0), []byte(strings.Join(steps, "\n")+"\n"), 0o644))
	return dir
}

const (
	worker     = `{"rank":0,"world_size":1}`
	fromStep2  = `{"rank":0,"world_size":1,"from_step":2}`
	stepPrefix = `{"epoch":1,"step":`
)

func stepLine(n string) string { return stepPrefix + n + `,"samples":2}` }

// TestMissingAndDoubledRows: every reader of a run folder reports them.
func TestMissingAndDoubledRows(t *testing.T) {
	all := []int{1, 2, 3, 4}
	for name, tt := range map[string]struct {
		epochs []int
		steps  []string
		want   string // empty: no problem
	}{
		"whole":              {all, []string{worker, stepLine("1"), stepLine("2")}, ""},
		"replayed":           {all, []string{worker, stepLine("1"), stepLine("2"), stepLine("3"), fromStep2, stepLine("3"), stepLine("4")}, ""},
		"from the beginning": {all, []string{worker, stepLine("1"), worker, stepLine("1"), stepLine("2")}, ""},
		"row missing":        {[]int{1, 3, 4}, []string{worker}, "epochs.csv:3: epoch 3 follows epoch 1: rows are missing"},
		"first row missing":  {[]int{2, 3, 4}, []string{worker}, "epochs.csv:2: epoch 2 follows epoch 0: rows are missing"},
		"last row missing":   {[]int{1, 2, 3}, []string{worker}, "epochs.csv: last row is epoch 3, but the run is done with 4 epochs: rows are missing"},
		"row doubled":        {[]int{1, 2, 2, 3, 4}, []string{worker}, "epochs.csv:4: duplicate epoch 2"},
		"step missing":       {all, []string{worker, stepLine("1"), stepLine("3")}, "steps-0.jsonl:3: step 3 follows step 1: lines are missing"},
		"first step missing": {all, []string{worker, stepLine("2")}, "steps-0.jsonl:2: step 2 follows step 0: lines are missing"},
		"step doubled":       {all, []string{worker, stepLine("1"), stepLine("1"), stepLine("2")}, "steps-0.jsonl:3: duplicate step 1"},
		"last steps missing": {all, []string{worker, stepLine("1"), fromStep2, stepLine("3")}, "steps-0.jsonl:4: step 3 follows step 1: lines are missing"},
		"replay missing":     {all, []string{worker, stepLine("1"), stepLine("2"), stepLine("3"), stepLine("4"), fromStep2, stepLine("4")}, "steps-0.jsonl:7: step 4 follows a checkpoint of step 2: lines are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeRows(t, tt.epochs, tt.steps...)
			run, err := Read(dir)
			check(t, err)
			tail := NewTail(dir)
			_, err = tail.Read()
			check(t, err)
			equal(t, tail.Run().Problems, run.Problems)
			problems := map[string][]Problem{"Read": run.Problems}
			if !strings.HasPrefix(tt.want, epochsFile) {
				_, _, problems["ReadSteps"], err = ReadSteps(dir, 0)
				check(t, err)
				_, problems["ReadStepParts"], err = ReadStepParts(dir, 0)
				check(t, err)
			}
			for reader, got := range problems {
				if tt.want == "" && len(got) == 0 {
					continue
				}
				if len(got) != 1 || tt.want == "" || !strings.HasPrefix(got[0].String(), filepath.Join(dir, tt.want)) {
					t.Errorf("%s finds %v, want %q", reader, got, tt.want)
				}
			}
		})
	}
}

// TestUnreadableLineIsOneProblem: the line after an unreadable one is no second problem.
func TestUnreadableLineIsOneProblem(t *testing.T) {
	dir := writeRows(t, []int{1, 2, 3, 4}, worker, stepLine("1"), stepPrefix+"2", stepLine("3"), stepLine("4"))
	path := filepath.Join(dir, epochsFile)
	text, err := os.ReadFile(path)
	check(t, err)
	rows := strings.SplitAfter(string(text), "\n")
	rows[2] = "2,damaged\n"
	check(t, os.WriteFile(path, []byte(strings.Join(rows, "")), 0o644))
	run, err := Read(dir)
	check(t, err)
	if len(run.Problems) != 2 || slices.ContainsFunc(run.Problems, func(p Problem) bool { return p.Line != 3 }) {
		t.Errorf("problems %v", run.Problems)
	}
	last, err := LastStep(dir, 0)
	check(t, err)
	equal(t, last, 4)
	last, err = LastStep(dir, 1)
	check(t, err)
	equal(t, last, 0)
}

// TestImpossibleTimes: times and rates that are NaN, infinite or negative are problems with their
// line, and are not used. The other values of the row are. A loss may be NaN.
func TestImpossibleTimes(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	rows := "epoch,seconds,samples,samples_per_second,train_loss,val_seconds\n1,2,8,4,NaN,0\n2,-3,8,-4,0.5,-1\n3,NaN,8,inf,0.5,+Inf\n4,,8,,0.5,\n"
	epochs, problems, err := readEpochs(strings.NewReader(rows), "epochs.csv")
	check(t, err)
	for i, want := range [][3]float64{{2, 4, 0}, {nan, nan, nan}, {nan, nan, nan}, {nan, nan, nan}} {
		equal(t, [3]float64{epochs[i].Seconds, epochs[i].SamplesPerSecond, epochs[i].ValSeconds}, want)
	}
	var at []string
	for _, p := range problems {
		at = append(at, fmt.Sprintf("%d %s", p.Line, strings.Fields(p.Reason)[1]))
	}
	equal(t, at, []string{"3 seconds:", "3 samples_per_second:", "3 val_seconds:", "4 seconds:", "4 samples_per_second:", "4 val_seconds:"})
	steps := "{\"epoch\":1,\"step\":1,\"data_seconds\":0.5,\"loss\":null}\n{\"epoch\":1,\"step\":2,\"wait_seconds\":-0.5}\n{\"epoch\":1,\"step\":3,\"data_seconds\":NaN}\n{\"epoch\":1,\"step\":4,\"data_seconds\":1}\n"
	_, read, problems, err := readSteps(strings.NewReader(steps), "steps-0.jsonl")
	check(t, err)
	if len(read) != 2 || read[0].Step != 1 || read[1].Step != 4 || len(problems) != 2 || problems[0].Line != 2 || problems[1].Line != 3 {
		t.Errorf("got the steps %v and the problems %v", read, problems)
	}
}
