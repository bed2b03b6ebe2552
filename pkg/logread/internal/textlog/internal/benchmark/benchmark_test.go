package benchmark_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/runs"
)

// read reads a text log, and returns its runs and the report.
func read(t *testing.T, text string) ([]runs.Run, *record.Report) {
	t.Helper()
	in := &record.Input{Path: "a.log", Reader: strings.NewReader(text), Size: int64(len(text)), Report: &record.Report{Path: "a.log"}}
	parts, err := textlog.Format().Read(t.Context(), in)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var found []runs.Run
	for _, p := range parts {
		found = append(found, p.Run)
	}
	return found, in.Report
}

// trials returns the trials of each run: the name, the rate, and the spread if there is one.
func trials(found []runs.Run) string {
	var all []string
	for _, r := range found {
		var list []string
		for _, t := range r.Trials {
			text := fmt.Sprintf("%s %g", t.Name, t.Rate)
			if !math.IsNaN(t.Spread) {
				text += fmt.Sprintf("±%.3f", t.Spread)
			}
			list = append(list, text)
		}
		all = append(all, strings.Join(list, ", "))
	}
	return strings.Join(all, "; ")
}

// TestBenchy: warm-ups are no trials, a summary counts more than the trials, and a second summary
// of a name begins a run.
func TestBenchy(t *testing.T) {
	const warm, one, two = "BENCHY::IO_WARMUP_0::Trial Throughput: 1.0\n", "BENCHY::IO_0::Trial Throughput: 90.0\n", "BENCHY::IO_1::Trial Throughput: 94.0\n"
	const sum, full = "BENCHY::SUMMARY::IO average trial throughput: 91.5 +/- 1.5\n", "BENCHY::SUMMARY:: FULL average trial throughput: 80.5 +/- 0.5\n"
	for text, want := range map[string]string{
		warm + one + two:       "IO 92±2.000", // the mean and the deviation of the population
		warm + one + two + sum: "IO 91.5±1.500",
		full + sum:             "IO 91.5±1.500, FULL 80.5±0.500",
		sum + full + sum:       "IO 91.5±1.500, FULL 80.5±0.500; IO 91.5±1.500",
	} {
		if found, _ := read(t, text); trials(found) != want {
			t.Errorf("%q: got %s, want %s", text, trials(found), want)
		}
	}
}

// TestHorovod: the total is that of all workers; without it, the mean of the iterations × workers.
func TestHorovod(t *testing.T) {
	const head, rates = "Model: resnet50\nBatch size: 32\nNumber of GPUs: 4\n", "Iter #0: 100.0 img/sec per GPU\nIter #1: 110.0 img/sec per GPU\n"
	const total = "Img/sec per GPU: 105.0 +-9.8\nTotal img/sec on 4 GPU(s): 420.0 +-39.2\n"
	for _, c := range []struct{ text, want string }{
		{head + rates + total, "4 of 32: SYNTHETIC 420±20.000"}, // 39.2/1.96
		{head + rates, "4 of 32: SYNTHETIC 420±20.000"},         // 4 × 5
	} {
		found, report := read(t, c.text)
		if got := fmt.Sprintf("%d of %d: %s", found[0].Info.Workers, found[0].Info.BatchPerWorker, trials(found)); got != c.want {
			t.Errorf("%q: got %s, want %s\n%v", c.text, got, c.want, report.Assumed)
		}
	}
	if found, _ := read(t, head+rates+total+rates+total); len(found) != 2 || len(found[0].Trials[0].Rates) != 2 {
		t.Errorf("iteration 0 after a total: got %d runs, the first with the rates %v; want 2 runs with 2 rates each", len(found), found[0].Trials[0].Rates)
	}
}

