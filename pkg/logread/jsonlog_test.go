package logread

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
)

// describeRun returns the kind, the epochs and the curves of a run as text.
func describeRun(r runs.Run) string {
	var b strings.Builder
	b.WriteString(r.Kind + ":")
	for _, e := range r.Epochs {
		fmt.Fprintf(&b, " %d@%d", e.Epoch, e.Line)
		for _, v := range []struct {
			name string
			v    float64
		}{
			{"s", e.Seconds}, {"loss", e.TrainLoss}, {"val_loss", e.ValLoss}, {"acc", e.Accuracy}, {"val_acc", e.ValAccuracy}, {"iou", e.IoU}, {"lr", e.LearningRate}, {"rate", e.SamplesPerSecond},
		} {
			if !math.IsNaN(v.v) {
				fmt.Fprintf(&b, " %s=%g", v.name, v.v)
			}
		}
	}
	for _, c := range r.Curves {
		fmt.Fprintf(&b, "; %s", c.Name)
		for i, s := range c.Steps {
			fmt.Fprintf(&b, " %d:%g", s, c.Values[i])
		}
	}
	return b.String()
}

// TestJSONLines checks files with one JSON object per line. The forms of MMCV, MMEngine and
// Detectron2 are those of their loggers (TextLoggerHook, LoggerHook, JSONWriter).
func TestJSONLines(t *testing.T) {
	const mmcv = `{"env_info": "sys.platform: linux\\nPython: 3.8", "seed": 5, "exp_name": "retina_r50.py"}
{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.02, "memory": 3000, "data_time": 0.25, "loss": 2.5, "time": 0.5}
{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.02, "memory": 3000, "data_time": 0.25, "loss": 2.25, "time": 0.5}
{"mode": "val", "epoch": 1, "iter": 25, "lr": 0.02, "bbox_mAP": 0.125, "mIoU": 0.5}
{"mode": "train", "epoch": 2, "iter": 50, "lr": 0.002, "memory": 3000, "data_time": 0.25, "loss": 2.0, "time": 0.5}
`
	const mmengine = `{"lr": 0.02, "data_time": 0.25, "loss": 2.5, "time": 0.5, "epoch": 1, "iter": 50, "memory": 3000, "step": 50}
{"accuracy/top1": 62.5, "data_time": 0.125, "time": 0.25, "step": 1}
{"lr": 0.02, "data_time": 0.25, "loss": 2.0, "time": 0.5, "epoch": 2, "iter": 100, "memory": 3000, "step": 100}
{"accuracy/top1": 75.0, "data_time": 0.125, "time": 0.25, "step": 2}
`
	const byIteration = `{"lr": 0.02, "loss": 2.5, "time": 0.5, "iter": 50, "memory": 3000, "step": 50}
{"mIoU": 62.5, "time": 0.25, "step": 50}
`
	const detectron2 = `{"data_time": 0.25, "iteration": 19, "loss_cls": 1.5, "lr": 0.02, "time": 0.5, "total_loss": 2.5}
{"data_time": 0.25, "iteration": 39, "loss_cls": 1.25, "lr": 0.02, "time": 0.5, "total_loss": 2.0}
{"bbox/AP": 12.5, "iteration": 39}
`
	for name, c := range map[string]struct {
		path, text string
		want       []string
		says       string
	}{
		"MMCV": {"20240101_120000_4gpu.log.json", mmcv, []string{
			"MMCV log: 1@2 loss=2.25 iou=0.5 lr=0.02 2@5 loss=2 lr=0.002; lr 50:0.02 100:0.02 150:0.002; memory 50:3000 100:3000 150:3000; data_time 50:0.25 100:0.25 150:0.25; " +
				"loss 50:2.5 100:2.25 150:2; step_seconds 50:0.5 100:0.5 150:0.5; val/lr 100:0.02; bbox_mAP 100:0.125; mIoU 100:0.5",
		}, "steps count on over the epochs"},
		"MMEngine": {"vis_data/scalars.json", mmengine, []string{
			"MMEngine scalars: 1@1 loss=2.5 val_acc=0.625 lr=0.02 2@3 loss=2 val_acc=0.75 lr=0.02; lr 50:0.02 100:0.02; data_time 50:0.25 100:0.25; loss 50:2.5 100:2; step_seconds 50:0.5 100:0.5; memory 50:3000 100:3000; " +
				"accuracy/top1 50:62.5 100:75; val/data_time 50:0.125 100:0.125; val/time 50:0.25 100:0.25",
		}, "the training loss of an epoch is the last one"},
		"MMEngine, by iteration": {"vis_data/scalars.json", byIteration, []string{"MMEngine scalars:; lr 50:0.02; loss 50:2.5; time 50:0.5; memory 50:3000; mIoU 50:62.5; val/time 50:0.25"}, ""},
		"Detectron2": {"metrics.json", detectron2, []string{
			"Detectron2 metrics:; data_time 19:0.25 39:0.25; loss_cls 19:1.5 39:1.25; lr 19:0.02 39:0.02; step_seconds 19:0.5 39:0.5; total_loss 19:2.5 39:2; bbox/AP 39:12.5",
		}, ""},
		"two runs": {"metrics.json", detectron2 + strings.ReplaceAll(detectron2, "0.02", "0.04"), []string{
			"Detectron2 metrics:; data_time 19:0.25 39:0.25; loss_cls 19:1.5 39:1.25; lr 19:0.02 39:0.02; step_seconds 19:0.5 39:0.5; total_loss 19:2.5 39:2; bbox/AP 39:12.5",
			"Detectron2 metrics:; data_time 19:0.25 39:0.25; loss_cls 19:1.5 39:1.25; lr 19:0.04 39:0.04; step_seconds 19:0.5 39:0.5; total_loss 19:2.5 39:2; bbox/AP 39:12.5",
		}, "line 4: the numbers start again: another run"},
		"epochs": {"log.jsonl", "{\"world_size\": 8}\n" + `{"epoch": 0, "loss": 2.5, "epoch_time": 10.5, "throughput": 100}
{"epoch": 0, "val_loss": 2.0, "val_acc": 0.5}
{"epoch": 1, "loss": 1.5, "epoch_time": 9.5, "throughput": 110, "note": "x"}
`, []string{"JSON lines: 1@2 s=10.5 loss=2.5 val_loss=2 val_acc=0.5 rate=100 2@4 s=9.5 loss=1.5 rate=110; loss 0:2.5 1:1.5; epoch_time 0:10.5 1:9.5; throughput 0:100 1:110; val_loss 0:2; val_acc 0:0.5"}, "counts epochs from 0"},
		"twice":          {"log.jsonl", "{\"epoch\": 1, \"loss\": 2.5}\n{\"epoch\": 1, \"loss\": 1.5}\n", []string{"JSON lines: 1@1 loss=1.5; loss 1:2.5 1:1.5"}, "line 2: epoch 1 has loss twice"},
		"torn":           {"log.jsonl", "{\"epoch\": 1, \"loss\": 2.5}\n{\"epoch\": 2, \"loss\": 1.", []string{"JSON lines: 1@1 loss=2.5; loss 1:2.5"}, "line 2: last line is torn"},
		"damaged":        {"log.jsonl", "{\"epoch\": 1, \"loss\": 2.5}\n{\"epoch\": 2, \"lo\n{\"step\": -4, \"loss\": 1}\n", []string{"JSON lines: 1@1 loss=2.5; loss 1:2.5"}, "line 2: expected a complete JSON object"},
		"not a number":   {"log.jsonl", "{\"step\": 1, \"loss\": NaN}\n{\"step\": 2, \"loss\": 1.5, \"text\": \"a\"}\n", []string{"JSON lines:; loss 1:NaN 2:1.5"}, ""},
		"half an epoch":  {"log.jsonl", "{\"step\": 10, \"epoch\": 0.5, \"loss\": 2.5}\n{\"step\": 20, \"epoch\": 1.0, \"loss\": 1.5}\n", []string{"JSON lines: 1@1 loss=1.5; loss 10:2.5 20:1.5"}, "the last one logged"},
		"a document":     {"package.json", "{\"name\": \"x\", \"version\": 4}\n", nil, "not read: unknown file format"},
		"several lines":  {"a.json", "{\"epoch\": 1, \"loss\": 2.5}\nEpoch: 3\n", nil, "not read: unknown file format"},
		"a state of HF":  {"trainer_state.json", `{"epoch": 1.0, "global_step": 10, "log_history": [{"epoch": 1.0, "loss": 0.5, "step": 10}]}`, []string{"Hugging Face trainer state: 1@0 loss=0.5; loss 10:0.5"}, ""},
		"messages in it": {"log.jsonl", "{\"epoch\": 1, \"loss\": 2.5}\n{\"msg\": \"saved\"}\n\n", []string{"JSON lines: 1@1 loss=2.5; loss 1:2.5"}, "1 line, the first is line 2: without a step or an epoch"},
	} {
		found, report := readReport(t, c.path, c.text)
		var got []string
		for _, r := range found {
			got = append(got, describeRun(r))
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) {
			t.Errorf("%s: got %q\nwant %q\n%s, want %q", name, got, c.want, report, c.says)
		}
	}
	found, _ := readReport(t, "a_4gpu.log.json", mmcv)
	if len(found) != 1 || found[0].Info.Seed != 5 || found[0].Info.Series != "retina_r50" || found[0].Info.Workers != 4 {
		t.Errorf("MMCV: got %+v", found)
	}
	// MMEngine writes the same values to two files of a folder.
	dir := t.TempDir()
	write(t, dir, map[string]string{"20240101_120000/vis_data/scalars.json": mmengine, "20240101_120000/vis_data/20240101_120000.json": mmengine, "20240102_120000/vis_data/scalars.json": mmengine})
	logs, err := Options{}.Read(t.Context(), dir)
	if check(t, err); len(logs.Runs) != 2 {
		t.Errorf("MMEngine: got %d runs, want one per folder", len(logs.Runs))
	}
}

