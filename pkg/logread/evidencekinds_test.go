package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestKindsOfEvidence: what identifies runs in folders as people keep them, one row per kind.
func TestKindsOfEvidence(t *testing.T) {
	keras := kerasOf(5, "2.0")
	gpus := func(option string) string { return "+ python a.py " + option + "\n" + keras }
	tf := func(mode, global, devices string, rate int) string {
		return fmt.Sprintf("TensorFlow:  1.15\nModel:       r50\nDataset:     x (synthetic)\nMode:        %s\nBatch size:  %s global\n             8 per device\nDevices:     [%s]\ntotal images/sec: %d.00\n", mode, global, devices, rate)
	}
	numbered := func(format string, first, last int) map[string]string {
		files := map[string]string{}
		for n := first; n <= last; n++ {
			files[fmt.Sprintf(format, n)] = "world_size: 2\n" + keras
		}
		return files
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string // series and workers of each run, and throughput if it has one
	}{
		// Lists of devices are counts, and single numbers beside lists are devices.
		"lists of devices":        {map[string]string{"1.log": gpus("--gpus 2"), "2.log": gpus("--gpus 1,2"), "3.log": gpus("--gpus=0,1,2,3")}, "a 1; a 2; a 4"},
		"words of devices":        {map[string]string{"1.log": gpus("--gpus 0 1 2 --lr 0.1"), "2.log": gpus("--gpus 0 --lr 0.1")}, "a 3; a 1"},
		"numbers of devices":      {map[string]string{"1.log": gpus("--gpus 2"), "2.log": gpus("--gpus 4")}, "a 2; a 4"},
		"lists of another script": {map[string]string{"1.log": gpus("--gpus 4"), "2.log": strings.Replace(gpus("--gpus 0,1"), "a.py", "b.py", 1)}, "a 4; b 2"},
		"a list beside a name":    {map[string]string{"a_2gpus.log": gpus("--gpus 0,1"), "a_4gpus.log": gpus("--gpus 4"), "c.log": gpus("--gpus 4")}, "a 2; a 4; a 1"},
		"a variable before":       {map[string]string{"1.log": "TF_XLA_FLAGS=--jit=2 horovodrun -np 2 python a.py\n" + keras}, "a 2"},
		"visible devices":         {map[string]string{"1.log": "+ CUDA_VISIBLE_DEVICES=2,3 python a.py\n" + keras}, "a 2"},
		"a launcher and a list":   {map[string]string{"1.log": "+ torchrun --nproc_per_node 4 a.py --gpus 0,1\n" + keras}, "a 4"},
		// Ordinals of titles.
		"numbered titles":      {map[string]string{"09-gpu-basics/train.log": keras, "10-gpu-basics/train.log": keras, "11-gpu-ddp/train.log": keras}, "gpu-basics 0; gpu-basics 0; gpu-ddp 0"},
		"zero-padded siblings": {map[string]string{"08-gpu/train.log": keras, "09-gpu/train.log": keras, "10-gpu/train.log": keras}, "gpu 0; gpu 0; DIR 0"},
		"numbers of workers":   {map[string]string{"x/1GPU/00/out.log": keras, "x/4-gpus/00/out.log": keras, "x/8_workers/00/out.log": keras}, "x 1; x 4; x 8"},
		// Direct evidence beats derived evidence.
		"devices and batches": {map[string]string{"1.log": tf("training", "16", "'/gpu:0', '/gpu:1', '/gpu:2'", 90)}, "DIR 3 90"},
		"batches alone":       {map[string]string{"1.log": strings.Replace(tf("training", "16", "", 90), "Devices", "Gadgets", 1)}, "DIR 2 90"},
		// Modes, words and names of runs.
		"modes":                     {map[string]string{"a/2gpu/1": tf("training", "16", "'/gpu:0', '/gpu:1'", 90), "a/2gpu/2": tf("forward-only", "16", "'/gpu:0', '/gpu:1'", 250)}, "a training 2 90; a forward-only 2 250"},
		"words in names of folders": {map[string]string{"x.logs/2gpu/throughput/1": tf("training", "16", "'/gpu:0', '/gpu:1'", 90), "x_XLA.logs/2gpu/throughput/1": tf("training", "16", "'/gpu:0', '/gpu:1'", 99)}, "x 2 90; x_XLA 2 99"},
		"runs of a chart": {
			map[string]string{"chart.csv": "\"Step\",\"a-2gpu - train/loss\",\"a-4gpu - train/loss\"\n\"0\",\"1.5\",\"2.5\"\n\"10\",\"0.5\",\"1.5\"\n"},
			"a-2gpu 2; a-4gpu 4",
		},
		// Numbers of repeats.
		"trials in trials":              {map[string]string{"u/2gpus/trial_1/log.txt": keras, "u/2gpus/trial_2/log.txt": keras}, "u 2; u 2"},
		"tries":                         {map[string]string{"try1/2gpus.log": keras, "try2/2gpus.log": keras}, "DIR 2; DIR 2"},
		"attempts":                      {map[string]string{"u_2gpus_attempt1.log": keras, "u_2gpus_attempt2.log": keras}, "u 2; u 2"},
		"outputs":                       {map[string]string{"u/2gpus/out1.log": keras, "u/2gpus/out2.log": keras}, "u 2; u 2"},
		"results with letters":          {map[string]string{"s1/2gpus.log": keras, "s2/2gpus.log": keras}, "DIR 2; DIR 2"},
		"letters after a count":         {map[string]string{"u-1gpu-r1.log": keras, "u-1gpu-r2.log": keras, "u-2gpu-r1.log": keras, "u-2gpu-r2.log": keras}, "u 1; u 1; u 2; u 2"},
		"seeds after a count":           {map[string]string{"u_2gpus_s0.log": keras, "u_2gpus_s1.log": keras}, "u 2; u 2"},
		"settings after a count":        {map[string]string{"u_2gpus_r8.log": keras, "u_2gpus_r16.log": keras}, "u-r8 2; u-r16 2"},
		"models after a count":          {map[string]string{"u_2gpus_r18.log": keras, "u_2gpus_r50.log": keras}, "u-r18 2; u-r50 2"},
		"letters and two digits":        {numbered("r%d.log", 0, 10), strings.Repeat("DIR 2; ", 10) + "DIR 2"},
		"letters and two digits in gap": {numbered("r%d.log", 9, 10), "DIR 2; r10 2"},
		"a first run without a number":  {map[string]string{"u_2gpu.log": keras, "u_2gpu_2.log": keras, "u_2gpu_3.log": keras}, "u 2; u 2; u 2"},
		"other numbers without a first": {map[string]string{"u_2gpu.log": keras, "u_2gpu_4.log": keras, "u_2gpu_5.log": keras}, "u 2; u 4 2; u 5 2"},
		"numbers between dots":          {map[string]string{"u.2.1.log": "world_size: 2\n" + keras, "u.2.2.log": "world_size: 2\n" + keras, "u.4.1.log": "world_size: 4\n" + keras, "u.4.2.log": "world_size: 4\n" + keras}, "u 2; u 2; u 4; u 4"},
		"numbers in parentheses":        {map[string]string{"u_2gpu.log": keras, "u_2gpu (1).log": keras, "u_2gpu (2).log": keras}, "u 2; u 2; u 2"},
		"models with letters":           {map[string]string{"r18/2gpus.log": keras, "r50/2gpus.log": keras}, "r18 2; r50 2"},
		"numbers that are gaps":         {map[string]string{"2gpus/out1.log": keras, "2gpus/out7.log": keras}, "DIR out1 2; DIR out7 2"},
		"JSON logs with modes": {
			map[string]string{"log1.jsonl": "{\"world_size\": 2, \"amp\": true}\n{\"epoch\": 1, \"loss\": 5}\n", "log2.jsonl": "{\"world_size\": 2, \"amp\": false}\n{\"epoch\": 1, \"loss\": 4}\n"},
			"DIR amp 2; DIR 2",
		},
		// Numbers in names that are the numbers of workers in the content.
		"numbers of workers after words": {
			map[string]string{"fast1.log": "world_size: 1\n" + keras, "fast2.log": "world_size: 2\n" + keras, "fast4.log": "world_size: 4\n" + keras}, "fast 1; fast 2; fast 4",
		},
		"in folders": {map[string]string{"p1/r50.log": "world_size: 1\n" + keras, "p2/r50.log": "world_size: 2\n" + keras}, "r50 1; r50 2"},
		"other numbers after words": {
			map[string]string{"v1.log": "world_size: 1\n" + keras, "v2.log": "world_size: 2\n" + keras, "v3.log": "world_size: 1\n" + keras}, "v1 1; v2 2; v3 1",
		},
		"one number of workers": {map[string]string{"a/v2.log": "world_size: 2\n" + keras, "b/v2.log": "world_size: 2\n" + keras}, "v2 2; v2 2"},
		// A number of workers in a name that the content overrules.
		"names that the content contradicts": {
			map[string]string{"2gpu/log.txt": "world_size: 8\n" + keras, "4gpu/log.txt": "world_size: 8\n" + keras, "8gpu/log.txt": "world_size: 8\n" + keras},
			"DIR (workers in the name: 2) 8; DIR (workers in the name: 4) 8; DIR (workers in the name: 8) 8",
		},
		"repeats in such a folder": {
			map[string]string{"2gpu/run1/log.txt": "world_size: 8\n" + keras, "2gpu/run2/log.txt": "world_size: 8\n" + keras},
			"DIR 8; DIR 8",
		},
		// Results.
		"a page": {
			map[string]string{"r.md": "# A\n\nText, and more.\n\n## B\n\n| gpus | images/s |\n|---|---|\n| 1 | 100 |\n| 2 | 190 |\n\nMore text.\n"},
			"r 1 100; r 2 190",
		},
		"thousands on a page": {map[string]string{"r.md": "| gpus | images/s |\n|---|---|\n| 1 | 1,200 |\n| 2 | 2,350 |\n"}, "r 1 1200; r 2 2350"},
		"a page with two tables": {
			map[string]string{"r.md": "## A\n\n| gpus | images/s |\n|---|---|\n| 1 | 100 |\n\n## B\n\n| gpus | images/s |\n|---|---|\n| 1 | 150 |\n"},
			"A 1 100; B 1 150",
		},
		"a page with two tables below a heading": {
			map[string]string{"r.md": "## A\n\n| gpus | images/s |\n|---|---|\n| 1 | 100 |\n| 2 | 190 |\n\nLater:\n\n| gpus | images/s |\n|---|---|\n| 1 | 150 |\n"},
			"A 1 100; A 2 190; A (2) 1 150",
		},
		"a page with two tables of a model": {
			map[string]string{"r.md": "| model | gpus | images/s |\n|---|---|---|\n| m | 1 | 100 |\n\n| model | gpus | images/s |\n|---|---|---|\n| m | 1 | 150 |\n"},
			"m 1 100; m (2) 1 150",
		},
		"a page with two tables and no heading": {
			map[string]string{"r.md": "| gpus | images/s |\n|---|---|\n| 1 | 100 |\n\n| gpus | images/s |\n|---|---|\n| 1 | 150 |\n"},
			"r 1 100; r (2) 1 150",
		},
		"JSON results": {
			map[string]string{"1.json": "{\n  \"world_size\": 1,\n  \"model\": \"r50\",\n  \"images_per_sec_global\": 460.5\n}\n", "2.json": "{\"world_size\": 2, \"model\": \"r50\", \"images_per_sec_per_gpu\": 315.25, \"m\": {\"n_samples\": 7}}\n"},
			"r50 1 460.5; r50 2 630.5",
		},
		"JSON results in lines": {
			map[string]string{"x.jsonl": "{\"gpus\": 1, \"throughput\": 10.5}\n{\"gpus\": 2, \"throughput\": 19.5}\n"},
			"x 1 10.5; x 2 19.5",
		},
		"loader workers before JSON lines": {map[string]string{"x.jsonl": `{"arch": "r50", "workers": 8}` + "\n" + `{"epoch": 1, "throughput": 10.5}` + "\n"}, "x 0 10.5"},
		"counts in JSON lines": {
			map[string]string{"x_4gpus.jsonl": `{"epoch": 1, "world_size": 2, "num_nodes": 1, "throughput": 10.5}` + "\n" + `{"epoch": 2, "world_size": 2, "throughput": 11}` + "\n" + `{"epoch": 3, "world_size": 8, "throughput": 40}` + "\n"},
			"x 2 10.5 11; x 8 40",
		},
		// Columns that are no measurements.
		"training and inference":       {map[string]string{"x.csv": "gpus,phase,images/s\n1,train,100\n1,inference,300\n2,train,190\n"}, "x train 1 100; x inference 1 300; x train 2 190"},
		"a split of epochs":            {map[string]string{"x.csv": "epoch,gpus,phase,images/s\n1,2,train,100\n1,2,val,300\n2,2,Train,110\n2,2,val,310\n2,2,val_unseen,320\n"}, "x 2 100 110"},
		"lists of devices in a column": {map[string]string{"x.csv": "gpus,images/s\n\"0,1\",190\n\"[0, 1, 2]\",280\n3,100\n"}, "x 2 190; x 3 280; x 1 100"},
		"ids of devices in a column":   {map[string]string{"x.csv": "gpu_ids,images/s\n\"0,1\",190\n3,100\n"}, "x 2 190; x 1 100"},
		"thousands of devices":         {map[string]string{"x.csv": "gpus,images/s\n\"1,536\",190\n768,100\n"}, "x 1536 190; x 768 100"},
		"lists of devices in JSON":     {map[string]string{"1.json": `{"devices": [0, 1, 2], "samples_per_second": 300.5}`, "2.json": `{"devices": [5], "samples_per_second": 110.5}`}, "DIR 3 300.5; DIR 1 110.5"},
		"devices of one of the ranks":  {map[string]string{"x.json": `{"devices": [0], "world_size": 4, "layers": [3, 4], "samples_per_second": 300.5}`}, "x 4 300.5"},
		"devices before JSON lines":    {map[string]string{"x.jsonl": `{"devices": [2, 3], "lr": 0.1}` + "\n" + `{"epoch": 1, "throughput": 10.5}` + "\n"}, "x 2 10.5"},
		// Columns and members that are no measurements.
		"names in rows":                 {map[string]string{"x.csv": "gpus,name,images/s\n1,amp,100\n1,fp32,60\n2,amp,190\n"}, "x amp 1 100; x fp32 1 60; x amp 2 190"},
		"hosts in rows":                 {map[string]string{"x.csv": "gpus,node,nodelist,jobname,images/s\n1,gpu3,gpu3,a-1,100\n1,gpu4,gpu4,a-2,98\n2,gpu3,gpu3,b,190\n"}, "x 1 100; x 1 98; x 2 190"},
		"names of repeats in rows":      {map[string]string{"x.csv": "gpus,name,images/s\n1,run1,100\n1,run2,90\n1,x_3,80\n2,run1,190\n"}, "x 1 100; x 1 90; x 1 80; x 2 190"},
		"sizes in rows":                 {map[string]string{"x.csv": "gpus,img_size,images/s\n1,224,100\n1,448,60\n2,224,190\n"}, "x img_size 224 1 100; x img_size 448 1 60; x img_size 224 2 190"},
		"threads in rows":               {map[string]string{"x.csv": "gpus,num_workers,images/s\n1,0,100\n1,8,190\n2,0,180\n"}, "x num_workers 0 1 100; x num_workers 8 1 190; x num_workers 0 2 180"},
		"accumulated steps":             {map[string]string{"x.csv": "gpus,accum_steps,images/s\n1,1,100\n1,8,110\n2,1,190\n"}, "x accum_steps 1 1 100; x accum_steps 8 1 110; x accum_steps 1 2 190"},
		"measured values":               {map[string]string{"x.csv": "gpus,mem_gb,total_steps,images/s\n1,9.5,100,100\n1,9.7,110,98\n2,9.7,90,190\n"}, "x 1 100; x 1 98; x 2 190"},
		"measured values of any name":   {map[string]string{"x.csv": "gpus,ppl,top 5 (%),images/s\n1,23.2,93,100\n1,23.5,93,98\n2,23.2,93,190\n2,23.4,92,191\n"}, "x 1 100; x 1 98; x 2 190; x 2 191"},
		"recurring values of any name":  {map[string]string{"x.csv": "gpus,alpha,images/s\n1,0.1,100\n1,0.9,98\n2,0.1,190\n2,0.9,191\n"}, "x alpha 0.1 1 100; x alpha 0.9 1 98; x alpha 0.1 2 190; x alpha 0.9 2 191"},
		"recurring values of repeats":   {map[string]string{"x.csv": "gpus,seed,recall,images/s\n1,1,0.7,100\n1,2,0.8,98\n2,1,0.8,190\n2,2,0.7,191\n"}, "x 1 100; x 1 98; x 2 190; x 2 191"},
		"recurring settings of repeats": {map[string]string{"x.csv": "gpus,seed,layers,images/s\n1,1,7,100\n1,2,8,98\n2,1,8,190\n2,2,7,191\n"}, "x layers 7 1 100; x layers 8 1 98; x layers 8 2 190; x layers 7 2 191"},
		"measured values of numbered files": {
			map[string]string{"1gpu_rep1.json": `{"gpus": 1, "f1": 0.7, "throughput": 10}`, "1gpu_rep2.json": `{"gpus": 1, "f1": 0.8, "throughput": 11}`, "2gpu_rep1.json": `{"gpus": 2, "f1": 0.8, "throughput": 19}`, "2gpu_rep2.json": `{"gpus": 2, "f1": 0.7, "throughput": 20}`},
			"DIR 1 10; DIR 1 11; DIR 2 19; DIR 2 20",
		},
		"names in JSON results": {map[string]string{"1.json": "{\n\"gpus\": 1, \"name\": \"amp\", \"throughput\": 10.5}\n", "2.json": "{\n\"gpus\": 1, \"name\": \"fp32\", \"throughput\": 9.5}\n"}, "DIR amp 1 10.5; DIR fp32 1 9.5"},
		// Tables with nodes, and with times of all workers.
		"GPUs per node":               {map[string]string{"x.csv": "nodes,gpus_per_node,images/s\n1,4,400\n2,4,780\n"}, "x 4 400; x 8 780"},
		"GPUs/node":                   {map[string]string{"x.csv": "#nodes,#gpus/node,images/s\n1,4,400\n2,4,780\n"}, "x 4 400; x 8 780"},
		"tasks per node":              {map[string]string{"x.csv": "machines,ntasks_per_node,images/s\n1,4,400\n2,4,780\n"}, "x 4 400; x 8 780"},
		"as many GPUs on each node":   {map[string]string{"x.csv": "nodes,gpus,images/s\n1,4,400\n2,4,780\n4,4,1500\n"}, "x 4 400; x 8 780; x 16 1500"},
		"fewer GPUs than nodes":       {map[string]string{"x.csv": "nodes,gpus,images/s\n1,1,100\n2,1,190\n2,2,370\n"}, "x 1 100; x 2 190; x 4 370"},
		"GPUs of all nodes":           {map[string]string{"x.csv": "nodes,gpus,images/s\n1,4,400\n2,8,780\n"}, "x 4 400; x 8 780"},
		"a world size on all nodes":   {map[string]string{"x.csv": "nodes,world_size,images/s\n1,4,400\n2,4,380\n"}, "x 1 node 4 400; x 2 nodes 4 380"},
		"times of all ranks together": {map[string]string{"x.csv": "ranks,sum_time\n1,40.5\n3,45\n"}, "x 1 40.5s; x 3 15s"},
		"cores":                       {map[string]string{"x.csv": "cores,wall_seconds\n1,40.5\n2,21.5\n"}, "x 1 40.5s; x 2 21.5s"},
	} {
		dir := filepath.Join(t.TempDir(), "DIR")
		write(t, dir, c.files)
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			text := fmt.Sprintf("%s %d", r.Info.Series, r.Info.Workers)
			if r.WallSeconds > 0 {
				text += fmt.Sprintf(" %gs", r.WallSeconds)
			}
			for _, trial := range r.Trials {
				text += fmt.Sprintf(" %g", trial.Rate)
			}
			for _, e := range r.Epochs {
				if e.SamplesPerSecond > 0 {
					text += fmt.Sprintf(" %g", e.SamplesPerSecond)
				}
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %s, want %s\n%s", name, text, c.want, logs.Reports)
		}
	}
}

