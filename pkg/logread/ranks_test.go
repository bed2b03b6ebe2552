package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// rankRuns returns the runs of the files as text: file, workers, origin of the workers, epochs
// with their seconds and losses, curves by rank. says is the text of all reports.
func rankRuns(t *testing.T, files map[string]string, patterns ...string) (got []string, says string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	var o Options
	for _, text := range patterns {
		p, err := ParsePattern(text)
		check(t, err)
		o.As = append(o.As, p)
	}
	logs, err := o.Read(t.Context(), dir)
	check(t, err)
	for _, r := range logs.Runs {
		name, _ := filepath.Rel(dir, r.Dir)
		text := fmt.Sprintf("%s %s %d %s", name, r.Info.Series, r.Info.Workers, r.Origins[runs.PropertyWorkers].Source)
		for _, e := range r.Epochs {
			text += fmt.Sprintf("; %d: %gs %g", e.Epoch, e.Seconds, e.TrainLoss)
		}
		for _, c := range r.Curves {
			text += fmt.Sprintf("; %s of %d: %v", c.Name, c.Rank, c.Steps)
		}
		got = append(got, text)
	}
	return got, logs.Reports.String()
}

// kerasOf returns a Keras log with the given seconds and loss for each of two epochs.
func kerasOf(seconds int, loss string) string {
	return fmt.Sprintf("Epoch 1/2\n9/9 - %ds - loss: %s\nEpoch 2/2\n9/9 - %ds - loss: %s\n", seconds, loss, seconds, loss)
}

// worldOf returns a log that states its world size.
func worldOf(world, seconds int) string {
	stamp := "2021-11-12 00:32:26,118 - root - INFO - "
	return stamp + "Configuration name: unet\n" + stamp + fmt.Sprintf("world_size %d\n", world) + stamp + "------\n" +
		stamp + fmt.Sprintf("Time taken for epoch 1 is %d.0 sec, avg %d.0 samples/sec\n", seconds, 60/seconds) + stamp + "  Avg train loss=0.5\n"
}

// labeled returns a Keras log of one epoch in which each of the ranks printed the same lines.
func labeled(ranks ...int) string {
	var b strings.Builder
	for _, rank := range ranks {
		fmt.Fprintf(&b, "[rank%d]: Epoch 1/1\n[rank%d]: 9/9 - 5s - loss: 2.0\n", rank, rank)
	}
	return b.String()
}

