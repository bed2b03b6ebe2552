package launch

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestMPIInNotebook: a separate process runs the sweep of a notebook, and when the kernel is killed,
// mpirun and its ranks end.
func TestMPIInNotebook(t *testing.T) {
	forEachMPI(t, func(t *testing.T, command string) {
		s, _ := own(t, "waits", 2)
		s.MPI.Command, s.Output = command, nil
		kernel, out := kernelOf(t, s)
		out.await(t, "epoch 1 mean", 2)
		kill(t, kernel)
		j, err := Attach(s.Logs + "/waits")
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "run ddp-n2-s1: ended with the notebook's kernel") {
			t.Errorf("got error %v, want that the sweep was canceled", err)
		}
		for _, pid := range out.pids(t) {
			soon(t, "the ranks end", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		}
	})
}
