package launch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
)

// mpiPrograms are the mpirun of each implementation, by their names in Debian.
var mpiPrograms = []string{"mpirun.openmpi", "mpirun.mpich"}

// forEachMPI runs a test with each mpirun of this machine.
func forEachMPI(t *testing.T, test func(t *testing.T, command string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	for _, command := range mpiPrograms {
		t.Run(command, func(t *testing.T) {
			if _, err := exec.LookPath(command); err != nil {
				t.Skipf("no %s on this machine", command)
			}
			test(t, command)
		})
	}
}

// launchMPI runs s to its end.
func launchMPI(t *testing.T, s Sweep) (*Job, error) {
	t.Helper()
	j, err := MPI(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return j, j.Wait(context.Background())
}

// TestMPI runs a sweep of lockstep, which takes the ranks from mpirun's variables, and repeats it.
func TestMPI(t *testing.T) {
	forEachMPI(t, func(t *testing.T, command string) {
		t.Setenv("RANK", "7") // of whoever has started the launcher
		s, out := own(t, "sums", 1, 2)
		s.MPI.Command = command
		j, err := launchMPI(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, r := range j.Status() {
			if r.State != StateDone || r.Epoch != 2 || r.Last.IoU != float64(r.Workers+1)/2 { // the mean of rank+1
				t.Errorf("got status %+v, want 2 epochs", r)
			}
			if b := r.Binding; b == nil || !strings.Contains(b.Reason, "mpirun starts them") {
				t.Errorf("%s: got binding %v, want that mpirun starts the workers", r.Name, b)
			}
			for rank := range r.Workers {
				if text := file(t, r.Dir, runs.WorkerLogName(rank)); !strings.Contains(text, "epoch 2 mean") {
					t.Errorf("%s: got log %q of rank %d", r.Name, text, rank)
				}
			}
		}
		if want := "[n2 s1 rank 1] epoch 2 mean 1.5"; strings.Count(out.String(), want) != 1 {
			t.Errorf("got output\n%s\nwant %q", out, want)
		}
		s.Workers = []int{1, 2, 3}
		j, err = launchMPI(t, s)
		if err != nil || j.Status()[2].Epoch != 2 || strings.Count(out.String(), "epoch 2 mean 1.5") != 2 {
			t.Errorf("repeated: %v, status %+v, output\n%s", err, j.Status(), out)
		}
		if j, err = launchMPI(t, s); err != nil || j.Note() != "3 runs done; nothing to do" {
			t.Errorf("repeated: got note %q, %v, want nothing to do", j.Note(), err)
		}
	})
}

// TestMPICommand runs another program, which gets the variables of a worker.
func TestMPICommand(t *testing.T) {
	forEachMPI(t, func(t *testing.T, command string) {
		s, out := shell(t, `echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, at $MASTER_ADDR, seed $LOCKSTEP_SEED, $OMP_NUM_THREADS threads, batch $0"; echo "${#LOCKSTEP_TOKEN} $LOCKSTEP_RUN" >&2`, 2)
		parallel(t, &s)
		s.Command = append(s.Command, "{16*workers}")
		s.MPI.Command = command
		j, err := launchMPI(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		dir := j.Status()[0].Dir
		for rank := range 2 {
			n := strconv.Itoa(rank)
			want := "rank " + n + " of 2, local " + n + " of 2, at 127.0.0.1, seed 1, 1 threads, batch 32\n26 " + dir + "\n"
			if got := file(t, dir, runs.WorkerLogName(rank)); got != want {
				t.Errorf("rank %d: got log %q, want %q", rank, got, want)
			}
		}
		if _, err := monitor.NewCPUMeter(os.Getpid()).Sample(); err == nil {
			if records, problems, err := usage.Read(dir); err != nil || len(problems) > 0 || len(records) != 2 {
				t.Errorf("got usage %+v, %v, %v, want records of 2 ranks", records, problems, err)
			}
		}
		info := read(t, dir).Info
		if info.Status != runs.StatusDone || info.Workers != 2 || info.Nodes != 1 || info.Command[3] != "32" {
			t.Errorf("got run %+v", info)
		}
		var names []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		s.MPI, s.Logs = MPIOptions{}, t.TempDir()
		local, lerr := launch(t, s)
		if err := errors.Join(err, lerr); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(local.Status()[0].Dir, name)); err != nil {
				t.Errorf("a run folder of Local lacks %s", name)
			}
		}
	})
}

// TestMPIFailures: the rank that failed is named, with its last lines, and the others end.
func TestMPIFailures(t *testing.T) {
	forEachMPI(t, func(t *testing.T, command string) {
		t.Run("exit code", func(t *testing.T) {
			s, out := shell(t, `echo "pid $$"; [ $RANK = 1 ] && { echo "no data"; exit 7; }; exec sleep 600`, 3)
			parallel(t, &s)
			s.MPI.Command = command
			j, err := launchMPI(t, s)
			wantError(t, err, "run script-n3-s1: rank 1 ended with exit code 7; its last lines:", "no data")
			if info := read(t, j.Status()[0].Dir).Info; info.Status != runs.StatusFailed || !strings.Contains(info.Error, "rank 1 ended with exit code 7") {
				t.Errorf("got status %q, error %q", info.Status, info.Error)
			}
			gone(t, out.pids(t))
		})
		t.Run("killed", func(t *testing.T) {
			s, _ := own(t, "killed", 2)
			parallel(t, &s)
			s.MPI.Command = command
			j, err := launchMPI(t, s)
			wantError(t, err, "rank 1 was killed by signal 9")
			if info := read(t, j.Status()[0].Dir).Info; info.Status != runs.StatusFailed {
				t.Errorf("got status %q, want failed", info.Status)
			}
		})
		t.Run("canceled", func(t *testing.T) {
			s, out := own(t, "waits", 2)
			parallel(t, &s)
			s.MPI.Command = command
			j, err := MPI(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			out.await(t, "epoch 1 mean", 2)
			if err := j.Cancel(); err != nil {
				t.Fatal(err)
			}
			if err := j.Wait(context.Background()); !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want that it was canceled", err)
			}
			if n := strings.Count(out.String(), "ends in order"); n != 2 || j.Status()[0].State != StateCanceled {
				t.Errorf("%d workers ended in order, status %+v, output\n%s", n, j.Status(), out)
			}
			gone(t, out.pids(t))
		})
	})
}

// TestMPIRefused: nothing is started or written.
func TestMPIRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Sweep)
		want   string
	}{
		"no such mpirun":  {func(s *Sweep) { s.MPI.Command = "no-mpirun" }, "no no-mpirun on this machine: install Open MPI (on Debian: apt install openmpi-bin) or MPICH"},
		"another program": {func(s *Sweep) { s.MPI.Command = "true" }, "belongs to neither Open MPI nor MPICH"},
		"no hostfile":     {func(s *Sweep) { s.MPI.Hostfile = empty + "x" }, "no such file"},
		"empty hostfile":  {func(s *Sweep) { s.MPI.Hostfile = empty }, "it names no host"},
		"binding":         {func(s *Sweep) { s.Bind = BindCores }, "mpirun binds the workers"},
	} {
		s, _ := shell(t, "true", 1)
		c.change(&s)
		_, err := MPI(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
		if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v in the logs folder", name, left, err)
		}
	}
	s, _ := shell(t, "true", 1)
	s.MPI.Command = "mpirun"
	_, err := Local(t.Context(), s)
	wantError(t, err, "use launch.MPI")
}

