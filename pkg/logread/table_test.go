package logread

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallTable = `# Typed in by hand.
series,workers,seed,epoch,seconds,samples,iou,training_seconds,wall_seconds,nodes,batch_per_worker

"one, quoted",1,7,2,10,100,,30,,,
"one, quoted",1,7,3,8,100,0.5,,,,
"one, quoted",2,7,3,5,100,0.4,,40.5,2,16
`

func TestResultsTable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"typed.csv": smallTable})
	found, problems, err := Read(dir)
	check(t, err)
	if len(problems) != 0 || len(found) != 2 {
		t.Fatalf("%d runs, problems %v", len(found), problems)
	}
	one, two := found[0], found[1]
	if one.Info.Series != "one, quoted" || one.Info.Workers != 1 || one.Info.Seed != 7 || one.Info.Config[TrainingSecondsKey] != 30.0 || len(one.Epochs) != 2 {
		t.Errorf("first run: %+v", one)
	}
	if e := one.Epochs[1]; e.Epoch != 3 || e.Seconds != 8 || e.SamplesPerSecond != 12.5 || e.IoU != 0.5 || e.Line != 5 {
		t.Errorf("second epoch: %+v", e)
	}
	if two.WallSeconds != 40.5 || two.Info.Nodes != 2 || two.Info.BatchPerWorker != 16 || two.Info.GlobalBatch != 32 {
		t.Errorf("second run: %+v", two)
	}
}

func TestResultsTableTrialsAndRates(t *testing.T) {
	run := readOne(t, "trials.csv", "workers,trial,samples_per_second,spread\n1,IO,89.177,1.011\n1,FULL,89.971,\n")
	if len(run.Trials) != 2 || run.Trials[0].Name != "IO" || run.Trials[0].Rate != 89.177 || run.Trials[0].Spread != 1.011 || run.Trials[1].Line != 3 {
		t.Errorf("trials: %+v", run.Trials)
	}
	if run.Trials[1].Spread == run.Trials[1].Spread {
		t.Errorf("a spread that is not there is %v", run.Trials[1].Spread)
	}
	run = readOne(t, "rates.csv", "workers,nodes,samples_per_second\n4,1,2061\n")
	if len(run.Epochs) != 1 || run.Epochs[0].Epoch != 0 || run.Epochs[0].SamplesPerSecond != 2061 {
		t.Errorf("epochs: %+v", run.Epochs)
	}
}

func TestResultsTableSaysWhatItCannotUse(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"bad.csv": strings.Join([]string{
		"workers,epoch,seconds,colour",
		"1,1,10,red",
		"x,1,10,",
		"1.5,1,10,",
		",1,10,",
		"1,1,11,",
		"1,1",
		`1,"2,3,`,
		"2,1,6,",
		"",
	}, "\n")})
	found, problems, err := Read(dir)
	check(t, err)
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), filepath.Join(dir, "bad.csv")+":"))
	}
	want := []string{
		`3: column "workers": expected a number, got "x"`,
		`4: column "workers": expected a whole number from 1 to 4194304, got "1.5"`,
		`5: column "workers": expected a number, got an empty cell`,
		`6: duplicate epoch 1 of this run; add the column "seed" to distinguish repeats`,
		`7: expected 4 cells, got 2: "1,1"`,
		`8: read the row as CSV: extraneous or missing " in quoted-field`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(found) != 2 {
		t.Fatalf("%d runs, want those of 1 and 2 workers", len(found))
	}
	if got := found[0].Info.Config["colour"]; got != "red" {
		t.Errorf("setting colour is %v, want red", got)
	}
}

// TestPublishedTables checks that every line of the tables in logs/published is
// read.
func TestPublishedTables(t *testing.T) {
	dir := filepath.Join("..", "..", "logs", "published")
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	check(t, err)
	if len(files) < 8 {
		t.Fatalf("%d tables in %s", len(files), dir)
	}
	for _, f := range files {
		found, problems, err := Read(f)
		check(t, err)
		if len(problems) > 0 || len(found) == 0 {
			t.Errorf("%s: %d runs, problems %v", f, len(found), problems)
		}
		for _, r := range found {
			if r.Kind != "results table" || len(r.Epochs)+len(r.Trials) == 0 && r.WallSeconds == 0 {
				t.Errorf("%s: run %+v", f, r)
			}
			if by, ok := strings.CutPrefix(r.Info.Source, "published by the "); !ok || by == "" {
				t.Errorf("%s: source %q, want who published the table", f, r.Info.Source)
			}
		}
	}
}

// TestThroughputUnitOfTables checks that a column's name gives the unit of the throughput.
func TestThroughputUnitOfTables(t *testing.T) {
	for column, want := range map[string]string{"images_per_second": "images/s", "img/s": "images/s", "samples_per_second": "", "throughput": ""} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"t.csv": "workers,epoch," + column + "\n2,1,100\n2,2,110\n"})
		all, problems, err := Read(dir)
		check(t, err)
		if len(all) != 1 || len(problems) != 0 || all[0].ThroughputUnit != want || all[0].Epochs[1].SamplesPerSecond != 110 {
			t.Errorf("%s: problems %v, runs %+v; want the unit %q", column, problems, all, want)
		}
	}
}
