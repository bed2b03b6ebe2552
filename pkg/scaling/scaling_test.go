package scaling

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/runs"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// weak returns a run with a fixed batch per worker: 100 samples per worker and epoch.
func weak(workers int, seed int64, seconds ...float64) runs.Run {
	r := runs.Run{Dir: fmt.Sprintf("ddp-n%d-s%d", workers, seed), Info: runs.Info{
		Study: "cells", Series: "ddp", Workers: workers, Seed: seed, Status: runs.StatusDone,
		BatchPerWorker: 4, ThreadsPerWorker: 1,
		Test: &runs.Test{IoU: 0.8 + float64(seed)/100, Dice: 0.9, IoUConstant: 0.4, DiceConstant: 0.5, IoUUntrained: 0.1, DiceUntrained: 0.2},
	}}
	for i, s := range seconds {
		r.Epochs = append(r.Epochs, runs.Epoch{
			Epoch: i + 1, Seconds: s, Samples: 100 * workers,
			TrainLoss: 1 / float64(i+1), ValLoss: math.NaN(), IoU: 0.5, Dice: math.NaN(),
		})
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-12*math.Max(1, math.Abs(want))) {
		t.Errorf("%s is %v, expected %v", what, got, want)
	}
}

func wantLine(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	for _, l := range lines {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(l, p) }) {
			return
		}
	}
	t.Errorf("no line says %q:\n%s", parts, strings.Join(lines, "\n"))
}

func TestWeakScaling(t *testing.T) {
	s, err := FromRuns([]runs.Run{weak(2, 1, 50, 12, 13), weak(1, 1, 40, 10, 10), weak(1, 2, 40, 11, 11), weak(1, 3, 40, 14, 14)})
	check(t, err)
	if len(s.Points) != 2 || s.Points[0].Workers != 1 || s.Points[0].Runs != 3 || s.Points[1].Runs != 1 {
		t.Fatalf("points %+v", s.Points)
	}
	one, two := s.Points[0], s.Points[1]
	near(t, "median epoch", one.EpochSeconds.Value, 11)
	near(t, "fastest", one.EpochSeconds.Min, 10)
	near(t, "slowest", one.EpochSeconds.Max, 14)
	near(t, "throughput of 1", one.Throughput.Value, 100.0/11)
	near(t, "throughput of 2", two.Throughput.Value, 400.0/25) // 2 epochs of 200 in 12+13 s
	near(t, "speed-up of 1", one.Speedup.Value, 1)
	near(t, "best speed-up of 1", one.Speedup.Max, 1.1)
	near(t, "speed-up of 2", two.Speedup.Value, 16*11/100.0)
	near(t, "efficiency of 2", two.Efficiency.Value, 16*11/200.0)
	near(t, "IoU", one.IoU.Value, 0.82)
	near(t, "constant IoU", one.IoUConstant.Value, 0.4)
	near(t, "untrained IoU", one.IoUUntrained.Value, 0.1)
	near(t, "constant Dice", one.DiceConstant.Value, 0.5)
	near(t, "untrained Dice", one.DiceUntrained.Value, 0.2)
	near(t, "last loss", one.TrainLoss.Value, 1.0/3)
	if len(s.Notes) != 1 || len(s.Problems) != 0 {
		t.Errorf("notes %q, problems %v", s.Notes, s.Problems)
	}
	wantLine(t, s.Notes, "the interval at 1 worker is wider than its value")
}

