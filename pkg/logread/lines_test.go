package logread_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// readLines reads a log with the templates and returns its runs as text, followed by the
// problems and the assumptions.
func readLines(t *testing.T, text string, templates ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.log")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	logs, err := logread.Options{Lines: templates}.Read(t.Context(), path)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), path, "LOG")
	}
	var b strings.Builder
	for _, run := range logs.Runs {
		b.WriteString(describeRun(run))
	}
	for _, p := range logs.Problems {
		if !strings.Contains(p.Reason, "number of workers is unknown") {
			fmt.Fprintf(&b, "problem: %d %s\n", p.Line, p.Reason)
		}
	}
	for _, a := range logs.Reports[0].Assumed {
		if strings.HasPrefix(a, "series ") || strings.HasPrefix(a, "time stamps ") {
			continue
		}
		fmt.Fprintf(&b, "assumed: %s\n", a)
	}
	return b.String()
}

// describeRun returns the known values of a run.
func describeRun(run runs.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s:", run.Kind)
	i := run.Info
	for _, x := range []struct {
		name  string
		value int
	}{{"workers", i.Workers}, {"nodes", i.Nodes}, {"seed", int(i.Seed)}, {"batch", i.BatchPerWorker}, {"samples", i.SamplesPerEpoch}} {
		if x.value > 0 {
			fmt.Fprintf(&b, " %s=%d", x.name, x.value)
		}
	}
	for _, key := range []string{"model", "epochs", "steps"} {
		if v, ok := i.Config[key]; ok {
			fmt.Fprintf(&b, " %s=%v", key, v)
		}
	}
	b.WriteByte('\n')
	for _, e := range run.Epochs {
		fmt.Fprintf(&b, "  %d:", e.Epoch)
		for _, x := range []struct {
			name  string
			value float64
		}{
			{"seconds", e.Seconds},
			{"val_seconds", e.ValSeconds},
			{"rate", e.SamplesPerSecond},
			{"train", e.TrainLoss},
			{"val", e.ValLoss},
			{"iou", e.IoU},
			{"dice", e.Dice},
			{"acc", e.Accuracy},
			{"val_acc", e.ValAccuracy},
			{"lr", e.LearningRate},
		} {
			if x.value == x.value {
				fmt.Fprintf(&b, " %s=%g", x.name, x.value)
			}
		}
		if e.Samples > 0 {
			fmt.Fprintf(&b, " samples=%d", e.Samples)
		}
		b.WriteByte('\n')
	}
	for _, c := range run.Curves {
		fmt.Fprintf(&b, "  %s", c.Name)
		if c.Rank >= 0 {
			fmt.Fprintf(&b, "@%d", c.Rank)
		}
		fmt.Fprintf(&b, " %v %v\n", c.Steps, c.Values)
	}
	return b.String()
}

