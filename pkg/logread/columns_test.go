package logread

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/tidy"
	"lockstep/pkg/runs"
)

// describe formats the measured values of runs as text: one line per run with its number of
// workers, followed by its values. Each value has the form epoch.name=value, or
// name@step=value for a point of a curve.
func describe(found []runs.Run) string {
	var b strings.Builder
	for _, r := range found {
		fmt.Fprintf(&b, "%s n%d", r.Kind, r.Info.Workers)
		if r.WallSeconds > 0 {
			fmt.Fprintf(&b, " wall=%.6g", r.WallSeconds)
		}
		if r.Info.EnergyJoules > 0 {
			fmt.Fprintf(&b, " joules=%.6g", r.Info.EnergyJoules)
		}
		for _, e := range r.Epochs {
			for _, v := range tidy.EpochValues(e) {
				if !math.IsNaN(v.V) && v.Name != "padding_samples" {
					fmt.Fprintf(&b, " %d.%s=%.8g", e.Epoch, v.Name, v.V)
				}
			}
		}
		for _, c := range r.Curves {
			for i, step := range c.Steps {
				fmt.Fprintf(&b, " %s@%d=%.8g", c.Name, step, c.Values[i])
			}
		}
		var keys []string
		for k := range r.Info.Config {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			fmt.Fprintf(&b, " %s:%v", k, r.Info.Config[k])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// readTableText reads a file and returns its runs as text, and its report.
func readTableText(t *testing.T, o Options, name, text string) (values, report string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "study")
	write(t, dir, map[string]string{name: text})
	logs, err := o.Read(t.Context(), filepath.Join(dir, name))
	check(t, err)
	return describe(logs.Runs), logs.Reports.String()
}

// TestTables reads tables in the forms of many programs. The lines were written for this
// test.
func TestTables(t *testing.T) {
	for _, c := range []struct{ name, file, text, want, says string }{
		{
			"Keras CSVLogger", "history_4gpus.csv", "epoch,accuracy,loss,lr,val_accuracy,val_loss\n0,0.25,2.04,0.001,0.4,1.67\n1,0.41,1.51,0.001,NA,NA\n",
			"CSV table n4 1.train_loss=2.04 1.val_loss=1.67 1.lr=0.001 1.accuracy=0.25 1.val_accuracy=0.4 2.train_loss=1.51 2.lr=0.001 2.accuracy=0.41\n",
			"counts epochs from 0",
		},
		{
			"named as a log of the U-Net study", "log_4.csv", "epoch,loss,time\n1,0.5,10.5\n", "CSV table n4 1.seconds=10.5 1.train_loss=0.5\n", "",
		},
		{
			"pandas index", "history_2gpus.csv", ",loss,val_loss\n0,2.5,2.6\n1,2.25,2.4\n",
			"CSV table n2 1.train_loss=2.5 1.val_loss=2.6 2.train_loss=2.25 2.val_loss=2.4\n",
			"the column without a name is the number of the epoch",
		},
		{
			"epoch, loss, time per epoch", "run_1gpu.csv", "epoch,loss,time\n1,0.9,10.5\n2,0.8,10.1\n3,0.7,10.4\n",
			"CSV table n1 1.seconds=10.5 1.train_loss=0.9 2.seconds=10.1 2.train_loss=0.8 3.seconds=10.4 3.train_loss=0.7\n",
			`column "time" is taken as the time of each epoch`,
		},
		{
			"epoch, loss, time since the start", "run_1gpu.csv", "epoch,loss,time\n1,0.9,10.5\n2,0.8,20.5\n3,0.7,31.5\n",
			"CSV table n1 1.seconds=10.5 1.train_loss=0.9 2.seconds=10 2.train_loss=0.8 3.seconds=11 3.train_loss=0.7\n",
			`column "time" is the time since the start`,
		},
		{
			"a row per worker count", "scaling.csv", "n_gpus,epoch_time (ms),top5\n1,10000,0.5\n2,5250,0.25\n",
			"results table n1 0.seconds=10 top5:0.5\nresults table n2 0.seconds=5.25 top5:0.25\n", "",
		},
		{
			"throughput", "scaling.tsv", "gpus\tthroughput\tnum_workers\n1\t100\t8\n4\t390.5\t8\n",
			"results table n1 0.samples_per_second=100 num_workers:8\nresults table n4 0.samples_per_second=390.5 num_workers:8\n", "",
		},
		{
			"loader workers are no workers", "run_3gpus.csv", "epoch,num_workers,loss\n1,8,0.5\n", "CSV table n3 1.train_loss=0.5 num_workers:8\n", "",
		},
		{
			"nodes", "scaling.csv", "nodes,gpus_per_node,seconds\n1,4,20\n2,4,11\n", "CSV table n4 0.seconds=20\nCSV table n8 0.seconds=11\n", "nodes × workers_per_node",
		},
		{
			"repeats", "scaling.csv", "n_gpus,epoch_time\n1,10\n1,10.5\n2,6\n", "results table n1 0.seconds=10\nresults table n1 0.seconds=10.5\nresults table n2 0.seconds=6\n", "are repeats of a run",
		},
		{
			"Ultralytics", "train_2gpus/results.csv",
			"                  epoch,                   time,         train/box_loss,   metrics/mAP50(B),           val/box_loss,                 lr/pg0\n" +
				"                      1,                  61.25,                 1.2345,               0.25,                1.1,                   0.01\n" +
				"                      2,                 119.75,                 1.0345,               0.35,                1.0,                   0.02\n",
			"Ultralytics results n2 1.seconds=61.25 1.lr=0.01 2.seconds=58.5 2.lr=0.02 train/box_loss@1=1.2345 train/box_loss@2=1.0345 metrics/mAP50(B)@1=0.25 metrics/mAP50(B)@2=0.35 val/box_loss@1=1.1 val/box_loss@2=1\n",
			"is the time since the start",
		},
		{
			"W&B panel", "wandb_export_8gpus.csv",
			"\"Step\",\"sunny-1 - train/loss\",\"sunny-1 - train/loss__MIN\",\"sunny-1 - train/loss__MAX\",\"rainy-2 - train/loss\",\"rainy-2 - train/loss__MIN\",\"rainy-2 - train/loss__MAX\"\n" +
				"\"0\",\"2.5\",\"2.5\",\"2.5\",\"\",\"\",\"\"\n\"10\",\"2.25\",\"2.25\",\"2.25\",\"2.75\",\"2.75\",\"2.75\"\n",
			"W&B export n8 train/loss@0=2.5 train/loss@10=2.25 run:sunny-1\nW&B export n8 train/loss@10=2.75 run:rainy-2\n", "the minimum or maximum of another column",
		},
		{
			"W&B history", "history_8gpus.csv", ",_step,_runtime,_timestamp,epoch,loss\n0,0,3.5,1700000000.5,0,2.5\n1,1,5.5,1700000002.5,0,2.25\n",
			"W&B export n8 1.train_loss=2.25 _runtime@0=3.5 _runtime@1=5.5 loss@0=2.5 loss@1=2.25\n", "",
		},
		{
			"W&B runs", "runs.csv", "\"Name\",\"State\",\"Notes\",\"Runtime\",\"n_gpus\",\"batch_size\",\"loss\"\n\"sunny-1\",\"finished\",\"-\",\"120\",\"1\",\"32\",\"0.5\"\n\"rainy-2\",\"crashed\",\"two\nlines\",\"70\",\"2\",\"32\",\"0.75\"\n",
			"W&B export n1 wall=120 0.train_loss=0.5 batch_size:32 run:sunny-1\nW&B export n2 wall=70 0.train_loss=0.75 Notes:two\nlines batch_size:32 run:rainy-2\n", "",
		},
		{
			"MLflow metric", "loss_2gpus.csv", "run_id,key,value,timestamp,step\nabc,loss,0.5,1700000000000,0\nabc,loss,0.25,1700000001000,1\ndef,loss,0.75,1700000000000,0",
			"MLflow export n2 loss@0=0.5 loss@1=0.25 step_seconds@1=1 run:abc\nMLflow export n2 loss@0=0.75 run:def\n", "the last line has no line end",
		},
		{
			"MLflow runs", "runs.csv", "run_id,experiment_id,status,start_time,metrics.val_loss,metrics.f1,params.n_gpus,params.lr,tags.mlflow.user\nabc,0,FINISHED,2024-01-02 03:04:05.678000+00:00,0.5,0.75,4,0.1,eve\n",
			"MLflow export n4 0.val_loss=0.5 0.lr=0.1 f1@0=0.75 experiment_id:0 run:abc tags.mlflow.user:eve\n", "",
		},
		{
			"MLflow runs with start and end", "runs.csv", "run_id,experiment_id,status,start_time,end_time,metrics.val_loss,params.n_gpus\nabc,0,FINISHED,2024-01-02 03:04:05.5+00:00,2024-01-02 03:14:05+00:00,0.5,4\n",
			"MLflow export n4 wall=599.5 0.val_loss=0.5 experiment_id:0 run:abc\n", "the time of a run is that from its start to its end",
		},
		{
			"start and end of runs", "jobs.csv", "gpus,start_time,end_time\n1,2024-01-02 03:00:00,2024-01-02 03:10:00\n2,2024-01-02 04:00:00,2024-01-02 03:00:00\n4,2024-01-02 05:00:00,2024-01-02 05:03:00\n",
			"results table n1 wall=600\nresults table n4 wall=180\n", "the run ends before it starts",
		},
		{
			"TensorBoard", "run_4gpus-tag-loss_train.csv", "Wall time,Step,Value\n1700000000.25,10,0.5\n1700000001.25,20,0.25\n",
			"TensorBoard export n4 loss_train@10=0.5 loss_train@20=0.25 step_seconds@20=0.1\n", "",
		},
		{
			"GNU parallel", "joblog", "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n1\t:\t1700000000.123\t   61.250\t0\t120\t0\t0\ttorchrun --nproc_per_node=4 train.py\n2\tnode7\t1700000001.123\t   12.500\t0\t0\t1\t0\tpython train.py --gpus 2\n",
			"GNU parallel joblog n4 wall=61.25\nGNU parallel joblog n2 wall=12.5\n", "",
		},
		{
			"nvidia-smi", "gpu_2gpus.csv", "timestamp, name, index, utilization.gpu [%], power.draw [W], temperature.gpu\n" +
				"2023/11/14 22:13:20.000, Tesla V100-SXM2-16GB, 0, 45 %, 100.00 W, 40\n2023/11/14 22:13:20.000, Tesla V100-SXM2-16GB, 1, 50 %, [N/A], 41\n" +
				"2023/11/14 22:13:22.000, Tesla V100-SXM2-16GB, 0, 55 %, 200.00 W, 42\n2023/11/14 22:13:22.000, Tesla V100-SXM2-16GB, 1, 60 %, [N/A], 43\n",
			"nvidia-smi n2 joules=300 utilization.gpu [%]@0=45 utilization.gpu [%]@1=55 power.draw [W]@0=100 power.draw [W]@1=200 temperature.gpu@0=40 temperature.gpu@1=42 " +
				"utilization.gpu [%]@0=50 utilization.gpu [%]@1=60 temperature.gpu@0=41 temperature.gpu@1=43\n",
			"energy: the integral of power.draw",
		},
		{
			"semicolons and decimal commas", "run_2gpus.csv", "epoch;loss;time;samples\r\n1;0,607;1.234,5;1.234\r\n2;0,5;999;2.345\r\n",
			"CSV table n2 1.seconds=1234.5 1.samples=1234 1.samples_per_second=0.99959498 1.train_loss=0.607 2.seconds=999 2.samples=2345 2.samples_per_second=2.3473473 2.train_loss=0.5\n",
			`column "samples": points separate thousands, as in 1.234 (by the other columns)`,
		},
		{
			"an ambiguous comma", "run_2gpus.csv", "epoch\tloss\n1\t1,234\n2\t1,125\n", "CSV table n2 1.train_loss=1.234 2.train_loss=1.125\n", `column "loss": a comma is the decimal mark, as in 1,234 (by the delimiter)`,
		},
		{
			"thousands in quotes", "run_2gpus.csv", "epoch,throughput\n1,\"1,234\"\n2,\"12,345.5\"\n", "CSV table n2 1.samples_per_second=1234 2.samples_per_second=12345.5\n", "commas separate thousands",
		},
		{
			"percent, minutes and clocks", "run_2gpus.csv", "epoch,epoch_time,val_acc,test_acc\n1,1:02:03,87.5%,1\n2,3m12s,88 %,2\n",
			"CSV table n2 1.seconds=3723 1.val_accuracy=0.875 2.seconds=192 2.val_accuracy=0.88 test_acc@1=1 test_acc@2=2\n", "",
		},
		{
			"percentages without a sign", "run_2gpus.csv", "epoch,accuracy\n1,0.9\n2,45.5\n", "CSV table n2 1.accuracy=0.009 2.accuracy=0.455\n", `column "accuracy" has percentages: its largest value is 45.5`,
		},
		{
			"cells without a value", "run_2gpus.csv", "epoch,loss,val_loss\n1,NaN,-\n2,0.5,N/A\n3,0.25,0.75\n",
			"CSV table n2 2.train_loss=0.5 3.train_loss=0.25 3.val_loss=0.75\n", "",
		},
		{
			"a torn end", "run_2gpus.csv", "epoch,loss\n1,0.123456\n2,0.1234", "CSV table n2 1.train_loss=0.123456\n", "last line is torn",
		},
		{
			"the header again, resumed", "run_2gpus.csv", "epoch,loss\n1,4\n2,3\nepoch,loss\n3,2\n", "CSV table n2 1.train_loss=4 2.train_loss=3 3.train_loss=2\n", "the header occurs again in line 4, and the numbers continue",
		},
		{
			"the header again, resumed from a checkpoint", "run_2gpus.csv", "epoch,loss\n1,4\n2,3\n3,9\nepoch,loss\n2,2.5\n", "CSV table n2 1.train_loss=4 2.train_loss=2.5\n", "line 6: the run was resumed at epoch 2, and the later values count",
		},
		{
			"the header again, a new run", "run_2gpus.csv", "epoch,loss\n1,4\n2,3\nepoch,loss\n1,5\n", "CSV table n2 1.train_loss=4 2.train_loss=3\nCSV table n2 1.train_loss=5\n", "the header occurs again in line 4, and the numbers go back",
		},
		{
			"the epochs start again", "run_2gpus.csv", "epoch,loss\n1,4\n2,3\n1,5\n2,4.5\n", "CSV table n2 1.train_loss=4 2.train_loss=3\nCSV table n2 1.train_loss=5 2.train_loss=4.5\n", "line 4: the numbers start again: another run",
		},
		{
			"two columns of times", "run_2gpus.csv", "epoch,elapsed,epoch_time\n1,12,10\n2,30,11\n", "CSV table n2 1.seconds=10 2.seconds=11 elapsed@1=12 elapsed@2=30\n", "",
		},
		{
			"train and val rows", "run_2gpus.csv", "epoch,phase,loss,acc\n1,train,0.5,0.25\n1,val,0.75,0.125\n2,train,0.25,0.5\n2,val,0.5,0.375\n",
			"CSV table n2 1.train_loss=0.5 1.val_loss=0.75 1.accuracy=0.25 1.val_accuracy=0.125 2.train_loss=0.25 2.val_loss=0.5 2.accuracy=0.5 2.val_accuracy=0.375\n", "",
		},
		{
			"ranks", "run.csv", "rank,epoch,loss,epoch_time\n0,1,0.5,10\n1,1,0.75,12\n0,2,0.25,11\n1,2,0.5,10\n",
			"CSV table n2 1.seconds=12 1.train_loss=0.625 2.seconds=11 2.train_loss=0.375\n", "the rows of several ranks are one run",
		},
		{
			"numpy header", "loss_2gpus.csv", "# epoch,loss\n1.0,0.5\n2.0,0.25\n", "CSV table n2 1.train_loss=0.5 2.train_loss=0.25\n", "",
		},
		{
			"delimiter in the first line", "run_2gpus.csv", "sep=;\nepoch;loss\n1;0.5\n", "CSV table n2 1.train_loss=0.5\n", "the delimiter of the table",
		},
		{
			"a column that changes is not used", "run_2gpus.csv", "epoch,loss,note\n1,0.5,good\n2,0.25,better\n", "CSV table n2 1.train_loss=0.5 2.train_loss=0.25\n", `"note": its texts differ between the rows of a run`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, report := readTableText(t, Options{}, c.file, c.text)
			if got != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got, c.want, report)
			}
			if !strings.Contains(report, c.says) {
				t.Errorf("want %q in the report:\n%s", c.says, report)
			}
		})
	}
}

