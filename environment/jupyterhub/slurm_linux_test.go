package jupyterhub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const clusterFolder = "cluster" // in the folder of the test

// slurmCluster is a private Slurm cluster with accounting.
type slurmCluster struct {
	folder  string
	started chan struct{}
	err     error // of the start, once started is closed
}

// config returns the path of slurm.conf, which exists once the cluster has started.
func (c *slurmCluster) config() string { return filepath.Join(c.folder, "slurm.conf") }

// startCluster begins to start a cluster, which ends with the namespace.
func startCluster(t *testing.T, root, base string) *slurmCluster {
	t.Helper()
	script := filepath.Join(root, "environment", "cluster")
	out, err := exec.CommandContext(t.Context(), script, "start").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 1 && !bytes.Contains(out, []byte("Slurm needs a network")) {
		t.Errorf("environment/cluster without a network: got %v: %s", err, out)
	}
	run(t, "ip", "address", "add", "192.0.2.1/32", "dev", "lo")
	c := &slurmCluster{folder: filepath.Join(base, clusterFolder), started: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		defer cancel()
		defer close(c.started)
		cmd := exec.CommandContext(ctx, script, "start", "--accounting", "--folder", c.folder)
		cmd.WaitDelay = time.Second // the daemons keep the output open
		if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			c.err = fmt.Errorf("environment/cluster: %w: %s", err, out)
		}
	}()
	return c
}

// noSlurm is the end of the name of a file that exists if a package of Slurm is missing.
const noSlurm = ".skipped"

// slurmCell prints whether a sweep with more GPUs than the class allows is refused, whether one
// within the limits succeeds, and what its job has printed.
const slurmCell = `_, refused := launch.Slurm(ctx, "local-test", launch.Sweep{Study: "large", Config: "unet2d-cells", Workers: []int{1}, Slurm: launch.SlurmOptions{GPUsPerNode: 4}})
fmt.Println(refused)
train, err := launch.Slurm(ctx, "local-test", launch.Sweep{Study: "trained", Config: "unet2d-cells", Workers: []int{1, 2}, Epochs: 1, Set: []string{` + tiny + `}})
if err == nil { err = train.Wait(ctx) }
shell, err2 := launch.Slurm(ctx, "local-test", launch.Sweep{Study: "limits", Command: []string{"sh", "-c", "ulimit -d; umask"}, Workers: []int{1}})
if err2 == nil { err2 = shell.Wait(ctx) }
printed, err3 := os.ReadFile(shell.Dir() + "/sh-n1-s1/worker-0.log")
fmt.Printf("%v, %v, %v, %q\n", err, err2, err3, printed)`

// testSlurm: both students submit to Slurm from their notebooks at the same time, within the limits
// of their class. Each sees the own jobs only. The job has no limit of the hub's machine, but keeps
// the student's files private.
func testSlurm(t *testing.T, root string, cluster *slurmCluster, sessions []*session) {
	<-cluster.started
	if exit := (*exec.ExitError)(nil); errors.As(cluster.err, &exit) && exit.ExitCode() == 3 { // a package is missing
		if err := os.WriteFile(cluster.folder+noSlurm, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Skip(cluster.err)
	}
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	t.Setenv("SLURM_CONF", cluster.config())
	run(t, filepath.Join(root, "environment/jupyterhub/class-limits"), "add", "ml", "--gpus", "2", "--time", "1:00:00", "anna", "ben")
	held := make([]string, len(sessions)) // the number of a job that waits
	for i, s := range sessions {
		out, err := as(t, s.name, "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").CombinedOutput()
		if err != nil {
			t.Fatalf("sbatch: %v\n%s", err, out)
		}
		held[i] = strings.TrimSpace(string(out))
	}
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() {
			text, err := s.run(slurmCell)
			const refused, done = "your account ml allows you 2 GPUs at a time, but the job asks for 4", "<nil>, <nil>, <nil>, \"unlimited\\n0077\\n\"\n"
			if err == nil && (!strings.Contains(text, refused) || !strings.HasSuffix(text, done)) {
				err = fmt.Errorf("the cell of %s printed %q, want %q and %q", s.name, text, refused, done)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		log, _ := os.ReadFile(filepath.Join(cluster.folder, "log", "slurmctld.log"))
		t.Fatalf("%v\nslurmctld: %s", err, log)
	}
	for i, s := range sessions {
		other := held[1-i]
		for _, query := range [][]string{{"squeue", "--noheader", "--format=%u"}, {"sacct", "--allusers", "--noheader", "--parsable2", "--allocations", "--format=user"}} {
			out, err := as(t, s.name, query...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), s.name) || strings.Contains(string(out), sessions[1-i].name) {
				t.Errorf("%s of %s: got %q, %v, want the own jobs only", query[0], s.name, out, err)
			}
		}
		for _, command := range [][]string{
			{"scancel", other},
			{"scontrol", "update", "JobId=" + held[i], "TimeLimit=3-00:00:00"},
			{"sbatch", "--gres=gpu:3", "--wrap=true"},
			{"sbatch", "--qos=normal", "--wrap=true"},
			{"sbatch", "--account=root", "--wrap=true"},
		} {
			if out, err := as(t, s.name, command...).CombinedOutput(); err == nil {
				t.Errorf("%s may %s, want that it is refused: %s", s.name, strings.Join(command, " "), out)
			}
		}
		const setLimit = "MaxTRESPerUser=gres/gpu=99"
		_ = as(t, s.name, "sacctmgr", "--immediate", "modify", "qos", "ml", "set", setLimit).Run()
	}
	if text := run(t, filepath.Join(root, "environment/jupyterhub/class-limits"), "show", "ml"); !strings.Contains(text, "each student: gres/gpu=2;") {
		t.Errorf("the students have changed their limits:\n%s", text)
	}
}
