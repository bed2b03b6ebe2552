package logread

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRowsOfTables checks what the rows of tables are taken for: epochs, or runs, or nothing if
// no column says it.
func TestRowsOfTables(t *testing.T) {
	const epochs = "CSV table n4 1.seconds=34.3 1.train_loss=1 2.seconds=35.3 2.train_loss=0.5 3.seconds=36.3 3.train_loss=0.3333 4.seconds=37.3 4.train_loss=0.25\n"
	of := func(header, cells string) string { // four rows; cells is the beginning of each but its number
		text := header + "\n"
		for i, v := range []string{"34.3,1.0", "35.3,0.5", "36.3,0.3333", "37.3,0.25"} {
			text += string(rune('1'+i)) + "," + v + cells + "\n"
		}
		return text
	}
	for _, c := range []struct{ name, text, want, says string }{
		{"epoch no.", of("Epoch No.,Elapsed (s),Train Loss,GPUs", ",4"), strings.Replace(epochs, "CSV table", "results table", 1), `column "Elapsed (s)" is taken as the time of each epoch`},
		{"epoch number in brackets", of("Epoch [#],Time [s],Train Loss", ""), strings.Replace(epochs, "n4", "n0", 1), ""},
		{"epoch nr", of("epoch nr,epoch time,loss,No. of GPUs", ",4"), strings.Replace(epochs, "CSV table", "results table", 1), ""},
		{"part of the data in brackets", "Epoch,Loss (train),Loss (val),Loss (test)\n1,0.5,0.6,0.7\n", "CSV table n0 1.train_loss=0.5 1.val_loss=0.6 Loss (test)@1=0.7\n", ""},
		{"elapsed since the start", "Epoch,Elapsed (s)\n1,30\n2,61\n3,90\n", "CSV table n0 1.seconds=30 2.seconds=31 3.seconds=29\n", "its differences are the times"},
		{"elapsed with two epochs", "Epoch,Elapsed (s)\n1,60\n2,80\n", "CSV table n0 1.seconds=60 2.seconds=20\n", "its differences are the times"},
		{"elapsed, which falls", "Epoch,Elapsed (s)\n1,30\n2,29\n3,31\n", "CSV table n0 1.seconds=30 2.seconds=29 3.seconds=31\n", "is taken as the time of each epoch"},
		{"elapsed, resumed", "Epoch,Elapsed (s)\n1,100\n2,200\n3,300\n4,100\n5,200\n", "CSV table n0 1.seconds=100 2.seconds=100 3.seconds=100 4.seconds=100 5.seconds=100\n", "the run was resumed"},
		{"cumulative time after a slow start", "Epoch,Cumulative Time (s)\n1,1010\n2,1020\n3,1030\n4,1040\n", "CSV table n0 1.seconds=1010 2.seconds=10 3.seconds=10 4.seconds=10\n", "its differences are the times"},
		{"unknown counter", of("Durchgang,Time (s),Train Loss,GPUs", ",4"), "", "column \"Durchgang\" may number the repeats or the epochs of a run: state it with --columns 'seed=Durchgang' or 'epoch=Durchgang'"},
		{"unknown counter in several runs", "pass,loss,GPUs\n1,3,1\n2,2,1\n1,3,2\n2,2,2\n", "", "--columns 'seed=pass' or"},
		{"unknown counter and seed", "pass,loss,GPUs,seed\n5,3,4,0\n6,2,4,0\n", "", "--columns 'seed=pass' or"},
		{"counter of runs with times", "pass,wall_seconds,GPUs\n5,3,4\n6,2,4\n", "", "--columns 'seed=pass' or"},
		{"several rows of a seed", "loss,GPUs,seed\n3,4,0\n2,4,0\n3,4,1\n2,4,1\n", "", "--suggest"},
		{"several rows of a seed and a setting", "gpus,precision,seed,loss\n4,fp32,0,2\n4,fp32,0,1\n4,amp,0,2\n4,amp,0,1\n", "", "--suggest"},
		{"texts that do not recur and a seed", "gpus,file,seed,loss\n4,a,0,4\n4,b,0,3\n4,c,1,4\n4,d,1,3\n", "", "--suggest"},
		{"a setting and a repeat", "precision,gpus,rep,epoch_time\nfp32,1,1,9\nfp32,1,2,8\namp,1,1,5\namp,1,2,4\n", "results table n1 0.seconds=9 precision:fp32\nresults table n1 0.seconds=8 precision:fp32\nresults table n1 0.seconds=5 precision:amp\nresults table n1 0.seconds=4 precision:amp\n", ""},
		{"a number of a setting and a repeat", "num_workers,gpus,rep,epoch_time\n4,1,1,9\n4,1,2,8\n8,1,1,5\n8,1,2,4\n", "results table n1 0.seconds=9 num_workers:4\nresults table n1 0.seconds=8 num_workers:4\nresults table n1 0.seconds=5 num_workers:8\nresults table n1 0.seconds=4 num_workers:8\n", ""},
		{"an unknown text and a repeat", "gpus,nhwc,rep,img_per_sec\n1,yes,1,9\n1,yes,2,8\n1,no,1,5\n1,no,2,4\n", "results table n1 0.samples_per_second=9 nhwc:yes\nresults table n1 0.samples_per_second=8 nhwc:yes\nresults table n1 0.samples_per_second=5 nhwc:no\nresults table n1 0.samples_per_second=4 nhwc:no\n", ""},
		{"repeats only", "rep,epoch_time\n1,9\n2,8\n", "CSV table n0 0.seconds=9\nCSV table n0 0.seconds=8\n", ""},
		{"repeats in an unknown column", "gpus,lauf,epoch_time\n1,1,9\n1,2,8\n2,1,5\n2,2,4\n", "", "column \"lauf\" may number"},
		{"nothing differs", "gpus,loss\n4,3\n4,2\n", "", "--columns"},
		{"numbered rows", ",gpus,epoch_time\n0,1,9\n1,1,8\n2,2,5\n3,2,4\n", "results table n1 0.seconds=9\nresults table n1 0.seconds=8\nresults table n2 0.seconds=5\nresults table n2 0.seconds=4\n", "are repeats of a run"},
		{"numbered repeats", "gpus,repeat no.,epoch_time\n1,1,9\n1,2,8\n", "results table n1 0.seconds=9\nresults table n1 0.seconds=8\n", ""},
		{"numbered trials", "gpus,trial,epoch_time\n1,1,9\n1,2,8\n", "results table n1 0.seconds=9\nresults table n1 0.seconds=8\n", ""},
		{"numbered trials with seeds", "gpus,trial,seed,epoch_time\n1,1,5,9\n1,2,6,8\n", "results table n1 0.seconds=9 trial:1\nresults table n1 0.seconds=8 trial:2\n", "seed 6: from the content"},
		{"numbered attempts", "gpus,attempt,epoch_time\n1,1,9\n1,2,8\n", "results table n1 0.seconds=9\nresults table n1 0.seconds=8\n", ""},
		{"a column of ratios", "gpus,epoch_time,speedup\n1,100,1.0x\n2,55,1.8x\n", "results table n1 0.seconds=100 speedup:1\nresults table n2 0.seconds=55 speedup:1.8\n", ""},
		{"a word in an unknown column", "gpus,img/s,gain\n1,100,baseline\n2,180,+80%\n4,330,+230%\n", "results table n1 0.samples_per_second=100\nresults table n2 0.samples_per_second=180 gain:80\nresults table n4 0.samples_per_second=330 gain:230\n", `line 2: column "gain": expected a number, got "baseline"; it is not used`},
		{"times of complete runs", "gpus,wall_seconds\n1,9\n1,8\n", "results table n1 wall=9\nresults table n1 wall=8\n", "are repeats of a run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var values, report string
			if c.want == "" {
				path := filepath.Join(t.TempDir(), "hist.csv")
				check(t, os.WriteFile(path, []byte(c.text), 0o644))
				logs, err := Options{}.Read(t.Context(), path)
				if err == nil && len(logs.Runs) == 0 {
					report = fmt.Sprint(logs.Problems)
				} else if report = fmt.Sprint(err); !strings.Contains(report, "unknown file format") {
					t.Errorf("error %v", err)
				}
			} else {
				values, report = readTableText(t, Options{}, "hist.csv", c.text)
			}
			if values != c.want {
				t.Errorf("got\n%s want\n%s report: %s", values, c.want, report)
			}
			if !strings.Contains(report, c.says) {
				t.Errorf("%q is not in the report: %s", c.says, report)
			}
		})
	}
	values, _ := readTableText(t, Options{Columns: []string{"epoch=Durchgang"}}, "hist.csv", of("Durchgang,Time (s),Train Loss,GPUs", ",4"))
	if want := strings.Replace(epochs, "CSV table", "results table", 1); values != want {
		t.Errorf("mapped: got\n%s want\n%s", values, want)
	}
	values, _ = readTableText(t, Options{Columns: []string{"elapsed_seconds=Elapsed (s)"}}, "hist.csv", of("Epoch No.,Elapsed (s),Train Loss", ""))
	if !strings.Contains(values, " 2.seconds=1 ") {
		t.Errorf("the user's mapping of the elapsed time does not count: %s", values)
	}
}