// TestLines: what the values of templates mean.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		templates  []string
		want       string
	}{
		{
			"units", "hello\nEpoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec\nEpoch 2: loss 0.25 time 500ms, 1.2k samples/sec\n",
			[]string{"Epoch {epoch}: loss {train_loss} time {seconds}, {samples_per_second} samples/sec"},
			"run lines:\n  1: seconds=0.607 rate=422 train=0.2972\n  2: seconds=0.5 rate=1200 train=0.25\n",
		},
		{
			"labels, stamps and carriage returns", "[rank0]: 2024-01-02 03:04:05,678 - root - INFO - Epoch 1 loss 0.5\n[rank0]: 10%\r100%\r[rank0]: Epoch 1 val 0.6\n",
			[]string{"Epoch {epoch} loss {train_loss}", "Epoch {epoch} val {val_loss}"},
			"run lines:\n  1: train=0.5 val=0.6\n",
		},
		{
			"several lines add to one epoch, also late", "train 1 0.5\ntrain 2 0.4\nval 1 0.6\nval 2 0.5\n",
			[]string{"train {epoch} {train_loss}", "val {epoch} {val_loss}"},
			"run lines:\n  1: train=0.5 val=0.6\n  2: train=0.4 val=0.5\n",
		},
		{
			"a duplicate", "train 1 0.5\ntrain 1 0.4\n",
			[]string{"train {epoch} {train_loss}"},
			"run lines:\n  1: train=0.4\nproblem: 2 duplicate train_loss of epoch 1; the later line counts\n",
		},
		{ // three parts at 256, 256 and 128 samples/s; the summary in another form counts alone
			"several rates of an epoch", "ep 0 it 0 rate 256\nep 0 it 1 rate 256\nep 0 it 2 rate 128\nep 1 it 0 rate 400\nep 1 it 1 rate 400\nepoch 1 rate 390\n",
			[]string{"ep {epoch} it * rate {samples_per_second}", "epoch {epoch} rate {samples_per_second}"},
			"run lines:\n  1: rate=192\n  2: rate=390\nproblem: 6 duplicate samples_per_second of epoch 1; the later line counts\n" +
				"assumed: the samples per second of an epoch are its steps over the time that their rates give\nassumed: the log counts epochs from 0; here they count from 1\n",
		},
		{
			"rates of an epoch that another line opens", "Epoch 1\nrate 256\nrate 256\nrate 128\nEpoch 2\nrate 400\n",
			[]string{"Epoch {epoch}", "rate {samples_per_second}"},
			"run lines:\n  1: rate=192\n  2: rate=400\nassumed: the samples per second of an epoch are its steps over the time that their rates give\n",
		},
		{
			"the numbering starts again", "workers 2 seed 7\ntrain 1 0.5\ntrain 2 0.4\ntrain 1 0.3\n",
			[]string{"workers {workers} seed {seed}", "train {epoch} {train_loss}"},
			"run lines: workers=2 seed=7\n  1: train=0.5\n  2: train=0.4\nrun lines: workers=2 seed=7\n  1: train=0.3\nassumed: line 4: the numbers start again: another run\n",
		},
		{
			"other workers begin a run", "workers 2\nepoch 1 0.5\nworkers 4\nepoch 1 0.4\n",
			[]string{"workers {workers}", "epoch {epoch} {train_loss}"},
			"run lines: workers=2\n  1: train=0.5\nrun lines: workers=4\n  1: train=0.4\n",
		},
		{
			"an opened epoch", "Epoch 1/2\ntook 5s\nloss: 0.5\nEpoch 2/2\ntook 4s\nloss: 0.4\n",
			[]string{"Epoch {epoch}/{epochs}", "took {seconds}s", "loss: {train_loss}"},
			"run lines: epochs=2\n  1: seconds=5 train=0.5\n  2: seconds=4 train=0.4\n",
		},
		{
			"the n-th line", "loss: 0.5\nacc: 91%\nloss: 0.4\nacc: 92%\n",
			[]string{"loss: {train_loss}", "acc: {accuracy}"},
			"run lines:\n  1: train=0.5 acc=0.91\n  2: train=0.4 acc=0.92\n" +
				"assumed: the n-th line of the form \"loss: {train_loss}\" is epoch n, since the lines contain no number of the epoch\n" +
				"assumed: the n-th line of the form \"acc: {accuracy}\" is epoch n, since the lines contain no number of the epoch\n",
		},
		{
			"steps without epochs", "step 10 loss 0.5 tok 12\nstep 20 loss 0.4 tok 13\n",
			[]string{"step {step} loss {train_loss} tok {tokens}"},
			"run lines:\n  tokens [10 20] [12 13]\n  train_loss [10 20] [0.5 0.4]\n",
		},
		{
			"steps in epochs", "e 1 s 1 l 0.5\ne 1 s 2 l 0.4\ne 2 s 1 l 0.3\ne 2 s 2 l 0.2\n",
			[]string{"e {epoch} s {step} l {train_loss}"},
			"run lines:\n  1: train=0.4\n  2: train=0.2\n  train_loss [1 2 3 4] [0.5 0.4 0.3 0.2]\n" +
				"assumed: steps are counted in each epoch; here they count from the beginning of the run\n",
		},
		{
			"steps of an opened epoch, and its mean", "Epoch 1\ns 5/10 l 0.5\ns 10/10 l 0.4\nmean 0.45\nEpoch 2\ns 5/10 l 0.3\nmean 0.35\n",
			[]string{"Epoch {epoch}", "s {step}/{steps} l {train_loss}", "mean {train_loss}"},
			"run lines: steps=10\n  1: train=0.45\n  2: train=0.35\n  train_loss [5 10 15] [0.5 0.4 0.3]\n" +
				"assumed: steps are counted in each epoch; here they count from the beginning of the run\n",
		},
		{
			"steps after the mean of their epoch", "Epoch 1\nmean 0.45\ns 1 l 0.3\nEpoch 2\ns 2 l 0.2\n",
			[]string{"Epoch {epoch}", "s {step} l {train_loss}", "mean {train_loss}"},
			"run lines:\n  1: train=0.45\n  2: train=0.2\n  train_loss [1 2] [0.3 0.2]\n",
		},
		{
			"metrics by epoch", "1 mem 5 fwd 12ms\n2 mem 6 fwd 13ms\n",
			[]string{"{epoch} mem {mem} fwd {forward}"},
			"run lines:\n  forward [1 2] [0.012 0.013]\n  mem [1 2] [5 6]\n",
		},
		{
			"ranks by label and by field", "0: epoch 1 t 5s r 10\n1: epoch 1 t 6s r 11\n",
			[]string{"epoch {epoch} t {seconds}s r {samples_per_second}"},
			"run lines: workers=2\n  1: seconds=6 rate=21\nassumed: samples and samples per second are those of each rank; the ranks' values are summed\n" +
				"assumed: the lines of 2 ranks are one run: times of the slowest rank, mean losses and accuracies\n",
		},
		{
			"ranks by field", "rank 0 of 2 epoch 1 t 5s\nrank 1 of 2 epoch 1 t 6s\n",
			[]string{"rank {rank} of {workers} epoch {epoch} t {seconds}s"},
			"run lines: workers=2\n  1: seconds=6\nassumed: the lines of 2 ranks are one run: times of the slowest rank, mean losses and accuracies\n",
		},
		{
			"properties", "net ResNet 50, batch 32, 60,000 samples\n1 nodes\nepoch 1 lr 1e-3 dice 50% iou 0.4\n",
			[]string{"net {model}, batch {batch}, {samples} samples", "{nodes} nodes", "epoch {epoch} lr {lr} dice {dice} iou {iou}"},
			"run lines: nodes=1 batch=32 samples=60000 model=ResNet 50\n  1: iou=0.4 dice=0.5 lr=0.001\nassumed: {batch} is the number of samples per worker and step\n",
		},
		{
			"a percentage without its sign", "epoch 1 acc 93.5\n",
			[]string{"epoch {epoch} acc {accuracy}"},
			"run lines:\n  1:\nproblem: 1 got accuracy 93.5, want 0 to 1; of a percentage without %, write {accuracy:%} in the template\n",
		},
		{
			"what looks like a label", "3: loss 0.5\n4: loss 0.4\n",
			[]string{"{epoch}: loss {train_loss}"},
			"run lines:\n  3: train=0.5\n  4: train=0.4\n",
		},
		{
			"a torn last line", "epoch 1 loss 0.5\nepoch 2 loss 0.4",
			[]string{"epoch {epoch} loss {train_loss}"},
			"run lines:\n  1: train=0.5\nproblem: 2 last line is torn: \"epoch 2 loss 0.4\"\n",
		},
		{
			"a torn unit", "epoch 1 t 5ms\nepoch 2 t 5m",
			[]string{"epoch {epoch} t {seconds}"},
			"run lines:\n  1: seconds=0.005\nproblem: 2 last line is torn: \"epoch 2 t 5m\"\n",
		},
		{
			"before the known formats", "Epoch 1/2\nTime taken for epoch 1 is 5 sec\n",
			[]string{"Time taken for epoch {epoch} is {val_seconds} sec"},
			"run lines:\n  1: val_seconds=5\n",
		},
		{
			"beside a known format", "Time taken for epoch 1 is 5 sec, avg 20.0 samples/sec\n  Avg train loss=0.5\nIoU 0.8\nTime taken for epoch 2 is 5 sec, avg 20.0 samples/sec\n  Avg train loss=0.4\n",
			[]string{"IoU {score}"},
			"run SC21 log:\n  1: seconds=5 rate=20 train=0.5 samples=100\n  2: seconds=5 rate=20 train=0.4 samples=100\n  score [1] [0.8]\n",
		},
		{
			"only properties", "workers 4\n",
			[]string{"workers {workers}"},
			"",
		},
		{
			"no line matches", "hello\nEpoch 1 - loss 0.5\nbye\n",
			[]string{"Epoch {epoch}: loss {train_loss}"},
			"error: read logs: the line template \"Epoch {epoch}: loss {train_loss}\" matches no line; the nearest is LOG, line 2, after labels and time stamps:\n" +
				"  Epoch 1 - loss 0.5\n         ^ expected \": loss \"",
		},
		{
			"a misspelled field", "1 acc 0.5\n",
			[]string{"{epoch} acc {accurac}"},
			"run lines:\n  accurac [1] [0.5]\nproblem: 0 {accurac} is read as a metric of this name (did you mean {accuracy}?)\n",
		},
		{
			"an earlier template matches too", "Epoch 1 loss 0.5\n",
			[]string{"Epoch {epoch} *", "Epoch {epoch} loss {train_loss}"},
			"error: read logs: the line template \"Epoch {epoch} loss {train_loss}\" matches only lines that an earlier template matches, such as line 1 of LOG; put it before that template",
		},
		{
			"an invalid template", "x\n",
			[]string{"Epoch {epoch"},
			"error: read logs: invalid template \"Epoch {epoch\": character 7: got { without }, want {name} for a field or {{ for a brace",
		},
	} {
		got := readLines(t, c.text, c.templates...)
		if got != c.want {
			t.Errorf("%s:\ngot:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}

// TestLinesOfSeveralPaths: a template may match lines of only one path. Of a file of no
// known format, the error shows the nearest line.
func TestLinesOfSeveralPaths(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.log"), filepath.Join(dir, "b.log")
	if err := os.WriteFile(a, []byte("Epoch 1 loss 0.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b, []byte("Step 1 loss 0.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := logread.Options{Lines: []string{"Epoch {epoch} loss {train_loss}"}}
	n := 0
	if _, err := o.Rows(t.Context(), logread.Epochs, []string{dir, a}, func(logread.Row) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("got %d rows, error %v", n, err)
	}
	for _, paths := range [][]string{{b}, {dir + "/b.log", b}} {
		_, err := o.Read(t.Context(), paths...)
		if want := b + ", line 1, after labels and time stamps:\n  Step 1 loss 0.5\n  ^ expected \"Epoch \""; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", paths, err, want)
		}
	}
	csv := filepath.Join(dir, "log_4.csv")
	if err := os.WriteFile(csv, []byte(",time_per_epoch,loss,lr,training_time,test_time,iou\n0,205.3,0.56,0.001,38765.4,29.6,0.89\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(t.Context(), csv); err == nil || !strings.Contains(err.Error(), "was not used, since no text log was found") {
		t.Errorf("got error %v", err)
	}
}

func ExampleOptions_lines() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "train.log")
	text := "world size 2\nEpoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec\nEpoch 2: loss 0.2515 time 590ms, 434.0 samples/sec\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	o := logread.Options{Lines: []string{
		"world size {workers}",
		"Epoch {epoch}: loss {train_loss} time {seconds}, {samples_per_second} samples/sec",
	}}
	logs, err := o.Read(context.Background(), path)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, run := range logs.Runs {
		for _, e := range run.Epochs {
			fmt.Println(run.Info.Workers, e.Epoch, e.TrainLoss, e.Seconds, e.SamplesPerSecond)
		}
	}
	// Output:
	// 2 1 0.2972 0.607 422
	// 2 2 0.2515 0.59 434
}
