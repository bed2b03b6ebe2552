package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jobRuns returns the runs under dir as text: name, status, wall seconds,
// energy and epochs.
func jobRuns(t *testing.T, files map[string]string) ([]string, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	logs, _ := explained(t, dir)
	var got []string
	for _, r := range logs.Runs {
		name, _ := filepath.Rel(dir, r.Dir)
		got = append(got, fmt.Sprintf("%s %s %gs %gJ %d epochs", name, r.Info.Status, r.WallSeconds, r.Info.EnergyJoules, len(r.Epochs)))
	}
	return got, logs.Reports.String()
}

const (
	sacctHeader = "JobID|JobName|State|ExitCode|Elapsed|ConsumedEnergyRaw\n"
	oneEpoch    = "Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n"
)

// TestJobOfSeveralRuns checks that the time and energy of a job are assigned to
// its run only if it has a single run.
func TestJobOfSeveralRuns(t *testing.T) {
	two := "+ python a.py --n_gpus 1\n" + oneEpoch + "+ python a.py --n_gpus 2\n" + oneEpoch
	epochs := func(a, b int) string {
		return strings.Replace(oneEpoch, "1/1", fmt.Sprintf("%d/4", a), 1) + strings.Replace(oneEpoch, "1/1", fmt.Sprintf("%d/4", b), 1)
	}
	twoEpochs := strings.Replace(epochs(1, 2), "Epoch 2", "Resuming from last.pt\nEpoch 2", 1)
	canceled := func(why string) string {
		return "slurmstepd: error: *** JOB 1 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO " + why + " ***\n"
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		says  string
	}{
		"one": {
			map[string]string{"a_n2-77001.out": oneEpoch, "sacct.txt": sacctHeader + "77001|a|COMPLETED|0:0|00:05:00|360000\n"},
			[]string{"a_n2-77001.out done 300s 360000J 1 epochs"},
			"the accounting of job 77001 is in",
		},
		"two": {
			map[string]string{"a-77001.out": two, "sacct.txt": sacctHeader + "77001|a|COMPLETED|0:0|00:05:00|360000\n"},
			[]string{"a-77001.out done 0s 0J 1 epochs", "a-77001.out#2 done 0s 0J 1 epochs"},
			"job 77001 has 2 runs; its time and energy are assigned to none of them",
		},
		"two that failed": { // while the last one ran
			map[string]string{"a-77001.out": two, "sacct.txt": sacctHeader + "77001|a|TIMEOUT|0:0|00:05:00|360000\n"},
			[]string{"a-77001.out done 0s 0J 1 epochs", "a-77001.out#2 canceled 0s 0J 1 epochs"},
			"the status of job 77001 is assigned to the last of its 2 runs",
		},
		"with what torchrun says of it": {
			map[string]string{
				"a_n2-77001.out": oneEpoch, "a_n2-77001.err": "Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n====\n",
				"sacct.txt": sacctHeader + "77001|a|FAILED|1:0|00:05:00|360000\n",
			},
			[]string{"a_n2-77001.out failed 300s 360000J 1 epochs"},
			"the accounting of job 77001 is in",
		},
		"with Slurm's message": {
			map[string]string{"a_n2-1.out": oneEpoch, "a_n2-1.err": canceled("TIME LIMIT")},
			[]string{"a_n2-1.out canceled 0s 0J 1 epochs"},
			"belongs to the run in",
		},
		"queued again": {
			map[string]string{"a_n2-1.out": twoEpochs, "a_n2-1.err": canceled("PREEMPTION")},
			[]string{"a_n2-1.out done 0s 0J 2 epochs"},
			"belongs to the run in",
		},
		"resumed and canceled": {
			map[string]string{"a_n2-1.out": twoEpochs, "a_n2-1.err": canceled("TIME LIMIT")},
			[]string{"a_n2-1.out canceled 0s 0J 2 epochs"},
			"belongs to the run in",
		},
		"with a header after the message": {
			map[string]string{"a_n2-1.out": "+ python a.py --n_gpus 2\n" + epochs(1, 2) + canceled("PREEMPTION") + "Resuming\n+ python a.py --n_gpus 2\n" + epochs(3, 4)},
			[]string{"a_n2-1.out done 0s 0J 4 epochs"},
			"the run was resumed at epoch 3",
		},
	} {
		got, text := jobRuns(t, c.files)
		if d := cmp.Diff(c.want, got); d != "" || strings.Count(text, c.says) == 0 {
			t.Errorf("%s (-want +got)\n%s%s, expected %q", name, d, text, c.says)
		}
	}
}

// TestJobArrays checks that a task of a job array belongs to the file that
// Slurm names for it (%A_%a), and that tasks that have not begun are not runs.
func TestJobArrays(t *testing.T) {
	got, text := jobRuns(t, map[string]string{
		"slurm-4242_1.out": oneEpoch, "slurm-4242_2.out": oneEpoch, "unet_n2_4242_12.log": oneEpoch, "base_100_77001.out": oneEpoch, "log_2021_4.log": oneEpoch,
		"sacct.txt": sacctHeader + "4242_1|keras|COMPLETED|0:0|00:02:00|\n4242_1.0|python|COMPLETED|0:0|00:02:00|\n4242_2|keras|FAILED|1:0|00:01:00|\n" +
			"4242_12|keras|TIMEOUT|0:0|00:03:00|\n4242_[13-19]|keras|PENDING|0:0|00:00:00|\n4243_[1-4]|keras|CANCELLED by 1000|0:0|00:00:00|\n77001|b|COMPLETED|0:0|00:04:00|\n77002|b|PENDING|0:0|00:00:00|\n",
	})
	want := []string{
		"base_100_77001.out done 240s 0J 1 epochs", "log_2021_4.log done 0s 0J 1 epochs", "slurm-4242_1.out done 120s 0J 1 epochs",
		"slurm-4242_2.out failed 60s 0J 1 epochs", "unet_n2_4242_12.log canceled 180s 0J 1 epochs",
	}
	if d := cmp.Diff(want, got); d != "" || !strings.Contains(text, "3 lines, the first is line 6: jobs and tasks that have not begun") {
		t.Errorf("(-want +got)\n%s%s", d, text)
	}
}

// TestJobQueuedAgain checks that a requeued job counts as begun.
func TestJobQueuedAgain(t *testing.T) {
	got, _ := jobRuns(t, map[string]string{"sacct.txt": sacctHeader + "77001|a|PREEMPTED|0:0|00:05:00|\n77001|a|PENDING|0:0|00:00:00|\n"})
	if len(got) != 1 || !strings.HasPrefix(got[0], "sacct.txt#77001 running 0s") {
		t.Errorf("%q", got)
	}
}
