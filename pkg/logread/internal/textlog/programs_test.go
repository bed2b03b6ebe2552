package textlog

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
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
epoch 1 line 5: seconds 30 train_loss 6.6 val_loss 5.8 accuracy 0.02 val_accuracy 0.0425
epoch 2 line 15: train_loss 6 accuracy 0.04
Acc@1: 1 0, 51 2, 101 4
Acc@5: 1 0.78, 51 8, 101 10
Data: 1 1.5, 51 0.001, 101 1
Loss: 1 7, 51 6.2, 101 6
Time: 1 2, 51 0.25, 101 1.5
`},
		"imagenet2017.log": {`PyTorch ImageNet example: 0 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 2: seconds 4.5 train_loss 6.8 val_loss 6.5 accuracy 0.01 val_accuracy 0.025
Data: 0 2, 2 0.01, 4 0.01
Loss: 0 7, 2 6.8, 4 6.6
Prec@1: 0 0, 2 1, 4 2
Prec@5: 0 0.391, 2 1.5, 4 2.5
Time: 0 3, 2 0.5, 4 0.5
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
`},
		"timm.log": {`timm: 4 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 5: seconds 62.5 samples_per_second 2048 train_loss 6.8 val_loss 6.4 lr 1e-05 val_accuracy 0.0075
epoch 2 line 9: samples_per_second 2275.56 train_loss 6.45 lr 0.064
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
`},
		"lightning1.log": {`Lightning bars: 2 workers, batch 0, 0; 0 samples per epoch
epoch 1 line 8: seconds 15.6205 train_loss 0.125 val_loss 0.14
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
lr: 10 0.001
samples_per_second: 10 64.5, 10 128
skipped: 10 0
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
			parts, report := recordtest.CheckFormat(t, Format(), "run.log", readProgram(t, name))
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
	for _, c := range p.Claims {
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
		{"seconds", e.Seconds}, {"samples_per_second", e.SamplesPerSecond}, {"train_loss", e.TrainLoss}, {"val_loss", e.ValLoss},
		{"dice", e.Dice}, {"val_seconds", e.ValSeconds}, {"lr", e.LearningRate}, {"accuracy", e.Accuracy}, {"val_accuracy", e.ValAccuracy},
	} {
		if isKnown(x.v) {
			fmt.Fprintf(&b, " %s %.6g", x.name, x.v)
		}
	}
	return b.String()
}
