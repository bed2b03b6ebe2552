package scaling

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// loggedRun returns a run without epochs.
func loggedRun(series string, workers int) runs.Run {
	return runs.Run{Dir: series + ".log", File: series + ".log", Info: runs.Info{Study: "s", Series: series, Workers: workers, Status: runs.StatusDone}}
}

// A throughput that a log contains apart from its epochs gives throughput and speed-up, in
// the log's unit. The numbers are computed by hand.
func TestLoggedThroughput(t *testing.T) {
	curve := func(name string, rank int, values ...float64) runs.Curve {
		c := runs.Curve{Name: name, Rank: rank, Values: values}
		for i := range values {
			c.Steps = append(c.Steps, int64(10*i+1))
		}
		return c
	}
	titan := func(workers int, c ...runs.Curve) runs.Run {
		r := loggedRun("llama", workers)
		r.Kind, r.Curves = "torchtitan", c
		return r
	}
	trials := func(workers int, unit string, all ...runs.Trial) runs.Run {
		r := loggedRun("bench", workers)
		r.ThroughputUnit, r.Trials = unit, all
		return r
	}
	for _, c := range []struct {
		name       string
		one, four  runs.Run
		unit       string
		rate, over float64 // throughput of four, and its speed-up over one
		note       string
	}{
		// per device: (1000+3000)/2 with the first value left out; 4 × 1500
		{"torchtitan", titan(1, curve("tps", -1, 50, 1000, 3000)), titan(4, curve("tps", -1, 60, 1500, 1500)), "tokens/s", 6000, 3, "logged values of tps, which are per worker, times the workers"},
		// ranks 0 and 1 of 4: the mean of 1400 and 1600, times 4
		{"torchtitan by rank", titan(1, curve("tps", 0, 1000)), titan(4, curve("tps", 0, 9, 1400), curve("tps", 1, 9, 1600)), "tokens/s", 6000, 6, "tps"},
		{"Horovod", trials(1, "images/s", runs.Trial{Name: "SYNTHETIC", Rate: 100}), trials(4, "images/s", runs.Trial{Name: "SYNTHETIC", Rate: 350}), "images/s", 350, 3.5, "trial SYNTHETIC (training on data in memory)"},
		{"FULL before SYNTHETIC", trials(1, "", runs.Trial{Name: "FULL", Rate: 80}), trials(4, "", runs.Trial{Name: "IO", Rate: 900}, runs.Trial{Name: "SYNTHETIC", Rate: 350}, runs.Trial{Name: "FULL", Rate: 240}), "samples/s", 240, 3, "trial FULL"},
		{"any reader's curve", trials(1, ""), trials(4, ""), "images/s", 390, 3.9, "images_per_second"},
	} {
		if c.name == "any reader's curve" {
			c.one.Curves = []runs.Curve{curve("images_per_second", -1, 100), curve("eval_samples_per_second", -1, 7)}
			c.four.Curves = []runs.Curve{curve("eval_samples_per_second", -1, 9), curve("images_per_second", -1, 11, 380, 400), curve("tokens_per_second", -1, 1e6)}
		}
		s, err := FromRuns([]runs.Run{c.one, c.four})
		check(t, err)
		p := s.Points[len(s.Points)-1]
		if p.Throughput.Value != c.rate || math.Abs(p.Speedup.Value-c.over) > 1e-12 || p.ThroughputUnit != c.unit {
			t.Errorf("%s: throughput %v %s, speed-up %v; want %v %s, %v", c.name, p.Throughput.Value, p.ThroughputUnit, p.Speedup.Value, c.rate, c.unit, c.over)
		}
		wantLine(t, s.Notes, "the throughput is", c.note)
		if title, _, _ := strings.Cut(s.String(), "\n"); c.unit != "samples/s" && !strings.Contains(title, "throughput ("+c.unit+")") {
			t.Errorf("%s: the header %q does not contain the unit", c.name, title)
		}
		x, err := s.ExplainSeries(p.Series, "speedup", 4)
		check(t, err)
		if text := x.String(); !strings.Contains(text, c.unit) {
			t.Errorf("%s: the explanation does not contain the unit %s:\n%s", c.name, c.unit, text)
		}
	}
}

// Sample counts of the epochs, and --samples-per-epoch, take precedence over a logged
// throughput.
func TestEpochsBeforeLoggedThroughput(t *testing.T) {
	r := weak(1, 1, 20, 10, 10)
	r.Trials = []runs.Trial{{Name: "FULL", Rate: 1e6}} // of a benchmark beside the training
	rates := runs.Curve{Name: "samples_per_second", Rank: -1, Steps: []int64{1, 2}, Values: []float64{7, 1e3}}
	s, err := FromRuns([]runs.Run{r})
	check(t, err)
	if got := s.Points[0].Throughput.Value; !(got < 1e3) || s.Points[0].ThroughputUnit != "samples/s" {
		t.Errorf("throughput %v %s, want that of the epochs", got, s.Points[0].ThroughputUnit)
	}
	for i := range r.Epochs {
		r.Epochs[i].Samples, r.Epochs[i].SamplesPerSecond = 0, math.NaN()
	}
	s, err = FromRuns([]runs.Run{r})
	check(t, err)
	if got := s.Points[0].Throughput.Value; !math.IsNaN(got) {
		t.Errorf("throughput %v of a trial beside epochs with times", got)
	}
	r.Curves = []runs.Curve{rates}
	s, err = FromRuns([]runs.Run{r})
	check(t, err)
	near(t, "logged throughput", s.Points[0].Throughput.Value, 1e3)
	s, err = s.WithRule(Rule{DropFirst: 1, SamplesPerEpoch: 500})
	check(t, err)
	near(t, "500 samples in 10 s", s.Points[0].Throughput.Value, 50)
}

