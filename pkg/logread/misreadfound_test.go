package logread

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestFoundByMutations has the misreadings that TestNothingIsMisread has found.
func TestFoundByMutations(t *testing.T) {
	const rates = "0: 2018-10-07 20:36:09,348 INFO Train samples 100 time 10.00s rate 10.0 samples/s\n1: 2018-10-07 20:36:09,348 INFO Train samples 100 time 10.00s rate 12.0 samples/s\n"
	for name, c := range map[string]struct {
		file, text string
		want, says string
	}{
		"the rate of one of two ranks": {
			"a_2gpu.log", rates + strings.SplitAfter(rates, "\n")[0], "1 22, 2 NaN", "1 of 2 ranks logged the throughput of epoch 2",
		},
		"a lost line of an epoch of SC21": {
			"a_2gpu.log", sc21Lines(10, 100, 0.5) + "2021-11-12 00:39:26,118 - root - INFO -   Avg train loss=0.25\n", "1 100 0.5, 2 100 0.5", "second value of epoch 2",
		},
		"a lost line of an epoch of the study": {
			"a_2gpu.log", "[INFO] EPOCH: 1/3\nTrain loss: 0.5, elapsed time: 9.5\nTrain loss: 0.25, elapsed time: 8.5\n", "1 NaN 0.5", "second training loss of epoch 1",
		},
		"an epoch of the study without values before a run that starts again": {
			"a_2gpu.log", "[INFO] EPOCH: 1/2\nTrain loss: 0.5, elapsed time: 9.5\n[INFO] EPOCH: 2/2\n[INFO] EPOCH: 1/2\nTrain loss: 0.25, elapsed time: 8.5\n",
			"1 NaN 0.5, 2 NaN, 1 NaN 0.25", "line 4: epoch 2 has no values: epoch 1 begins before them",
		},
		"a lost loss of the study": {
			"a_2gpu.log", "[INFO] EPOCH: 1/2\n[INFO] EPOCH: 2/2\nTrain loss: 0.25, elapsed time: 8.5\n", "1 NaN, 2 NaN 0.25", "line 2: epoch 1 has no values: epoch 2 begins before them",
		},
		"another header with the index of pandas": {"log_2.csv", ",epoch,loss\n0,1,2\n1,2,4\n", "1 NaN 2, 2 NaN 4", "CSV table"},
		"another table with one column more": {
			"a_2gpu.csv", "epoch,time,loss\n1,10,2\nStep,one,two,three\n1,5,6,\n2,7,8,9\n", "1 NaN 2", "a table with other columns begins here",
		},
		"a row with a delimiter at its end": {"a_2gpu.csv", "epoch,time,loss\n1,10,2\n2,5,6,\n", "1 NaN 2", "expected 3 cells, got 4"},
		"rows with a delimiter at the end":  {"a_2gpu.csv", "epoch,time,loss\n1,10,2,\n2,5,6,\n", "1 NaN 2, 2 NaN 6", "3 of 3 lines used"},
		"a known table with a name of the study": {
			"log_2.csv", "timestamp, index, power.draw [W]\n2023/11/14 22:13:20.000, 0, 100.00 W\n2023/11/14 22:13:22.000, 0, 200.00 W\n", "", "nvidia-smi, 1 run, 2 records, 3 of 3 lines used",
		},
		"an unusable header of the study": {"log_2.csv", ",loss\n1,2\n3,4\n", "", "0 of 3 lines used"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{c.file: c.text})
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%d %g %g", e.Epoch, e.SamplesPerSecond, e.TrainLoss), " NaN"))
			}
		}
		if strings.Join(got, ", ") != c.want || !strings.Contains(logs.Reports.String(), c.says) {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, logs.Reports, c.says)
		}
	}
	run := readOne(t, "a_2gpu.log", "[rank0]: step:  1  loss: 8.5000  memory: 1.00GiB(1.00%)  tps: 100  mfu: 1.00%\n[rank1]: step:  1  loss: 7.5000  memory: 1.00GiB(1.00%)  tps: 110  mfu: 1.00%\n")
	var losses []string
	for _, c := range run.Curves {
		if c.Name == "loss" {
			losses = append(losses, fmt.Sprintf("rank %d: %v", c.Rank, c.Values))
		}
	}
	if got := strings.Join(losses, "; "); got != "rank 0: [8.5]; rank 1: [7.5]" {
		t.Errorf("the curves of two ranks are %s", got)
	}
}

