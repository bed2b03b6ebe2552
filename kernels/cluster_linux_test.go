package kernels

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurmCluster is the folder of a private Slurm cluster of two virtual nodes, n1 and n2.
type slurmCluster string

// startCluster starts a cluster until the end of the test and makes Slurm's commands use it. It skips
// the test if Slurm is not installed.
func startCluster(t *testing.T) slurmCluster {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "cluster-") // a short path, because it contains sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	run := func(args ...string) (string, error) {
		c := exec.Command(filepath.Join("..", "environment", "cluster"), append(args, "--folder", folder)...)
		c.WaitDelay = time.Second // the daemons may keep the output open
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := run("start", "--until", strconv.Itoa(os.Getpid()))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip("slurm-wlm and munge are not installed on this machine")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := run("stop"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Setenv("SLURM_CONF", filepath.Join(folder, "slurm.conf"))
	return slurmCluster(folder)
}

// killNode kills the daemon of a node.
func (c slurmCluster) killNode(t *testing.T, node string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(string(c), "run", "slurmd-"+node+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startNode starts the daemon of a node that was killed, once the node has no processes of jobs.
func (c slurmCluster) startNode(t *testing.T, node string) {
	t.Helper()
	var sockets []string // of the steps of jobs
	wait(t, "the end of the steps on "+node, func() bool {
		sockets, _ = filepath.Glob(filepath.Join(string(c), "spool", node, node+"_*"))
		return len(sockets) == 0
	}, func() string { return strings.Join(sockets, ", ") })
	daemon, err := exec.LookPath("slurmd")
	if err != nil {
		daemon = "/usr/sbin/slurmd"
	}
	runSlurm(t, daemon, "-N", node)
}

// runSlurm runs a command of Slurm and returns its output.
func runSlurm(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