// TestColumns reads tables whose columns the user maps.
func TestColumns(t *testing.T) {
	for _, c := range []struct{ columns, text, want string }{
		{"workers=P,seconds=t_ep", "P,t_ep\n1,10\n2,5\n", "results table n1 0.seconds=10\nresults table n2 0.seconds=5\n"},
		{`train_loss="cost, mean",epoch=k`, "k,\"cost, mean\"\n1,0.5\n", "CSV table n0 1.train_loss=0.5\n"},
		{"step=1,train_loss=2", "1 0.5\n2 0.25\n", "CSV table n0 train_loss@1=0.5 train_loss@2=0.25\n"},
		{"step=1,mine=2", "1,0.5\n2,0.25\n", "CSV table n0 mine@1=0.5 mine@2=0.25\n"},
		{"epoch=loss,train_loss=epoch", "epoch,loss\n0.5,1\n", "CSV table n0 1.train_loss=0.5\n"},
		{"seconds=dt:ms,epoch=i", "i,dt\n1,1500\n", "CSV table n0 1.seconds=1.5\n"},
		{"seconds=2:min,epoch=1", "1 1.5\n2 2\n", "CSV table n0 1.seconds=90 2.seconds=120\n"},
		{"seconds=dt (ms),epoch=i", "i,dt (ms)\n1,1500\n", "CSV table n0 1.seconds=1.5\n"},
		// A text in the first row does not make it a header, if the columns are given by positions.
		{"workers=1,seconds=2,series=3", "1,10.5,x\n2,5,y\n", "results table n1 0.seconds=10.5\nresults table n2 0.seconds=5\n"},
		{"epoch=2,train_loss=3", "a,1,0.5\nb,2,0.25\n", "CSV table n0 1.train_loss=0.5 2.train_loss=0.25\n"},
		{"workers=1,seconds=2", "n,s,x\n1,10,a\n", "results table n1 0.seconds=10 x:a\n"},
		{"seconds=2", "epoch,1,2\n1,10,5\n2,11,6\n", "CSV table n0 1.seconds=5 2.seconds=6 1@1=10 1@2=11\n"},
	} {
		if got, report := readTableText(t, Options{Columns: []string{c.columns}}, "values.csv", c.text); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s\n%s", c.columns, got, c.want, report)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.csv": "p,q\n1,2\n", "sub/b.csv": "epoch,loss\n1,2\n"})
	for columns, want := range map[string]string{
		"workers=n_gpu":  `no table has the column "n_gpu" of the mapping workers=n_gpu; the columns found are`,
		"wokers=p":       `unknown field "wokers" (did you mean workers?); the fields are epoch, step, `,
		"workers":        `expected FIELD=COLUMN, got "workers"`,
		"seconds=p,lr=p": `column "p" is mapped to both seconds and lr`,
		"seconds=0":      `seconds: got column 0, want 1 to 1000`,
		`seconds="a`:     `missing "`,
		"":               `expected FIELD=COLUMN, got ""`,
	} {
		_, err := Options{Columns: []string{columns}}.Read(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", columns, err, want)
		}
		if columns == "workers=n_gpu" && !strings.Contains(err.Error(), "a.csv: p, q\n") {
			t.Errorf("%v does not show the headers", err)
		}
	}
}

