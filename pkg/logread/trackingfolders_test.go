package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestSeriesOfTrackingFolders checks that the names of the folders that W&B, MLflow and MMEngine
// generate for each run name neither a series nor a study: runs with different numbers of workers are
// one series, named for the folder of the project.
func TestSeriesOfTrackingFolders(t *testing.T) {
	const scalars = `{"lr": 0.1, "loss": 1.5, "time": 0.25, "epoch": 1, "iter": 50, "memory": 3000, "step": 50}` + "\n"
	for _, c := range []struct {
		name  string
		files map[string]string // the run's two folders are ONE and TWO, its workers N
		one   string
		two   string
		want  string
	}{
		{
			"W&B",
			map[string]string{
				"unet/wandb/RUN/files/wandb-summary.json": `{"_step": 9, "_runtime": 60.5, "_timestamp": 1704110400.5, "_wandb": {"runtime": 60}, "loss": 0.25}`,
				"unet/wandb/RUN/files/config.yaml":        "wandb_version: 1\n\nworld_size:\n  value: N\n",
			},
			"run-20240101_115800-abc12345", "run-20240101_125800-abc12346", "unet/ 1, unet/ 2",
		},
		{
			"W&B with output",
			map[string]string{
				"unet/wandb/RUN/files/output.log":  oneKerasEpoch,
				"unet/wandb/RUN/files/config.yaml": "wandb_version: 1\n\nworld_size:\n  value: N\n",
			},
			"offline-run-20240101_115800-abc12345", "offline-run-20240101_125800-abc12346", "unet/ 1, unet/ 2",
		},
		{
			"MLflow",
			map[string]string{
				"unet/mlruns/0/RUN/metrics/loss":    "1704110400000 0.5 1\n",
				"unet/mlruns/0/RUN/params/num_gpus": "N",
			},
			"3f0c9a1be2d84c55a1b2c3d4e5f60718", "9c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f", "experiment 0/ 1, experiment 0/ 2",
		},
		{
			"MMEngine",
			map[string]string{"unet/RUN/vis_data/scalars.json": scalars, "unet/RUN/vis_data/config.yaml": "world_size: N\n"},
			"20240101_115800", "20240101_125800", "unet/ 1, unet/ 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for n, folder := range []string{c.one, c.two} {
				for path, text := range c.files {
					path = strings.Replace(path, "RUN", folder, 1)
					write(t, filepath.Join(dir, filepath.Dir(path)), map[string]string{filepath.Base(path): strings.Replace(text, "N", fmt.Sprint(n+1), 1)})
				}
			}
			logs, err := Options{}.Read(t.Context(), dir)
			check(t, err)
			var got []string
			studies := map[string]bool{}
			for _, r := range logs.Runs {
				got = append(got, fmt.Sprintf("%s/ %d", r.Info.Series, r.Info.Workers))
				studies[r.Info.Study] = true
				if r.Info.Seed != 0 {
					t.Errorf("got seed %d of %s, which the logs do not have", r.Info.Seed, r.Dir)
				}
			}
			if text := strings.Join(got, ", "); text != c.want || len(studies) != 1 {
				t.Errorf("got series and workers %s of the studies %v, want %s of one study", text, studies, c.want)
			}
		})
	}
}