func TestRules(t *testing.T) {
	all := []runs.Run{weak(1, 1, 9, 1, 2, 6), weak(1, 2, 9, 2, 4, 12)}
	for _, c := range []struct {
		rule                Rule
		seconds, throughput float64
	}{
		{DefaultRule(), 4.5, (300.0/9 + 300.0/18) / 2},
		{Rule{}, 5.625, (400.0/18 + 400.0/27) / 2},
		{Rule{DropFirst: 1, Epochs: Median}, 3, (100.0/2 + 100.0/4) / 2},
		{Rule{Epochs: "4"}, 9, (100.0/6 + 100.0/12) / 2},
		{Rule{DropFirst: 3}, 9, (100.0/6 + 100.0/12) / 2},
		{Rule{DropFirst: 1, Repeats: Mean}, 4.5, (300.0/9 + 300.0/18) / 2},
	} {
		s, err := FromRuns(all)
		check(t, err)
		s, err = s.WithRule(c.rule)
		check(t, err)
		near(t, c.rule.String(), s.Points[0].EpochSeconds.Value, c.seconds)
		near(t, c.rule.String(), s.Points[0].Throughput.Value, c.throughput)
	}
	// A table that contains only epoch 5 has already omitted the first epoch.
	later := weak(1, 1, 7)
	later.Epochs[0].Epoch = 5
	near(t, "epoch 5 alone", study(t, []runs.Run{later}).Points[0].EpochSeconds.Value, 7)
	for _, r := range []Rule{{DropFirst: -1}, {Epochs: "0"}, {Epochs: "best"}, {Repeats: "min"}, {SamplesPerEpoch: -1}} {
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "use") {
			t.Errorf("rule %+v: error %v", r, err)
		}
	}
}

func TestNothingIsDroppedInSilence(t *testing.T) {
	failed, running, short, diverged, empty := weak(2, 1, 10, 10), weak(2, 2, 10, 10), weak(2, 3, 10), weak(2, 4, 10, 10), weak(2, 5)
	failed.Info.Status, failed.Info.Error = runs.StatusFailed, "rank 1 was killed"
	running.Info.Status = runs.StatusRunning
	diverged.Epochs[1].TrainLoss = math.NaN()
	running.Problems = []runs.Problem{{File: "epochs.csv", Line: 3, Reason: "torn"}}
	s, err := FromRuns([]runs.Run{weak(1, 1, 10, 10), failed, running, short, diverged, empty})
	check(t, err)
	p := s.Points[1]
	if p.Failed != 1 || p.Runs != 4 || p.Epochs != 2 {
		t.Errorf("point %+v", p)
	}
	lines := s.tableRemarks()
	wantLine(t, lines, "problem: ddp-n2-s1", "failed", "rank 1 was killed")
	wantLine(t, lines, "problem: ddp-n2-s2", "has not ended", "2 epochs")
	running.Info.Status = runs.StatusKilled
	killed, err := FromRuns([]runs.Run{weak(1, 1, 10, 10), running})
	check(t, err)
	wantLine(t, killed.tableRemarks(), "problem: ddp-n2-s2", "was killed", "2 epochs")
	wantLine(t, lines, "problem: ddp-n2-s3", "0 of 1 epochs count", "--drop-first 0")
	wantLine(t, lines, "problem: ddp-n2-s4", "epoch 2", "not a finite number")
	wantLine(t, lines, "problem: ddp-n2-s5", "no epochs")
	wantLine(t, lines, "problem: epochs.csv:3: torn")

	again, err := s.WithRule(s.Rule) // the same problems once, not twice
	check(t, err)
	if !slices.Equal(again.Problems, s.Problems) {
		t.Errorf("problems %v, then %v", s.Problems, again.Problems)
	}
}

func TestBaselineIsNamed(t *testing.T) {
	failed := weak(1, 1, 10, 10)
	failed.Info.Status = runs.StatusCanceled
	s, err := FromRuns([]runs.Run{failed, weak(2, 1, 10, 10), weak(4, 1, 10, 12.5)})
	check(t, err)
	near(t, "speed-up of 4 over 2", s.Points[2].Speedup.Value, 1.6)
	near(t, "efficiency of 4", s.Points[2].Efficiency.Value, 0.8)
	if !math.IsNaN(s.Points[0].Speedup.Value) {
		t.Errorf("speed-up of a cancelled run: %v", s.Points[0].Speedup)
	}
	wantLine(t, s.Notes, "no run counts at 1 worker,", "baseline of the speed-up is 2 workers")
}

