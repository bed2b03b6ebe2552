package logread

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSeparatedSeries reads two models whose names differ only in a number. The runs, the
// rows, the reports and a Follower have the same series, and the pattern in the note joins
// them.
func TestSeparatedSeries(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for _, depth := range []int{50, 152} {
		for _, n := range []int{1, 2} {
			files[fmt.Sprintf("resnet_%d_%dgpu.log", depth, n)] = fmt.Sprintf("Epoch 1/2\n10/10 - %ds - loss: 0.5\nEpoch 2/2\n10/10 - %ds - loss: 0.4\n", depth*4/n, depth*4/n)
		}
	}
	write(t, dir, files)
	want := []string{"resnet 50", "resnet 50", "resnet 152", "resnet 152"}
	logs, reports := explained(t, dir)
	var got []string
	for _, r := range logs.Runs {
		got = append(got, r.Info.Series)
	}
	if !slices.Equal(got, want) {
		t.Errorf("series %q, want %q", got, want)
	}
	if len(logs.Notes) != 1 || !strings.Contains(logs.Notes[0], `"resnet 50", "resnet 152"`) {
		t.Fatalf("notes %q", logs.Notes)
	}
	if text := reports["resnet_152_1gpu.log"].String(); !strings.Contains(text, `series "resnet 152": separated from the other runs of "resnet" with equally many workers, which differ in a number in their names (50 and 152)`) {
		t.Error(text)
	}
	rows := map[string]bool{}
	_, err := Rows(Epochs, []string{filepath.Join(dir, "resnet_50_1gpu.log"), filepath.Join(dir, "resnet_152_1gpu.log")}, func(r Row) error {
		rows[r.Series] = true
		return nil
	})
	check(t, err)
	if len(rows) != 2 || !rows["resnet 50"] || !rows["resnet 152"] {
		t.Errorf("series of the rows of two paths: %v", rows)
	}
	f, err := Follow(t.Context(), dir)
	check(t, err)
	for range 2 { // the same series each time
		if !f.Next() {
			t.Fatal(f.Err())
		}
		got = nil
		for _, r := range f.Runs() {
			got = append(got, r.Info.Series)
		}
		if !slices.Equal(got, want) || len(f.Logs().Notes) != 1 {
			t.Errorf("followed: series %q, notes %q", got, f.Logs().Notes)
		}
		write(t, dir, map[string]string{"resnet_50_1gpu.log": files["resnet_50_1gpu.log"] + "the end\n"})
		f.Every = 1
	}
	m := regexp.MustCompile(`--as '([^']*)'`).FindStringSubmatch(logs.Notes[0])
	if m == nil {
		t.Fatalf("the note does not state how to join the runs: %s", logs.Notes[0])
	}
	p, err := ParsePattern(m[1])
	check(t, err)
	joined, err := Options{As: []Pattern{p}}.Read(t.Context(), dir)
	check(t, err)
	for _, r := range joined.Runs {
		if r.Info.Series != "resnet" {
			t.Errorf("%s has the series %q after --as '%s'", r.File, r.Info.Series, m[1])
		}
	}
	if len(joined.Notes) != 0 || len(joined.Runs) != 4 {
		t.Errorf("%d runs, notes %q", len(joined.Runs), joined.Notes)
	}
}

// TestPlannedEpochs checks that the total in Keras' lines "Epoch N/M" separates runs, and that
// the number of epochs that a run has reached does not.
func TestPlannedEpochs(t *testing.T) {
	log := func(total, reached int) string {
		var b strings.Builder
		for i := range reached {
			fmt.Fprintf(&b, "Epoch %d/%d\n10/10 - 12s - loss: 0.5\n", i+1, total)
		}
		return b.String()
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"unet_4gpu_seed1.log": log(5, 5), "unet_4gpu_seed2.log": log(5, 3), "unet_4gpu_seed3.log": log(20, 5)})
	all, problems, err := Read(dir)
	check(t, err)
	var got []string
	for _, r := range all {
		got = append(got, r.Info.Series)
	}
	if want := []string{"unet 5 epochs", "unet 5 epochs", "unet 20 epochs"}; !slices.Equal(got, want) {
		t.Errorf("series %q, want %q; problems %v", got, want, problems)
	}
}

