package launch

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/launch/internal/queue"
)

// TestSlurmLauncherKilled: the launcher was killed after sbatch, before it has recorded the ids of the
// jobs. The same launch finds them, submits no second job for a run, and makes Attach find them.
func TestSlurmLauncherKilled(t *testing.T) {
	useCluster(t)
	s, _ := own(t, "waits", 1, 2)
	out, err := exec.CommandContext(t.Context(), "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").CombinedOutput()
	held := strings.TrimSpace(string(out))
	if err != nil {
		t.Fatalf("sbatch: %v\n%s", err, held)
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "scancel", held).CombinedOutput(); err != nil {
			t.Errorf("scancel: %v\n%s", err, out)
		}
	})
	s.Slurm.Dependency = "afterany:" + held // all jobs stay in the queue
	s.Seeds = []int64{1, 2}                 // with 2 seeds each worker count is a job array
	s.Slurm.ArraySize = 2
	first := submitSweep(t, s)
	s.Workers, s.Seeds = []int{1, 2, 4}, []int64{1} // the runs with 4 workers are a job of its own
	s.Slurm.ArraySize = 0
	second := submitSweep(t, s)
	jobs := map[string]string{}
	for _, j := range []*Job{first, second} {
		for _, r := range j.Status() {
			jobs[r.Dir] = r.Job
		}
	}
	for dir := range jobs { // as the kill leaves it
		path := filepath.Join(dir, "job.json")
		var all map[string]any
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		delete(all, "job")
		if err == nil {
			text, err = json.MarshalIndent(all, "", "  ")
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range queue.ReadRecords(first.Dir()) {
		if err := os.Remove(r.Path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Attach(first.Dir()); err == nil || !strings.Contains(err.Error(), "launch the same sweep again, which finds the jobs in the queue") {
		t.Errorf("got error %v, want that the launch is to be repeated", err)
	}
	s.Seeds = []int64{1, 2}
	s.Workers = []int{1, 2}
	again := submitSweep(t, s)
	attached, err := Attach(again.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []*Job{again, attached} {
		for _, r := range j.Status() {
			if r.Job == "" || r.Job != jobs[r.Dir] {
				t.Errorf("%s: got job %q, want %q", r.Name, r.Job, jobs[r.Dir])
			}
		}
	}
	s.Workers, s.Seeds = []int{4}, []int64{1}
	if r := submitSweep(t, s).Status()[0]; r.Job == "" || r.Job != jobs[r.Dir] {
		t.Errorf("%s: got job %q, want %q", r.Name, r.Job, jobs[r.Dir])
	}
}