// Series whose throughput has different units are not compared by it.
func TestUnitsAreNotCompared(t *testing.T) {
	a, b := loggedRun("a", 2), loggedRun("b", 2)
	a.Trials, a.ThroughputUnit = []runs.Trial{{Name: "FULL", Rate: 10}}, "images/s"
	b.Trials, b.ThroughputUnit = []runs.Trial{{Name: "FULL", Rate: 4000}}, "tokens/s"
	s, err := FromRuns([]runs.Run{a, b})
	check(t, err)
	if s.ThroughputUnit() != "images/s or tokens/s" {
		t.Errorf("unit %q", s.ThroughputUnit())
	}
	if text := s.String(); !strings.Contains(text, "10.00 images/s") || !strings.Contains(text, "4000 tokens/s") {
		t.Errorf("the table does not contain the units:\n%s", text)
	}
	if _, err := s.Compare("a", "b", 2); err == nil || !strings.Contains(err.Error(), "no common measure of speed") {
		t.Errorf("comparing images/s with tokens/s: error %v", err)
	}
	b.ThroughputUnit = "images/s"
	s, err = FromRuns([]runs.Run{a, b})
	check(t, err)
	c, err := s.Compare("b", "a", 2)
	check(t, err)
	near(t, "ratio", c.Ratio.Value, 400)
}

// The benchmark of Horovod and torchtitan's steps give throughput and speed-up from files.
func TestLoggedThroughputFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	write("hvd_1gpu.log", "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 1\nIter #0: 250.0 img/sec per GPU\nImg/sec per GPU: 250.0 +-1.0\nTotal img/sec on 1 GPU(s): 250.0 +-1.0\n")
	write("hvd_4gpu.log", "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 4\nIter #0: 240.0 img/sec per GPU\nImg/sec per GPU: 240.0 +-1.0\nTotal img/sec on 4 GPU(s): 960.0 +-4.0\n")
	s, err := Read(dir)
	check(t, err)
	if len(s.Points) != 2 || s.Points[1].Throughput.Value != 960 || s.Points[1].ThroughputUnit != "images/s" || s.Points[1].Speedup.Value != 3.84 {
		t.Errorf("points %+v", s.Points)
	}
}

// TestStepTimesBesideEpochTimes: 2 workers with half the steps in an epoch, each as long as that of 1 worker, are twice as fast.
func TestStepTimesBesideEpochTimes(t *testing.T) {
	s := readTable(t, "gpus,epoch,epoch_time,step_time\n1,1,20,0.1\n1,2,20,0.1\n2,1,10,0.1\n2,2,10,0.1\n")
	if p := s.Points[1]; p.Speedup.Value != 2 || p.Throughput.Value > 0 {
		t.Errorf("%+v", p)
	}
}

// TestMMEngineStepTimes: the member time of MMEngine's scalars is that of an iteration. Only the batch per worker
// says whether the workers share it.
func TestMMEngineStepTimes(t *testing.T) {
	dir := t.TempDir()
	for n, seconds := range map[string]string{"1": "0.25", "2": "0.5"} {
		path := filepath.Join(dir, "det_"+n+"gpus", "20240101_120000", "vis_data")
		check(t, os.MkdirAll(path, 0o755))
		text := `{"lr": 0.02, "data_time": 0.01, "loss": 2.5, "time": ` + seconds + `, "epoch": 1, "iter": 50, "memory": 3000, "step": 50}`
		check(t, os.WriteFile(filepath.Join(path, "scalars.json"), []byte(text+"\n"+strings.ReplaceAll(text, "50", "99")+"\n"), 0o644))
	}
	batch, err := logread.ParsePattern("scalars.json=batch:2")
	check(t, err)
	for _, c := range []struct {
		as         []logread.Pattern
		rate       float64
		unit, note string
	}{{nil, 2, "steps/s", "if each has a batch of its own"}, {[]logread.Pattern{batch}, 2 * 2 * 2, "samples/s", "times the global batch"}} {
		s, err := ReadWith(t.Context(), logread.Options{As: c.as}, dir)
		check(t, err)
		if p := s.Points[1]; p.Throughput.Value != c.rate || p.ThroughputUnit != c.unit {
			t.Errorf("%v %s, want %v %s", p.Throughput.Value, p.ThroughputUnit, c.rate, c.unit)
		}
		wantLine(t, s.Notes, "the logged times of a step", c.note)
	}
}
