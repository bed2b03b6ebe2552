package logread

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// twoRows is the beginning of a log of the study: the first two rows of the
// native run with 1 GPU.
const twoRows = `,time_per_epoch,loss,lr,training_time,test_time,iou
0,205.381887,0.561627,0.001000,38765.412019,29.629347,0.899849
1,189.552807,0.365322,0.001000,38765.412019,29.629347,0.899849
`

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

func readOne(t *testing.T, name, text string) runs.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "unet")
	write(t, dir, map[string]string{name: text})
	found, _, err := Read(filepath.Join(dir, name))
	check(t, err)
	if len(found) != 1 {
		t.Fatalf("%d runs, expected 1", len(found))
	}
	return found[0]
}

func TestStudyVariants(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name, file, text string
		series           string
		workers          int
		seed             int64
		epoch            runs.Epoch // the last
		iou              float64    // NaN: no test
	}{
		{
			"native", "log_1.csv", twoRows, "native", 1, 0,
			runs.Epoch{Epoch: 2, Accuracy: nan, ValAccuracy: nan, Line: 3, Seconds: 189.552807, TrainLoss: 0.365322, ValLoss: nan, LearningRate: 0.001},
			0.899849,
		},
		{
			"horovod with validation", "logs/log_hvd_12.csv",
			",time_per_epoch,loss,val_loss,lr,training_time,test_time,iou\n0,3.126000,0.500000,0.600000,0.001000,674.100000,1.500000,0.917041\n", "horovod", 12, 0,
			runs.Epoch{Epoch: 1, Accuracy: nan, ValAccuracy: nan, Line: 2, Seconds: 3.126, TrainLoss: 0.5, ValLoss: 0.6, LearningRate: 0.001},
			0.917041,
		},
		{
			"no time per epoch", "log_4.csv",
			",loss,val_loss,lr,training_time,test_time,iou\n0,0.500000,,0.001000,100.000000,1.500000,0.900000\n", "native", 4, 0,
			runs.Epoch{Epoch: 1, Accuracy: nan, ValAccuracy: nan, Line: 2, Seconds: nan, TrainLoss: 0.5, ValLoss: nan, LearningRate: 0.001},
			0.9,
		},
		{
			"timer", "timer/log_g4_r2.csv",
			",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.500000,0.800000,0.600000,0.700000,0.001000,100.000000,4\n", "native", 4, 2,
			runs.Epoch{Epoch: 1, Accuracy: 0.8, ValAccuracy: 0.7, Line: 2, Seconds: nan, TrainLoss: 0.5, ValLoss: 0.6, LearningRate: 0.001},
			nan,
		},
		{
			"last line without its end", "log_2.csv", strings.TrimSuffix(twoRows, "\n"), "native", 2, 0,
			runs.Epoch{Epoch: 2, Accuracy: nan, ValAccuracy: nan, Line: 3, Seconds: 189.552807, TrainLoss: 0.365322, ValLoss: nan, LearningRate: 0.001},
			0.899849,
		},
		{
			"lines end as on Windows", "log_2.csv", strings.ReplaceAll(twoRows, "\n", "\r\n"), "native", 2, 0,
			runs.Epoch{Epoch: 2, Accuracy: nan, ValAccuracy: nan, Line: 3, Seconds: 189.552807, TrainLoss: 0.365322, ValLoss: nan, LearningRate: 0.001},
			0.899849,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := readOne(t, c.file, c.text)
			if len(run.Problems) > 0 {
				t.Errorf("problems %v", run.Problems)
			}
			if i := run.Info; i.Series != c.series || i.Workers != c.workers || i.Seed != c.seed || i.Status != runs.StatusDone {
				t.Errorf("run %+v", i)
			}
			c.epoch.SamplesPerSecond, c.epoch.IoU, c.epoch.Dice, c.epoch.ValSeconds = nan, nan, nan, nan
			if d := cmp.Diff(c.epoch, run.Epochs[len(run.Epochs)-1], cmpopts.EquateNaNs()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if math.IsNaN(c.iou) != (run.Info.Test == nil) || run.Info.Test != nil && run.Info.Test.IoU != c.iou {
				t.Errorf("test %+v, expected IoU %g", run.Info.Test, c.iou)
			}
			if run.Info.Config[TrainingSecondsKey] == nil {
				t.Errorf("config %v has no %s", run.Info.Config, TrainingSecondsKey)
			}
		})
	}
	if study := readOne(t, "logs/log_2.csv", twoRows).Info.Study; study != "unet" {
		t.Errorf("study %q, expected the folder above logs", study)
	}
}

