package suggest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/textlog"
)

// file returns a file with the lines of text.
func file(text string) []textlog.Message {
	var f []textlog.Message
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\n"), "\n") {
		f = append(f, textlog.Message{Text: line, Rank: -1, Clock: math.NaN()})
	}
	return f
}

// texts returns the texts of the templates with a named number.
func texts(r Result) []string {
	var list []string
	for _, t := range r.Templates {
		if t.Kind != Unknown {
			list = append(list, t.Rule)
		}
	}
	return list
}

// The wanted templates are written by hand from the lines.
func TestLines(t *testing.T) {
	for _, test := range []struct {
		name, log string
		want      []string
	}{
		{"one line per epoch", `
Epoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec
Epoch 2: loss 0.1972 time 0.507s, 522.0 samples/sec
`, []string{"Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec"}},
		{"settings, limits and remaining times are no measurements", `
Namespace(max_epoch=9, warmup_epoch=3, load_epoch=2, T_max=90, total_steps=800, world_size=4)
epoch 1 step 10/80 loss 0.9 eta: 2 days, 1:02:03, latency_ms 4.0, wait_time 3.5, gpu_time 2.5
epoch 1 step 20/80 loss 0.8 eta: 2 days, 1:01:03, latency_ms 4.1, wait_time 3.6, gpu_time 2.6
epoch 2 step 10/80 loss 0.7 eta: 1 day, 23:02:03, latency_ms 4.2, wait_time 3.5, gpu_time 2.5
best epoch 2 best loss 0.7
`, []string{"*, world_size={workers}*", "epoch {epoch} step {step}/{steps} loss {train_loss} eta: {?1}, latency_ms {?2}, wait_time {?3}, gpu_time {?4}"}},
		{"words after a number exclude it", `
epoch 1 done, 12.3 s elapsed, 107.9 s remaining, loss 1.1, 346.1 samples/s (per GPU), runtime 600 s max
epoch 2 done, 24.6 s elapsed, 95.6 s remaining, loss 1.0, 347.1 samples/s (per GPU), runtime 601 s max
epoch 3 done, 36.9 s elapsed, 84.1 s remaining, loss 0.9, 345.1 samples/s (per GPU), runtime 600 s max
`, []string{"epoch {epoch} done, {?1} s elapsed, {?2} s remaining, loss {train_loss}, {?3} samples/s (per GPU), runtime {?4} s max"}},
		{"times of a validation, and rates of one rank", `
epoch 1: 3.3s (validation) train loss 1.1 | rate on rank 0: 399.1 images/s
epoch 2: 3.2s (validation) train loss 1.0 | rate on rank 0: 398.1 images/s
epoch 3: 3.4s (validation) train loss 0.9 | rate on rank 0: 397.1 images/s
`, []string{"epoch {epoch}: {?1} (validation) train loss {train_loss} | rate on rank *: {?2} images/s"}},
		{"times since the start, of a job that started long before", `
epoch 1 loss 1.1 time 520.0
epoch 2 loss 1.0 time 540.0
epoch 3 loss 0.9 time 560.0
epoch 4 loss 0.8 time 580.0
epoch 5 loss 0.7 time 600.0
`, []string{"epoch {epoch} loss {train_loss} time {?1}"}},
		{"processes that load, devices that exist, nodes of a graph and several runs in one line are no workers", `
Tokenizing the corpus using 16 processes
cuda available: True, device_count: 8
Number of nodes: 2708, number of edges: 10556
[{"world_size": 1, "time": 102.0}, {"world_size": 2, "time": 52.0}]
epoch 1 loss 1.1
epoch 2 loss 1.0
`, []string{"epoch {epoch} loss {train_loss}"}},
		{"positions in the samples are no steps", `
Epoch 1[16/5011]: loss: 3.0
Epoch 1[1616/5011]: loss: 2.9
Epoch 1[3216/5011]: loss: 2.8
Epoch 2[16/5011]: loss: 2.7
Epoch 2[1616/5011]: loss: 2.6
`, nil},
		{"positions in steps of fifty", `
Epoch 1[50/400]: loss: 3.0
Epoch 1[100/400]: loss: 2.9
Epoch 1[150/400]: loss: 2.8
Epoch 2[50/400]: loss: 2.7
`, []string{"Epoch {epoch}[{step}/{steps}]: loss: {train_loss}"}},
		{"processes at a barrier are no nodes", `
Rank 0: Completed barrier for key:1 with 16 nodes.
Epoch 1: loss 0.5
Epoch 2: loss 0.4
`, []string{"Epoch {epoch}: loss {train_loss}"}},
		{"a time that never falls may be that since the start", `
Epoch 1, Loss 0.9, Time 0.18s
Epoch 2, Loss 0.8, Time 0.18s
Epoch 3, Loss 0.7, Time 0.40s
Epoch 4, Loss 0.6, Time 0.40s
Epoch 5, Loss 0.5, Time 0.92s
Epoch 6, Loss 0.4, Time 0.95s
`, []string{"Epoch {epoch}, Loss {train_loss}, Time {?1}"}},
		{"the time of a step agrees with the clock", `
10:00:00 Epoch [1][10/40] time: 0.500, data_time: 0.050, loss: 3.0
10:00:05 Epoch [1][20/40] time: 0.510, data_time: 0.051, loss: 2.9
10:00:10 Epoch [1][30/40] time: 0.490, data_time: 0.052, loss: 2.8
10:00:15 Epoch [1][40/40] time: 0.500, data_time: 0.050, loss: 2.7
10:00:20 Epoch [2][10/40] time: 0.505, data_time: 0.050, loss: 2.6
`, []string{"{?1} Epoch [{epoch}][{step}/{steps}] time: {step_seconds}, data_time: {?2}, loss: {train_loss}"}},
		{"a time of ten steps contradicts the clock", `
10:00:00 Epoch [1][10/40] time: 5.00, loss: 3.0
10:00:05 Epoch [1][20/40] time: 5.10, loss: 2.9
10:00:10 Epoch [1][30/40] time: 4.90, loss: 2.8
10:00:15 Epoch [1][40/40] time: 5.00, loss: 2.7
`, []string{"{?1} Epoch [{epoch}][{step}/{steps}] time: {?2}, loss: {train_loss}"}},
		{"the time of a step agrees with the time of a date inside the line", `
trainer 2024/01/02 10:00:00 Epoch [1][10/40] time: 0.500
trainer 2024/01/02 10:00:05 Epoch [1][20/40] time: 0.510
trainer 2024/01/02 10:00:10 Epoch [1][30/40] time: 0.490
trainer 2024/01/02 10:00:15 Epoch [1][40/40] time: 0.500
`, []string{"trainer * Epoch [{epoch}][{step}/{steps}] time: {step_seconds}"}},
		{"without a clock nothing shows whether the time is that of a step", `
Epoch 1 step 10 time 5.1 loss 3.0
Epoch 1 step 20 time 5.0 loss 2.9
Epoch 2 step 10 time 5.2 loss 2.8
`, []string{"Epoch {epoch} step {step} time {?1} loss {train_loss}"}},
		{"a time that is longer than the clock allows", `
10:00:00 epoch 1 time 100.0 loss 3.0
10:00:20 epoch 2 time 110.0 loss 2.0
10:00:41 epoch 3 time 105.0 loss 1.5
`, []string{"{?1} epoch {epoch} time {?2} loss {train_loss}"}},
		{"labels of workers", `
node0: epoch 1 took 31.0 s at 100.5 samples/s
node1: epoch 1 took 30.0 s at 101.5 samples/s
node0: epoch 2 took 31.5 s at 100.0 samples/s
node1: epoch 2 took 30.5 s at 101.0 samples/s
`, []string{"node{rank}: epoch {epoch} took {seconds} s at {samples_per_second} samples/s"}},
		{"the rate of one GPU", `
epoch 1 loss 0.5, 100.0 images/sec per GPU
epoch 2 loss 0.4, 101.0 images/sec per GPU
`, []string{"epoch {epoch} loss {train_loss}, {?1} images/sec per GPU"}},
		{"the rates of each GPU and of all", `
epoch 1 loss 0.5 | gpu 0: 100.0 img/s | gpu 1: 101.0 img/s | total 201.0 img/s
epoch 2 loss 0.4 | gpu 0: 100.5 img/s | gpu 1: 101.5 img/s | total 202.0 img/s
`, []string{"epoch {epoch} loss {train_loss} | gpu *: {?1} img/s | gpu *: {?2} img/s | total {?3} img/s"}},
		{"numbers with a comma that may be a decimal comma", `
epoch 1 loss 0.5 time 12,4 s
epoch 2 loss 0.4 time 12,5 s
epoch 3 loss 0.3 time 12,7 s
`, []string{"epoch {epoch} loss {train_loss} time * s"}},
		{"numbers of devices", `
epoch 1 loss 0.5 gpus 0,1 time 12 s
epoch 2 loss 0.4 gpus 0,1 time 13 s
epoch 3 loss 0.3 gpus 0,1 time 12 s
`, []string{"epoch {epoch} loss {train_loss} gpus * time {seconds} s"}},
		{"settings, stamps, percent, a note at the end", `
World size: 4
Loading data with 8 workers...
[2024/01/02 12:00:00] ep 001/010 | tr_loss=0.693 tr_acc=51.2% | va_loss=0.680 va_acc=53.0% | lr=1.0e-03 | 12.4s
[2024/01/02 12:00:13] ep 002/010 | tr_loss=0.593 tr_acc=61.2% | va_loss=0.580 va_acc=63.0% | lr=1.0e-03 | 12.1s
[2024/01/02 12:00:26] ep 003/010 | tr_loss=0.493 tr_acc=71.2% | va_loss=0.480 va_acc=73.0% | lr=1.0e-03 | 12.2s (best)
`, []string{
			"World size: {workers}",
			"[*] ep {epoch}/{epochs} | tr_loss={train_loss} tr_acc={accuracy}% | va_loss={val_loss} va_acc={val_accuracy}% | lr={lr} | {seconds}s*",
		}},
		{"several lines per epoch, and steps", `
=== Epoch 1/2 ===
  iter 10/100 loss: 0.9 (0.95) time/batch 0.12 s eta 0:01:02
  iter 20/100 loss: 0.8 (0.91) time/batch 0.11 s eta 0:00:52
  train: loss 0.75 acc 0.6
  val:   loss 0.80 acc 0.5
  epoch took 1m02s
=== Epoch 2/2 ===
  iter 10/100 loss: 0.7 (0.75) time/batch 0.12 s eta 0:01:02
  iter 20/100 loss: 0.6 (0.71) time/batch 0.11 s eta 0:00:52
  train: loss 0.65 acc 0.7
  val:   loss 0.70 acc 0.6
  epoch took 59s
`, []string{
			"=== Epoch {epoch}/{epochs} ===",
			"train: loss {train_loss} acc {accuracy}",
			"val: loss {val_loss} acc {val_accuracy}",
			"epoch took {seconds}",
			"iter {step}/{steps} loss: {train_loss} ({?1}) time/batch {step_seconds} s eta {?2}",
		}},
		{"steps of an evaluation", `
Epoch 1 step 10/20 loss 0.9
Epoch 1 step 20/20 loss 0.8
[eval] Epoch 1 step 10/20 loss 0.7
[eval] Epoch 1 step 20/20 loss 0.7
Epoch 2 step 10/20 loss 0.6
Epoch 2 step 20/20 loss 0.5
`, []string{"Epoch {epoch} step {step}/{steps} loss {train_loss}"}},
		{"values and a time of which nothing shows whether they are of the training", `
Epoch 1/9
loss 0.95
time: 33.5 s
Evaluating the model ...
loss 0.90, acc 0.55
Training ...
Epoch 2/9
loss 0.75
time: 33.0 s
Evaluating the model ...
loss 0.80, acc 0.65
Training ...
`, nil},
		{"a loss without a label below steps that have the loss of the training", `
Epoch: [0] Iter: [0/20] loss: 0.9, speed: 10.5 img/s
Epoch: [0] Iter: [0/20] top2: 0.3, speed: 10.5 img/s
Epoch: [0] Iter: [10/20] loss: 0.8, speed: 11.5 img/s
Epoch: [0] Iter: [10/20] top2: 0.4, speed: 11.5 img/s
Loss: 0.95, MeanIU: 0.4
Epoch: [1] Iter: [0/20] loss: 0.7, speed: 10.0 img/s
Epoch: [1] Iter: [0/20] top2: 0.5, speed: 10.0 img/s
Epoch: [1] Iter: [10/20] loss: 0.6, speed: 11.0 img/s
Epoch: [1] Iter: [10/20] top2: 0.6, speed: 11.0 img/s
Loss: 0.85, MeanIU: 0.5
`, []string{"Epoch: [{epoch}] Iter: [{step}/{steps}] loss: {train_loss}, speed: {samples_per_second} img/s"}},
		{"progress bars and colors before messages", `
Validation:  50%|##  | 1/2 [00:10<00:10, 10.00s/it]` + "\x1b[34mINFO\x1b[0m" + ` Epoch 1: loss 0.5
Validation: 100%|####| 2/2 [00:20<00:00, 10.00s/it]` + "\x1b[34mINFO\x1b[0m" + ` Epoch 2: loss 0.4
`, []string{"*INFO* Epoch {epoch}: loss {train_loss}"}},
		{"progress bars of which nothing shows the part of the training", `
Epoch 1
100%|####| 6/6 [00:17<00:00,  2.99s/it]
Epoch 2
100%|####| 6/6 [00:16<00:00,  2.82s/it]
`, nil},
		{"steps without an epoch whose loss does not fall", `
Batch 1/4 | loss: 0.1 | acc: 0.9
Batch 2/4 | loss: 0.2 | acc: 0.8
Batch 3/4 | loss: 0.3 | acc: 0.7
`, nil},
		{"a time between two steps", `
epoch 1 loss 0.5 dt 0.82
epoch 2 loss 0.4 dt 0.81
`, []string{"epoch {epoch} loss {train_loss} dt {?1}"}},
		{"a count of samples, and a test", `
Train Epoch: 1 [0/60000 (0%)]	Loss: 2.300039
Train Epoch: 1 [640/60000 (1%)]	Loss: 2.213470
Test set: Average loss: 0.0504, Accuracy: 9831/10000 (98%)
Train Epoch: 2 [0/60000 (0%)]	Loss: 0.300039
Train Epoch: 2 [640/60000 (1%)]	Loss: 0.213470
Test set: Average loss: 0.0404, Accuracy: 9841/10000 (98%)
`, nil},
		{"padding that some lines lack, more words at the end, names after numbers", `
epoch [ 9/11] lr 0.1: 0.35 loss, 0.91 acc in 12.3 seconds
epoch [10/11] lr 0.1: 0.30 loss, 0.92 acc in 12.1 seconds -> ckpt_b31.pt
epoch [11/11] lr 0.1: 0.29 loss, 0.93 acc in 12.0 seconds
`, []string{"epoch [{epoch}/{epochs}] lr {lr}: {?1} loss, {?2} acc in {?3} seconds*"}},
		{"units before the numbers", `
epoch=1 time_ms=1500 val_acc=51.5
epoch=2 time_ms=1400 val_acc=61.5
`, []string{"epoch={epoch} time_ms={?1} val_acc={val_accuracy:%}"}},
		{"values before the line of their epoch", `
training loss 0.5
validation loss 0.6
Epoch 1 done in 12 s
training loss 0.4
validation loss 0.5
Epoch 2 done in 13 s
`, []string{"Epoch {epoch} done in {seconds} s"}},
		{"time since the start", `
epoch 1 loss 3.5 elapsed 10.0s
epoch 2 loss 3.4 elapsed 20.5s
epoch 3 loss 3.3 elapsed 31.0s
epoch 4 loss 3.2 elapsed 41.0s
`, []string{"epoch {epoch} loss {train_loss} elapsed {elapsed_seconds}s"}},
		{"an epoch that is opened only for its steps", `
Ep 1 start
train it 10 loss 0.5
Ep 1 end, 12.0 s
Ep 2 start
train it 10 loss 0.4
Ep 2 end, 11.0 s
`, []string{"Ep {epoch} start", "Ep {epoch} end, {seconds} s", "train it * loss {train_loss}"}},
		{"values that belong to no epoch for certain", `
loss 0.5
Epoch 1 took 12 s
loss 0.4
Epoch 2 took 13 s
loss 0.3
`, []string{"Epoch {epoch} took {seconds} s"}},
		{"the best values, limits and saved values are not those of now", `
epoch 1 loss 0.5 best val_acc 0.6 (max acc 0.9)
epoch 2 loss 0.4 best val_acc 0.7 (max acc 0.9)
saved checkpoint with val_acc 0.6 of epoch 1
saved checkpoint with val_acc 0.7 of epoch 2
AP @ IoU=0.50 0.61
AP @ IoU=0.75 0.62
`, []string{"epoch {epoch} loss {train_loss} best val_acc {?1} (max acc *)"}},
		{"a time that is named like a loss", `
epoch 1 cost 52.1
epoch 2 cost 51.3
epoch 3 cost 52.0
`, nil},
		{"an accuracy of which part", `
epoch 1 train_loss 0.5 val_loss 0.6 accuracy 0.7
epoch 2 train_loss 0.4 val_loss 0.5 accuracy 0.8
`, []string{"epoch {epoch} train_loss {train_loss} val_loss {val_loss} accuracy {?1}"}},
		{"numbers that nothing counts", `
1 loss 0.5 time 12 s
2 loss 0.4 time 13 s
3 loss 0.3 time 12 s
`, nil},
		{"prose", `
Loading 3 files from 2024-01-02
Downloading 45% of 3.5 GB
Found GPU 0 with 80 GB
Found 8 GPUs
Saved 3 checkpoints
`, nil},
		{"the loss of the first step of each epoch", `
Epoch[0] Iter: [0/13] Loss 6.7 LR 0.3
Epoch[1] Iter: [0/13] Loss 3.1 LR 0.2
Epoch[2] Iter: [0/13] Loss 2.2 LR 0.1
Epoch 0 [1/13] loss: 6.7
Epoch 1 [1/13] loss: 3.1
Epoch 2 [1/13] loss: 2.2
`, nil},
		{"iterations that may be passes over the data: an evaluation follows each", `
Iteration 0 | Val Loss: 6.0
Iteration 0 | Train Loss: 4.0
Iteration 1 | Val Loss: 2.1
Iteration 1 | Train Loss: 1.9
Iteration 2 | Val Loss: 1.8
Iteration 2 | Train Loss: 1.7
`, nil},
		{"steps of which some are evaluated", `
step 100 | Val Loss: 6.0
step 100 | Train Loss: 4.0
step 200 | Val Loss: 2.1
step 200 | Train Loss: 1.9
step 300 | Val Loss: 1.8
step 300 | Train Loss: 1.7
`, []string{"step {step} | Train Loss: {train_loss}"}},
		{"epochs of one step", `
Epoch[0] Iter: [1/1] Loss 6.7
Epoch[1] Iter: [1/1] Loss 3.1
Epoch[2] Iter: [1/1] Loss 2.2
`, []string{"Epoch[{epoch}] Iter: [*/*] Loss {train_loss}"}},
		{"a total that may be one of losses, and one that is a time", `
10:00:00 iter 1 epoch 1 total: 9.5 part: 2.3
10:00:10 iter 2 epoch 1 total: 9.6 part: 2.4
10:00:19 iter 3 epoch 2 total: 8.3 part: 1.2
10:00:28 iter 4 epoch 3 total: 8.0 part: 1.0
epoch 1 loss 0.95 total 0:01:00
epoch 2 loss 0.93 total 0:02:01
epoch 3 loss 0.92 total 0:03:02
`, []string{"epoch {epoch} loss {train_loss} total {elapsed_seconds}"}},
		{"tasks of Slurm", "NumTasks = 4", []string{"NumTasks = {workers}"}},
		{"visible devices", "cuda available: True, device_count: 8", nil},
		{"tasks that are learned are no workers", `
Options(num_tasks=3, world_size=2)
Training on 5 tasks
epoch 1 loss 0.5
epoch 2 loss 0.4
`, []string{"*, world_size={workers}*", "epoch {epoch} loss {train_loss}"}},
		{"the seed of the best run", `
Options(save_best=1, world_size=2)
epoch 1 loss 0.5
epoch 2 loss 0.4
Best run: seed=7, f1=0.66
`, []string{"*, world_size={workers}*", "epoch {epoch} loss {train_loss}"}},
		{"errors without a percent sign are no loss", `
epoch 1: top-1 err 54.9 loss 2.1 in 3.5 sec
epoch 2: top-1 err 44.9 loss 1.1 in 3.6 sec
`, []string{"epoch {epoch}: top-1 err {?1} loss {train_loss} in {seconds} sec"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ProposeTemplates([][]textlog.Message{file(test.log)})
			if !slices.Equal(texts(got), test.want) {
				t.Errorf("got  %q\nwant %q\nnotes %q", texts(got), test.want, got.Notes)
			}
		})
	}
}

// TestPlaces checks that numbers of unknown meaning are numbered places with two examples, also if nothing
// is known.
func TestPlaces(t *testing.T) {
	got := ProposeTemplates([][]textlog.Message{file("loss 2.5 | gain 7\nloss 2.25 | gain 8\nloss 2.0 | gain 9\nother 1\nother 2\n")})
	if len(got.Templates) != 1 || got.Templates[0].Rule != "loss {?1} | gain {?2}" || got.Templates[0].Kind != Unknown {
		t.Fatalf("got %+v", got)
	}
	if f := got.Templates[0].Fields; len(f) != 2 || f[0] != (TemplateField{Name: "?1", Example: "2.5, 2.25"}) {
		t.Errorf("got %+v", f)
	}
}