// TestWandbFolder checks the folder of a W&B run: its files are one run.
func TestWandbFolder(t *testing.T) {
	summary := `{"_step": 99, "_runtime": 123.5, "_timestamp": 1704110400.5, "_wandb": {"runtime": 124}, "loss": 0.25, "val_acc": NaN, "hist": {"bins": [1]}}`
	metadata := `{"os": "Linux", "startedAt": "2024-01-01T11:58:00.250000Z", "program": "src/unet.py", "args": ["--lr", "0.1"], "host": "node01", "gpu_count": 8}`
	config := "wandb_version: 1\n\n_wandb:\n  desc: null\n  value:\n    python_version: 3.10.4\nlr:\n  desc: null\n  value: 0.1\nmodel:\n  value:\n    depth: 4\nworld_size:\n  value: 4\n"
	const folder = "wandb/run-20240101_115800-abc12345/files/"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"without output": {
			map[string]string{folder + "wandb-summary.json": summary, folder + "wandb-metadata.json": metadata, folder + "config.yaml": config},
			"files 4 123.5s [python src/unet.py --lr 0.1] node01 map[lr:0.1 model/depth:4 wandb_version:1 world_size:4] 11:58:00 W&B summary:; loss 99:0.25; val_acc 99:NaN",
		},
		"with output": {
			map[string]string{folder + "wandb-summary.json": summary, folder + "config.yaml": config, folder + "output.log": oneKerasEpoch},
			"files/output.log 4 123.5s [] node01 map[lr:0.1 model/depth:4 wandb_version:1 world_size:4] 11:58:00 Keras log: 1@2 s=5 loss=2 acc=0.25; loss 99:0.25; val_acc 99:NaN",
		},
	} {
		c.files[folder+"wandb-metadata.json"] = metadata
		if name == "with output" {
			c.want = strings.Replace(c.want, "[]", "[python src/unet.py --lr 0.1]", 1)
		}
		dir := t.TempDir()
		write(t, dir, c.files)
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		if len(logs.Runs) != 1 {
			t.Errorf("%s: got %d runs, want 1: %v", name, len(logs.Runs), logs.Reports)
			continue
		}
		r := logs.Runs[0]
		got := fmt.Sprintf("%s %d %gs %v %s %v %s %s", r.Dir[strings.Index(r.Dir, "files"):], r.Info.Workers, r.WallSeconds, r.Info.Command, r.Info.Host.Name, r.Info.Config, r.Info.Started.Format(time.TimeOnly), describeRun(r))
		if r.Info.Series != "unet" || r.Origins[runs.PropertySeries].Source != runs.SourceConfig {
			t.Errorf("%s: got the series %q, %v", name, r.Info.Series, r.Origins[runs.PropertySeries])
		}
		if got != c.want {
			t.Errorf("%s: got  %s\nwant %s\n%v", name, got, c.want, logs.Reports)
		}
	}
	// Two runs stay two.
	dir := t.TempDir()
	write(t, dir, map[string]string{"wandb/run-1-a/files/wandb-summary.json": summary, "wandb/run-2-b/files/wandb-summary.json": summary, "wandb/run-3-c/files/wandb-summary.json": summary[:40]})
	logs, reports := explained(t, dir)
	if len(logs.Runs) != 2 || !strings.Contains(reports["wandb/run-3-c/files/wandb-summary.json"].String(), "malformed or torn") {
		t.Errorf("got %d runs\n%v", len(logs.Runs), reports)
	}
}

// The throughput that LLaMA-Factory writes is in tokens, whose number is beside it (its callbacks.py).
func TestThroughputInTokens(t *testing.T) {
	for text, want := range map[string]string{
		`{"current_steps": 5, "loss": 1.9, "epoch": 0.5, "throughput": 4001.0, "total_tokens": 60000}`: "tokens/s",
		`{"current_steps": 5, "loss": 1.9, "epoch": 0.5, "throughput": 4001.0}`:                        "",
	} {
		if r := readOne(t, "x_2gpu.jsonl", text+"\n"); r.ThroughputUnit != want {
			t.Errorf("%s: unit %q, want %q", text, r.ThroughputUnit, want)
		}
	}
}