// TestStudyOfFolders checks that folders of repeats and of hosts are of one study.
func TestStudyOfFolders(t *testing.T) {
	for _, format := range []string{"w_r%d/u-2gpu.log", "node0%d/u-2gpu.log"} {
		dir := filepath.Join(t.TempDir(), "DIR")
		for n := range 3 {
			write(t, dir, map[string]string{fmt.Sprintf(format, n): oneEpoch})
		}
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		for _, r := range logs.Runs {
			if r.Info.Study != "DIR" || r.Info.Series != "u" || len(logs.Runs) != 3 {
				t.Errorf("%s: got study %q and series %q of %d runs", r.File, r.Info.Study, r.Info.Series, len(logs.Runs))
			}
		}
	}
}

// TestSeriesOfPatterns checks that the numbers of workers and nodes and the seeds of runs are not part of their series
// and study, whether a pattern or the content states them.
func TestSeriesOfPatterns(t *testing.T) {
	for _, c := range []struct {
		file, pattern, want string // want contains the study and the series
	}{
		{"s/exp_%dx/log.csv", "exp_{workers}x/log.csv", "s exp-x"},
		{"s/exp_%dx/log.csv", "exp_{workers}x/log.csv=mine", "s mine"},
		{"s/net-w%d.log", "net-w{workers}.log", "s net-w"},
		{"s/r%d.csv", "r{workers}.csv", "s r"},
		{"s/%dgpu/r50.csv", "{workers}gpu/*.csv", "s r50"},
		{"s/n%d/w8.csv", "n{nodes}/w8.csv=workers:{nodes}*4", "s w8"},
		{"s/w%d.csv", "w{seed}.csv=workers:2", "s w"},
		{"s/w%d.csv", "w{nodes}.csv=workers:{nodes}*4", "s w"},
		{"s#/w#%d.csv", "", "s# w#"},
		{"s/p%d/r50.csv", "", "s r50"},
	} {
		var o Options
		if c.pattern != "" {
			p, err := ParsePattern(c.pattern)
			check(t, err)
			o.As = []Pattern{p}
		}
		dir := t.TempDir()
		for n := 1; n <= 4; n *= 2 {
			write(t, dir, map[string]string{fmt.Sprintf(c.file, n): fmt.Sprintf("epoch,seconds,workers\n1,5,%d\n2,5,%d\n", n, n)})
		}
		logs, err := o.Read(t.Context(), dir)
		check(t, err)
		for _, r := range logs.Runs {
			if got := r.Info.Study + " " + r.Info.Series; got != c.want || r.Info.Workers == 0 {
				t.Errorf("%s with %q: got study and series %q and %d workers, want %q", r.File, c.pattern, got, r.Info.Workers, c.want)
			}
		}
		if len(logs.Runs) != 3 {
			t.Errorf("%s: %d runs", c.file, len(logs.Runs))
		}
	}
}
