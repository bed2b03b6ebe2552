package launch

import (
	"os"
	"os/exec"
	"os/user"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSlurmControllerStops: while the controller does not answer, the states of the jobs remain, and
// the reason is shown. Afterwards they are read again.
func TestSlurmControllerStops(t *testing.T) {
	useCommands(t)
	s, out := shell(t, "sleep 600", 1)
	j := submitSweep(t, s)
	awaitState(t, j, StateRunning)
	sweep := j.backend.(*slurmSweep)
	sweep.client.Timeout = 200 * time.Millisecond // nothing answers, so that more time would change nothing
	pid := cluster.DaemonPID(t, "slurmctld")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const problem = "the states of the jobs are unknown, and Lockstep asks again: run squeue: the Slurm controller does not answer (Lockstep waited for 200ms); jobs that are waiting or running continue"
	for deadline := time.Now().Add(slurmTimeout); !strings.Contains(j.backend.waitsFor(), problem); time.Sleep(50 * time.Millisecond) {
		if r := j.Status()[0]; r.State != StateRunning {
			t.Errorf("got status %+v, want that the run is still running", r)
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want %q", j.backend.waitsFor(), problem)
		}
	}
	if err := j.Cancel(); err == nil || !strings.Contains(err.Error(), "the Slurm controller does not answer") {
		t.Errorf("cancel: got error %v, want that the controller does not answer", err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	sweep.client.Timeout = 0
	for deadline := time.Now().Add(slurmTimeout); j.backend.waitsFor() != ""; time.Sleep(50 * time.Millisecond) {
		_ = j.Status() // asks again
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want that the states are known", j.backend.waitsFor())
		}
	}
	if !strings.Contains(out.String(), problem) {
		t.Errorf("got output %s, want %q", out, problem)
	}
}

// TestSlurmReservation: a reservation is used until it ends, which the job must not exceed.
func TestSlurmReservation(t *testing.T) {
	useCommands(t)
	s, _ := shell(t, "true", 1)
	s.Slurm.Reservation, s.Slurm.Time = "course", 10*time.Minute
	scontrol := func(args ...string) {
		if out, err := exec.CommandContext(t.Context(), "scontrol", args...).CombinedOutput(); err != nil {
			t.Fatalf("scontrol %q: %v: %s", args, err, out)
		}
	}
	check := func(want string) {
		t.Helper()
		text, err := SlurmDryRun(t.Context(), "local-test", s)
		if want == "" && (err != nil || !strings.Contains(text, "#SBATCH --reservation=course\n")) {
			t.Errorf("got %s, %v, want a job in the reservation", text, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "nothing was submitted")) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	const name = "ReservationName=course"
	scontrol("create", "reservation", name, "StartTime=now", "Duration=30", "Users="+me.Username, "Nodes=n1")
	check("")
	s.Slurm.Time = 40 * time.Minute
	check("before a job of 40m0s that starts now")
	scontrol("delete", name) // as Slurm does when it ends
	check(`the cluster has no reservation "course", or it has expired`)
	if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v in the logs folder", left, err)
	}
}