// TestTFCNN: the header gives the workers, the total is the throughput, and the rate of a step is
// a curve.
func TestTFCNN(t *testing.T) {
	const head = "TensorFlow:  1.15\nModel:       resnet50\nDataset:     imagenet (synthetic)\nBatch size:  256 global\n             64 per device\n"
	const steps = "1\timages/sec: 1400.0 +/- 0.0 (jitter = 0.0)\t8.0\n10\timages/sec: 1425.5 +/- 3.1 (jitter = 5.0)\t7.5\n"
	found, _ := read(t, head+steps+"total images/sec: 1428.75\n")
	i := found[0].Info
	if got := fmt.Sprint(i.Workers, i.BatchPerWorker, i.GlobalBatch, i.Config["model"], " ", trials(found), found[0].Curves[0].Values); got != "4 64 256resnet50 SYNTHETIC 1428.75[1400 1425.5]" {
		t.Errorf("got %s", got)
	}
	found, _ = read(t, strings.Replace(head, " (synthetic)", "", 1)+steps+"total images/sec: 1428.75\n")
	if got := trials(found); got != "FULL 1428.75" {
		t.Errorf("with data: got %s, want FULL 1428.75", got)
	}
	if found, _ = read(t, steps+steps); len(found) != 2 {
		t.Errorf("step 1 again: got %d runs, want 2", len(found))
	}
}

// mllog returns a line of MLPerf's logging.
func mllog(ms int, key, value, metadata string) string {
	return fmt.Sprintf(":::MLLOG {\"time_ms\": %d, \"key\": %q, \"value\": %s, \"metadata\": {%s}}\n", ms, key, value, metadata)
}

// TestMLPerf: an epoch lasts from its start to its stop, and a block of epochs is divided by their
// number. The status, the time and the number of workers are those that the lines state.
func TestMLPerf(t *testing.T) {
	head := mllog(1000, "run_start", "null", "") + mllog(1000, "number_of_nodes", "2", "") + mllog(1000, "accelerators_per_node", "4", "")
	epoch := mllog(2000, "epoch_start", "null", `"epoch_num": 1`) + mllog(5000, "epoch_stop", "null", `"epoch_num": 1`)
	block := mllog(5000, "block_start", "null", `"first_epoch_num": 2, "epoch_count": 2`) + mllog(9000, "block_stop", "null", `"first_epoch_num": 2`)
	stop := func(status string) string {
		return mllog(11000, "run_stop", "null", fmt.Sprintf(`"status": %q`, status))
	}
	for _, c := range []struct{ text, want string }{
		{head + epoch + block + stop("success"), "8 workers, done, 10 s, epochs 1 3 2 2 3 2"},
		{head + epoch + stop("aborted"), "8 workers, failed, 10 s, epochs 1 3"},
		{head + epoch, "8 workers, failed, <nil> s, epochs 1 3"},
		{mllog(1000, "number_of_ranks", "16", "") + head + epoch + stop("success"), "16 workers, done, 10 s, epochs 1 3"},
	} {
		found, _ := read(t, c.text)
		i := found[0].Info
		got := fmt.Sprintf("%d workers, %s, %v s, epochs", i.Workers, i.Status, i.Config[record.TrainingSecondsKey])
		for _, e := range found[0].Epochs {
			got += fmt.Sprintf(" %d %g", e.Epoch, e.Seconds)
		}
		if len(found) != 1 || got != c.want {
			t.Errorf("got %d runs, %s; want %s", len(found), got, c.want)
		}
	}
}

// TestMLPerfRanks: lines that several ranks print count once, and what the rank that started the
// run did not log is that of another rank.
func TestMLPerfRanks(t *testing.T) {
	start, stop := mllog(1000, "run_start", "null", ""), mllog(11000, "run_stop", "null", `"status": "success"`)
	score := mllog(9000, "eval_accuracy", "0.75", `"epoch_num": 1`)
	found, report := read(t, "0: "+start+"1: "+start+"0: "+score+"1: "+score+"1: "+stop)
	curve := found[0].Curves
	if len(found) != 1 || len(curve) != 1 || len(curve[0].Values) != 1 || found[0].Info.Config[record.TrainingSecondsKey] != 10.0 {
		t.Errorf("got %d runs with the curves %v and the settings %v, want one score and 10 s", len(found), curve, found[0].Info.Config)
	}
	if notes := strings.Join(report.Assumed, "; "); !strings.Contains(notes, "the run ends with run_stop of rank 1") {
		t.Errorf("got the notes %s, want that run_stop is that of rank 1", notes)
	}
	if used, ignored := report.LinesUsed, len(report.Ignored); used != 3 || ignored != 2 {
		t.Errorf("got %d used lines and %d reasons to ignore others, want 3 and 2: %v", used, ignored, report.Ignored)
	}
}

