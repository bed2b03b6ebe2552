package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
)

// TestSlurmStartedByMPIRun: the site starts programs by mpirun, which has no option for one log per
// rank that all kinds of mpirun know.
func TestSlurmStartedByMPIRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const mpirun = "mpirun.openmpi"
	if _, err := exec.LookPath(mpirun); err != nil {
		t.Skipf("no %s on this machine: openmpi-bin is not installed", mpirun)
	}
	useCluster(t)
	text, err := site.Text("local-test")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "own.yaml")
	own := strings.Replace(string(text), "\nstart: srun\n", "\nstart: "+mpirun+" --allow-run-as-root --oversubscribe\n", 1)
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	s, out := shell(t, `echo "rank $RANK of $WORLD_SIZE"; echo "rank $RANK warns" >&2`, 2)
	j, err := Slurm(t.Context(), path, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Kill() })
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for rank, want := range []string{"rank 0 of 2\nrank 0 warns\n", "rank 1 of 2\nrank 1 warns\n"} {
		if got := file(t, j.Status()[0].Dir, runs.WorkerLogName(rank)); got != want {
			t.Errorf("rank %d: got log %q, want %q", rank, got, want)
		}
	}
	if want := "[n2 s1 rank 1] rank 1 of 2\n"; !strings.Contains(out.String(), want) {
		t.Errorf("got output\n%s\nwant %q", out.String(), want)
	}
}
