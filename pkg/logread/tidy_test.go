package logread

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// folder creates a folder with a run folder (2 ranks, 2 epochs, 2 steps) and a
// log of the study.
func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "study")
	nan := math.NaN()
	w, err := runs.Create(filepath.Join(dir, "ddp-n2-s7"), runs.Info{Study: "study", Series: "ddp", Workers: 2, Seed: 7})
	check(t, err)
	for rank := range 2 {
		steps, err := runs.OpenSteps(w.Dir(), rank, runs.Worker{Rank: rank, WorldSize: 2})
		check(t, err)
		for n := 1; n <= 2; n++ {
			check(t, steps.AppendStep(runs.Step{Epoch: n, Step: n, Samples: 4, Data: 0.5, Loss: float64(10*rank + n)}))
		}
		check(t, steps.Close())
	}
	for n := 1; n <= 2; n++ {
		check(t, w.AppendEpoch(runs.Epoch{
			Epoch: n, Seconds: 0.25, Samples: 8, SamplesPerSecond: 32, TrainLoss: 0.1, ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: 1e-3, Accuracy: nan, ValAccuracy: nan,
		}))
	}
	check(t, w.UpdateInfo(func(i *runs.Info) { i.Test = &runs.Test{IoU: 0.75} }))
	check(t, w.Finish(runs.StatusDone, nil))
	write(t, dir, map[string]string{"log_hvd_4.csv": twoRows + "2,x,0.3,0.001,1,1,0.9\n", "notes.txt": "no log"})
	return dir
}

func TestWriteCSV(t *testing.T) {
	dir := folder(t)
	var b strings.Builder
	problems, err := Write(&b, FormatCSV, All, dir, filepath.Join(dir, "ddp-n2-s7")) // the second is in the first
	check(t, err)
	if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), filepath.Join(dir, "log_hvd_4.csv")+":4: ") {
		t.Errorf("problems %v", problems)
	}
	want := `run,series,workers,seed,rank,epoch,step,name,value
R,ddp,2,7,,1,,seconds,0.25
R,ddp,2,7,,1,,samples,8
R,ddp,2,7,,1,,padding_samples,0
R,ddp,2,7,,1,,samples_per_second,32
R,ddp,2,7,,1,,train_loss,0.1
R,ddp,2,7,,1,,lr,0.001
R,ddp,2,7,,2,,seconds,0.25
R,ddp,2,7,,2,,samples,8
R,ddp,2,7,,2,,padding_samples,0
R,ddp,2,7,,2,,samples_per_second,32
R,ddp,2,7,,2,,train_loss,0.1
R,ddp,2,7,,2,,lr,0.001
R,ddp,2,7,,,,test_loss,0
R,ddp,2,7,,,,test_iou,0.75
R,ddp,2,7,,,,test_dice,0
R,ddp,2,7,,,,test_iou_constant,0
R,ddp,2,7,,,,test_dice_constant,0
R,ddp,2,7,,,,test_iou_untrained,0
R,ddp,2,7,,,,test_dice_untrained,0
R,ddp,2,7,,,,test_seconds,0
R,ddp,2,7,,,,wall_seconds,T
` + steps("R,ddp,2,7", 0) + steps("R,ddp,2,7", 1) +
		`H,horovod,4,0,,1,,seconds,205.381887
H,horovod,4,0,,1,,train_loss,0.561627
H,horovod,4,0,,1,,lr,0.001
H,horovod,4,0,,2,,seconds,189.552807
H,horovod,4,0,,2,,train_loss,0.365322
H,horovod,4,0,,2,,lr,0.001
H,horovod,4,0,,,,test_iou,0.899849
H,horovod,4,0,,,,test_seconds,29.629347
H,horovod,4,0,,,,training_seconds,38765.412019
`
	got := strings.ReplaceAll(b.String(), dir+"/ddp-n2-s7", "R")
	got = strings.ReplaceAll(got, dir+"/log_hvd_4.csv", "H")
	got = regexp.MustCompile(`wall_seconds,0\.[0-9]+`).ReplaceAllString(got, "wall_seconds,T") // of the test itself
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// steps returns the rows of the two steps of a rank of that run folder.
func steps(run string, rank int) (text string) {
	for n := 1; n <= 2; n++ {
		for _, v := range []struct {
			name string
			v    float64
		}{
			{"samples", 4},
			{"data_seconds", 0.5},
			{"forward_seconds", 0},
			{"backward_seconds", 0},
			{"wait_seconds", 0},
			{"all_reduce_seconds", 0},
			{"optimizer_seconds", 0},
			{"until_collective_seconds", 0},
			{"loss", float64(10*rank + n)},
		} {
			text += strings.Join([]string{
				run, strconv.Itoa(rank), strconv.Itoa(n), strconv.Itoa(n), v.name, strconv.FormatFloat(v.v, 'g', -1, 64),
			}, ",") + "\n"
		}
	}
	return text
}