func TestUnfairComparisonsAreNoted(t *testing.T) {
	a, b := weak(1, 1, 10, 10), weak(2, 1, 10, 10)
	b.Info.ThreadsPerWorker, b.Info.BatchPerWorker, b.Info.Parameters = 2, 8, 7
	a.Info.Parameters = 5
	a.Info.Config = map[string]any{"model": map[string]any{"base": 8.0, "kind": "unet2d", "norm": "batch"}, "data": map[string]any{"count": 40.0}}
	b.Info.Config = map[string]any{"model": map[string]any{"kind": "unet2d", "norm": "batch", "base": 16.0}, "data": map[string]any{"count": 40.0}}
	s, err := FromRuns([]runs.Run{a, b})
	check(t, err)
	wantLine(t, s.Notes, "threads per worker differs", "1 in ddp-n1-s1", "2 in ddp-n2-s1")
	wantLine(t, s.Notes, "batch per worker differs")
	wantLine(t, s.Notes, "parameters differs")
	wantLine(t, s.Notes, "model differs", "ddp-n1-s1, ddp-n2-s1")
	if len(s.Notes) != 4 {
		t.Errorf("notes %q", s.Notes)
	}
	twice := weak(1, 1, 10, 10)
	twice.Dir = "elsewhere"
	s, err = FromRuns([]runs.Run{weak(1, 1, 10, 10), twice})
	check(t, err)
	wantLine(t, s.Notes, "same workers (1) and seed (1)", "elsewhere")
	one, two := weak(1, 0, 10, 10), weak(1, 0, 10, 10) // two logs without a seed
	one.Origins, two.Origins, two.Dir, one.Info.Schema, two.Info.Schema = map[runs.Property]runs.Origin{}, map[runs.Property]runs.Origin{}, "elsewhere", 0, 0
	s, err = FromRuns([]runs.Run{one, two})
	check(t, err)
	wantLine(t, s.Notes, "same workers (1) and no known seed", "elsewhere")
}

func TestStudiesAreNotMixed(t *testing.T) {
	other := weak(1, 1, 20, 20)
	other.Info.Study, other.Dir = "membrane", "m"
	s, err := FromRuns([]runs.Run{weak(1, 1, 10, 10), other})
	check(t, err)
	if !slices.Equal(s.Series(), []string{"cells ddp", "membrane ddp"}) || s.Name() != "cells, membrane" {
		t.Errorf("series %q of %q", s.Series(), s.Name())
	}
}

func TestWholeJobs(t *testing.T) {
	job := weak(1, 1)
	job.Info.Command = []string{"python", "train.py"}
	job.WallSeconds = 100
	half := job
	half.Info.Workers, half.Dir, half.WallSeconds = 2, "h", 50
	s, err := FromRuns([]runs.Run{job, half})
	check(t, err)
	near(t, "speed-up", s.Points[1].Speedup.Value, 2)
	if p := s.Points[0]; !math.IsNaN(p.EpochSeconds.Value) || p.WallSeconds.Value != 100 {
		t.Errorf("%v s per epoch and %v s of wall time, want none and 100", p.EpochSeconds, p.WallSeconds)
	}

	total := weak(1, 1, math.NaN(), math.NaN())
	total.Info.Config = map[string]any{"training_seconds": 30.0}
	s, err = FromRuns([]runs.Run{total})
	check(t, err)
	near(t, "mean of the whole", s.Points[0].EpochSeconds.Value, 15)
	wantLine(t, s.Notes, "only the total training time", "including the first")
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("LOCKSTEP_LOGS", filepath.Join(dir, "elsewhere"))
	check(t, os.Mkdir("empty", 0o755))
	check(t, os.Mkdir("bad", 0o755))
	check(t, os.WriteFile("bad/log_1.csv", []byte("\"\"\n"), 0o644))
	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{nil, []string{"no path given"}},
		{[]string{"nowhere"}, []string{"neither", filepath.Join(dir, "elsewhere", "nowhere"), filepath.Join(dir, "nowhere")}},
		{[]string{"empty"}, []string{"no runs in " + filepath.Join(dir, "empty"), "run.json", "study CSV", "TensorBoard events", "Keras log", "Horovod synthetic", "lockstep read --explain", "--suggest proposes rules for other logs"}},
		{[]string{"bad"}, []string{"no runs in " + filepath.Join(dir, "bad"), "log_1.csv:1", "wrote nothing"}},
	} {
		_, err := Read(c.paths...)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("Read(%q): error %v, expected %q", c.paths, err, part)
			}
		}
	}
	if _, err := FromRuns(nil); err == nil {
		t.Error("a study of no runs")
	}
}

