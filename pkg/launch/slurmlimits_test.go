package launch

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/internal/slurmtest"
	"lockstep/pkg/train"
)

// TestSlurmClassLimits creates a class with environment/jupyterhub/class-limits on a cluster with
// accounting, and launches sweeps that its limits allow and forbid.
func TestSlurmClassLimits(t *testing.T) {
	accounting := slurmtest.Cluster{Accounting: true}
	t.Cleanup(accounting.Stop)
	accounting.StartForTest(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	class := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "environment", "jupyterhub", "class-limits"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("class-limits %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	args := []string{"add", "ml", "--gpus", "2", "--cpus", "6", "--jobs", "2", "--time", "0:30:00", "--class-gpus", "8", me.Username}
	class(args...)
	text := class(args...) // again: nothing to do
	if want := "each student: cpu=6,gres/gpu=2; jobs in the queue: 2; time limit: 00:30:00\n  whole class: gres/gpu=8\n"; !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant %q", text, want)
	}
	for _, name := range []string{"normal", "root"} { // a QOS and an account of Slurm itself
		out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "environment", "jupyterhub", "class-limits"), "add", name, "--gpus", "1").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "choose another name") {
			t.Errorf("class %s: got %v and output %s, want that the name is refused", name, err, out)
		}
	}

	s, _ := own(t, "waits", 1, 4)
	s.Slurm.GPUsPerNode = 4
	_, err = Slurm(t.Context(), "local-test", s)
	var usage *train.UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "ddp-n4-s1: your account ml allows you 2 GPUs at a time, but the job asks for ") ||
		!strings.HasSuffix(err.Error(), "nothing was submitted") {
		t.Errorf("got error %v, want that the class allows 2 GPUs", err)
	}
	if _, err := os.Stat(filepath.Join(s.Logs, "waits")); err == nil {
		t.Error("the study has a folder, want none")
	}
	// Slurm itself refuses such a job too.
	out, err := exec.CommandContext(t.Context(), "sbatch", "--gres=gpu:3", "--output=/dev/null", "--wrap=true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "QOSMaxGRESPerUser") {
		t.Errorf("sbatch: got %v and output %s, want that Slurm refuses the job", err, out)
	}

	// The limits of the QOS of a partition, and of the account to which the class belongs.
	administer := func(command ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
	}
	administer("sacctmgr", "--immediate", "add", "qos", "short")
	administer("sacctmgr", "--immediate", "modify", "qos", "short", "set", "MaxTRESPerUser=cpu=3")
	administer("sacctmgr", "--immediate", "add", "account", "dept")
	administer("sacctmgr", "--immediate", "modify", "account", "dept", "set", "GrpTRES=cpu=5")
	administer("sacctmgr", "--immediate", "modify", "account", "ml", "set", "parent=dept")
	administer("scontrol", "update", "PartitionName=devel", "QOS=short")
	s, _ = own(t, "waits", 4)
	s.Slurm.Partition = "devel"
	if _, err = Slurm(t.Context(), "local-test", s); err == nil || !strings.Contains(err.Error(), "QOS short of partition devel allows you 3 CPUs at a time, but the job asks for 4") {
		t.Errorf("got error %v, want that the QOS of the partition allows 3 CPUs", err)
	}
	s, _ = own(t, "waits", 6)
	const ofParent = "account dept, to which your account ml belongs, allows all its users together 5 CPUs at a time, but the job asks for 6"
	if _, err = Slurm(t.Context(), "local-test", s); err == nil || !strings.Contains(err.Error(), ofParent) {
		t.Errorf("got error %v, want that the parent account allows 5 CPUs", err)
	}

	s, _ = own(t, "waits", 1)
	first := submitSweep(t, s)
	awaitState(t, first, StateRunning)
	more, _ := own(t, "sums", 1, 2)
	_, err = Slurm(t.Context(), "local-test", more)
	if err == nil || !strings.Contains(err.Error(), "your account ml allows you 2 jobs in the queue, of which 1 are used, but the sweep would submit 2") {
		t.Errorf("got error %v, want that the class allows 2 jobs", err)
	}
	more.Slurm.Account = "mll"
	if _, err = Slurm(t.Context(), "local-test", more); err == nil || !strings.Contains(err.Error(), `you may not use an account "mll" (did you mean ml?)`) {
		t.Errorf("got error %v, want an unknown account", err)
	}
	more.Slurm.Account, more.Workers = "", []int{2}
	if err := waitForJob(t, submitSweep(t, more)); err != nil {
		t.Errorf("a sweep within the limits: %v", err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = waitForJob(t, first)
	class("remove", "ml")
}