// TestFilesOfRanks: files of the ranks of one run are one run; files of several runs are not.
func TestFilesOfRanks(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		says  string // expected in the reports; a text that begins with ! is not expected
	}{
		"names that start at 0": {
			map[string]string{"unet/rank0.log": kerasOf(5, "2.0"), "unet/rank1.log": kerasOf(7, "1.0"), "unet/rank2.log": kerasOf(6, "3.0")},
			[]string{"unet/rank0.log unet 3 the name of the file; 1: 7s 2; 2: 7s 2"},
			`workers 3: from the name of the file "rank*" (assumed)`,
		},
		"gpus": {
			map[string]string{"a_gpu0.out": kerasOf(5, "2.0"), "a_gpu1.out": kerasOf(7, "1.0")},
			[]string{"a_gpu0.out a 2 the name of the file; 1: 7s 1.5; 2: 7s 1.5"},
			"rank 1 of the run in",
		},
		"workers in folders": {
			map[string]string{"unet/worker-0/out.log": kerasOf(5, "2.0"), "unet/worker-1/out.log": kerasOf(7, "1.0")},
			[]string{"unet/worker-0/out.log unet 2 the name of a folder; 1: 7s 1.5; 2: 7s 1.5"},
			`workers 2: from the name of the folder "worker-*" (assumed)`,
		},
		"the folders of mpirun --output-filename": {
			map[string]string{"unet/1/rank.0/stdout": kerasOf(5, "2.0"), "unet/1/rank.1/stdout": kerasOf(7, "1.0")},
			[]string{"unet/1/rank.0/stdout unet 2 the name of a folder; 1: 7s 1.5; 2: 7s 1.5"},
			"",
		},
		"the folders of torchrun": {
			map[string]string{
				"unet/none_k3x9a_1q/attempt_0/0/stdout.log": kerasOf(5, "2.0"), "unet/none_k3x9a_1q/attempt_0/1/stdout.log": kerasOf(7, "1.0"),
				"unet/none_k3x9a_1q/attempt_0/1/stderr.log": "warning\n",
			},
			[]string{"unet/none_k3x9a_1q/attempt_0/0/stdout.log unet 2 the name of a folder; 1: 7s 1.5; 2: 7s 1.5"},
			"",
		},
		"a world size in the content": {
			map[string]string{"rank0.log": worldOf(2, 5), "rank1.log": worldOf(2, 6)},
			[]string{"rank0.log unet 2 the content; 1: 6s 0.5"},
			"workers 2: from the content",
		},
		"a world size, and numbers that start at 1": {
			map[string]string{"gpu1.log": worldOf(4, 5), "gpu2.log": worldOf(4, 6), "gpu3.log": worldOf(4, 6)},
			[]string{"gpu1.log unet 4 the content; 1: 6s 0.5"},
			"rank 0 of 4 has no file",
		},
		"an incomplete set": {
			map[string]string{"rank0.log": worldOf(4, 5), "rank2.log": worldOf(4, 6)},
			[]string{"rank0.log unet 4 the content; 1: 6s 0.5"},
			"ranks 1 and 3 of 4 have no file: only the values of the other ranks are used",
		},
		"an incomplete set of a folder with a count": {
			map[string]string{"12gpus/rank0.log": kerasOf(5, "2.0"), "12gpus/rank1.log": kerasOf(7, "1.0")},
			[]string{"12gpus/rank0.log TEMP 12 the name of a folder; 1: 7s 1.5; 2: 7s 1.5"},
			"ranks 2 to 11 of 12 have no file",
		},
		"only rank 0 logs": {
			map[string]string{"rank0.log": worldOf(4, 5)}, []string{"rank0.log unet 4 the content; 1: 5s 0.5"}, "!no file",
		},
		"numbers of workers": { // a scaling study
			map[string]string{"unet_gpu1.log": kerasOf(8, "2.0"), "unet_gpu2.log": kerasOf(4, "2.0"), "unet_gpu4.log": kerasOf(2, "2.0")},
			[]string{
				"unet_gpu1.log unet 1 the name of the file; 1: 8s 2; 2: 8s 2", "unet_gpu2.log unet 2 the name of the file; 1: 4s 2; 2: 4s 2",
				"unet_gpu4.log unet 4 the name of the file; 1: 2s 2; 2: 2s 2",
			},
			`workers 4: from the name of the file "unet_gpu4" (assumed)`,
		},
		"each has a world of its own": {
			map[string]string{"task_0.log": worldOf(1, 5), "task_1.log": worldOf(1, 6)},
			[]string{"task_0.log unet 1 the content; 1: 5s 0.5", "task_1.log unet 1 the content; 1: 6s 0.5"},
			"!no file",
		},
		"worlds of different sizes": {
			map[string]string{"gpu1.log": worldOf(1, 5), "gpu2.log": worldOf(2, 6)},
			[]string{"gpu1.log unet 1 the content; 1: 5s 0.5", "gpu2.log unet 2 the content; 1: 6s 0.5"},
			"!no file",
		},
		"one after the other": { // task 1 starts when task 0 has ended
			map[string]string{
				"task_0.log": "2021-11-12 00:32:26,118 - root - INFO - Time taken for epoch 1 is 5.0 sec, avg 2.0 samples/sec\n",
				"task_1.log": "2021-11-12 01:32:26,118 - root - INFO - Time taken for epoch 1 is 5.0 sec, avg 2.0 samples/sec\n",
			},
			[]string{"task_0.log TEMP 0 ; 1: 5s NaN", "task_1.log TEMP 0 ; 1: 5s NaN"},
			"the number of workers is unknown",
		},
		"each is the log of a rank 0": {
			map[string]string{"gpu0.log": "[rank0]:Epoch 1/1\n[rank0]:9/9 - 5s - loss: 2.0\n", "gpu1.log": "[rank0]:Epoch 1/1\n[rank0]:9/9 - 6s - loss: 2.0\n"},
			[]string{"gpu0.log TEMP 0 ; 1: 5s 2", "gpu1.log TEMP 0 ; 1: 6s 2"},
			"the number of workers is unknown",
		},
		"labels of the ranks": { // local numbers, and labels of all nodes
			map[string]string{"gpu0.log": "[rank2]:Epoch 1/1\n[rank2]:9/9 - 5s - loss: 2.0\n", "gpu1.log": "[rank3]:Epoch 1/1\n[rank3]:9/9 - 6s - loss: 2.0\n"},
			[]string{"gpu0.log TEMP 4 the content; 1: 6s 2"},
			"ranks 0 and 1 of 4 have no file",
		},
		"programs that print their rank": {
			map[string]string{"a_5.log": "Rank 0 of 2\n" + kerasOf(5, "2.0"), "gpu4.log": "Rank 0 of 4\n" + kerasOf(5, "2.0"), "x/gpu1.log": "Rank 1 of 2\n" + kerasOf(5, "2.0"), "x/gpu0.log": "Rank 0 of 2\n" + kerasOf(6, "1.0")},
			[]string{"a_5.log a 2 the content; 1: 5s 2; 2: 5s 2", "gpu4.log TEMP 4 the content; 1: 5s 2; 2: 5s 2", "x/gpu0.log x 2 the content; 1: 6s 1.5; 2: 6s 1.5"},
			"rank 1 of the run in",
		},
		"a number of workers, of which rank 0 logs": {
			map[string]string{"gpu4.log": "[rank0]:Epoch 1/1\n[rank0]:9/9 - 5s - loss: 2.0\n"},
			[]string{"gpu4.log TEMP 4 the name of the file; 1: 5s 2"},
			"",
		},
		"a rank and nothing else": {
			map[string]string{"rank3.log": kerasOf(5, "2.0")}, []string{"rank3.log TEMP 0 ; 1: 5s 2; 2: 5s 2"}, `rank 3: from the name of the file "rank3" (assumed)`,
		},
		"second node": { // node1.log has ranks 2 and 3 of a run of at least 4 workers
			map[string]string{"study/node1.log": labeled(2, 3)},
			[]string{"study/node1.log node1 0 ; 1: 5s 2"},
			"the lines have 2 ranks, but not all from 0 on: the number of workers is not derived from them",
		},
		"a file for each node": {
			map[string]string{"study/node0.log": labeled(0, 1), "study/node1.log": strings.ReplaceAll(labeled(2, 3), "5s", "7s")},
			[]string{"study/node0.log study 4 the content; 1: 7s 2"},
			"ranks 2 and 3 of the run in",
		},
		"a file for each task of a node": { // not ranks 0 and 1 of 4
			map[string]string{"unet/task_0.log": "World size: 4\n" + labeled(0, 1), "unet/task_1.log": "World size: 4\n" + labeled(2, 3)},
			[]string{"unet/task_0.log unet 4 the content; 1: 5s 2"},
			"!no file",
		},
		"a folder for each host": {
			map[string]string{"unet/jrc0123/out.log": "Rank 0 of 4\nRank 1 of 4\n" + kerasOf(5, "2.0"), "unet/jrc0124/out.log": "Rank 2 of 4\nRank 3 of 4\n" + kerasOf(7, "1.0")},
			[]string{"unet/jrc0123/out.log jrc 4 the content; 1: 7s 1.5; 2: 7s 1.5"},
			"ranks 2 and 3 of the run in",
		},
		"nodes of two runs": {
			map[string]string{"a1_node0.log": labeled(0, 1), "a1_node1.log": labeled(2, 3), "a2_node0.log": labeled(0, 1), "a2_node1.log": labeled(2, 3)},
			[]string{"a1_node0.log a1 4 the content; 1: 5s 2", "a2_node0.log a2 4 the content; 1: 5s 2"},
			"",
		},
		"two of four nodes": {
			map[string]string{"n/node1.log": "World size: 8\n" + labeled(2, 3), "n/node0.log": "World size: 8\n" + labeled(0, 1)},
			[]string{"n/node0.log n 8 the content; 1: 5s 2"},
			"ranks 4 to 7 of 8 have no file",
		},
		"nodes of different worlds": {
			map[string]string{"n/node0.log": "World size: 2\n" + labeled(0, 1), "n/node1.log": "World size: 4\n" + labeled(2, 3)},
			[]string{"n/node0.log node0 2 the content; 1: 5s 2", "n/node1.log node1 4 the content; 1: 5s 2"},
			"!ranks 2 and 3 of the run",
		},
		"files of the same ranks": {
			map[string]string{"n/node0.log": labeled(0, 1), "n/node1.log": labeled(0, 1)},
			[]string{"n/node0.log node0 2 the content; 1: 5s 2", "n/node1.log node1 2 the content; 1: 5s 2"},
			"!of the run in",
		},
		"steps": { // torchtitan: each rank has its curves
			map[string]string{
				"8gpus/rank0.log": "step:  1  loss:  8.5000\nstep:  2  loss:  8.2500\n", "8gpus/rank1.log": "step:  1  loss:  8.5000\nstep:  2  loss:  8.2500\n",
			},
			[]string{"8gpus/rank0.log TEMP 8 the name of a folder; loss of 0: [1 2]; loss of 1: [1 2]"},
			"",
		},
	} {
		got, says := rankRuns(t, c.files)
		for i := range got { // the series of a file without a name is that of the temporary folder
			for j, want := range c.want {
				if i == j && strings.Contains(want, " TEMP ") {
					words := strings.SplitN(got[i], " ", 3)
					got[i] = words[0] + " TEMP " + words[2]
				}
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s%s", name, d, says)
		}
		if unwanted, not := strings.CutPrefix(c.says, "!"); not == strings.Contains(says, unwanted) {
			t.Errorf("%s: %s\nwant %q", name, says, c.says)
		}
	}
}