// TestDLLogger: iterations count on from epoch to epoch, the throughput includes the time to load
// data, and the time of an epoch is that between two lines of epochs.
func TestDLLogger(t *testing.T) {
	line := func(elapsed int, step, data string) string {
		return fmt.Sprintf("DLLL {\"timestamp\": \"1587451057.5\", \"elapsedtime\": \"%d.5\", \"type\": \"LOG\", \"step\": %s, \"data\": {%s}}\n", elapsed, step, data)
	}
	found, _ := read(t, line(1, `"PARAMETER"`, `"world_size": 8`)+
		line(2, "[1, 0]", `"loss": 2.5`)+line(3, "[1, 1]", `"loss": 2.25`)+line(10, "[1]", `"train.compute_ips": 200.0, "train.total_ips": 100.0`)+
		line(12, "[2, 0]", `"loss": 2.0`)+line(30, "[2]", `"train.compute_ips": 210.0, "val.top1": 75.0`))
	r := found[0]
	got := fmt.Sprint(r.Info.Workers)
	for _, e := range r.Epochs {
		got += fmt.Sprintf("; %d %g %g", e.Epoch, e.Seconds, e.SamplesPerSecond)
	}
	for _, c := range r.Curves {
		if c.Name == "loss" {
			got += fmt.Sprint("; ", c.Steps, c.Values)
		}
	}
	if want := "8; 1 NaN 100; 2 20 210; [0 1 2] [2.5 2.25 2]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCollectives: only the table of an all-reduce is used, with the time in place of nccl-tests and
// the mean over the ranks of OSU's.
func TestCollectives(t *testing.T) {
	const head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor)\n#  Rank  0 Group  0 Pid   1000 on     node01 device  0 [0x07] NVIDIA A100\n#  Rank  1 Group  0 Pid   1001 on     node01 device  1 [0x07] NVIDIA A100\n"
	const columns = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
	const row = "     1000000        250000     float     sum      -1   111.00    9.01    9.01       0   110.00    9.09    9.09    N/A\n"
	const osu = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)   Min Latency(us)\n1024                    8.75              8.15\n"
	for _, c := range []struct{ text, want string }{
		{"# Collective test starting: all_reduce_perf\n" + head + columns + row, "2: 1e+06 B 110 µs"},
		{head + columns + row, "2: 1e+06 B 110 µs"}, // the bus bandwidth of an all-reduce of two ranks is its bandwidth
		{head + columns + strings.Replace(row, "-1   111", " 0   111", 1) + osu, "0: 1024 B 8.75 µs"},
		{"# Collective test starting: all_gather_perf\n" + head + columns + row + "\n" + osu, "0: 1024 B 8.75 µs"},
		{osu, "0: 1024 B 8.75 µs"},
		{osu + "# Collective test starting: all_reduce_perf\n" + head + columns + row, "0: 1024 B 8.75 µs; 2: 1e+06 B 110 µs"},
		{osu + "# Collective test starting: all_reduce_perf\n" + columns + row, "0: 1024 B 8.75 µs"}, // a line of the head was lost
		{strings.Replace(osu, "Allreduce", "Alltoall", 1) + osu, "0: 1024 B 8.75 µs"},
	} {
		found, report := read(t, c.text)
		var got []string
		for _, r := range found {
			for _, a := range r.AllReduces {
				got = append(got, fmt.Sprintf("%d: %g B %g µs", r.Info.Workers, a.Bytes, math.Round(a.Seconds*1e8)/100))
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%q: got %q, want %q (%v)", c.text, got, c.want, report.Unused)
		}
	}
}
