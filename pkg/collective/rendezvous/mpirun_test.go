package rendezvous

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/collective"
)

// launchedVariable makes this test binary a worker of TestMPIRun.
const launchedVariable = "RENDEZVOUS_TEST_LAUNCHED"

// beLaunched runs a worker of TestMPIRun: it joins the run that the launcher describes.
func beLaunched() error {
	e, err := FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	g, err := Join(context.Background(), e, Options{})
	if err != nil {
		return err
	}
	if err := addUp([]collective.Group{g}); err != nil {
		return err
	}
	if e.Collective == transportMPI && !strings.Contains(g.Name(), "MPI") {
		return fmt.Errorf("got the transport %q, want MPI", g.Name())
	}
	// Fprintf writes the line at once, as it must, because mpirun mixes the output of ranks.
	_, err = fmt.Fprintf(os.Stdout, "rank %d of %d from %s with a token of %d characters\n", e.Rank, e.World, e.Source, len(e.Token))
	if cerr := g.Close(); err == nil {
		err = cerr
	}
	return err
}

// TestMPIRun starts ranks with the launchers of Open MPI and MPICH. They set no token: the
// ranks use the user's, or none, since all of them are on this machine.
func TestMPIRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		program string
		args    []string
		source  string
	}{
		{"mpirun.openmpi", []string{"--allow-run-as-root", "--oversubscribe"}, SourceOpenMPI},
		{"mpirun.mpich", nil, SourcePMI},
	} {
		for _, length := range []int{0, 64} { // of the token: 64 hexadecimal digits of an HMAC
			t.Run(fmt.Sprintf("%s with a token of %d", tt.program, length), func(t *testing.T) {
				path, err := exec.LookPath(tt.program)
				if err != nil {
					t.Skipf("no %s on this machine", tt.program)
				}
				state := t.TempDir()
				if length > 0 {
					if _, err := CreateToken(getenvOf("XDG_STATE_HOME=" + state)); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, path, append(tt.args, "-np", "3", self)...)
				cmd.Env = append(os.Environ(), launchedVariable+"=1", "XDG_STATE_HOME="+state)
				out, err := cmd.CombinedOutput()
				for rank := range 3 {
					want := fmt.Sprintf("rank %d of 3 from %s with a token of %d characters\n", rank, tt.source, length)
					if err != nil || strings.Count(string(out), want) != 1 {
						t.Errorf("%v, got\n%s\nwant %q", err, out, want)
					}
				}
			})
		}
		t.Run(tt.program+" with MPI", func(t *testing.T) {
			path, err := exec.LookPath(tt.program)
			if err != nil {
				t.Skipf("no %s on this machine", tt.program)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, append(tt.args, "-np", "3", self)...)
			cmd.Env = append(os.Environ(), launchedVariable+"=1", "LOCKSTEP_COLLECTIVE=mpi")
			out, err := cmd.CombinedOutput()
			for rank := range 3 {
				want := fmt.Sprintf("rank %d of 3 from %s with a token of 0 characters\n", rank, tt.source)
				if err != nil || strings.Count(string(out), want) != 1 {
					t.Errorf("%v, got\n%s\nwant %q", err, out, want)
				}
			}
		})
	}
}

// TestMPIHasNoTLS checks that a run that must be encrypted is not started over MPI.
func TestMPIHasNoTLS(t *testing.T) {
	_, err := Join(t.Context(), Env{World: 2, Collective: transportMPI, TLS: true}, Options{})
	wantError(t, err, "Lockstep does not control the connections of MPI")
}