func TestReadRunFolders(t *testing.T) {
	root := t.TempDir()
	for _, r := range []runs.Run{weak(1, 1, 20, 10, 10), weak(2, 1, 20, 12.5, 12.5)} {
		w, err := runs.Create(filepath.Join(root, "logs", "cells", r.Dir), r.Info)
		check(t, err)
		for _, e := range r.Epochs {
			check(t, w.AppendEpoch(e))
		}
		check(t, w.Finish(runs.StatusDone, nil))
	}
	t.Setenv("LOCKSTEP_LOGS", "")
	t.Chdir(root)
	for _, paths := range [][]string{{"logs/cells"}, {"cells"}, {"cells", "logs/cells/ddp-n1-s1"}, {filepath.Join(root, "logs")}} {
		s, err := Read(paths...)
		check(t, err)
		if len(s.Runs) != 2 || len(s.Points) != 2 {
			t.Fatalf("Read(%q): %d runs, %d points", paths, len(s.Runs), len(s.Points))
		}
		near(t, "speed-up", s.Points[1].Speedup.Value, 1.6)
	}
}

func TestWriteFormats(t *testing.T) {
	bare := weak(4, 1, 10, 10)
	bare.Info.Test = nil
	bare.Epochs[0].IoU, bare.Epochs[1].IoU = math.NaN(), math.NaN()
	s, err := FromRuns([]runs.Run{weak(1, 1, 10, 9.7), weak(2, 1, 10, 12.5), bare})
	check(t, err)

	var b bytes.Buffer
	check(t, s.Write(&b, FormatCSV))
	lines, err := csv.NewReader(&b).ReadAll()
	check(t, err)
	if want := "series,workers,runs,epoch_seconds,throughput,speedup,efficiency,iou,iou_constant,iou_untrained"; !strings.HasPrefix(strings.Join(lines[0], ","), want) {
		t.Errorf("columns %v, expected %s first", lines[0], want)
	}
	var objects []map[string]any
	b.Reset()
	check(t, s.Write(&b, FormatJSON))
	check(t, json.Unmarshal(b.Bytes(), &objects))
	table := s.Table()
	check(t, table.Err)
	if !slices.Equal(table.Names(), lines[0]) || table.Nrow() != 3 || len(lines) != 4 || len(objects) != 3 {
		t.Fatalf("table %v, CSV of %d lines, JSON of %d", table, len(lines), len(objects))
	}
	for i, line := range lines[1:] {
		for j, cell := range line {
			name := lines[0][j]
			elem, object := table.Col(name).Elem(i), objects[i][name]
			switch v, err := strconv.ParseFloat(cell, 64); {
			case cell == "":
				if !math.IsNaN(elem.Float()) || object != nil {
					t.Errorf("row %d %s: table %v, CSV empty, JSON %v", i, name, elem, object)
				}
			case err != nil:
				if elem.String() != cell || object != cell {
					t.Errorf("row %d %s: table %v, CSV %s, JSON %v", i, name, elem, cell, object)
				}
			case elem.Float() != v || object != v:
				t.Errorf("row %d %s: table %v, CSV %s, JSON %v", i, name, elem, cell, object)
			}
		}
	}
	if lines[3][7] != "" {
		t.Errorf("IoU that nobody measured is %q", lines[3][7])
	}
	b.Reset()
	check(t, s.Write(&b, FormatTable))
	for _, part := range []string{"iou_untrained", "10.31", "rule: mean over the epochs of a run, the first left out; median over repeated runs", "-"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the table does not say %q:\n%s", part, b.String())
		}
	}
	if err := s.Write(&b, "xml"); err == nil || !strings.Contains(err.Error(), "table, csv, json, markdown or latex") {
		t.Errorf("error %v", err)
	}
	if html := s.HTML(); !strings.Contains(html, "<th>speedup</th>") || !strings.Contains(html, "<td>10.31</td>") {
		t.Errorf("HTML:\n%s", html)
	}
}

