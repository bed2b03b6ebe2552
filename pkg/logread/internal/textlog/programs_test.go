package textlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// programs contains what each file of testdata/programs describes. The lines were written by
// hand in the forms that the programs' sources define; the numbers here were taken from them
// by hand. Each run is one text: kind, workers, batch per worker and global batch, then the
// epochs, the curves with their points, the trials and the settings, as describeRun prints them.
func programs() map[string][]string {
	return map[string][]string{
		"huggingface.log": {`Hugging Face Trainer: 4 workers, batch 32, 128; 12800 samples per epoch
epoch 1 line 9: train_loss 0.6 val_loss 0.55 val_seconds 3.25 lr 2.5e-05 val_accuracy 0.8125
epoch 2 line 12: train_loss 0.4 val_loss 0.5 val_seconds 3.5 lr 0 val_accuracy 0.84
eval_accuracy: 2 0.8125, 4 0.84
eval_loss: 2 0.55, 4 0.5
eval_runtime: 2 3.25, 4 3.5
eval_samples_per_second: 2 307.692, 4 285.714
eval_steps_per_second: 2 9.615, 4 8.929
grad_norm: 1 2.5, 2 1.5, 3 NaN, 4 1.25
learning_rate: 1 3.75e-05, 2 2.5e-05, 3 1.25e-05, 4 0
loss: 1 0.8, 2 0.6, 3 0.5, 4 0.4
trial FULL 256
training_epochs 2
training_seconds 100
`},
		"huggingface5.log": {`Hugging Face Trainer: 0 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 1: train_loss 0.8 val_loss 0.55 val_seconds 3.25 lr 5e-05
eval_loss: 1 0.55
eval_runtime: 1 3.25
grad_norm: 1 2.5
learning_rate: 1 5e-05
loss: 1 0.8
trial FULL 200
training_epochs 1.5
training_seconds 60
`},
		"imagenet.log": {`PyTorch ImageNet example: 2 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 5: seconds 31 train_loss 6.6 val_loss 5.8 accuracy 0.02 val_accuracy 0.0425
Acc@1: 1 0, 51 2, 101 4
Acc@5: 1 0.78, 51 8, 101 10
Data: 1 1.5, 51 0.001, 101 1
Loss: 1 7, 51 6.2, 101 6
Time: 1 2, 51 0.25, 101 1.5
model resnet18
`},
		"imagenet2017.log": {`PyTorch ImageNet example: 0 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 2: seconds 4.5 train_loss 6.8 val_loss 6.5 accuracy 0.01 val_accuracy 0.025
Data: 0 2, 2 0.01, 4 0.01
Loss: 0 7, 2 6.8, 4 6.6
Prec@1: 0 0, 2 1, 4 2
Prec@5: 0 0.391, 2 1.5, 4 2.5
Time: 0 3, 2 0.5, 4 0.5
model resnet50
`},
		"torchvision.log": {`torchvision reference: 2 workers, batch 32, 0; 0 samples per epoch
epoch 1 line 11: seconds 150 train_loss 6.5 val_loss 5.8 val_seconds 15 lr 0.1 accuracy 0.015 val_accuracy 0.0425
epoch 2 line 18: seconds 145 train_loss 5.5 val_loss 4.9 val_seconds 14 lr 0.05 accuracy 0.075 val_accuracy 0.095
acc1: 0 0, 600 3.125, 625 3.125, 1225 9.375
acc5: 0 0, 600 9.375, 625 12.5, 1225 21.875
data: 0 1.5, 600 0.01, 625 0.7, 1225 0.01
img/s of one rank without loading: 0 64.5, 600 512.25, 625 80.5, 1225 520.5
loss: 0 7, 600 6.1, 625 6, 1225 5
lr: 0 0.1, 600 0.1, 625 0.05, 1225 0.05
max mem: 0 5000, 600 5100, 625 5100, 1225 5100
time: 0 2, 600 0.25, 625 1, 1225 0.24
epochs 2
lr 0.1
model resnet50
world_size 2
`},
		"timm.log": {`timm: 4 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 5: seconds 62.5 samples_per_second 2048 train_loss 6.8 val_loss 6.4 lr 1e-05 val_accuracy 0.0075
loss: 0 6.95, 124 6.6, 125 6.5, 175 6.4
lr: 0 1e-05, 124 1e-05, 125 0.064, 175 0.064
samples_per_second: 0 512, 124 2560, 125 1024, 175 2560
step_seconds: 0 2, 124 0.4, 125 1, 175 0.4
`},
		"tqdm.log": {`tqdm bars: 0 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 2: seconds 12.5 train_loss 0.51
epoch 2 line 3: seconds 62.5 train_loss 0.31
`},
		"lightning.log": {`Lightning bars: 4 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 9: seconds 12.5 train_loss 0.3 val_loss 0.2
epoch 2 line 9: seconds 11.3504 train_loss 0.1 val_loss 0.15
mixed precision false
`},
		"lightning1.log": {`Lightning bars: 2 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 8: seconds 15.6205 train_loss 0.125 val_loss 0.14
mixed precision false
`},
		"megatron.log": {`Megatron-LM: 16 workers, batch 0, 0; 0 samples per epoch
consumed samples: 100 25600, 200 51200
global batch size: 100 256, 200 256
grad norm: 100 2.125, 200 1.75
learning rate: 100 0.00015, 200 0.00015
lm loss: 100 9.5, 200 8.25
loss scale: 100 1, 200 1
number of nan iterations: 100 0, 200 0
number of skipped iterations: 100 0, 200 0
samples_per_second: 100 102.4, 200 106.667
step_seconds: 100 2.5, 200 2.4
throughput per GPU (TFLOP/s/GPU): 100 101.5, 200 105.7
validation lm loss: 200 8.125
`},
		"megatron1.log": {`Megatron-LM: 4 workers, batch 0, 0; 0 samples per epoch
consumed samples: 200 6400
global batch size: 200 32
grad norm: 200 1.5
learning rate: 100 0.0001, 200 0.0001
lm loss: 100 9, 200 7.5
loss scale: 100 4096, 200 4096
number of nan iterations: 200 0
number of skipped iterations: 200 0
samples_per_second: 200 80
step_seconds: 100 0.5, 200 0.4
`},
		"deepspeed.log": {`DeepSpeed: 8 workers, batch 0, 0; 0 samples per epoch
lr: 10 1e-05, 20 2e-05
running_samples_per_second: 10 95.5, 20 95.75
samples_per_second: 10 96.25, 20 97.5
skipped: 10 1, 20 1
`},
		"deepspeed1.log": {`DeepSpeed: 4 workers, batch 0, 0; 0 samples per epoch
loss: 10 2.3
lr: 10 0.001, 20 0.002
samples_per_second: 10 64.5, 10 128, 20 65
skipped: 10 0, 20 0
step_seconds: 10 0.5
`},
		"nanogpt.log": {`nanoGPT: 0 workers, batch 0, 0; 0 samples per epoch
loss: 0 4.2664, 10 3.25, 250 1.9012
mfu: 0 -100, 10 3.2, 250 3.25
step_seconds: 0 32.0005, 10 0.025, 250 0.0265
tokens_per_second: 10 1.96608e+07
train_loss: 0 4.2874, 250 1.96
val_loss: 0 4.2823, 250 2.05
throughput in tokens/s
`},
		"tfcnn.log": {`tf_cnn_benchmarks: 4 workers, batch 64, 256; 0 samples per epoch
images/sec of one process: 1 1400.5, 10 1425.25, 20 1430
total_loss: 1 8.168, 10 7.9, 20 7.75
trial SYNTHETIC 1428.75
throughput in images/s
mode training
model resnet50
`},
		"nnunet.log": {`nnU-Net: 2 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 6: seconds 120.5 train_loss 0.0625 val_loss -0.25 dice 0.375 lr 0.01
epoch 2 line 14: seconds 113.25 train_loss -0.375 val_loss -0.5 dice 0.75 lr 0.00999
`},
		"nnunet1.log": {`nnU-Net: 0 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 4: seconds 131.25 train_loss -0.125 val_loss -0.25 dice 0.625 lr 0.00991
epoch 2 line 13: train_loss -0.5
`},
	}
}