// TestFormatsAgree checks that CSV, JSON and the DataFrame contain the same
// values, and that the rows of all kinds are those of epochs and steps
// together.
func TestFormatsAgree(t *testing.T) {
	dir := folder(t)
	count := map[string]int{}
	for _, what := range []string{Epochs, Steps, All} {
		var c, j strings.Builder
		_, err := Write(&c, FormatCSV, what, dir)
		check(t, err)
		_, err = Write(&j, FormatJSON, what, dir)
		check(t, err)
		cells, err := csv.NewReader(strings.NewReader(c.String())).ReadAll()
		check(t, err)
		var objects []struct {
			Run, Series, Name string
			Workers           int
			Seed              int64
			Rank, Epoch, Step *int
			Value             float64
		}
		check(t, json.Unmarshal([]byte(j.String()), &objects))
		table, _, err := Tidy(what, dir)
		check(t, err)
		if len(objects) != len(cells)-1 || table.Nrow() != len(objects) {
			t.Fatalf("%s: %d objects, %d lines of CSV, %d rows", what, len(objects), len(cells), table.Nrow())
		}
		count[what] = len(objects)
		opt := func(n *int) string {
			if n == nil {
				return ""
			}
			return strconv.Itoa(*n)
		}
		for i, o := range objects {
			want := []string{
				o.Run, o.Series, strconv.Itoa(o.Workers), strconv.FormatInt(o.Seed, 10),
				opt(o.Rank), opt(o.Epoch), opt(o.Step), o.Name, strconv.FormatFloat(o.Value, 'g', -1, 64),
			}
			if d := cmp.Diff(want, cells[i+1]); d != "" {
				t.Fatalf("row %d (-json +csv)\n%s", i, d)
			}
			for k, cell := range cells[i+1] {
				e := table.Elem(i, k)
				if e.IsNA() != (cell == "") || k < 8 && cell != "" && e.String() != cell || k == 8 && e.Float() != o.Value {
					t.Fatalf("row %d, column %d of the table: %v, expected %q", i, k, e, cell)
				}
			}
		}
	}
	if count[Epochs] == 0 || count[Steps] != 2*2*9 || count[Epochs]+count[Steps] != count[All] { // 2 ranks, 2 steps, 9 values
		t.Errorf("rows %v", count)
	}
}

func TestTidyErrors(t *testing.T) {
	dir := folder(t)
	stop := errors.New("no more")
	for _, c := range []struct {
		run  func() error
		says string
	}{
		{func() error { _, _, err := Tidy("batches", dir); return err }, `unknown kind of rows "batches"; use one of epochs, steps, curves, trials, spans, all`},
		{func() error { _, _, err := Tidy(All); return err }, "no path given"},
		{func() error { _, _, err := Tidy(All, "/nowhere/at/all"); return err }, "/nowhere/at/all does not exist"},
		{func() error { _, err := Write(&strings.Builder{}, "xml", All, dir); return err }, `unknown format "xml"; use one of csv, json`},
		{func() error { _, err := Rows(All, []string{dir}, func(Row) error { return stop }); return err }, stop.Error()},
	} {
		if err := c.run(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, expected one that says %q", err, c.says)
		}
	}
}

// TestWriteNothing checks that a folder without runs, or without values of a kind, gives an
// empty table and a problem that says what to do next.
func TestWriteNothing(t *testing.T) {
	for format, want := range map[string]string{FormatJSON: "[]\n", FormatCSV: "run,series,workers,seed,rank,epoch,step,name,value\n"} {
		var b strings.Builder
		problems, err := Write(&b, format, All, t.TempDir())
		check(t, err)
		if b.String() != want || len(problems) != 1 || !strings.Contains(problems[0].Reason, "read --explain") {
			t.Errorf("%s: %q, problems %v", format, b.String(), problems)
		}
		dir := t.TempDir()
		write(t, dir, map[string]string{"4GPU/out.log": twoEpochs})
		b.Reset()
		problems, err = Write(&b, format, Spans, dir)
		check(t, err)
		if b.String() != want || len(problems) != 1 || !strings.Contains(problems[0].Reason, "--what all") {
			t.Errorf("%s: %q, problems %v", format, b.String(), problems)
		}
	}
}

// This example reads the epoch times of a folder into a table, ready for gota's
// Filter and GroupBy.
func ExampleTidy() {
	dir, err := os.MkdirTemp("", "study")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "log_hvd_4.csv"), []byte(twoRows), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	table, problems, err := Tidy(Epochs, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	times := table.Filter(dataframe.F{Colname: "name", Comparator: series.Eq, Comparando: "seconds"})
	fmt.Println(times.Select([]string{"workers", "epoch", "value"}).Records(), len(problems))
	// Output: [[workers epoch value] [4 1 205.381887] [4 2 189.552807]] 0
}