// TestMPIHosts: with a hostfile, the workers read the token file.
func TestMPIHosts(t *testing.T) {
	forEachMPI(t, func(t *testing.T, command string) {
		hosts := filepath.Join(t.TempDir(), "hosts")
		line := "127.0.0.1 slots=2\n"
		if command == "mpirun.mpich" {
			line = "127.0.0.1:2\n"
		}
		if err := os.WriteFile(hosts, []byte("# this machine\n\n"+line), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		s, out := shell(t, `echo "$RANK of $WORLD_SIZE at $MASTER_ADDR, a secret of ${#LOCKSTEP_TOKEN}"`, 2)
		s.MPI, s.Oversubscribe = MPIOptions{Command: command, Hostfile: hosts}, false
		j, err := launchMPI(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for rank := range 2 {
			want := strconv.Itoa(rank) + " of 2 at 127.0.0.1, a secret of 64" // derived from the token file
			if !strings.Contains(out.String(), want) {
				t.Errorf("got output\n%s\nwant %q", out, want)
			}
		}
		if info := read(t, j.Status()[0].Dir).Info; info.Nodes != 0 {
			t.Errorf("got %d nodes, want that they are unknown", info.Nodes)
		}
		if command == "mpirun.openmpi" { // MPICH does not count slots
			s.Workers = []int{3}
			_, err := launchMPI(t, s)
			wantError(t, err, "run script-n3-s1: mpirun ended with exit code 1; its first lines:\n    There are not enough slots available")
		}
		text, err := dryRun(t, OnMPI, Sweep{Command: []string{"true"}, Workers: []int{200}, MPI: s.MPI, Logs: s.Logs})
		if err != nil || strings.Contains(text, "=SECRET") || !strings.Contains(text, " "+hosts+" ") {
			t.Errorf("got dry run\n%s\n%v, want the hostfile and no secret", text, err)
		}
	})
}

// TestSlurmMPI runs the loop of a scaling study as jobs of Slurm, with the site's command for MPI
// programs.
func TestSlurmMPI(t *testing.T) {
	useCluster(t)
	s, out := newStudy(t, "{16*workers}", 1, 4)
	s.Command[2] = `echo "PMI: $PMI_RANK of $PMI_SIZE, rank $RANK"; ` + s.Command[2]
	s.Slurm.MPI = true
	text, err := SlurmDryRun(t.Context(), "local-test", s)
	if err != nil || !strings.Contains(text, "srun --mpi=pmi2 ") {
		t.Errorf("got dry run\n%s\n%v, want srun --mpi=pmi2", text, err)
	}
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"[n1 s1 rank 0] rank 0: batch 16, seed 1", "[n4 s1 rank 3] PMI: 3 of 4, rank 3", "[n4 s1 rank 3] rank 3: batch 64, seed 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q", out, want)
		}
	}
	for _, name := range []string{"log_1.csv", "log_4.csv"} {
		if text := file(t, j.Dir(), "study-logs", name); strings.Count(text, "\n") < 3 {
			t.Errorf("%s: got %q, want 2 epochs", name, text)
		}
	}
}