// TestStudyDefects reads each defect that occurs in the study's files, and
// other defective lines.
func TestStudyDefects(t *testing.T) {
	header, rows, _ := strings.Cut(twoRows, "\n")
	for _, c := range []struct {
		name, text string
		epochs     int // -1: no run
		problems   []runs.Problem
	}{
		{"only quotes", "\"\"\n", -1, []runs.Problem{{Line: 1, Reason: "the file contains no table: the run wrote nothing"}}},
		{"empty", "", -1, []runs.Problem{{Line: 1, Reason: "the file contains no table: the run wrote nothing"}}},
		{"torn header", "\"\"\n" + header[3:] + "\n" + rows, 2, []runs.Problem{{
			Line:   2,
			Reason: fmt.Sprintf("the header is torn: %q is taken as the end of %q", header[3:], header),
		}}},
		{"header torn so short that it fits several", "\"\"\nst_time,iou\n" + rows, -1, []runs.Problem{{
			Line:   2,
			Reason: fmt.Sprintf("expected a header such as %q, got \"st_time,iou\"; no row of this file is used", header),
		}}},
		{"other header", "a,b\n1,2\n", -1, []runs.Problem{{
			Line:   1,
			Reason: fmt.Sprintf("expected a header such as %q, got \"a,b\"; no row of this file is used", header),
		}}},
		{"no rows", header + "\n", -1, []runs.Problem{{Line: 0, Reason: "the file has a header but no epochs"}}},
		{"NaN", header + "\n0,,,0.001000,1.000000,1.000000,\n", 1, nil},
		{"bad lines", twoRows + "2,1.0\nx,1.000000,,,,,\n3,y,,,,,\n-1,1.000000,,,,,\n1,2.000000,,,,,\n4,1.000000,0.500000,0.001000,1.000000,1.000000,0.9", 2, []runs.Problem{
			{Line: 4, Reason: `expected 7 cells, got 2: "2,1.0"`},
			{Line: 5, Reason: `column "": expected a number, got "x"`},
			{Line: 6, Reason: `column "time_per_epoch": expected a number, got "y"`},
			{Line: 7, Reason: `index column: expected 0, 1, 2, …, got "-1"`},
			{Line: 8, Reason: "duplicate row 1; the later one counts"},
			{Line: 9, Reason: `last line is torn: "4,1.000000,0.500000,0.001000,1.000000,1.000000,0.9"`},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "log_2.csv")
			check(t, os.WriteFile(path, []byte(c.text), 0o644))
			found, problems, err := Read(dir)
			check(t, err)
			for i := range c.problems {
				c.problems[i].File = path
			}
			if d := cmp.Diff(c.problems, problems); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			switch {
			case c.epochs < 0 && len(found) > 0:
				t.Errorf("runs %v, expected none", found)
			case c.epochs >= 0 && (len(found) != 1 || len(found[0].Epochs) != c.epochs):
				t.Errorf("runs %v, expected one of %d epochs", found, c.epochs)
			}
		})
	}
}

func TestWorkersNobodyTold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"training.csv": twoRows})
	found, problems, err := Read(dir)
	check(t, err)
	if len(found) != 1 || found[0].Info.Workers != 0 || len(problems) != 1 || !strings.Contains(problems[0].Reason, "the number of workers is unknown") {
		t.Errorf("runs %v, problems %v", found, problems)
	}
}