// TestPrograms reads the file of each program and compares its runs with those in programs.
func TestPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/programs/*.log")
	if err != nil || len(files) != len(programs()) {
		t.Fatalf("got %d files (%v), want %d", len(files), err, len(programs()))
	}
	for name, want := range programs() {
		t.Run(name, func(t *testing.T) {
			parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", readProgram(t, name))
			var got []string
			for _, p := range parts {
				got = append(got, describeRun(p))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s\nproblems %v", strings.Join(got, "\n"), strings.Join(want, "\n"), report.Unused)
			}
			if len(report.Unused) > 0 {
				t.Errorf("got problems %v", report.Unused)
			}
		})
	}
}

// TestProgramsAreToldApart: the file of each program has only lines of the program's format,
// and so have the fixtures of other formats.
func TestProgramsAreToldApart(t *testing.T) {
	check := func(name string, text []byte, want ...string) {
		report := &record.Report{Path: name}
		log := newReader(&record.Input{Path: name, Reader: bytes.NewReader(text), Report: report})
		if err := log.read(); err != nil {
			t.Fatal(err)
		}
		log.finish()
		for _, r := range log.Runs {
			for f, n := range r.LinesByFormat {
				if kind := formatName(logline.FormatID(f)); n > 0 && !slices.Contains(want, kind) {
					t.Errorf("%s: %d lines are taken for %s, want only %v", name, n, kind, want)
				}
			}
		}
	}
	for name, want := range programs() {
		kind, _, _ := strings.Cut(want[0], ":")
		check(name, readProgram(t, name), kind)
	}
	known := []string{"command", "Slurm", "bash time", "torchrun failure"} // lines beside those of a program
	for name, kind := range map[string]string{
		"horovod/synthetic.log": "Horovod synthetic", "keras/1/horovod_gpus-2.log": "Keras log", "keras/resnet-501.out": "Keras log",
		"mlperf/result_0.txt": "MLPerf log", "sc21/base/4GPU/00/out.log": "SC21 log", "sc21/trials/baseline_1gpu.out": "benchy",
		"slurm/resnet50-2001.out": "bash time", "srun/hep.log": "rates by rank", "titan/llama_8gpu.log": "torchtitan",
		"torchrun/ddp_4gpus.log": "SC21 log", "unet/stdout_n1.txt": "U-Net study stdout", "dllogger/log_8gpu.json": "DLLogger",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "tree", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		check(name, text, append([]string{kind}, known...)...)
	}
}

// TestProgramsTwiceInOneFile: a file with the output of two runs has twice the runs, with the
// same values.
func TestProgramsTwiceInOneFile(t *testing.T) {
	for name, want := range programs() {
		text := readProgram(t, name)
		parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", append(slices.Clone(text), text...))
		if len(parts) != 2*len(want) {
			t.Errorf("%s: got %d runs, want %d", name, len(parts), 2*len(want))
			continue
		}
		for i, p := range parts {
			if got, want := withoutLines(describeRun(p)), withoutLines(want[i%len(want)]); got != want {
				t.Errorf("%s: run %d is\n%s\nwant\n%s\nproblems %v", name, i+1, got, want, report.Unused)
			}
		}
	}
}

// TestProgramsOneAfterTheOther: a file with the output of two programs has the runs of both,
// with the same values, except bars without a header, which may belong to the program before
// them: these are not used.
func TestProgramsOneAfterTheOther(t *testing.T) {
	for a, wantA := range programs() {
		for b, wantB := range programs() {
			want := append(slices.Clone(wantA), wantB...)
			switch {
			case b == "tqdm.log" && a != b && !strings.HasPrefix(a, "lightning"):
				want = slices.Clone(wantA)
			case b == "tqdm.log" && strings.HasPrefix(a, "lightning"), strings.HasPrefix(a, "deepspeed") && b == "huggingface5.log":
				continue // one program may have printed both
			}
			parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", append(slices.Clone(readProgram(t, a)), readProgram(t, b)...))
			var got []string
			for _, p := range parts {
				got = append(got, withoutLines(describeRun(p)))
			}
			for i := range want {
				want[i] = withoutLines(want[i])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, then %s: got\n%s\nwant\n%s\nproblems %v", a, b, strings.Join(got, "\n"), strings.Join(want, "\n"), report.Unused)
			}
		}
	}
}

// withoutLines returns the description of a run without the numbers of lines.
func withoutLines(text string) string {
	return regexp.MustCompile(` line \d+:`).ReplaceAllString(text, ":")
}

// TestProgramsWithLabels: labels of a rank, which launchers put before each line, change
// nothing.
func TestProgramsWithLabels(t *testing.T) {
	for name, want := range programs() {
		for _, label := range []string{"0: ", "[rank0]: ", "[1,0]<stdout>:", "0: [default0]:"} {
			text := strings.TrimSuffix(string(readProgram(t, name)), "\n")
			text = label + strings.ReplaceAll(text, "\n", "\n"+label) + "\n"
			parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(text))
			var got []string
			for _, p := range parts {
				got = append(got, describeRun(p))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s with label %q: got\n%s\nwant\n%s\nproblems %v", name, label, strings.Join(got, "\n"), strings.Join(want, "\n"), report.Unused)
			}
		}
	}
}

// TestTornPrograms cuts the file of each program at every byte. What is read of the beginning
// must also be read of the complete file: no number of a torn line is used.
func TestTornPrograms(t *testing.T) {
	for name := range programs() {
		text := readProgram(t, name)
		full := tornValues(t, text)
		for n := range text {
			for value := range tornValues(t, text[:n]) {
				if !full[value] {
					t.Errorf("%s, first %d bytes (…%q): got %s, which the file does not contain", name, n, text[max(0, n-40):n], value)
				}
			}
			if t.Failed() {
				break
			}
		}
	}
}

// tornValues returns the workers, points and trials that are read of a text, and the values of
// epochs that no later line can change.
func tornValues(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	in := &record.Input{Path: "run.log", Reader: bytes.NewReader(text), Report: &record.Report{}}
	parts, err := readTextLog(t.Context(), in)
	if err != nil && !errors.Is(err, record.ErrUnknownFormat) {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range parts {
		found[fmt.Sprint("workers ", p.Run.Info.Workers)] = true
		for _, e := range p.Run.Epochs {
			if !math.IsNaN(e.Seconds) && !strings.HasSuffix(p.Run.Kind, "bars") && p.Run.Kind != formatName(logline.ImageNet) { // a slower rank may follow
				found[fmt.Sprint("seconds ", e.Epoch, " ", e.Seconds)] = true
			}
			found[fmt.Sprint("epoch ", e.Epoch)] = true
		}
		for _, c := range p.Run.Curves {
			for i, step := range c.Steps {
				found[fmt.Sprint(c.Name, " ", step, " ", c.Values[i])] = true
			}
		}
		for _, trial := range p.Run.Trials {
			found[fmt.Sprint(trial.Name, " ", trial.Rate)] = true
		}
	}
	delete(found, "workers 0")
	return found
}

// TestLinesOfOtherPrograms: lines that resemble those of a program, but are not, are not used.
func TestLinesOfOtherPrograms(t *testing.T) {
	for _, line := range []string{
		"Epoch 5", "train_loss 0.5", "Epoch time: 5 s", "{'epoch': 1, 'loss': 0.5}", "{'accuracy': 0.9}", "{'loss': 0.5}",
		"Train: 5 of 7", "Test: passed", "* Acc@1 5 Acc@5 6", "Epoch: [1] done", "Epoch: [1][5/7] loss", "Epoch: [1]  [5/7]  loss: 5",
		"step 5: done", "iter 5: loss 3", "steps: 5 loss: 3", "iteration 5/10 | loss: 3 |", "GPU available: yes",
		"Training with a single process", "Training done, total 5 epochs", "100%|██████████| 5/5 [00:01<00:00, 4.00it/s]",
		"Epoch 1:  50%|█████     | 5/10 [00:01<00:01, 4.00it/s]", "Sanity Checking: 100%|██████████| 2/2 [00:00<00:00, 4.00it/s]",
		"Model:       resnet50", "Batch size:  256 global", "64 per device", "Namespace(width=8)", "Namespace(lr=0.1", "10\timages: 5",
		"Num examples = 50", "Pseudo dice [0.5]", "using world size of 8", "step=5, lr=1",
	} {
		parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(line+"\n"))
		if len(parts) > 0 || report.LinesUsed > 0 {
			t.Errorf("%q: got %d runs and %d used lines, want none", line, len(parts), report.LinesUsed)
		}
	}
}

// TestLongBar: a line of bars that is longer than the reader's limit loses no epoch.
func TestLongBar(t *testing.T) {
	var b strings.Builder
	b.WriteString("GPU available: True (cuda), used: True\n")
	for epoch := range 3 {
		for n := range 20_001 {
			fmt.Fprintf(&b, "Epoch %d: %3d%%|%s| %d/20000 [%02d:%02d<00:00, 100.00it/s, v_num=1]\r", epoch, n/200, strings.Repeat("#", 10), n, n/6000, n/100%60)
		}
	}
	b.WriteString("\n")
	if b.Len() < 4<<20 {
		t.Fatalf("the line has only %d bytes", b.Len())
	}
	parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(b.String()))
	if len(parts) != 1 || len(parts[0].Run.Epochs) != 3 || len(report.Unused) > 0 {
		t.Fatalf("got %d runs and problems %v, want 1 run", len(parts), report.Unused)
	}
	for _, e := range parts[0].Run.Epochs {
		if e.Seconds != 200 {
			t.Errorf("got epoch %+v, want 200 s", e)
		}
	}
}

// TestProgramsOfSeveralRanks: labels distinguish the ranks, whose epochs are merged.
func TestProgramsOfSeveralRanks(t *testing.T) {
	const meters = "[rank%d]:Epoch: [%d][%d/10]\tTime %g (%g)\tLoss 2.0 (%g)\n"
	var imagenet strings.Builder
	for _, x := range []struct {
		rank, epoch, step int
		seconds, loss     float64
	}{{1, 0, 5, 0.5, 3}, {0, 0, 5, 0.25, 1}, {0, 0, 10, 0.25, 1}, {1, 0, 10, 0.5, 3}, {0, 1, 5, 0.25, 0.5}, {1, 1, 5, 0.5, 0.75}, {1, 1, 10, 0.5, 0.75}, {0, 1, 10, 0.25, 0.5}} {
		fmt.Fprintf(&imagenet, meters, x.rank, x.epoch, x.step, x.seconds, x.seconds, x.loss)
	}
	const bar = "%d: Epoch %d/2: 100%%|##########| 10/10 [00:%02d<00:00, %.2fit/s, loss=%g]\n"
	var bars strings.Builder
	for epoch := 1; epoch <= 2; epoch++ {
		for rank := range 2 {
			fmt.Fprintf(&bars, bar, rank, epoch, 5*(rank+1), 2.0/float64(rank+1), float64(rank))
		}
	}
	for _, c := range []struct{ name, text, want string }{
		// The curves are those of the first rank, here rank 1.
		{"ImageNet", imagenet.String(), "2 workers; epoch 1: seconds 5 train_loss 2; epoch 2: seconds 5 train_loss 0.625; Loss 4, Time 4"},
		{"tqdm", bars.String(), "2 workers; epoch 1: seconds 10 train_loss 0.5; epoch 2: seconds 10 train_loss 0.5"},
	} {
		parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(c.text))
		if len(parts) != 1 || len(parts[0].Evidence) != 1 {
			t.Errorf("%s: got %d runs, want 1 with evidence; problems %v", c.name, len(parts), report.Unused)
			continue
		}
		got := fmt.Sprintf("%d workers", parts[0].Evidence[0].Number)
		for _, e := range parts[0].Run.Epochs {
			got += fmt.Sprintf("; epoch %d:%s", e.Epoch, describeEpoch(e))
		}
		for i, curve := range parts[0].Run.Curves {
			got += fmt.Sprintf("%s %s %d", []string{";", ","}[min(i, 1)], curve.Name, len(curve.Steps))
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestProgramsDetails checks the epochs of short logs.
func TestProgramsDetails(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{
			"two trainings of the same length, without headers",
			"{'loss': 0.5, 'learning_rate': 0.1, 'epoch': 1.0}\n{'train_runtime': 5.0, 'train_loss': 0.5, 'epoch': 1.0}\n" +
				"{'loss': 0.25, 'learning_rate': 0.1, 'epoch': 1.0}\n{'train_runtime': 4.0, 'train_loss': 0.25, 'epoch': 1.0}\n",
			[]string{"1 train_loss 0.5 lr 0.1", "1 train_loss 0.25 lr 0.1"},
		},
		{
			"dictionaries of the Trainer after bars in the same line",
			" 50%|#####     | 5/10 [00:05<00:05, 1.00it/s]{'loss': 0.5, 'learning_rate': 0.1, 'epoch': 1.0}\n" +
				" 60%|######    | 6/10 [00:06<00:04, 1.00it/s]\r          \r{'loss': 0.25, 'learning_rate': 0.1, 'epoch': 2.0}\n",
			[]string{"1 train_loss 0.5 lr 0.1, 2 train_loss 0.25 lr 0.1"},
		},
		{
			"Lightning before the validation of epoch 2, whose bar has the values of epoch 1",
			"Epoch 0: 100%|#| 5/5 [00:05<00:00, 1.00it/s, v_num=1]\rEpoch 0: 100%|#| 5/5 [00:08<00:00, 0.60it/s, v_num=1, val_loss=0.5]\r" +
				"Epoch 1: 100%|#| 5/5 [00:04<00:00, 1.25it/s, v_num=1, val_loss=0.5]\n",
			[]string{"1 seconds 5 val_loss 0.5, 2 seconds 4"},
		},
		{
			"an epoch with one line of meters and an evaluation, and one without",
			"Epoch: [0][0/50]\tTime 0.5 (0.5)\tLoss 2.0 (2.0)\n * Acc@1 50.0 Acc@5 75.0\nEpoch: [1][0/50]\tTime 0.5 (0.5)\tLoss 1.0 (1.0)\n",
			[]string{"1 seconds 25 train_loss 2 val_accuracy 0.5"},
		},
		{
			"one epoch with one line of meters and an evaluation",
			"Epoch: [0][0/50]\tTime 0.5 (0.5)\tLoss 2.0 (2.0)\n * Acc@1 50.0 Acc@5 75.0\n",
			[]string{"1 seconds 25 train_loss 2 val_accuracy 0.5"},
		},
		{
			"bars beside the epochs of nnU-Net, which count from 0",
			"2021-05-04 10:00:00.123456: \nepoch:  0 \nEpoch 1/5: 100%|#| 5/5 [00:05<00:00, 1.00it/s, loss=9]\n2021-05-04 10:02:00.123456: train loss : 0.5 \n",
			[]string{"1 train_loss 0.5"},
		},
		{
			"a training of torchvision that was continued at epoch 5",
			"Epoch: [5]  [0/5]  eta: 0:00:05  loss: 2.0 (2.0)\nEpoch: [5] Total time: 0:00:05 (1.0000 s / it)\nTest: EMA Acc@1 9.0 Acc@5 9.0\n",
			[]string{"6 seconds 5 train_loss 2"},
		},
	} {
		parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(c.text))
		var got []string
		for _, p := range parts {
			var epochs []string
			for _, e := range p.Run.Epochs {
				epochs = append(epochs, fmt.Sprint(e.Epoch, describeEpoch(e)))
			}
			got = append(got, strings.Join(epochs, ", "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q; problems %v", c.name, got, c.want, report.Unused)
		}
	}
}

// TestHuggingFaceHeader: the header shows how much of its epochs a training covers.
func TestHuggingFaceHeader(t *testing.T) {
	header := func(more string) string {
		return "***** Running training *****\n  Num examples = 1,000\n  Num Epochs = 4\n  Instantaneous batch size per device = 5\n" +
			"  Total train batch size (w. parallel, distributed & accumulation) = 10\n  Gradient Accumulation steps = 1\n  Total optimization steps = 400\n" + more
	}
	end := func(epoch string) string {
		return "{'train_runtime': 60.0, 'train_samples_per_second': 50.0, 'train_loss': 0.25, 'epoch': " + epoch + "}\n"
	}
	for _, c := range []struct {
		name, text   string
		epochs, rate float64
		problem      string
	}{
		{"complete", header("") + "{'loss': 0.25, 'learning_rate': 0.1, 'epoch': 4.0}\n" + end("4.0"), 4, 50, ""},
		{"continued from a checkpoint", header("  Continuing training from global step 300\n") + "{'loss': 1.0, 'learning_rate': 0.1, 'epoch': 4.0}\n" + end("4.0"), 1, 0, "before the checkpoint"},
		{"stopped early", header("") + "{'loss': 0.25, 'learning_rate': 0.1, 'epoch': 3.0}\n" + end("3.0"), 3, 0, "ended before"},
		{"continued, without a header", "{'loss': 1.0, 'learning_rate': 0.1, 'epoch': 4.0}\n" + end("4.0"), 0, 0, "resumed"},
	} {
		parts, report := recordtest.ReadAndCheckFormat(t, Format(), "run.log", []byte(c.text))
		if len(parts) != 1 {
			t.Fatalf("%s: got %d runs", c.name, len(parts))
		}
		run := parts[0].Run
		epochs, _ := run.Info.Config[record.TrainingEpochsKey].(float64)
		rate := 0.0
		for _, trial := range run.Trials {
			rate += trial.Rate
		}
		if epochs != c.epochs || rate != c.rate || !strings.Contains(fmt.Sprint(report.Unused), c.problem) {
			t.Errorf("%s: got %g epochs, %g samples/s, %v; want %g, %g, %q", c.name, epochs, rate, report.Unused, c.epochs, c.rate, c.problem)
		}
	}
}

// FuzzReadPrograms reads changed files of all programs.
func FuzzReadPrograms(f *testing.F) {
	for name := range programs() {
		text := readProgram(f, name)
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "run.log", text) })
}

// readProgram returns the content of a file of testdata/programs.
func readProgram(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "programs", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// describeRun returns the values of a run as text.
func describeRun(p *record.Part) string {
	var b strings.Builder
	info := p.Run.Info
	for _, c := range p.Evidence {
		if c.Property == runs.PropertyWorkers && info.Workers == 0 {
			info.Workers = int(c.Number)
		}
	}
	fmt.Fprintf(&b, "%s: %d workers, batch %d, %d; %d samples per epoch\n", p.Run.Kind, info.Workers, info.BatchPerWorker, info.GlobalBatch, info.SamplesPerEpoch)
	for _, e := range p.Run.Epochs {
		fmt.Fprintf(&b, "epoch %d line %d:%s\n", e.Epoch, e.Line, describeEpoch(e))
	}
	for _, c := range p.Run.Curves {
		points := make([]string, len(c.Steps))
		for i := range c.Steps {
			points[i] = fmt.Sprintf("%d %.6g", c.Steps[i], c.Values[i])
		}
		fmt.Fprintf(&b, "%s: %s\n", c.Name, strings.Join(points, ", "))
	}
	for _, trial := range p.Run.Trials {
		fmt.Fprintf(&b, "trial %s %g\n", trial.Name, trial.Rate)
	}
	if p.Run.ThroughputUnit != "" {
		fmt.Fprintf(&b, "throughput in %s\n", p.Run.ThroughputUnit)
	}
	for _, key := range slices.Sorted(maps.Keys(info.Config)) {
		fmt.Fprintf(&b, "%s %v\n", key, info.Config[key])
	}
	return b.String()
}

// describeEpoch returns the known values of an epoch as text.
func describeEpoch(e runs.Epoch) string {
	var b strings.Builder
	for _, x := range []struct {
		name string
		v    float64
	}{
		{"seconds", e.Seconds},
		{"samples_per_second", e.SamplesPerSecond},
		{"train_loss", e.TrainLoss},
		{"val_loss", e.ValLoss},
		{"dice", e.Dice},
		{"val_seconds", e.ValSeconds},
		{"lr", e.LearningRate},
		{"accuracy", e.Accuracy},
		{"val_accuracy", e.ValAccuracy},
	} {
		if !math.IsNaN(x.v) {
			fmt.Fprintf(&b, " %s %.6g", x.name, x.v)
		}
	}
	return b.String()
}

func formatName(f logline.FormatID) string { return sharedFormatIndex().formats[f].Name }