func TestEpochs(t *testing.T) {
	failed := weak(2, 1, 3, 4)
	failed.Info.Status = runs.StatusFailed
	s, err := FromRuns([]runs.Run{weak(1, 1, 10, 20, 30), failed})
	check(t, err)
	e := s.Epochs()
	check(t, e.Err)
	if got := e.Col("elapsed_seconds").Float(); !slices.Equal(got, []float64{10, 30, 60, 3, 7}) {
		t.Errorf("elapsed %v", got)
	}
	if got := strings.Join(e.Col("counted").Records(), " "); got != "false true true false false" {
		t.Errorf("counted %s", got)
	}
}

// TestSpeedupProperties checks for random times that the baseline's speed-up is 1, that
// efficiency is speed-up × B/N, and that the value is between Min and Max.
func TestSpeedupProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e4), 2, 4)
		var all []runs.Run
		counts := rapid.SliceOfNDistinct(rapid.IntRange(1, 64), 1, 4, rapid.ID[int]).Draw(rt, "workers")
		for _, n := range counts {
			for seed := range rapid.IntRange(1, 3).Draw(rt, "seeds") {
				all = append(all, weak(n, int64(seed), seconds.Draw(rt, "seconds")...))
			}
		}
		s, err := FromRuns(all)
		check(t, err)
		base := slices.Min(counts)
		for _, p := range s.Points {
			if p.Workers == base && math.Abs(p.Speedup.Value-1) > 1e-12 {
				rt.Fatalf("speed-up of the baseline is %v", p.Speedup.Value)
			}
			if want := p.Speedup.Value * float64(base) / float64(p.Workers); math.Abs(p.Efficiency.Value-want) > 1e-12*want {
				rt.Fatalf("efficiency %v, expected %v", p.Efficiency.Value, want)
			}
			for _, v := range []Estimate{p.EpochSeconds, p.Throughput, p.Speedup, p.Efficiency} {
				if v.Min > v.Value*(1+1e-12) || v.Max < v.Value*(1-1e-12) {
					rt.Fatalf("span %+v at %d workers", v, p.Workers)
				}
			}
		}
	})
}

func Example() {
	root, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(root) }()
	for n, seconds := range map[string]string{"1": "194.188", "14": "16.223"} { // as the U-Net study published them
		text := ",time_per_epoch,loss,lr,training_time,test_time,iou\n0," + seconds + ",0.5,0.001,1.0,1.0,0.9\n"
		if err := os.WriteFile(filepath.Join(root, "log_"+n+".csv"), []byte(text), 0o644); err != nil {
			fmt.Println(err)
			return
		}
	}
	study, err := Read(root)
	if err != nil {
		fmt.Println(err)
		return
	}
	study, err = study.WithRule(Rule{}) // the only epoch counts
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range study.Points {
		fmt.Printf("%s %2d %.3f %.3f\n", p.Series, p.Workers, p.Speedup.Value, p.Efficiency.Value)
	}
	// Output:
	// native  1 1.000 1.000
	// native 14 11.970 0.855
}

// TestThroughputOfEpochsThatTellSamples checks that an epoch without a sample count is part of
// the time per epoch, but not of the throughput.
func TestThroughputOfEpochsThatTellSamples(t *testing.T) {
	r := weak(1, 1, 40, 10, 20, 30)
	r.Epochs[2].Samples = 0
	for _, epochs := range []string{Mean, Median} {
		s, err := FromRuns([]runs.Run{r})
		check(t, err)
		s, err = s.WithRule(Rule{DropFirst: 1, Epochs: epochs})
		check(t, err)
		p := s.Points[0]
		near(t, "seconds", p.EpochSeconds.Value, 20)
		want := 200.0 / 40 // of epochs 2 and 4
		if epochs == Median {
			want = (100.0/10 + 100.0/30) / 2
		}
		near(t, epochs+" of the throughput", p.Throughput.Value, want)
		e, err := s.Explain("throughput", 1)
		check(t, err)
		for _, in := range e.Items[0].Inputs {
			if in.Epoch == 3 && (in.Counted || in.Why != "the log does not contain its samples") || in.Epoch == 4 && !in.Counted {
				t.Errorf("%+v", in)
			}
		}
		if e, err = s.Explain("epoch_seconds", 1); err != nil || !e.Items[0].Inputs[2].Counted {
			t.Errorf("%v, %v", e, err)
		}
	}
}

