package launch

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/launch/site"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// pretendCluster makes the test use programs that answer like Slurm's commands on a cluster with one
// partition, described in sinfo's form.
func pretendCluster(t *testing.T, partition string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sinfo":    "echo '" + partition + "'",
		"scontrol": "echo No reservations in the system",
		"sbatch":   "echo 'a dry run submits nothing' >&2; exit 1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestSlurmCPUsPerGPU plans a sweep by the rules of CTE-POWER: 40 of the 160 CPUs for each of the 4
// GPUs of a node. The profile is a copy of the shipped one that starts several tasks by srun.
func TestSlurmCPUsPerGPU(t *testing.T) {
	text, err := os.ReadFile("../../environment/sites/bsc-cte-power.yaml")
	if err != nil {
		t.Fatal(err)
	}
	profile := string(text)
	for old, answer := range map[string]string{
		"partitions: ask-your-site": "partitions: [main]", "account: ask-your-site": "account: optional",
		"network_interface: ask-your-site": `network_interface: ""`, "scratch: ask-your-site": `scratch: ""`, "mpi_command: ask-your-site": `mpi_command: ""`,
		"start: plain": "start: srun", "tasks_per_node: 1": "tasks_per_node: 0\nworkers_per_node: 4",
	} {
		if !strings.Contains(profile, "\n"+old) {
			t.Fatalf("the profile has no %q", old)
		}
		profile = strings.Replace(profile, "\n"+old, "\n"+answer, 1)
	}
	path := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(path, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	pretendCluster(t, "main|up|52|160|gpu:4|2-00:00:00|main*|512000")
	for workers, want := range map[int]string{
		1: "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=40\n#SBATCH --gres=gpu:1\n",
		2: "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=2\n#SBATCH --cpus-per-task=40\n#SBATCH --gres=gpu:2\n",
		3: "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=3\n#SBATCH --cpus-per-task=40\n#SBATCH --gres=gpu:3\n",
		4: "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=40\n#SBATCH --gres=gpu:4\n",
		8: "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=40\n#SBATCH --gres=gpu:4\n",
	} {
		s, _ := own(t, "gpus", workers)
		if text, err := SlurmDryRun(t.Context(), path, s); err != nil || !strings.Contains(text, want) {
			t.Errorf("%d workers: got %s, %v, want %s", workers, text, err, want)
		}
	}
	s, _ := own(t, "gpus", 2)
	s.StudyLogs = DefaultStudyLogs
	withLogs, err := SlurmDryRun(t.Context(), path, s)
	if want := "# ddp-n2-s1: after the run, the next command or notebook that shows the sweep would write its study log to " + filepath.Join(s.Logs, "gpus", "study-logs") + "\n"; err != nil || !strings.Contains(withLogs, want) {
		t.Errorf("got %s, %v, want %q", withLogs, err, want)
	}
	s.Slurm.CPUsPerTask = 41
	_, err = SlurmDryRun(t.Context(), path, s)
	const want = "the job needs 82 CPUs per node (2 tasks × 41 CPUs), but site "
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), " allows exactly 80 with 2 GPUs: use 40 CPUs per task") {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// writeFinishedRun writes the folder of a finished run with 4 workers.
func writeFinishedRun(t *testing.T, dir string, info runs.Info) {
	t.Helper()
	info.Workers = 4
	w, err := runs.Create(dir, info)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err == nil {
		all["wall_seconds"] = 600
		text, err = json.Marshal(all)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlurmTimeEstimate compares the time limit with the time of a similar run in the logs folder: 4
// workers took 600 s for 10 epochs, so that one worker would take 40 minutes, and 80 for 20 epochs.
func TestSlurmTimeEstimate(t *testing.T) {
	pretendCluster(t, "batch|up|2|8|gpu:4|1-00:00:00|batch*|4000")
	s, _ := own(t, "sums", 1)
	config := map[string]any{"epochs": 10, "set": "", "data": map[string]any{"path": ""}, "engine": map[string]any{"device": "cpu"}}
	writeFinishedRun(t, filepath.Join(s.Logs, "before", "ddp-n4-s1"), runs.Info{Config: config})
	program, _ := shell(t, "train", 2)
	program.Threads = 1
	writeFinishedRun(t, filepath.Join(program.Logs, "before", "script-n4-s1"), runs.Info{Command: program.Command, ThreadsPerWorker: 1})
	tests := []struct {
		name   string
		sweep  Sweep
		change func(*Sweep)
		want   string // "" if no warning
	}{
		{
			"too little time", s, func(s *Sweep) { s.Epochs, s.Slurm.Time = 20, time.Hour },
			"warning: run ddp-n1-s1: the time limit is 1h0m0s, but the job will probably take 1h20m0s, because 10 epochs took 10m0s with 4 workers in run before/ddp-n4-s1: raise the time limit",
		},
		{"enough time", s, func(s *Sweep) { s.Epochs, s.Slurm.Time = 20, 2*time.Hour }, ""},
		{"no limit", s, func(s *Sweep) { s.Epochs = 20 }, ""},
		{"other config", s, func(s *Sweep) { s.Set, s.Slurm.Time = []string{"x=1"}, time.Minute }, ""},
		{
			"program", program, func(s *Sweep) { s.Slurm.Time = 15 * time.Minute },
			"warning: run script-n2-s1: the time limit is 15m0s, but the job will probably take 20m0s, because the complete program took 10m0s with 4 workers in run before/script-n4-s1",
		},
		{"other program", program, func(s *Sweep) { s.Command, s.Slurm.Time = []string{"true"}, time.Minute }, ""},
	}
	for _, tt := range tests {
		tt.change(&tt.sweep)
		text, err := SlurmDryRun(t.Context(), "local-test", tt.sweep)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want == "" && strings.Contains(text, "probably") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %s, want %q", tt.name, text, tt.want)
		}
	}
}

// TestSlurmScriptsInNotebook: a notebook shows the scripts before it submits them. Here, sbatch fails.
func TestSlurmScriptsInNotebook(t *testing.T) {
	pretendCluster(t, "batch|up|2|8|gpu:4|1-00:00:00|batch*|4000")
	s, _ := shell(t, "echo '<b>'", 1, 4)
	s.Seeds = []int64{1, 2}
	var shown []string
	notebook.SetHook(notebook.Hook{
		Context: context.Background,
		Display: func(v any, _ string, _ bool) error {
			if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
				t.Errorf("%v, %v are in the logs folder before the scripts are shown", left, err)
			}
			if page, ok := v.(interface{ HTML() string }); ok {
				shown = append(shown, page.HTML())
			} else if want := "folder of the runs: " + filepath.Join(s.Logs, "scripts"); v != want || len(shown) > 0 {
				t.Errorf("got output %v, want first %s", v, want)
			}
			return nil
		},
	})
	defer notebook.SetHook(notebook.Hook{})
	if _, err := Slurm(t.Context(), "local-test", s); err == nil || !strings.Contains(err.Error(), "a dry run submits nothing") {
		t.Errorf("got error %v, want that of sbatch", err)
	}
	if len(shown) != 1 {
		t.Fatalf("got %d outputs, want one", len(shown))
	}
	for _, want := range []string{
		"<details><summary style=\"display: list-item\">Job script of runs script-n1-s1 to script-n1-s2 (2)</summary>\n<pre># script-n1-s1: would write ",
		"<summary style=\"display: list-item\">Job script of runs script-n4-s1 to script-n4-s2 (2)</summary>", "&lt;b&gt;", "#SBATCH --array=0-1\n", "# sbatch --parsable",
		"/script-n4-s2/job.sh: the script above with the folder, seed and arguments of this run\n",
	} {
		if !strings.Contains(shown[0], want) {
			t.Errorf("got %s\nwant %q", shown[0], want)
		}
	}
	if strings.Contains(shown[0], "<b>") {
		t.Error("the script is not escaped")
	}
}

// TestDryRunAwayFromTheCluster shows the scripts for each shipped site on a machine with neither Slurm nor the
// program. What could not be checked is listed, and unknown values are comments, which a submission refuses.
func TestDryRunAwayFromTheCluster(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range site.Names() {
		profile, err := site.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		s := Sweep{Study: "away", Workers: []int{1}, Command: []string{"no-such-program", "train.py"}, Logs: t.TempDir()}
		s.Slurm.Account = "class"
		text, err := SlurmDryRun(t.Context(), name, s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{
			"# not checked here: the program (exec: \"no-such-program\"", "# not checked here: partitions, accounts and their limits (run sinfo: no Slurm on this machine",
			"#SBATCH --account=class\n", " -- no-such-program train.py\n",
		} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: got\n%s\nwant once %q", name, text, want)
			}
		}
		for _, key := range profile.Unknown(site.Job{Tasks: 1, Account: "class", Output: "x"}) {
			if !strings.Contains(text, "\n# "+key+": ask-your-site\n") {
				t.Errorf("%s: no comment for %s in\n%s", name, key, text)
			}
		}
		if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v in the logs folder", name, left, err)
		}
		if _, err := Slurm(t.Context(), name, s); err == nil {
			t.Errorf("%s: submitted away from the cluster", name)
		}
	}
}