// TestRatesInFilesOfRanks: lines with the samples and the rate of one rank add up over the files of the
// ranks, as they do within one file.
func TestRatesInFilesOfRanks(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("Train samples 1000 time 2.0s rate 500 samples/s\n", 2)
	write(t, dir, map[string]string{"unet/1/rank.0/stdout": text, "unet/1/rank.1/stdout": text})
	all, problems, err := Read(dir)
	if err != nil || len(problems) > 0 || len(all) != 1 || len(all[0].Epochs) != 2 {
		t.Fatalf("got %+v, %v, error %v, want a run of 2 epochs", all, problems, err)
	}
	if e := all[0].Epochs[0]; e.Samples != 2000 || e.SamplesPerSecond != 1000 || e.Seconds != 2 {
		t.Errorf("got %d samples, %g samples/s and %g s, want 2000, 1000 and 2", e.Samples, e.SamplesPerSecond, e.Seconds)
	}
}

// TestRanksOfPattern: files that differ only in the {rank} of a pattern are one run, whatever
// their numbers.
func TestRanksOfPattern(t *testing.T) {
	got, says := rankRuns(t, map[string]string{"job_a_5.out": kerasOf(5, "2.0"), "job_a_10.out": kerasOf(7, "1.0")}, "job_{series}_{rank}.out=workers:12,series:{series}")
	if d := cmp.Diff([]string{"job_a_5.out a 12 the user; 1: 7s 1.5; 2: 7s 1.5"}, got); d != "" || !strings.Contains(says, "of 12 have no file") {
		t.Errorf("(-want +got)\n%s%s", d, says)
	}
}