// TestOptionsOfCommands checks which options of a recorded command make two runs different series: all but those
// that name a place, a job, a time, a device or a repeat.
func TestOptionsOfCommands(t *testing.T) {
	for _, c := range []struct {
		a, b     string
		separate bool
	}{
		{"--data cifar10", "--data tinyimagenet", true},
		{"--data-dir /data/cifar10", "--data-dir /data/imagenet", true},
		{"--data-dir /tmp/job_70101", "--data-dir /tmp/job_70102", false},
		{"--data-dir /scratch/a/cifar10", "--data-dir /scratch/b/cifar10", false},
		{"--dataset_name mnist", "--dataset_name svhn", true},
		{"--pretrained_model_name_or_path sd-base", "--pretrained_model_name_or_path hub/sd-xl", true},
		{"--model_path out/1", "--model_path out/2", false},
		{"--num_workers 0", "--num_workers 8", true},
		{"--img-size 224", "--img-size 448", true},
		{"--gradient_accumulation_steps 1", "--gradient_accumulation_steps 4", true},
		{"--max_tokens 2048", "--max_tokens 4096", true},
		{"--local_sgd 1", "--local_sgd 8", true},
		{"--load_in_8bit --lr 1", "--lr 1", true},
		{"--use_checkpoint", "--lr 1", true},
		{"--drop-path 0.1", "--drop-path 0.2", true},
		{"--lr_scheduler cosine", "--lr_scheduler step", true},
		{"--mode train", "--mode eval", true},
		{"--fp16", "", true},
		{"--device cpu", "--device cuda", true},
		{"configs/frcnn_r50.py", "configs/retina_r101.py", true},
		{"--config conf/small.yaml", "--config conf/large.yaml", true},
		{"--deepspeed ds_zero2.json", "--deepspeed ds_zero3.json", true},
		{"/data/imagenet", "/data/places", true},
		{"trainer.precision=16 data=coco", "trainer.precision=32 data=coco", true},
		{"hydra.run.dir=out/1 seed=1", "hydra.run.dir=out/2 seed=2", false},
		{"x.yaml out/run1", "x.yaml out/run2", false},
		{"--output_dir a --log-interval 10", "--output_dir b --log-interval 20", false},
		{"--resume a.pth", "", false},
		{"--resume-from=work/epoch_3.pth --lr 1", "--lr 1", false},
		{"--port 29500 --data_seed 1", "--port 29501 --data_seed 2", false},
		{"--exp-name a --version 1 --run_name x", "--exp-name b --version 2 --run_name y", false},
		{"--devices 2,3", "--devices 0,1", false},
		{"--save results/a.pt --csv a.csv", "--save results/b.pt --csv b.csv", false},
		{"--rank 0 --fold 0", "--rank 1 --fold 1", false},
		{"--group_by_length --lr 1", "--lr 1", true},
		{"--group a", "--group b", false},
	} {
		dir := t.TempDir()
		log := func(options string) string { return "+ torchrun --nproc_per_node=2 a.py " + options + "\n" + oneEpoch }
		write(t, dir, map[string]string{"job_70101.out": log(c.a), "job_70102.out": log(c.b)})
		all, _, err := Read(dir)
		check(t, err)
		if len(all) != 2 || all[0].Info.Workers != 2 || (all[0].Info.Series != all[1].Info.Series) != c.separate {
			t.Errorf("%q and %q: got series %q and %q, want separate: %t", c.a, c.b, all[0].Info.Series, all[1].Info.Series, c.separate)
		}
	}
}