// TestMLflowStore reads two runs of MLflow's file store.
func TestMLflowStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mlruns")
	one, two := "0/"+strings.Repeat("0123456789abcdef", 2), "0/"+strings.Repeat("fedcba9876543210", 2)
	write(t, dir, map[string]string{
		one + "/metrics/loss": "1700000000000 0.5 0\n1700000001500 0.25 10\n", one + "/metrics/val/loss": "1700000001000 0.75 10\n1700000002000 nan 20\n",
		one + "/params/n_gpus": "4", one + "/params/model": "unet", one + "/tags/mlflow.runName": "sunny-1", one + "/meta.yaml": "lifecycle_stage: active\n",
		two + "/metrics/loss": "1700000000000 0.25\n1700000001500 x\n1700000001500nan 3\n1700", two + "/params/n_gpus": "8", "0/meta.yaml": "name: Default\n",
	})
	logs, reports := explained(t, dir)
	want := "MLflow metrics n4 loss@0=0.5 loss@10=0.25 val/loss@10=0.75 val/loss@20=NaN lifecycle_stage:active model:unet n_gpus:4 tags/mlflow.runName:sunny-1\n" +
		"MLflow metrics n8 loss@0=0.25 n_gpus:8\n"
	if got := describe(logs.Runs); got != want {
		t.Errorf("got  %s\nwant %s\n%s", got, want, logs.Reports)
	}
	for _, r := range logs.Runs {
		if r.Info.Series != "experiment 0" || r.Curves[0].Times[0] != 1.7e9 {
			t.Errorf("series %q, times %v", r.Info.Series, r.Curves[0].Times)
		}
	}
	if text := reports[two+"/metrics/loss"].String(); !strings.Contains(text, "line 2: expected a time in milliseconds") || !strings.Contains(text, "line 3: expected a time in milliseconds") || !strings.Contains(text, "line 4: last line is torn") {
		t.Error(text)
	}
}

