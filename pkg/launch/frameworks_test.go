package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// showVariables prints the variables by which programs find their ranks, one line for each.
const showVariables = `for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID TF_CONFIG; do
  eval "echo $name=\"\$$name\""
done`

// variablesOf returns the variables that showVariables has printed for a rank of the run in the folder dir.
func variablesOf(t *testing.T, dir string, rank int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, runs.WorkerLogName(rank)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[name] = value
	}
	return all
}

// checkVariables checks the variables of each of the four ranks of a run: the variables that every launcher
// gives, the variable own of the given launcher with the rank, and TF_CONFIG.
func checkVariables(t *testing.T, dir, own string, localWorld int) {
	t.Helper()
	var cluster []string // the addresses of all workers
	for rank := range 4 {
		all := variablesOf(t, dir, rank)
		want := map[string]string{
			"RANK": fmt.Sprint(rank), "WORLD_SIZE": "4", "LOCAL_RANK": fmt.Sprint(rank % localWorld), "LOCAL_WORLD_SIZE": fmt.Sprint(localWorld), "MASTER_ADDR": "127.0.0.1",
		}
		if own != "" {
			want[own] = fmt.Sprint(rank)
		}
		for name, value := range want {
			if all[name] != value {
				t.Errorf("rank %d: got %s=%q, want %q", rank, name, all[name], value)
			}
		}
		if !regexp.MustCompile(`^[1-9][0-9]+$`).MatchString(all["MASTER_PORT"]) {
			t.Errorf("rank %d: got port %q", rank, all["MASTER_PORT"])
		}
		var config struct {
			Cluster struct{ Worker []string }
			Task    struct {
				Type  string
				Index int
			}
		}
		if err := json.Unmarshal([]byte(all["TF_CONFIG"]), &config); err != nil {
			t.Fatalf("rank %d: %v: %s", rank, err, all["TF_CONFIG"])
		}
		addresses := config.Cluster.Worker
		if config.Task.Type != "worker" || config.Task.Index != rank || len(addresses) != 4 {
			t.Errorf("rank %d: got TF_CONFIG %s", rank, all["TF_CONFIG"])
		}
		if cluster == nil {
			cluster = addresses
		}
		different := slices.Compact(slices.Sorted(slices.Values(addresses)))
		if !slices.Equal(addresses, cluster) || len(different) != 4 {
			t.Errorf("rank %d: got addresses %q, want 4, the same on all ranks", rank, addresses)
		}
	}
}

// showing returns a sweep whose four workers print their variables.
func showing(t *testing.T) (Sweep, *transcript) {
	t.Helper()
	s, out := shell(t, showVariables, 4)
	s.Framework = FrameworkTensorFlow
	return s, out
}

// TestVariables checks the variables of another program for each launcher.
func TestVariables(t *testing.T) {
	s, out := showing(t)
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkVariables(t, j.Status()[0].Dir, "", 4)
	forEachMPI(t, func(t *testing.T, command string) {
		s, out := showing(t)
		s.MPI.Command = command
		j, err := launchMPI(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		own := "OMPI_COMM_WORLD_RANK"
		if command == "mpirun.mpich" {
			own = "PMI_RANK"
		}
		checkVariables(t, j.Status()[0].Dir, own, 4)
	})
}

// TestSlurmVariables: TF_CONFIG names the node of each worker; all nodes of the private cluster have one
// address.
func TestSlurmVariables(t *testing.T) {
	useCluster(t)
	s, out := showing(t)
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkVariables(t, j.Status()[0].Dir, "SLURM_PROCID", 2)
}

// TestTensorFlowOnSeveralHosts: only mpirun knows where its ranks are.
func TestTensorFlowOnSeveralHosts(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := showing(t)
	s.MPI.Hostfile = hosts
	_, err := Plan(t.Context(), OnMPI, s)
	wantError(t, err, "TF_CONFIG needs the address of each worker", "--on slurm:SITE")
}

// TestNSys: a stand-in for nsys starts one run of the sweep, which run.json records.
func TestNSys(t *testing.T) {
	bin := t.TempDir()
	const standIn = `#!/bin/sh
echo "nsys $*"
for arg; do shift; case $arg in --output=*) echo "profile $(echo "$arg" | sed "s/%q{RANK}/$RANK/")"; break;; esac; done
exec "$@"
`
	if err := os.WriteFile(filepath.Join(bin, "nsys"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	s, out := shell(t, `echo "rank $RANK works"`, 1, 2)
	s.Seeds, s.NSys = []int64{1, 2}, NSysLast
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := filepath.Join(j.Dir(), "script-n2-s1")
	for _, want := range []string{
		"[n2 s1 rank 1] nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop --force-overwrite=true --output=" + dir + "/nsys-%q{RANK} /bin/sh -c ",
		"[n2 s1 rank 1] profile --output=" + dir + "/nsys-1\n", "[n2 s1 rank 1] rank 1 works", "[n2 s2 rank 1] rank 1 works",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q", out, want)
		}
	}
	if strings.Contains(out.String(), "[n2 s2 rank 0] nsys") || strings.Contains(out.String(), "[n1 s1 rank 0] nsys") {
		t.Errorf("got output\n%s\nwant that one run is profiled", out)
	}
	if info := read(t, dir).Info; info.Profiler != "nsys" || info.Command[0] != "/bin/sh" {
		t.Errorf("got run %+v, want that nsys started the program", info)
	}
	if !strings.Contains(j.Note(), "nsys profiles run script-n2-s1: its times include the profiler's work") {
		t.Errorf("got note %q", j.Note())
	}
	s.NSys = "script-n3-s1"
	_, err = Plan(t.Context(), OnLocal, s)
	wantError(t, err, `no run "script-n3-s1" for --nsys (NSys)`, "script-n2-s1")
}