// TestTablesWithBars checks tables with bars at both ends and lines between the rows.
func TestTablesWithBars(t *testing.T) {
	const want = "CSV table n4 1.seconds=60.5 1.train_loss=2 2.seconds=59.5 2.train_loss=1\n"
	const markdown = "| epoch | train loss | time |\n|-------|:----------:|------|\n|   1   |     2.0    | 60.5 |\n|   2   |     1.0    | 59.5 |"
	const grid = "+-------+------------+------+\n| epoch | train loss | time |\n+=======+============+======+\n|   1   |     2.0    | 60.5 |\n|   2   |     1.0    | 59.5 |\n+-------+------------+------+\n"
	const database = " epoch | train loss | time \n-------+------------+------\n     1 |     2.0    | 60.5 \n     2 |     1.0    | 59.5 \n"
	for name, text := range map[string]string{"markdown": markdown, "grid": grid, "database": database} {
		values, report := readTableText(t, Options{}, "out_4gpus.log", text)
		if values != want {
			t.Errorf("%s: got\n%s want\n%s", name, values, want)
		}
		if strings.Contains(report, "not used") || strings.Contains(report, "without a name") || strings.Contains(report, "line end") {
			t.Errorf("%s: %s", name, report)
		}
	}
	values, report := readTableText(t, Options{}, "out_4gpus.log", strings.TrimSuffix(markdown, " 59.5 |")+" 59")
	if values != "CSV table n4 1.seconds=60.5 1.train_loss=2\n" || !strings.Contains(report, "torn") {
		t.Errorf("a row without its last bar: got\n%s report: %s", values, report)
	}
	values, _ = readTableText(t, Options{}, "out_4gpus.log", "| train loss |  time |\n|---|---|\n| 2.0 | 60.5 |\n| 1.0 | 59.5 |\n")
	if values != want {
		t.Errorf("without epochs: got\n%s want\n%s", values, want)
	}
}

// TestOtherTableInOneFile checks that the rows of a second table with as many other columns are
// not read as rows of the first, and that a repeated header is no other table.
func TestOtherTableInOneFile(t *testing.T) {
	const first = "epoch,loss,time\n1,0.5,10.5\n2,0.25,9.5\n"
	for text, want := range map[string]string{
		first + "epoch,accuracy,lr\n0,0.75,0.001\n1,0.875,0.002\n": "2 epochs; a table with other columns begins here; 2 lines",
		first + "epoch,loss,time\n3,0.125,8.5\n":                   "3 epochs; ; 0 lines",
	} {
		run, report := readReport(t, "a_2gpu.csv", text)
		ignored, problem := int64(0), ""
		for _, i := range report.Ignored {
			ignored += i.Lines
		}
		if len(report.Unused) > 0 {
			problem, _, _ = strings.Cut(report.Unused[0].Reason, ";")
		}
		if got := fmt.Sprintf("%d epochs; %s; %d lines", len(run[0].Epochs), problem, ignored); got != want {
			t.Errorf("got %q, want %q\n%s", got, want, report)
		}
	}
}
