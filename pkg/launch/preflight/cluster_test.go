package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/slurmtest"
	"lockstep/pkg/launch/internal/slurm"
)

// cluster is started by the first test that uses it.
var cluster slurmtest.Cluster

// faultVariable makes the task of rank 1 behave as on a faulty node.
const faultVariable = "PREFLIGHT_TEST_FAULT"

// TestMain makes the test binary its own task: with the arguments "doctor --node …" it replaces
// the lockstep command.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "doctor" {
		os.Exit(runTask(os.Args[3]))
	}
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

// runTask runs the task of a node, with a fault if it has rank 1.
func runTask(argument string) int {
	o, err := ParseNodeOptions(argument)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fault := os.Getenv(faultVariable)
	if fault == "exit" {
		o.Join = time.Second
	}
	if os.Getenv("SLURM_PROCID") == "1" || os.Getenv("RANK") == "1" {
		switch fault {
		case "exit":
			fmt.Fprintln(os.Stderr, "module: command not found")
			return 3
		case "build":
			buildid.ID = "0123456789abcdef"
		}
	}
	if err := RunNode(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// useOwnFolders makes the test use this binary as the lockstep command, and folders of its own.
// It returns the logs folder.
func useOwnFolders(t *testing.T) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	logs := t.TempDir()
	t.Setenv("LOCKSTEP_BIN", binary)
	t.Setenv("LOCKSTEP_LOGS", logs)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return logs
}

// find returns the finding of a check on a node of r.
func find(t *testing.T, r *Report, node, check string) Finding {
	t.Helper()
	for _, n := range r.Nodes {
		if n.Name != node {
			continue
		}
		if i := slices.IndexFunc(n.Findings, func(f Finding) bool { return f.Check == check }); i >= 0 {
			return n.Findings[i]
		}
	}
	t.Fatalf("no check %s on node %s in\n%s", check, node, r)
	return Finding{}
}

// checkTraces checks that a check has left nothing in the logs folder and beside the secret.
func checkTraces(t *testing.T, logs string) {
	t.Helper()
	token, err := rendezvous.TokenPath(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{logs, filepath.Dir(token)} {
		left, err := filepath.Glob(filepath.Join(dir, ".lockstep-doctor-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("the check has left %v, %v", left, err)
		}
	}
}

// TestSlurm checks two virtual nodes, which have no problem: they are one machine.
func TestSlurm(t *testing.T) {
	cluster.StartForTest(t)
	logs := useOwnFolders(t)
	var progress strings.Builder
	r, err := Slurm(t.Context(), "local-test", Options{GPUs: -1, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed() > 0 || len(r.Nodes) != 2 || r.Nodes[0].Name != "n1" || r.Nodes[1].Name != "n2" || r.Job == "" {
		t.Fatalf("got report\n%s\nwant n1 and n2 without a failure", r)
	}
	for _, n := range r.Nodes {
		for _, check := range orderedCheckNames() {
			if check != checkTask && check != checkFolders {
				find(t, r, n.Name, check)
			}
		}
	}
	for check, want := range map[string]string{
		checkRendezvous: "because the name n1 does not resolve", checkNetworkInterface: "lo (127.0.0.1)", checkBandwidth: "/s to n2, latency ",
		checkGPUs: "none", checkScratch: "/tmp: writes ", checkLogs: logs + " is shared", checkVersions: "lockstep " + buildid.ID,
	} {
		if got := find(t, r, "n1", check).Detail; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", check, got, want)
		}
	}
	if want := "job " + r.Job + " was submitted"; !strings.Contains(progress.String(), want) {
		t.Errorf("got progress %q, want %q", progress.String(), want)
	}
	checkTraces(t, logs)
}

// TestSlurmFaults checks virtual nodes with a profile whose network interface and scratch folder
// they do not have, of which n2 has another build of lockstep.
func TestSlurmFaults(t *testing.T) {
	cluster.StartForTest(t)
	useOwnFolders(t)
	t.Setenv(faultVariable, "build")
	profile, err := os.ReadFile(filepath.Join("..", "..", "..", "environment", "sites", "local-test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("network_interface: lo", "network_interface: ib0", "scratch: /tmp", "scratch: /dev/null/data").Replace(string(profile))
	path := filepath.Join(t.TempDir(), "faulty.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Slurm(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		nodes             []string
		check, what, next string
	}{
		{[]string{"n1", "n2"}, checkNetworkInterface, "names the interface ib0, which this node does not have; it has lo", "network_interface in a copy"},
		{[]string{"n1", "n2"}, checkScratch, "cannot use /dev/null/data: not a directory", "scratch in a copy"},
		{[]string{"n2"}, checkVersions, "this node runs lockstep build 0123456789abcdef", "a folder that all nodes share"},
		{[]string{"n1", "n2"}, checkGPUs, "the job has 4 GPUs on this node, but none can be used", "--gpus 0"}, // device files that are no GPUs
	} {
		if want.check == checkGPUs && !strings.Contains(r.String(), want.what) {
			continue // a machine with GPUs
		}
		i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Check == want.check && slices.Equal(p.Nodes, want.nodes) })
		if i < 0 || r.Problems[i].Warning || !strings.Contains(r.Problems[i].What, want.what) || !strings.Contains(r.Problems[i].Next, want.next) {
			t.Errorf("no problem %v of %v in\n%s", want.what, want.nodes, r)
		}
	}
	if f := find(t, r, "n2", checkRendezvous); f.Result != ResultOK {
		t.Errorf("nodes with different builds did not join: %+v", f)
	}
}

// TestSlurmMissingNode checks virtual nodes of which n2 ends its task at once.
func TestSlurmMissingNode(t *testing.T) {
	cluster.StartForTest(t)
	logs := useOwnFolders(t)
	t.Setenv(faultVariable, "exit")
	r, err := Slurm(t.Context(), "local-test", Options{GPUs: -1})
	if err != nil {
		t.Fatal(err)
	}
	text := r.String()
	for _, want := range []string{
		"n2, task: its task has reported nothing", "n1, rendezvous: ", "missing rank 1 (n2)", "module: command not found", "task 1 ended with exit code 3 on ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got report\n%s\nwant %q", text, want)
		}
	}
	if f := find(t, r, "n1", checkScratch); f.Result != ResultOK {
		t.Errorf("n1: got %+v", f)
	}
	checkTraces(t, logs)
}

// TestSlurmInterrupted checks that the job is canceled when the context ends.
func TestSlurmInterrupted(t *testing.T) {
	cluster.StartForTest(t)
	logs := useOwnFolders(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := planCheck(ctx, "local-test", Options{GPUs: -1})
	if err != nil {
		t.Fatal(err)
	}
	p.o.Progress = writerFunc(cancel)
	_, err = p.run(ctx)
	if err == nil || !strings.Contains(err.Error(), "was canceled") {
		t.Fatalf("got error %v, want that the job was canceled", err)
	}
	var id string
	if _, serr := fmt.Sscanf(err.Error(), "interrupted: job %s was canceled", &id); serr != nil || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "context") {
		t.Fatalf("no id of a job in error %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		jobs, err := slurm.Client{}.QueryJobs(t.Context(), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if j := jobs[id]; j.HasEnded() {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("job %s is in state %s, want its end", id, j.State)
		}
	}
	checkTraces(t, logs)
}

// writerFunc is called for each Write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestSlurmRefused checks jobs that are not submitted.
func TestSlurmRefused(t *testing.T) {
	logs := useOwnFolders(t)
	for _, c := range []struct {
		site string
		o    Options
		want string
	}{
		{"local-tset", Options{}, "did you mean local-test?"},
		{"jsc-booster", Options{Account: "training"}, "modules, network_interface and scratch are ask-your-site"},
		{"bsc-cte-power", Options{Nodes: 2}, "starts programs directly"},
		{"local-test", Options{GPUs: 9}, "a node of site local-test has 4"},
		{"local-test", Options{Nodes: -1}, "-1 nodes"},
	} {
		if _, err := Slurm(t.Context(), c.site, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("site %s, %+v: got error %v, want %q", c.site, c.o, err, c.want)
		}
	}
	checkTraces(t, logs)
}

// TestSlurmDryRun checks the job on a partition with one node: two tasks on it.
func TestSlurmDryRun(t *testing.T) {
	cluster.StartForTest(t)
	logs := useOwnFolders(t)
	text, err := SlurmDryRun(t.Context(), "local-test", Options{Partition: "devel"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--nodes=1\n", "--ntasks-per-node=2\n", "--gres=gpu:4\n", "--time=00:05:00\n", " doctor --node ", "# sbatch "} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q", text, want)
		}
	}
	checkTraces(t, logs)
}

// TestLocal checks this machine with two processes, and with one that ends at once.
func TestLocal(t *testing.T) {
	logs := useOwnFolders(t)
	r, err := Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Nodes) != 2 || !strings.HasSuffix(r.Nodes[1].Name, " task 1") {
		t.Fatalf("got report\n%s", r)
	}
	for _, n := range r.Nodes {
		for _, check := range []string{checkRendezvous, checkBandwidth, checkHome, checkLogs, checkScratch} {
			if f := find(t, r, n.Name, check); f.Result == ResultFailed {
				t.Errorf("%s: got %+v", n.Name, f)
			}
		}
	}
	t.Setenv(faultVariable, "exit")
	if r, err = Local(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" task 1, task: its task has reported nothing", "module: command not found", "task 1: exit status 3"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("got report\n%s\nwant %q", r, want)
		}
	}
	checkTraces(t, logs)
}
