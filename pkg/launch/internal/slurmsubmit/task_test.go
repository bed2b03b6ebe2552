package slurmsubmit

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTaskOfOneWorker: torch.distributed.init_process_group fails without MASTER_ADDR and
// MASTER_PORT, also in a run with one worker, which is the baseline of a sweep. srun sets neither.
func TestTaskOfOneWorker(t *testing.T) {
	for name, value := range map[string]string{
		"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NNODES": "1", "SLURM_STEP_ID": "0",
		"SLURM_JOB_ID": "17", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1",
		"RANK": "", "WORLD_SIZE": "", "MASTER_ADDR": "", "MASTER_PORT": "",
	} {
		t.Setenv(name, value)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	command := []string{"sh", "-c", `echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT" > "$0"`, filepath.Join(t.TempDir(), "seen")}
	b, r := &SweepJobs{Study: "scripts", Threads: 1}, &Run{ID: "17", Dir: dir, Series: "script", Workers: 1, Seed: 1, Command: command}
	if err := b.writeDescription(r); err != nil {
		t.Fatal(err)
	}
	if code, err := RunTask(t.Context(), dir, command); err != nil || code != 0 {
		t.Fatalf("got exit code %d, %v", code, err)
	}
	seen, err := os.ReadFile(command[3])
	if err != nil || !regexp.MustCompile(`^0 of 1 at 127\.0\.0\.1:[1-9][0-9]+\n$`).Match(seen) {
		t.Errorf("the program got %q, %v, want the address of rank 0", seen, err)
	}
}
