package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestWordsSeparateRuns: runs in folders whose names differ in a word are no repeats of each other, for each
// sample. Runs in folders that differ in the number of a repeat are.
func TestWordsSeparateRuns(t *testing.T) {
	for _, s := range readSamples(t) {
		if strings.HasPrefix(s.path, "runs/") || strings.HasPrefix(s.path, "others/") || len(s.runs) != 1 || s.runs[0].Info.Workers == 0 {
			continue // run.json identifies the run
		}
		seriesIn := func(folders ...string) map[string]string { // by folder, of the first run
			dir := filepath.Join(t.TempDir(), "study")
			for _, folder := range folders {
				for _, f := range s.files {
					write(t, dir, map[string]string{filepath.Join(folder, s.path+f.path): string(f.text)})
				}
			}
			_, logs, _ := readRows(t, dir)
			found := map[string]string{}
			for _, r := range logs.Runs {
				rest, _ := filepath.Rel(dir, r.Dir)
				folder, _, _ := strings.Cut(rest, "/")
				if _, ok := found[folder]; !ok && r.Info.Status == runs.StatusDone {
					found[folder] = fmt.Sprint(r.Info.Study, "/", r.Info.Series)
				}
			}
			return found
		}
		if found := seriesIn("amp", "full_precision"); len(found) == 2 && found["amp"] == found["full_precision"] {
			t.Errorf("%s: the runs in amp and full_precision are repeats of %s", s.path, found["amp"])
		}
		if found := seriesIn("rep1", "rep2"); len(found) == 2 && strings.TrimPrefix(found["rep1"], "rep1/") != strings.TrimPrefix(found["rep2"], "rep2/") {
			t.Errorf("%s: the runs in rep1 and rep2 are of %s and %s", s.path, found["rep1"], found["rep2"])
		}
	}
}

// TestResumedRuns: a log that was resumed, whose last lines follow again, has the epochs of the log once,
// in their order, and the time never runs backwards.
func TestResumedRuns(t *testing.T) {
	keras := func(first, last int) (text string) {
		for n := first; n <= last; n++ {
			text += fmt.Sprintf("Epoch %d/9\n9/9 - %ds - loss: 2.%d\n", n, 5+n, n)
		}
		return text
	}
	csv := func(first, last int) (text string) {
		for n := first; n <= last; n++ {
			text += fmt.Sprintf("%d,%d.5,0.%d\n", n, 5+n, n)
		}
		return text
	}
	jsonl := func(first, last int) (text string) {
		for n := first; n <= last; n++ {
			text += fmt.Sprintf("{\"epoch\": %d, \"loss\": 0.%d, \"seconds\": %d.5}\n", n, n, 5+n)
		}
		return text
	}
	own := func(first, last int) (text string) {
		for n := first; n <= last; n++ {
			text += fmt.Sprintf("pass %d of 9: objective 0.%d, took %d.5s at 100.5 img/s\n", n, n, 5+n)
		}
		return text
	}
	const resume = "Resuming from checkpoint last.pt\n"
	const header = "epoch,seconds,train_loss\n"
	for name, c := range map[string]struct{ text, want string }{
		"Keras, resumed":                {keras(1, 5) + keras(4, 7), "1 2 3 4 5 6 7"},
		"Keras, again":                  {keras(1, 3) + strings.ReplaceAll(keras(1, 3), "loss: 2", "loss: 3"), "1 2 3; 1 2 3"},
		"Keras, a copy":                 {keras(1, 3) + keras(1, 3), "1 2 3"},
		"Keras, a checkpoint is stated": {keras(1, 3) + resume + strings.ReplaceAll(keras(1, 4), "loss: 2", "loss: 3"), "1 2 3 4"},
		"Keras, another command":        {"+ python a.py --lr 0.1\n" + keras(1, 5) + "+ python a.py --lr 0.2\n" + keras(4, 7), "1 2 3 4 5; 4 5 6 7"},
		"Keras, one option more":        {"+ python a.py --lr 0.1\n" + keras(1, 5) + "+ python a.py --lr 0.1 --amp\n" + keras(6, 7), "1 2 3 4 5; 6 7"},
		"Keras, options of a resume":    {"+ python a.py --lr 0.1\n" + keras(1, 5) + "+ python a.py --lr 0.1 --resume x.pt --initial-epoch 5 --log-dir b\n" + keras(6, 7), "1 2 3 4 5 6 7"},
		"CSV, resumed":                  {header + csv(1, 5) + csv(4, 7), "1 2 3 4 5 6 7"},
		"Keras, at the last epoch":      {keras(1, 5) + strings.ReplaceAll(keras(5, 7), "loss: 2", "loss: 3"), "1 2 3 4 5 6 7"},
		"CSV, at the last epoch":        {header + csv(1, 5) + strings.ReplaceAll(csv(5, 7), ".5,", ".25,"), "1 2 3 4 5 6 7"},
		"JSON, at the last epoch":       {jsonl(1, 5) + strings.ReplaceAll(jsonl(5, 7), "0.", "1."), "1 2 3 4 5 6 7"},
		"a template, at the last epoch": {own(1, 5) + strings.ReplaceAll(own(5, 7), "objective 0", "objective 1"), "1 2 3 4 5 6 7"},
		"CSV, with a header":            {header + csv(1, 5) + header + csv(6, 7), "1 2 3 4 5 6 7"},
		"CSV, again":                    {header + csv(1, 3) + strings.ReplaceAll(csv(1, 3), ".5,", ".25,"), "1 2 3; 1 2 3"},
		"CSV, a copy":                   {header + csv(1, 3) + csv(1, 3), "1 2 3"},
		"JSON, resumed":                 {jsonl(1, 5) + jsonl(4, 7), "1 2 3 4 5 6 7"},
		"JSON, again":                   {jsonl(1, 3) + strings.ReplaceAll(jsonl(1, 3), "0.", "1."), "1 2 3; 1 2 3"},
		"JSON, a copy":                  {jsonl(1, 3) + jsonl(1, 3), "1 2 3"},
		"a template, resumed":           {own(1, 5) + own(4, 7), "1 2 3 4 5 6 7"},
		"a template, again":             {own(1, 3) + strings.ReplaceAll(own(1, 3), "objective 0", "objective 1"), "1 2 3; 1 2 3"},
	} {
		file := "train_2gpu.log"
		if strings.HasPrefix(name, "CSV") {
			file = "train_2gpu.csv"
		} else if strings.HasPrefix(name, "JSON") {
			file = "train_2gpu.jsonl"
		}
		dir := t.TempDir()
		write(t, dir, map[string]string{file: c.text})
		_, logs, _ := readRows(t, dir)
		var got []string
		for _, r := range logs.Runs {
			var numbers []string
			for _, e := range r.Epochs {
				numbers = append(numbers, fmt.Sprint(e.Epoch))
			}
			got = append(got, strings.Join(numbers, " "))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: epochs %s, want %s\n%s", name, text, c.want, logs.Reports)
		}
	}
}