// TestLinesBeforeTheFirstEpoch: the epoch of values before the first line with the number of an
// epoch is unknown. They are not used, and a problem says so.
func TestLinesBeforeTheFirstEpoch(t *testing.T) {
	epochs := func(o Options, name, text string) (string, string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{name: text})
		logs, err := o.Read(t.Context(), dir)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				got = append(got, fmt.Sprintf("%d %g %g", e.Epoch, e.TrainLoss, e.Seconds))
			}
			for _, c := range r.Curves {
				got = append(got, fmt.Sprint(c.Name, c.Steps, c.Values))
			}
		}
		return strings.Join(got, ", "), logs.Reports.String()
	}
	own := Options{Lines: []string{"loss {train_loss}, mine {mine}", "epoch {epoch} took {seconds}s"}}
	for name, c := range map[string]struct {
		text, want, says string
	}{
		// Whether a line with values belongs to the number before or after it, the log does not show.
		"values first":  {"loss 0.5, mine 1.5\nepoch 1 took 10s\nloss 0.4, mine 2.5\nepoch 2 took 11s\n", "1 0.4 10, 2 NaN 11, mine[1] [2.5]", "not used: line 2: 1 line with values precedes this first line with the number of an epoch: its epoch is unknown, and it is not used; values after such a line are those of its epoch; if they are those of the next one, write * in place of {epoch}"},
		"an excerpt":    {"loss 0.5, mine 1.5\nloss 0.45, mine 3.5\nepoch 7 took 10s\nloss 0.4, mine 2.5\n", "7 0.4 10, mine[7] [2.5]", "not used: line 3: 2 lines with values precede"},
		"numbers first": {"epoch 1 took 10s\nloss 0.5, mine 1.5\n", "1 0.5 10, mine[1] [1.5]", "2 of 2 lines used"},
	} {
		got, report := epochs(own, "a_2gpu.log", c.text)
		if got != c.want || !strings.Contains(report, c.says) {
			t.Errorf("%s: got %s, want %s\n%s, want %q", name, got, c.want, report, c.says)
		}
	}
	const nnUNet = "2021-05-04 10:02:11.323456: lr: 0.25\n2021-05-04 10:02:11.423456: This epoch took 131.25 s\n \n2021-05-04 10:02:11.523456: \nepoch:  1 \n2021-05-04 10:04:00.123456: train loss : -0.5000 \n"
	got, report := epochs(Options{}, "a_2gpu.log", nnUNet)
	if want, says := "2 -0.5 NaN", "not used: line 2: the line with the number of the epoch is missing"; got != want || !strings.Contains(report, says) {
		t.Errorf("nnU-Net: got %s, want %s\n%s, want %q", got, want, report, says)
	}
}

// TestTwoProgramsInOneFile: the lines of another program begin another run, also if its epochs
// count on or count from 0.
func TestTwoProgramsInOneFile(t *testing.T) {
	const keras = "Epoch 1/2\n196/196 - 49s - loss: 2.5\nEpoch 2/2\n196/196 - 45s - loss: 1.5\n"
	const nnUNet = "2021-05-04 10:00:00.123456: \nepoch:  0 \n2021-05-04 10:02:00.123456: train loss : -0.1250 \n2021-05-04 10:02:11.423456: This epoch took 131.25 s\n"
	const rates = "0: 2018-10-07 20:36:09,348 INFO Train samples 100 time 10.00s rate 10.0 samples/s\n"
	sc21 := sc21Lines(10, 100, 0.5)
	texts := map[string]string{"Keras": keras, "nnU-Net": nnUNet, "rates": rates, "SC21": sc21}
	read := func(text string) (list []string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a_1gpu.log": text})
		logs, _ := explained(t, dir)
		for _, r := range logs.Runs {
			var b strings.Builder
			b.WriteString(r.Kind)
			for _, e := range r.Epochs {
				fmt.Fprintf(&b, " %d %g %g", e.Epoch, e.TrainLoss, e.Seconds)
			}
			list = append(list, b.String())
		}
		return list
	}
	for one, a := range texts {
		for two, b := range texts {
			if one == two {
				continue
			}
			if got, want := read(a+b), append(read(a), read(b)...); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, then %s: got %q, want %q", one, two, got, want)
			}
		}
	}
}