// TestMPIInSlurm starts runs by mpirun in a job of Slurm with two nodes, whose names do not resolve.
func TestMPIInSlurm(t *testing.T) {
	useCluster(t)
	text, err := exec.CommandContext(t.Context(), "salloc", "--no-shell", "--nodes=2", "--ntasks=2", "--time=10").CombinedOutput()
	_, id, ok := strings.Cut(string(text), "Granted job allocation ")
	if err != nil || !ok {
		t.Fatalf("%s%v", text, err)
	}
	id, _, _ = strings.Cut(id, "\n")
	t.Cleanup(func() {
		if text, err := exec.CommandContext(context.Background(), "scancel", id).CombinedOutput(); err != nil {
			t.Errorf("%s%v", text, err)
		}
	})
	for name, v := range map[string]string{
		"SLURM_JOB_ID": id, "SLURM_JOBID": id, "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
		"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)",
	} {
		t.Setenv(name, v)
	}
	forEachMPI(t, func(t *testing.T, command string) {
		s, out := own(t, "sums", 2)
		s.MPI.Command = command
		if j, err := launchMPI(t, s); err != nil || j.Status()[0].Epoch != 2 {
			t.Errorf("%v, status %+v\n%s", err, j.Status(), out)
		}
		s, out = shell(t, `echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME at $MASTER_ADDR"`, 2)
		s.MPI.Command = command
		if _, err := launchMPI(t, s); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		for _, want := range []string{"rank 0 of 2 on n1 at 127.0.0.1", "rank 1 of 2 on n2 at 127.0.0.1"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got output\n%s\nwant %q", out, want)
			}
		}
	})
}
