package suggest

import (
	"slices"
	"strings"
	"testing"
)

// file returns a file with the lines of text.
func file(text string) File {
	var f File
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\n"), "\n") {
		f.Lines = append(f.Lines, Line{Text: line})
	}
	return f
}

// texts returns the texts of the templates.
func texts(r Result) []string {
	var list []string
	for _, t := range r.Templates {
		list = append(list, t.Text)
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
		{"a counter before the word of the next number", `
1 loss 1.0000 time 12.4 s
2 loss 0.8000 time 12.1 s
3 loss 0.7000 time 12.2 s
`, []string{"{epoch} loss {train_loss} time {seconds} s"}},
		{"decimal commas", `
PyTorch 2.1
1 Verlust 1,0000 Zeit 12,4 s
2 Verlust 0,8000 Zeit 12,1 s
3 Verlust 0,7000 Zeit 12,2 s
`, []string{"{epoch} Verlust {train_loss:,} Zeit {seconds:,} s"}},
		{"decimal commas, one of which could separate thousands", `
Epoche 1/3: Verlust 1,234, Dauer 1.012,4s - Genauigkeit 81,5 % (1,2k Bilder/s)
Epoche 2/3: Verlust 0,8, Dauer 12s - Genauigkeit 85 % (1,3k Bilder/s)
Epoche 3/3: Verlust 0,7, Dauer 12,2s - Genauigkeit 85,25 % (1,3k Bilder/s)
`, []string{"Epoche {epoch}/{epochs}: Verlust {train_loss:,}, Dauer {seconds:,}s - Genauigkeit {accuracy:,} % ({samples_per_second:,} Bilder/s)"}},
		{"commas between thousands", `
epoch 1 loss 0.5 in 12 s at 1,234 img/s
epoch 2 loss 0.4 in 13 s at 1,134 img/s
`, []string{"epoch {epoch} loss {train_loss} in {seconds} s at {samples_per_second} img/s"}},
		{"a comma that may be a decimal comma beside a decimal point", `
epoch 1 loss 0.5 time 12,4 s
epoch 2 loss 0.4 time 12,5 s
epoch 3 loss 0.3 time 12,7 s
`, []string{"epoch {epoch} loss {train_loss} time *,* s"}},
		{"numbers of devices", `
epoch 1 loss 5 gpus 0,1 time 12 s
epoch 2 loss 4 gpus 0,1 time 13 s
epoch 3 loss 3 gpus 0,1 time 12 s
`, []string{"epoch {epoch} loss {train_loss} gpus *,* time {seconds} s"}},
		{"settings, stamps, percent, a note at the end", `
World size: 4
Loading data...
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
			"iter {step}/{steps} loss: {train_loss} (*) time/batch {step_seconds} s eta *",
		}},
		{"a table with headings", `
| epoch | train loss | val loss | mIoU | time (s) |
|-------|------------|----------|------|----------|
|     1 |     0.6931 |   0.7012 | 0.41 |    33.10 |
|     2 |     0.5931 |   0.6012 | 0.51 |    32.10 |
`, []string{"| {epoch} | {train_loss} | {val_loss} | {iou} | {seconds} |"}},
		{"a count with its percentage", `
Train Epoch: 1 [0/60000 (0%)]	Loss: 2.300039
Train Epoch: 1 [640/60000 (1%)]	Loss: 2.213470
Test set: Average loss: 0.0504, Accuracy: 9831/10000 (98%)
Train Epoch: 2 [0/60000 (0%)]	Loss: 0.300039
Train Epoch: 2 [640/60000 (1%)]	Loss: 0.213470
Test set: Average loss: 0.0404, Accuracy: 9841/10000 (98%)
`, []string{
			"Test set: Average loss: {val_loss}, Accuracy: */* ({val_accuracy}%)",
			"Train Epoch: {epoch} [{step}/{steps} (*%)] Loss: {train_loss}",
		}},
		{"ranks, short names", `
[rank 0] e=0 trn=1.234 dev=1.345 thr=1234.5 img/s dt=12.3
[rank 1] e=0 trn=1.235 dev=1.345 thr=1233.5 img/s dt=12.3
[rank 0] e=1 trn=1.134 dev=1.245 thr=1234.5 img/s dt=12.3
[rank 1] e=1 trn=1.135 dev=1.245 thr=1233.5 img/s dt=12.3
`, []string{"[rank {rank}] e={epoch} trn={train_loss} dev={val_loss} thr={samples_per_second} img/s dt={seconds}"}},
		{"names after numbers, padding that some lines lack, names of files", `
[ 9/11] 0.35 loss, 0.91 acc in 12.3 seconds -> ckpt_a9f.pt
[10/11] 0.30 loss, 0.92 acc in 12.1 seconds -> ckpt_b31.pt
[11/11] 0.29 loss, 0.93 acc in 12.0 seconds -> ckpt_77c.pt
`, []string{"[{epoch}/{epochs}] {train_loss} loss, {accuracy} acc in {seconds} seconds -> *.pt"}},
		{"names after numbers", `
[ 1/11] 0.35 loss, 0.91 acc in 12.3 seconds -> ckpt_a9f.pt
[ 2/11] 0.30 loss, 0.92 acc in 12.1 seconds -> ckpt_b31.pt
[ 3/11] 0.29 loss, 0.93 acc in 12.0 seconds -> ckpt_77c.pt
`, []string{"[ {epoch}/{epochs}] {train_loss} loss, {accuracy} acc in {seconds} seconds -> *.pt"}},
		{"units before the numbers, percent without a sign", `
epoch=1 time_ms=1500 acc=51.5
epoch=2 time_ms=1400 acc=61.5
`, []string{"epoch={epoch} time_ms={seconds:ms} acc={accuracy:%}"}},
		{"values before the line of their epoch", `
training loss 0.5
validation loss 0.6
Epoch 1 done in 12 s
training loss 0.4
validation loss 0.5
Epoch 2 done in 13 s
`, []string{"training loss {train_loss}", "validation loss {val_loss}", "Epoch * done in {seconds} s"}},
		{"time since the start", `
epoch 1 loss 3.5 elapsed 10.0s
epoch 2 loss 3.4 elapsed 20.5s
epoch 3 loss 3.3 elapsed 31.0s
epoch 4 loss 3.2 elapsed 41.0s
`, []string{"epoch {epoch} loss {train_loss} elapsed {elapsed_seconds}s"}},
		{"a progress bar before the line of its epoch", `
training 100%|##########| 100/100 [00:33<00:00,  3.01it/s, loss=0.91]
epoch: 1 mean_loss: 0.95 duration: 33.2
training 100%|##########| 100/100 [00:32<00:00,  3.11it/s, loss=0.81]
epoch: 2 mean_loss: 0.85 duration: 32.1
`, []string{"training *%|##########| */* [*<*, {steps_per_second}it/s, loss=*]", "epoch: * mean_loss: {train_loss} duration: {seconds}"}},
		{"an epoch that is opened only for its steps", `
Ep 1 start
it 10 cost 0.5
Ep 1 end, 12.0 s
Ep 2 start
it 10 cost 0.4
Ep 2 end, 11.0 s
`, []string{"Ep {epoch} start", "Ep {epoch} end, {seconds} s", "it {step} cost {train_loss}"}},
		{"values that belong to no epoch for certain", `
loss 0.5
Epoch 1 took 12 s
loss 0.4
Epoch 2 took 13 s
loss 0.3
`, []string{"Epoch {epoch} took {seconds} s"}},
		{"prose", `
Loading 3 files from 2024-01-02
Downloading 45% of 3.5 GB
Found GPU 0 with 80 GB
Saved 3 checkpoints
`, nil},
		{"a single letter, and the end of a sentence", `
[epoch 01/03] L=5.00e+00 | top1 45.0% | took 71.5s in total.
[epoch 02/03] L=2.50e+00 | top1 50.0% | took 72.5s in total.
[epoch 03/03] L=1.67e+00 | top1 55.0% | took 73.5s in total.
`, []string{"[epoch {epoch}/{epochs}] L={train_loss} | top1 {accuracy}% | took {seconds}s in total."}},
		{"a letter beside a loss", `
epoch 1: L=5.0 loss=2.5 (120s)
epoch 2: L=2.5 loss=2.4 (121s)
epoch 3: L=1.5 loss=2.3 (119s)
`, []string{"epoch {epoch}: L={l} loss={train_loss} ({seconds}s)"}},
		{"the validation ends with its value, the time of other work", `
epoch 1 done. Validation: 0.85, Training: 0.81 [15.25s train, 2.5s val]
Saved weights in 0:00:03
epoch 2 done. Validation: 0.75, Training: 0.71 [15.75s train, 2.5s val]
Saved weights in 0:00:04
`, []string{
			"epoch {epoch} done. Validation: {val_loss}, Training: {train_loss} [{seconds}s train, {val_seconds}s val]",
			"Saved weights in {saved_weights_seconds}",
		}},
		{"units whose columns are unknown", `
epoch  time  loss  note
[ms]  [-]
1      2500   2.30    2.40
2      2450   1.90    2.10
`, nil},
		{"epochs and steps without names", `
[1/2][100/200] loss: 2.21 | 0.22 s/it
[1/2][200/200] loss: 2.05 | 0.21 s/it
==> epoch 1 done: 43.5s
[2/2][100/200] loss: 1.88 | 0.21 s/it
[2/2][200/200] loss: 1.75 | 0.21 s/it
==> epoch 2 done: 43.1s
`, []string{"==> epoch {epoch} done: {seconds}s", "[{epoch}/{epochs}][{step}/{steps}] loss: {train_loss} | {step_seconds} s/it"}},
		{"errors without a percent sign are no loss", `
epoch 1: top-1 err 54.9 loss 2.1 in 3.5 sec
epoch 2: top-1 err 44.9 loss 1.1 in 3.6 sec
`, []string{"epoch {epoch}: top-1 err {top1_err} loss {train_loss} in {seconds} sec"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Lines([]File{file(test.log)})
			if !slices.Equal(texts(got), test.want) {
				t.Errorf("got  %q\nwant %q\nnotes %q", texts(got), test.want, got.Notes)
			}
		})
	}
}