// TestTemplatesBesideAProgram: if the program counts epochs from 0, and the user's lines from 1, a
// problem says so.
func TestTemplatesBesideAProgram(t *testing.T) {
	const nnUNet = "2021-05-04 10:00:00.123456: \nepoch:  0 \n2021-05-04 10:02:00.123456: train loss : -0.1250 \n"
	for text, want := range map[string]bool{
		nnUNet + "mine 1: 0.5\n":                                         true,
		"mine 0: 0.5\nmine 1: 0.5\n" + nnUNet:                            false,
		nnUNet + "mine 1: 0.5\nmine 2: 0.5\nmine 3: 0.25\nmine 4: 0.5\n": true,
		"mine 1: 0.5\n": false,
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a_1gpu.log": text})
		logs, err := Options{Lines: []string{"mine {epoch}: {val_loss}"}}.Read(t.Context(), dir)
		check(t, err)
		if got := strings.Contains(logs.Reports.String(), templatesCountFromOne); got != want {
			t.Errorf("%q: got the problem: %t, want %t\n%s", text, got, want, logs.Reports)
		}
	}
}

// templatesCountFromOne is part of the problem of lines of templates that count other epochs than
// the program.
const templatesCountFromOne = "and other lines from 0, so their values may be in the wrong epoch"

// TestTruncatedTable: the last line of a truncated compressed file is torn, also if no line before
// it shows how long its last number is.
func TestTruncatedTable(t *testing.T) {
	text := "epoch\tepoch_time\ttrain_loss\n"
	losses := map[int]float64{}
	for i := range 25 {
		losses[i+1] = float64(7907*i*i%100_003) / 100
		text += fmt.Sprintf("%d\t%d.5\t%g\n", i+1, 7919*i%991, losses[i+1])
	}
	packed := gzipped(t, []byte(text)) // a decoder returns its content up to the cut
	for n := range packed {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a_2gpus.tsv.gz": string(packed[:n])})
		logs, _ := explained(t, dir)
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				if !math.IsNaN(e.TrainLoss) && e.TrainLoss != losses[e.Epoch] {
					t.Errorf("cut at byte %d: got the loss %g\n%s", n, e.TrainLoss, logs.Reports)
				}
			}
		}
	}
}

// TestLostDevice: a line that is missing in nccl-tests' list of devices does not make the number of
// ranks smaller in silence. In a part of several groups, the ranks need not be consecutive.
func TestLostDevice(t *testing.T) {
	table := ncclTable("# Collective test starting: all_reduce_perf\n", 4, "sum", "-1", 1.5, 1000000)
	lost := strings.Replace(table, "#  Rank  1 Group  0 Pid   1001 on     node01 device  1 [0x07] NVIDIA A100\n", "", 1)
	for text, want := range map[string]string{
		table: "4 false",
		lost:  "4 true",
		strings.Replace(table, "Rank  1 Group  0", "Rank  1 Group  1", 1): "3 false",
	} {
		found, report := readReport(t, "a.txt", text)
		if got := fmt.Sprint(found[0].Info.Workers, " ", strings.Contains(report.String(), "only 3 of 4 ranks: lines are missing")); got != want {
			t.Errorf("got %s, want %s\n%s", got, want, report)
		}
	}
}

// TestLostAccumulation: without the line with the accumulation steps, the header of Hugging Face's
// Trainer does not show the number of workers. The form of the header is that of Trainer.train.
func TestLostAccumulation(t *testing.T) {
	const line = "  Gradient Accumulation steps = 2\n"
	const header = "***** Running training *****\n  Num examples = 12,800\n  Instantaneous batch size per device = 16\n  Total train batch size (w. parallel, distributed & accumulation) = 128\n" + line
	const end = "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}\n"
	for text, want := range map[string]string{header + end: "4 false", strings.Replace(header, line, "", 1) + end: "0 true"} {
		found, report := readReport(t, "a.log", text)
		if got := fmt.Sprint(found[0].Info.Workers, " ", strings.Contains(report.String(), "no line with the gradient accumulation steps")); got != want {
			t.Errorf("got %s, want %s\n%s", got, want, report)
		}
	}
}