// TestResumedFiles: logs with clocks whose epochs continue those of another log are one run; without clocks
// they are not.
func TestResumedFiles(t *testing.T) {
	log := func(hour, first, last int) (text string) {
		stamp := fmt.Sprintf("2021-11-12 %02d:32:26,118 - root - INFO - ", hour)
		for n := first; n <= last; n++ {
			text += stamp + fmt.Sprintf("Time taken for epoch %d is %d.0 sec, avg 2.0 samples/sec\n", n, 5+n)
		}
		return text
	}
	keras := func(n int) string { return fmt.Sprintf("Epoch %d/9\n9/9 - 5s - loss: 2.%d\n", n, n) }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		says  string
	}{
		"continued":  {map[string]string{"unet_2gpu-101.out": log(1, 1, 3), "unet_2gpu-102.out": log(2, 4, 5)}, "1 2 3 4 5", "the run was resumed at epoch 4"},
		"resumed":    {map[string]string{"unet_2gpu-101.out": log(1, 1, 3), "unet_2gpu-102.out": log(2, 3, 5)}, "1 2 3 4 5", "the later values count"},
		"a gap":      {map[string]string{"unet_2gpu-101.out": log(1, 1, 3), "unet_2gpu-102.out": log(2, 6, 7)}, "1 2 3 6 7", "the values after epoch 3 up to it are missing"},
		"again":      {map[string]string{"unet_2gpu-101.out": log(1, 1, 3), "unet_2gpu-102.out": log(2, 1, 3)}, "1 2 3; 1 2 3", ""},
		"before it":  {map[string]string{"unet_2gpu-101.out": log(3, 1, 3), "unet_2gpu-102.out": log(2, 4, 5)}, "1 2 3; 4 5", ""},
		"no clock":   {map[string]string{"unet_2gpu-101.out": keras(1) + keras(2), "unet_2gpu-102.out": keras(3) + keras(4)}, "1 2; 3 4", ""},
		"other name": {map[string]string{"unet_2gpu.out": log(1, 1, 3), "resnet_2gpu.out": log(2, 4, 5)}, "4 5; 1 2 3", ""},
		// Names that differ in workers, nodes, seed or settings are those of different runs.
		"workers":  {map[string]string{"unet_2gpu.out": log(1, 1, 3), "unet_4gpu.out": log(2, 4, 5)}, "1 2 3; 4 5", ""},
		"nodes":    {map[string]string{"unet_2nodes.out": log(1, 1, 3), "unet_4nodes.out": log(2, 4, 5)}, "1 2 3; 4 5", ""},
		"seeds":    {map[string]string{"unet_seed1.out": log(1, 1, 3), "unet_seed2.out": log(2, 4, 5)}, "1 2 3; 4 5", ""},
		"batches":  {map[string]string{"unet_bs16.out": log(1, 1, 3), "unet_bs32.out": log(2, 4, 5)}, "1 2 3; 4 5", ""},
		"times":    {map[string]string{"log_2024_1_1_10_00_00.txt": log(1, 1, 3), "log_2024_1_2_10_00_00.txt": log(2, 4, 5)}, "1 2 3 4 5", ""},
		"parts":    {map[string]string{"unet_part1.txt": log(1, 1, 3), "unet_part2.txt": log(2, 4, 5)}, "1 2 3 4 5", ""},
		"attempts": {map[string]string{"unet_run1.txt": log(1, 1, 3), "unet_run2.txt": log(2, 4, 5)}, "1 2 3 4 5", ""},
		"rotated":  {map[string]string{"unet.log.1": log(1, 1, 3), "unet.log.2": log(2, 4, 5)}, "1 2 3 4 5", ""},
	} {
		dir := t.TempDir()
		write(t, dir, c.files)
		logs, _ := explained(t, dir)
		var got []string
		for _, r := range logs.Runs {
			var numbers []string
			for _, e := range r.Epochs {
				numbers = append(numbers, fmt.Sprint(e.Epoch))
			}
			got = append(got, strings.Join(numbers, " "))
		}
		if text := strings.Join(got, "; "); text != c.want || !strings.Contains(logs.Reports.String(), c.says) {
			t.Errorf("%s: epochs %s, want %s\n%s", name, text, c.want, logs.Reports)
		}
	}
}