// eventsOf returns an event file with a loss at each second from the first step on.
func eventsOf(start float64, first, n int, epochs ...float32) string {
	var events [][]byte
	for i := range n {
		events = append(events, recordtest.EncodeEvent(start+float64(i), first+i, recordtest.EncodeScalar("loss", float32(i))))
	}
	for i, v := range epochs {
		events = append(events, recordtest.EncodeEvent(start+float64(i), i, recordtest.EncodeScalar("epoch_loss", v)))
	}
	return string(recordtest.EncodeEventFile(events...))
}

// TestEventFilesOfRanks: the event files of ranks are one run with the curves of each rank; those
// of a run that was resumed are one curve.
func TestEventFilesOfRanks(t *testing.T) {
	const name = "events.out.tfevents."
	for what, c := range map[string]struct {
		files map[string]string
		want  []string
		says  string
	}{
		"one folder": {
			map[string]string{"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3, 2, 1), "unet/" + name + "101.node1.30.0": eventsOf(100.5, 1, 3, 4, 3)},
			[]string{"unet unet 2 the content; 1: NaNs 3; 2: NaNs 2; loss of 0: [1 2 3]; epoch_loss of 0: [0 1]; loss of 1: [1 2 3]; epoch_loss of 1: [0 1]"},
			"rank 1 of the run in",
		},
		"resumed": {
			map[string]string{"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/" + name + "200.node1.30.0": eventsOf(200, 3, 3)},
			[]string{"unet unet 0 ; loss of -1: [1 2 3 4 5]"},
			"continues the curves of",
		},
		"another run": {
			map[string]string{"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/" + name + "200.node1.30.0": eventsOf(200, 1, 2)},
			[]string{"unet unet 0 ; loss of -1: [1 2 3]", "unet#2 unet 0 ; loss of -1: [1 2]"},
			"",
		},
		"a copy": {
			map[string]string{"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/" + name + "101.node1.7.0": eventsOf(100, 1, 3)},
			[]string{"unet unet 0 ; loss of -1: [1 2 3]"},
			"a copy of ",
		},
		"ranks that were resumed": {
			map[string]string{
				"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/" + name + "101.node2.7.0": eventsOf(100.5, 1, 3),
				"unet/" + name + "200.node1.9.0": eventsOf(200, 4, 3), "unet/" + name + "201.node2.9.0": eventsOf(200.5, 4, 3),
			},
			[]string{"unet unet 2 the content; loss of 0: [1 2 3 4 5 6]; loss of 1: [1 2 3 4 5 6]"},
			"",
		},
		"sibling folders": {
			map[string]string{"unet/rank0/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/rank1/" + name + "101.node1.30.0": eventsOf(100.5, 1, 3)},
			[]string{"unet unet 2 the name of a folder; loss of 0: [1 2 3]; loss of 1: [1 2 3]"},
			"",
		},
		"sibling folders beside the log of the run": {
			map[string]string{
				"unet/tb/rank0/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/tb/rank1/" + name + "101.node1.30.0": eventsOf(100.5, 1, 3),
				"unet/out.log": kerasOf(5, "2.0"),
			},
			[]string{"unet/out.log unet 2 the name of a folder; 1: 5s 2; 2: 5s 2; loss of 0: [1 2 3]; loss of 1: [1 2 3]"},
			"",
		},
		"beside the log of each rank": {
			map[string]string{
				"unet/rank0/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/rank1/" + name + "101.node1.30.0": eventsOf(100.5, 1, 3),
				"unet/rank0/out.log": kerasOf(5, "2.0"), "unet/rank1/out.log": kerasOf(6, "2.0"),
			},
			[]string{"unet/rank0/out.log unet 2 the name of a folder; 1: 6s 2; 2: 6s 2; loss of 0: [1 2 3]; loss of 1: [1 2 3]"},
			"",
		},
		"other tags": { // two writers of one process
			map[string]string{"unet/" + name + "100.node1.7.0": eventsOf(100, 1, 3), "unet/" + name + "101.node1.7.1": eventsOf(100.5, 0, 0, 2, 1)},
			[]string{"unet unet 0 ; 1: NaNs 2; 2: NaNs 1; loss of -1: [1 2 3]; epoch_loss of -1: [0 1]"},
			"",
		},
	} {
		got, says := rankRuns(t, c.files)
		if d := cmp.Diff(c.want, got); d != "" || !strings.Contains(says, c.says) {
			t.Errorf("%s (-want +got)\n%s%s", what, d, says)
		}
	}
}