// TestUnknownTable checks that a table without a known column is not read, and that the
// message shows its columns and what to do.
func TestUnknownTable(t *testing.T) {
	for name, text := range map[string]string{
		"labels.csv": "image,label\na.png,3\nb.png,4\n", "numbers.txt": "1 0.5\n2 0.25\n", "pairs.csv": "1,0.5\n2,0.25\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		check(t, os.WriteFile(path, []byte(text), 0o644))
		_, _, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), "unknown file format") || !strings.Contains(err.Error(), "--columns") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for _, name := range []string{"loss.txt", "train_losses/1.txt", "val-loss/4gpu/main.log"} {
		run := readOne(t, name, "1 0.5\n2 0.25\n")
		if len(run.Curves) != 1 || run.Curves[0].Name != "loss" || run.Kind != "plain loss lines" {
			t.Errorf("%s: %+v", name, run)
		}
	}
}

// printedTable is a table as pandas prints it; its numbers are made up.
const printedTable = "   epoch    loss  val_loss   time\n0      1  0.5000      0.60  12.30\n1      2  0.4000       NaN  12.10\n2      3  0.3500      0.50  12.20\n"

// TestPrintedTable checks that a table of pandas is read, with and without its index, and also
// if it is the output of a notebook's cell. A number in a sentence is no table.
func TestPrintedTable(t *testing.T) {
	notebook, err := json.Marshal(map[string]any{"nbformat": 4, "cells": []any{map[string]any{
		"cell_type": "code",
		"outputs":   []any{map[string]any{"output_type": "execute_result", "data": map[string]any{"text/plain": strings.SplitAfter(strings.TrimSuffix(printedTable, "\n"), "\n")}}},
	}}})
	check(t, err)
	want := "1 12.3 0.5 0.6; 2 12.1 0.4 NaN; 3 12.2 0.35 0.5"
	for name, c := range map[string]struct{ text, want, unused string }{
		"index_2gpu.txt":    {printedTable, want, ""},
		"plain_2gpu.txt":    {" epoch  loss  val_loss  time\n     1  0.50      0.60  12.3\n     2  0.40       NaN  12.1\n     3  0.35      0.50  12.2\n", want, ""},
		"cell_2gpu.ipynb":   {string(notebook), want, ""},
		"size_2gpu.txt":     {printedTable + "\n[3 rows x 4 columns]\n", want, ""},
		"cut_2gpu.txt":      {strings.Replace(printedTable, "1      2  0.4000       NaN  12.10", "..   ...     ...       ...    ...", 1), "", "unknown file format"},
		"mixed_2gpu.txt":    {"Epoch loss\n1 0.5\n2 0.25\nsaved\n3 0.125\n", "", "unknown file format"},
		"keras_2gpu.txt":    {"Epoch 1/2\n1 0.5\n2 0.25\n", "", "unknown file format"},
		"sentence_2gpu.txt": {"the epoch took\n12 13\n14 15\n", "", "unknown file format"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{name: c.text})
		logs, reports := explained(t, dir)
		var got []string
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				got = append(got, fmt.Sprint(e.Epoch, e.Seconds, e.TrainLoss, e.ValLoss))
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %q, expected %q\n%s", name, text, c.want, reports[name])
		}
		if text := reports[name].String(); !strings.Contains(text, c.unused) {
			t.Errorf("%s: %s, expected %q", name, text, c.unused)
		}
	}
}
