package identity

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// newPart returns the part of a log with epochs that took the given seconds.
func newPart(path string, seconds ...float64) *record.Part {
	p := &record.Part{Report: &record.Report{Path: path}, Role: record.Principal}
	p.Run = runs.Run{Kind: "test", Dir: path, File: path}
	for i, s := range seconds {
		e := record.NewUnmeasuredEpoch(i+1, i+1)
		e.Seconds = s
		p.Run.Epochs = append(p.Run.Epochs, e)
	}
	return p
}

// newJob returns the part of the accounting of job 4711, which took 100 s.
func newJob() *record.Part {
	p := newPart("logs/sacct.txt")
	p.Role, p.Run.WallSeconds = record.Accounting, 100
	p.Run.Info = runs.Info{JobIDs: map[string]string{record.SlurmJobKey: "4711"}, EnergyJoules: 5000, Status: runs.StatusFailed, Error: "Slurm: OUT_OF_MEMORY"}
	return p
}

// newDecider returns a Decider for the logs in the folder logs, without patterns.
func newDecider() *Resolver {
	return &Resolver{Root: "logs", Patterns: func(string) []pattern.Pattern { return nil }}
}

// describe returns the file, the number of workers and the seconds of the epochs of each run.
func describe(found []runs.Run) string {
	var all []string
	for _, r := range found {
		text := fmt.Sprintf("%s n%d", filepath.Base(r.File), r.Info.Workers)
		for _, e := range r.Epochs {
			text += fmt.Sprintf(" %g", e.Seconds)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// TestMergeRanks: files that differ in a number are the ranks of one run if the numbers start at 0
// or the contents state more workers. An epoch of it lasts as long as that of the slowest rank.
func TestMergeRanks(t *testing.T) {
	for _, c := range []struct {
		numbers []int
		workers int // that the contents state
		want    string
	}{
		{[]int{1, 0}, 0, "rank0.log n2 11 21"},
		{[]int{1, 2}, 0, "rank1.log n0 11 21; rank2.log n0 12 22"},
		{[]int{1, 2}, 4, "rank1.log n4 12 22"},
		{[]int{1, 4}, 4, "rank1.log n4 11 21; rank4.log n4 14 24"},
	} {
		var parts []*record.Part
		for _, n := range c.numbers {
			p := newPart(fmt.Sprintf("logs/rank%d.log", n), float64(10+n), float64(20+n))
			p.Run.Info.Workers = c.workers
			parts = append(parts, p)
		}
		if got := describe(newDecider().IdentifyRuns(parts)); got != c.want {
			t.Errorf("numbers %v, %d workers: got %s, want %s", c.numbers, c.workers, got, c.want)
		}
	}
}

// TestMergeNamesMissingRank: the ranks without a file are a problem of the run.
func TestMergeNamesMissingRank(t *testing.T) {
	var parts []*record.Part
	for _, rank := range []int{0, 2} {
		parts = append(parts, newPart(fmt.Sprintf("logs/rank%d.log", rank), 10))
	}
	found := newDecider().IdentifyRuns(parts)
	const want = "rank 1 of 3 has no file"
	if len(found) != 1 || len(found[0].Problems) != 1 || !strings.Contains(found[0].Problems[0].Reason, want) {
		t.Errorf("got %s with the problems %v, want one run with %q", describe(found), found[0].Problems, want)
	}
}

// TestMergeCopies: two logs with the same start and the same epochs are one run, unless they state
// different numbers of workers. The second log only adds what the first lacks.
func TestMergeCopies(t *testing.T) {
	start := time.Date(2024, 5, 4, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		workers int // of the second log
		start   time.Time
		seconds float64 // of its second epoch
		want    string
	}{
		{0, start, 20, "out.log n2 10 20"},
		{2, start, 20, "out.log n2 10 20"},
		{4, start, 20, "out.log n2 10 20; stdout.log n4 10 20"},
		{2, start.Add(time.Second), 20, "out.log n2 10 20; stdout.log n2 10 20"},
		{2, start, 21, "out.log n2 10 20; stdout.log n2 10 21"},
	} {
		one, two := newPart("logs/out.log", 10, 20), newPart("logs/stdout.log", 10, c.seconds)
		one.Run.Info.Workers, two.Run.Info.Workers = 2, c.workers
		one.Run.Info.Started, two.Run.Info.Started = start, c.start
		one.Run.Epochs[0].TrainLoss, two.Run.Epochs[0].TrainLoss, two.Run.Epochs[0].ValLoss = 0.5, 0.75, 0.25
		found := newDecider().IdentifyRuns([]*record.Part{one, two})
		if got := describe(found); got != c.want {
			t.Errorf("%+v: got %s, want %s", c, got, c.want)
		}
		if e := found[0].Epochs[0]; len(found) == 1 && (e.TrainLoss != 0.5 || e.ValLoss != 0.25) {
			t.Errorf("got the losses %g and %g, want 0.5 of the first log and 0.25 of the second", e.TrainLoss, e.ValLoss)
		}
	}
}

// TestMergeCompanion: a companion belongs to the only run of its folder or of the two folders
// above. Beside several runs it is a run of its own, and a note says why.
func TestMergeCompanion(t *testing.T) {
	for _, c := range []struct {
		logs      []string
		companion string
		want      string // files of the runs and the numbers of their curves
		note      string
	}{
		{[]string{"logs/a/out.log"}, "logs/a/gpu.csv", "logs/a/out.log 1", "the only run of logs/a"},
		{[]string{"logs/a/out.log"}, "logs/a/b/c/gpu.csv", "logs/a/out.log 1", "the only run of logs/a"},
		{[]string{"logs/a/out.log"}, "logs/a/b/c/d/gpu.csv", "logs/a/out.log 0; logs/a/b/c/d/gpu.csv 1", ""},
		{[]string{"logs/a/out.log"}, "logs/a/4gpus/gpu.csv", "logs/a/out.log 0; logs/a/4gpus/gpu.csv 1", ""},
		{[]string{"logs/a/out.log", "logs/a/b.log"}, "logs/a/gpu.csv", "logs/a/out.log 0; logs/a/b.log 0; logs/a/gpu.csv 1", "logs/a has 2 runs"},
	} {
		var parts []*record.Part
		for _, path := range c.logs {
			parts = append(parts, newPart(path, 10))
		}
		p := newPart(c.companion)
		p.Role, p.Run.Curves = record.Companion, []runs.Curve{{Name: "power", Rank: -1}}
		var got []string
		for _, r := range newDecider().IdentifyRuns(append(parts, p)) {
			got = append(got, fmt.Sprint(r.File, " ", len(r.Curves)))
		}
		notes := strings.Join(p.Report.Assumed, "; ")
		if strings.Join(got, "; ") != c.want || !strings.Contains(notes, c.note) {
			t.Errorf("%s beside %s: got %s (%s), want %s (%s)", c.companion, c.logs, strings.Join(got, "; "), notes, c.want, c.note)
		}
	}
}

// TestMergeAccounting: the accounting of a job adds time, energy and status to the run whose name
// has the job's number. If the job has several runs, its time and energy belong to none of them,
// and its status to the last. Without a log, the job is a run.
func TestMergeAccounting(t *testing.T) {
	for _, c := range []struct {
		logs []string
		want string
	}{
		{nil, "sacct.txt 100 s 5000 J failed"},
		{[]string{"slurm-4712.out"}, "slurm-4712.out 0 s 0 J done; sacct.txt 100 s 5000 J failed"},
		{[]string{"slurm-4711.out"}, "slurm-4711.out 100 s 5000 J failed"},
		{[]string{"slurm-4711.out", "b-4711.out"}, "slurm-4711.out 0 s 0 J done; b-4711.out 0 s 0 J failed"},
	} {
		parts := []*record.Part{newJob()}
		for i, name := range c.logs {
			parts = append(parts, newPart("logs/"+name, float64(10+i)))
		}
		var got []string
		for _, r := range newDecider().IdentifyRuns(append(parts[1:], parts[0])) {
			got = append(got, fmt.Sprintf("%s %g s %g J %s", filepath.Base(r.File), r.WallSeconds, r.Info.EnergyJoules, r.Info.Status))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("logs %s: got %s, want %s", c.logs, text, c.want)
		}
	}
}

// TestMergeConfig: a configuration adds the number of workers and the settings that the runs of
// its folder lack. If the names of the runs state different numbers of workers, that of the
// configuration is not used.
func TestMergeConfig(t *testing.T) {
	for _, c := range []struct {
		logs []string
		want string
	}{
		{[]string{"a/out.log"}, "a/out.log n8 lr 0.5 momentum 0.9"},
		{[]string{"a/one.log", "a/two.log"}, "a/one.log n8 lr 0.5 momentum 0.9; a/two.log n8 lr 0.5 momentum 0.9"},
		{[]string{"a/2gpus.log", "a/4gpus.log"}, "a/2gpus.log n2 lr 0.5 momentum 0.9; a/4gpus.log n4 lr 0.5 momentum 0.9"},
		{[]string{"b/out.log"}, "b/out.log n0 lr 0.5 momentum <nil>"},
	} {
		config := newPart("logs/a/config.yaml")
		config.Role, config.Run.Info.Config = record.Config, map[string]any{"world_size": 8.0, "lr": 0.25, "momentum": 0.9}
		parts := []*record.Part{config}
		for i, path := range c.logs {
			p := newPart("logs/"+path, float64(10+i))
			p.Run.Info.Config = map[string]any{"lr": 0.5}
			parts = append(parts, p)
		}
		var got []string
		for _, r := range newDecider().IdentifyRuns(parts) {
			got = append(got, fmt.Sprintf("%s n%d lr %v momentum %v", strings.TrimPrefix(r.File, "logs/"), r.Info.Workers, r.Info.Config["lr"], r.Info.Config["momentum"]))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("got %s, want %s", text, c.want)
		}
	}
}

// TestMergeStates: of several states of one run, the last counts.
func TestMergeStates(t *testing.T) {
	var parts []*record.Part
	for i, state := range []int64{100, 300, 200} {
		p := newPart(fmt.Sprintf("logs/checkpoint-%d/trainer_state.json", state), float64(i))
		p.State, p.StateOf = state, "logs"
		parts = append(parts, p)
	}
	found := newDecider().IdentifyRuns(append(parts, newPart("logs/other/trainer_state.json", 10)))
	if len(found) != 2 || found[0].File != parts[1].Run.File {
		t.Errorf("got %v, want the state after 300 steps and the other run", describe(found))
	}
}

// TestMergeProblemsOfRuns: if a file has several runs, a problem belongs to the run in which its
// line is.
func TestMergeProblemsOfRuns(t *testing.T) {
	one, two := newPart("logs/out.log", 10), newPart("logs/out.log", 20)
	one.Line, two.Line, two.Report, two.Run.Dir = 1, 100, one.Report, "logs/out.log#2"
	one.Run.Info.Workers, two.Run.Info.Workers = 2, 2
	one.Report.AddProblem(99, "before")
	one.Report.AddProblem(100, "after")
	found := newDecider().IdentifyRuns([]*record.Part{one, two})
	if len(found) != 2 || len(found[0].Problems) != 1 || found[0].Problems[0].Line != 99 || len(found[1].Problems) != 1 || found[1].Problems[0].Line != 100 {
		t.Errorf("got the problems of %d runs: %v and %v, want that of line 99 and that of line 100", len(found), found[0].Problems, found[1].Problems)
	}
}