func TestRanksCountMoreThanTheName(t *testing.T) {
	run := readOne(t, "log_g2_r1.csv", ",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.5,0.8,0.6,0.7,0.001,100.0,8\n")
	if run.Info.Workers != 8 || len(run.Problems) != 1 || !strings.Contains(run.Problems[0].Reason, `the content states 8 workers, but the name of the file "log_g2_r1.csv" states 2; the content counts`) {
		t.Errorf("workers %d, problems %v", run.Info.Workers, run.Problems)
	}
}

func TestTreeOfBothKinds(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"pytorch/log_10.csv": twoRows, "pytorch/log_2.csv": twoRows, "pytorch/log_hvd_2.csv": twoRows,
		"pytorch/notes.txt": "x", "pytorch/other.csv": "a,b\n1,2\n", ".git/log_1.csv": twoRows,
		"damaged/run.json": "{", "orphan/epochs.csv": "epoch,seconds,samples,padding_samples\n1,2,3,0\n",
		"begun/owners.jsonl": `{"host":"a","pid":1,"started":"2026-11-22T12:03:00Z","heartbeat":"2026-11-22T12:03:05Z"}` + "\n", // a lock without a run
	})
	tasks, err := files.List(root)
	check(t, err)
	for _, task := range tasks[0] {
		if strings.Contains(task.Path, "begun") {
			t.Errorf("%s is no log", task.Path)
		}
	}
	w, err := runs.Create(filepath.Join(root, "ours", "ddp-n2-s1"), runs.Info{Study: "ours", Series: "ddp", Workers: 2})
	check(t, err)
	check(t, w.Finish(runs.StatusDone, nil))
	found, problems, err := Read(root)
	check(t, err)
	var names []string
	for _, r := range found {
		name, err := filepath.Rel(root, r.Dir)
		check(t, err)
		names = append(names, name)
	}
	if d := cmp.Diff([]string{"ours/ddp-n2-s1", "pytorch/log_2.csv", "pytorch/log_10.csv", "pytorch/log_hvd_2.csv"}, names); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(problems) != 2 || !strings.Contains(problems[0].Reason, "run.json:1") || !strings.Contains(problems[1].Reason, "run.json is missing") {
		t.Errorf("problems %v, expected damaged and orphan", problems)
	}
	byFile, _, err := Read(filepath.Join(root, "ours", "ddp-n2-s1", "run.json"))
	check(t, err)
	if len(byFile) != 1 || byFile[0].Info.Series != "ddp" {
		t.Errorf("run.json itself gives %v", byFile)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	noise := []byte{0x8f, ',', '{', '}', ',', '<', '\n', 0x81, ',', 'a', ',', 0x90} // a table whose columns have no names
	write(t, dir, map[string]string{"notes.txt": "x", "noise": string(noise)})
	for path, want := range map[string]string{"nowhere": "no such file", "notes.txt": "unknown file format; lockstep read FILE --suggest proposes rules for logs of other programs; expected a run folder or: ", "noise": "unknown file format; "} {
		_, _, err := Read(filepath.Join(dir, path))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", path, err, want)
		}
	}
}

func Example() {
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
	found, problems, err := Read(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range found {
		fmt.Println(r.Info.Series, r.Info.Workers, len(r.Epochs), r.Epochs[0].Seconds, len(problems))
	}
	// Output: horovod 4 2 205.381887 0
}

// TestReportOfUnread checks the report of a file that cannot be opened, so that
// its format is unknown.
func TestReportOfUnread(t *testing.T) {
	file := record.Report{Path: "a.log"}
	file.AddProblem(0, "open a.log: permission denied")
	r := newReport(&file)
	if got, want := r.String(), "a.log: not read: open a.log: permission denied\n"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if html := (Reports{r}).HTML(); !strings.Contains(html, "not read: open a.log") || strings.Contains(html, "not used") {
		t.Errorf("%s", html)
	}
}
