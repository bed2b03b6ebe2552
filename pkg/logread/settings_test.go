package logread

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestSettingsOfBenchmark checks that "Batch size" and "Model" are settings of
// Horovod's benchmark only if its rates follow. Other programs print them with
// another meaning.
func TestSettingsOfBenchmark(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		says       string
	}{
		"Keras": {
			"Number of devices: 2\nBatch size: 256\nModel: \"sequential\"\n" + oneEpoch, "0 0 <nil>",
			"2 lines, the first is line 2: a batch size or model without rates of Horovod's benchmark after it",
		},
		"Horovod": {"Model: ResNet50\nBatch size: 32\nNumber of GPUs: 2\nIter #0: 5.5 img/sec per GPU\nTotal img/sec on 2 GPU(s): 11.0 +-0.5\n", "32 64 ResNet50", "5 of 5 lines used"},
		"ends early": {
			"Model: ResNet50\nBatch size: 32\nNumber of GPUs: 2\nIter #0: 5.5 img/sec per GPU\nIter #1: 5.5 img/sec per GPU\n", "32 64 ResNet50", "5 of 5 lines used",
		},
		"nothing else": {"Batch size: 256\nreal 0m5s\n", "0 0 <nil>", "a batch size or model"},
	} {
		found, report := readReport(t, "job_2gpu.log", c.text)
		if len(found) != 1 {
			t.Errorf("%s: %d runs\n%s", name, len(found), report)
			continue
		}
		i := found[0].Info
		if got := fmt.Sprintf("%d %d %v", i.BatchPerWorker, i.GlobalBatch, i.Config["model"]); got != c.want || !strings.Contains(report.String(), c.says) {
			t.Errorf("%s: %s, expected %s\n%s, expected %q", name, got, c.want, report, c.says)
		}
		if n := report.LinesUsed + report.LinesIgnored(); n != report.Lines {
			t.Errorf("%s: %d lines used or ignored, of %d", name, n, report.Lines)
		}
	}
	if _, report := readReport(t, "job_2gpu.log", oneEpoch+"Total img/sec on 2 GPU(s): 11.0 +-0.5\nModel: \"sequential\"\n"); report.LinesUsed != 3 || report.LinesIgnored() != 1 {
		t.Errorf("a setting at the end: %s", report)
	}
	// Each of two benchmarks in one file has settings.
	one := "Model: ResNet50\nBatch size: %d\nNumber of GPUs: 2\nIter #0: 5.5 img/sec per GPU\nTotal img/sec on 2 GPU(s): 11.0 +-0.5\n"
	found, _ := readReport(t, "job.log", fmt.Sprintf(one, 32)+fmt.Sprintf(one, 64))
	if len(found) != 2 || found[0].Info.BatchPerWorker != 32 || found[1].Info.BatchPerWorker != 64 {
		t.Errorf("two benchmarks: %+v", found)
	}
}

// TestLabelsInLabels reads the output of srun -l with torchrun --tee, whose
// inner labels count the ranks of a node.
func TestLabelsInLabels(t *testing.T) {
	text := ""
	for _, line := range []string{"Epoch 1/1", "9/9 - 5s - loss: 2.0 - accuracy: 0.25"} {
		for node := range 2 {
			for rank := range 2 {
				text += fmt.Sprintf("%d: [default%d]:%s\n", node, rank, line)
			}
		}
	}
	for name, c := range map[string]struct {
		text    string
		workers int
	}{
		"two nodes":     {text, 4},
		"one node":      {strings.Join(strings.SplitAfter(text, "\n")[:2], "") + strings.Join(strings.SplitAfter(text, "\n")[4:6], ""), 2},
		"ranks of all":  {strings.NewReplacer("0: [default", "0: [rank", "1: [default", "1: [rank1").Replace(text), 4}, // rank0, rank1, rank10, rank11
		"without nodes": {strings.NewReplacer("0: [default", "[default", "1: [default", "[rank1").Replace(text), 4},
	} {
		found, report := readReport(t, "job.log", c.text)
		if len(found) != 1 || found[0].Info.Workers != c.workers || len(found[0].Epochs) != 1 || found[0].Epochs[0].Seconds != 5 {
			t.Errorf("%s: %+v\n%s", name, found, report)
		}
	}
	found, report := readReport(t, "job.log", text)
	if len(found) == 1 && !strings.Contains(report.String(), "count within a node") {
		t.Errorf("two nodes: %s", report)
	}
}

