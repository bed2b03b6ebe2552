// Package slurmtest starts a private Slurm cluster of virtual nodes for the tests of a package,
// by the script environment/cluster.
//
//	var cluster slurmtest.Cluster
//
//	func TestMain(m *testing.M) { code := m.Run(); cluster.Stop(); os.Exit(code) }
//
//	func TestSubmit(t *testing.T) { cluster.StartForTest(t) … }
package slurmtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clusterStartTimeout limits the time for starting the cluster. On an idle machine it takes about a
// second.
const clusterStartTimeout = 3 * time.Minute

// Cluster is a Slurm cluster of virtual nodes, n1, n2, …, with 8 CPUs and 4 GPUs each. It starts
// when the first test uses it.
type Cluster struct {
	Nodes      int  // 0 means 2
	Accounting bool // record jobs, and enforce the limits of accounts

	once   sync.Once
	script string
	folder string
	err    error
}

// StartForTest starts the cluster, unless it is running, and makes the test use its Slurm
// commands. It skips the test under -short, or if Slurm is not installed.
func (c *Cluster) StartForTest(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	for _, name := range []string{"sbatch", "munged", "slurmctld", "slurmd"} {
		if !isInstalled(name) {
			t.Skipf("no %s on this machine: slurm-wlm and munge are not installed", name)
		}
	}
	for _, name := range []string{"slurmdbd", "mariadbd"} {
		if c.Accounting && !isInstalled(name) {
			t.Skipf("no %s on this machine: slurmdbd, mariadb-server and slurm-wlm-mysql-plugin are not installed", name)
		}
	}
	c.once.Do(c.start)
	if c.err != nil {
		t.Fatal(c.err)
	}
	t.Setenv("SLURM_CONF", filepath.Join(c.folder, "slurm.conf"))
}

// isInstalled reports whether a program is in PATH or in one of the usual folders for daemons.
func isInstalled(name string) bool {
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if _, err := exec.LookPath(path); err == nil {
			return true
		}
	}
	return false
}

// start starts the cluster in a new folder. The folder has a short path, because it contains
// sockets.
func (c *Cluster) start() {
	if c.script, c.err = findClusterScript(); c.err != nil {
		return
	}
	if c.folder, c.err = os.MkdirTemp("/tmp", "slurmtest-"); c.err != nil {
		return
	}
	// If this process is killed, the cluster ends too.
	args := []string{"start", "--until", strconv.Itoa(os.Getpid())}
	if c.Nodes > 0 {
		args = append(args, "--nodes", strconv.Itoa(c.Nodes))
	}
	if c.Accounting {
		args = append(args, "--accounting")
	}
	c.err = c.runClusterScript(args...)
}

func findClusterScript() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "environment", "cluster"), nil
		}
	}
	return "", fmt.Errorf("find environment/cluster: no go.mod above the working directory")
}

func (c *Cluster) runClusterScript(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), clusterStartTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.script, append(args, "--folder", c.folder)...)
	cmd.WaitDelay = time.Second // the daemons may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run environment/cluster %s: %w: %s", strings.Join(args, " "), err, out.String())
	}
	return nil
}

// DaemonPID returns the process ID of a daemon of the cluster, such as "slurmctld" or
// "slurmd-n1".
func (c *Cluster) DaemonPID(t testing.TB, daemon string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.folder, "run", daemon+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// Folder returns the folder of the cluster, with the logs of the daemons in log/.
func (c *Cluster) Folder() string { return c.folder }

// Stop stops the cluster, if it was started, and removes its folder.
func (c *Cluster) Stop() {
	if c.folder == "" {
		return
	}
	if err := c.runClusterScript("stop"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(c.folder)
}

// AwaitEmptyQueue waits until no job is pending or running.
func (c *Cluster) AwaitEmptyQueue(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(clusterStartTimeout); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command("squeue", "--noheader").Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(out)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue is not empty: %s", out)
		}
	}
}