// TestFailedRepeatIsNoUnfairness checks that the samples of a run that does not count are not
// compared.
func TestFailedRepeatIsNoUnfairness(t *testing.T) {
	whole, broken := weak(2, 1, 20, 10), weak(2, 2, 20, 10)
	broken.Epochs[1].Samples = 77
	for _, status := range []string{runs.StatusDone, runs.StatusFailed} {
		broken.Info.Status = status
		s, err := FromRuns([]runs.Run{weak(1, 1, 20, 10), whole, broken})
		check(t, err)
		noted := slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "samples per epoch differ") })
		if noted != (status == runs.StatusDone) {
			t.Errorf("%s: noted %t: %q", status, noted, s.Notes)
		}
	}
}

// TestPaperTables checks the tables for papers: units in the head, intervals as ±, no column without a value, and names
// that mean something in Markdown and LaTeX.
func TestPaperTables(t *testing.T) {
	var all []runs.Run
	for i, seconds := range []float64{10, 10.4, 9.6} {
		for _, workers := range []int{1, 2} {
			r := weak(workers, int64(i+1), 20, seconds)
			r.Info.Series = "a_b|50 %"
			all = append(all, r)
		}
	}
	s := study(t, all)
	for format, wants := range map[string][]string{
		FormatMarkdown: {
			"| series | workers | epoch time (s) | throughput (samples/s) | speed-up |",
			"\n| --- | ---: | ---: | ---: | ---: |",
			"\n| a_b\\|50 % | 1 | 10.0 ± 1.2 | 10.0 ± 1.2 | 1.000 |",
			"\n\n- in all rows: runs 3, IoU constant 0.400, IoU untrained 0.100, Dice 0.900, accuracy 0.000, val accuracy 0.000\n- ±: half the width of the interval\n- rule: ",
		},
		FormatLaTeX: {
			"% needs \\usepackage{booktabs}\n% in all rows: runs 3, IoU constant 0.400, IoU untrained 0.100, Dice 0.900, accuracy 0.000, val accuracy 0.000\n% ±: half the width of the interval\n% rule: ",
			"\n\\begin{tabular}{lrrrr", "}\n\\toprule\nseries & workers & epoch time (s) & throughput (samples/s) & speed-up & ",
			"\\\\\n\\midrule\na\\_b|50 \\% & 1 & 10.0 $\\pm$ 1.2 & 10.0 $\\pm$ 1.2 & 1.000 & ", "\\\\\n\\bottomrule\n\\end{tabular}\n",
		},
	} {
		var b strings.Builder
		check(t, s.Write(&b, format))
		for _, want := range wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q:\n%s", format, want, b.String())
			}
		}
		if strings.Contains(b.String(), "failed") || strings.Contains(b.String(), "interval |") || strings.Contains(b.String(), "interval &") {
			t.Errorf("%s has a column without a value, or of intervals:\n%s", format, b.String())
		}
	}
}

// TestWriteCSV checks that a study is written to a file, and never over a log that it was read from.
func TestWriteCSV(t *testing.T) {
	dir := t.TempDir()
	log, out := filepath.Join(dir, "log_2.csv"), filepath.Join(t.TempDir(), "study.csv")
	check(t, os.WriteFile(log, []byte("epoch,epoch_time,loss\n1,10,0.5\n2,9,0.4\n"), 0o644))
	s, err := Read(log)
	check(t, err)
	check(t, s.WriteCSV(out))
	var want strings.Builder
	check(t, s.Write(&want, FormatCSV))
	if got, err := os.ReadFile(out); err != nil || string(got) != want.String() {
		t.Errorf("%v: %q, want %q", err, got, want.String())
	}
	if err := s.WriteCSV(log); err == nil || !strings.Contains(err.Error(), "write study: ") {
		t.Errorf("over a log: %v", err)
	}
}