// TestShownRunOfFile checks that the runs of one file are distinguished by
// their number, whether the caller names the file or its folder.
func TestShownRunOfFile(t *testing.T) {
	names := map[string]bool{}
	_, err := Rows(Epochs, []string{"testdata/tree/keras/resnet-501.out"}, func(r Row) error {
		names[r.Run] = true
		return nil
	})
	check(t, err)
	want := map[string]bool{"testdata/tree/keras/resnet-501.out": true, "testdata/tree/keras/resnet-501.out#2": true}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

// TestStepProblems checks that an impossible value in a well-formed line of
// steps is reported once, and only if the steps are read.
func TestStepProblems(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "ddp-n2-s7", "steps-1.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString(`{"epoch":3,"step":3,"loss":"three"}` + "\n")
	check(t, err)
	check(t, f.Close())
	steps := func(what string) (n int) {
		t.Helper()
		var b strings.Builder
		problems, err := Write(&b, FormatCSV, what, dir)
		check(t, err)
		for _, p := range problems {
			if p.File == path && p.Line == 4 {
				n++
			}
		}
		return n
	}
	if all, epochs := steps(All), steps(Epochs); all != 1 || epochs != 0 {
		t.Errorf("line 4 of the steps is a problem %d times with all values, %d with epochs", all, epochs)
	}
}

// TestReadRows: what Write writes as CSV, Read reads back equal, also texts that a spreadsheet would
// take for formulas, which are written with an apostrophe. In a folder, such a file is not read: its
// runs would count twice.
func TestReadRows(t *testing.T) {
	dir := t.TempDir()
	for i, series := range []string{"=cmd|' /C calc'!A0", "+1", "'=quoted", "it's", "with, \"quotes\"\nand lines", "@x", "--n 4", "-4"} {
		w, err := runs.Create(filepath.Join(dir, "logs", strconv.Itoa(i)), runs.Info{Study: "study", Series: series, Workers: 2, Seed: 7, EnergyJoules: 10})
		check(t, err)
		check(t, w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 0.25, Samples: 8, SamplesPerSecond: 32, TrainLoss: 0.1, ValLoss: math.Inf(1), IoU: 0.5, LearningRate: 1e-3}))
		check(t, w.UpdateInfo(func(i *runs.Info) { i.Test = &runs.Test{IoU: 0.75, Accuracy: 0.5} }))
		check(t, w.Finish(runs.StatusDone, nil))
	}
	write(t, dir, map[string]string{"logs/4GPU/metrics.csv": "epoch,step,train_loss,=1+1\n0,1,0.5,3\n0,2,0.25,NaN\n"})
	write(t, dir, map[string]string{"logs/bench/out.json": `{"nranks": 4, "IO": {"trial_throughput": [10, 12]}, "FULL": {"trial_throughput": [9]}}`})
	read := func(path string) (rows []Row) {
		problems, err := Rows(All, []string{path}, func(r Row) error {
			r.Run = ""
			rows = append(rows, r)
			return nil
		})
		check(t, err)
		if len(problems) > 0 {
			t.Errorf("%s: problems %v", path, problems)
		}
		return rows
	}
	want := read(filepath.Join(dir, "logs"))
	var b strings.Builder
	_, err := Write(&b, FormatCSV, All, filepath.Join(dir, "logs"))
	check(t, err)
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, ",=") || strings.Contains(line, ",@") || strings.Contains(line, ",+") || strings.Contains(line, ",--") {
			t.Errorf("a spreadsheet computes %q", line)
		}
	}
	write(t, dir, map[string]string{"rows.csv": b.String(), "logs/rows.csv": b.String()})
	if diff := cmp.Diff(want, read(filepath.Join(dir, "rows.csv")), cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })); diff != "" || len(want) < 100 {
		t.Errorf("got %d rows, differences %s", len(want), diff)
	}
	if got := read(filepath.Join(dir, "logs")); len(got) != len(want) {
		t.Errorf("with its own output in the folder, got %d rows, want %d", len(got), len(want))
	}
}

// TestCurveRows checks the rows of a curve in another program's log, including
// NaN and step 0.
func TestCurveRows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"4GPU/events.out.tfevents.1": string(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 0, recordtest.EncodeScalar("Loss/train", 0.5)), recordtest.EncodeEvent(2, 7, recordtest.EncodeScalar("Loss/train", float32(math.NaN()))))),
		"4GPU/rank2.json":            `[{"ph":"X","name":"ncclAllReduce","cat":"kernel","ts":5,"dur":2,"pid":1,"tid":1}]`,
	})
	run := filepath.ToSlash(filepath.Join(dir, "4GPU"))
	var got []Row
	_, err := Rows(All, []string{dir}, func(r Row) error { r.Series = ""; got = append(got, r); return nil })
	check(t, err)
	want := []Row{
		{Run: run, Workers: 4, Rank: -1, Step: 0, Name: "Loss/train", Value: 0.5},
		{Run: run, Workers: 4, Rank: -1, Step: 7, Name: "Loss/train", Value: math.NaN()},
		{Run: run, Workers: 4, Rank: 2, Step: 1, Name: "communication_start_seconds/ncclAllReduce", Value: 0},
		{Run: run, Workers: 4, Rank: 2, Step: 1, Name: "communication_seconds/ncclAllReduce", Value: 2e-6},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