// TestLabelsOfPRRTE reads the labels of mpirun --tag-output in Open MPI 5,
// which contain the name of its daemon.
func TestLabelsOfPRRTE(t *testing.T) {
	for _, blank := range []string{"", " "} {
		text := ""
		for _, line := range []string{"Epoch 1/1", "9/9 - 5s - loss: 2.0 - accuracy: 0.25"} {
			for rank := range 2 {
				text += fmt.Sprintf("[prterun-node-1-123@1,%d]<stdout>:%s%s\n", rank, blank, line)
			}
		}
		found, report := readReport(t, "job.log", text)
		if len(found) != 1 || found[0].Info.Workers != 2 || len(found[0].Epochs) != 1 || report.LinesUsed != 4 {
			t.Errorf("%+v\n%s", found, report)
		}
	}
}

// TestTitanOfToday reads lines of torchtitan's current logger, which writes its
// name before the time stamp.
func TestTitanOfToday(t *testing.T) {
	text := ""
	for step := range 3 {
		text += fmt.Sprintf("[rank0]:[titan] 2025-05-04 10:00:%02d,123 - root - INFO - \x1b[31mstep: %2d  \x1b[32mloss:  %.4f  \x1b[35mtps: 7,123  \x1b[36mtflops: 10.1  \x1b[37mmfu: 35.20%%\x1b[39m\n", step+1, step+1, 8.5-float64(step))
	}
	for name, text := range map[string]string{"labelled": text, "alone": strings.ReplaceAll(text, "[rank0]:", ""), "blank": strings.ReplaceAll(text, "[rank0]:", "[rank0]: ")} {
		found, report := readReport(t, "llama_8gpu.log", text)
		if len(found) != 1 || found[0].Kind != "torchtitan" || len(found[0].Curves) != 4 || report.LinesUsed != 3 {
			t.Fatalf("%s: %+v\n%s", name, found, report)
		}
		if c := found[0].Curves[0]; c.Name != "loss" || fmt.Sprint(c.Steps, c.Values) != "[1 2 3] [8.5 7.5 6.5]" || c.Times[1]-c.Times[0] != 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestTitanMesh checks that the device mesh that torchtitan prints gives the number of workers. The
// forms are those of its distributed/parallel_dims.py and the older parallelisms/parallel_dims.py.
func TestTitanMesh(t *testing.T) {
	const step = "[rank0]:[titan] 2025-05-04 10:00:01,123 - root - INFO - step:  1  loss:  8.5000  tps: 7,123  mfu: 35.20%\n"
	for mesh, want := range map[string]int{
		"Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=2, ep=8, etp=1": 16,
		"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=1, cp=1, tp=1, ep=1":        1,
		"Building 3-D device mesh with ['dp_replicate', 'dp_shard', 'cp'], [2, 1, 2]":                      4,
		"Building 1-D device mesh with ['dp'], [8]":                                                        8,
		"Building device mesh with parallelism: pp=1, dp_shard=x":                                          0,
		"Building 1-D device mesh with ['dp'], [8":                                                         0,
		"Building llama3 8B": 0,
	} {
		line := "[titan] 2025-05-04 10:00:00,123 - root - INFO - " + mesh + "\n"
		found, report := readReport(t, "llama.log", "[rank0]:"+line+"[rank1]:"+line+step+strings.Replace(step, "rank0", "rank1", 1)+"[rank1]:"+line)
		if len(found) != 1 || found[0].Info.Workers != want && want > 0 || found[0].Kind != "torchtitan" {
			t.Fatalf("%s: got %d runs, want 1 with %d workers: %+v\n%s", mesh, len(found), want, found, report)
		}
		if _, origin := found[0].Origins[runs.PropertyWorkers]; want > 0 && !origin {
			t.Errorf("%s: the number of workers has no origin", mesh)
		}
	}
}
