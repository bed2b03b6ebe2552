package launch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// escaping starts processes that no signal to the program's process group reaches: they are
// in separate sessions and ignore all signals that can be ignored.
const escaping = `trap '' TERM HUP INT
setsid sh -c 'echo pid $$ up; setsid sh -c "echo pid \$\$ up; exec sleep 600"; sleep 600' &
echo pid $$ up
`

// TestProcessTreeEnds: all descendants of a program end with it, however the program or the
// launcher ends.
func TestProcessTreeEnds(t *testing.T) {
	t.Parallel()
	t.Run("it ends", func(t *testing.T) {
		// The program waits until the deepest process is up.
		s, out := shell(t, escaping+`while [ ! -e "$LOCKSTEP_RUN/end" ]; do sleep 0.02; done; exit 3`, 1)
		parallel(t, &s)
		j, err := Local(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		out.await(t, "up\n", 3)
		if err := os.WriteFile(filepath.Join(j.Status()[0].Dir, "end"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		err = waitFor(t, j)
		wantError(t, err, "rank 0 ended with exit code 3; its last lines:")
		gone(t, out.pids(t))
	})
	t.Run("it is canceled", func(t *testing.T) {
		s, out := shell(t, escaping+`sleep 600`, 2)
		parallel(t, &s)
		s.gracePeriod = 200 * time.Millisecond
		j, err := Local(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		out.await(t, "up\n", 6)
		if err := j.Cancel(); err != nil {
			t.Fatal(err)
		}
		if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		gone(t, out.pids(t))
	})
	t.Run("the launcher is killed", func(t *testing.T) {
		launcher, out := launcherOf(t, escaping+`sleep 600`)
		out.await(t, "up\n", 6)
		kill(t, launcher)
		soon(t, "all processes end", func() bool { return !slices.ContainsFunc(out.pids(t), running) })
	})
}

// launcherOf starts a process that launches script with two workers.
func launcherOf(t *testing.T, script string) (*exec.Cmd, *transcript) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &transcript{}
	launcher := exec.Command(self, "launch", t.TempDir(), script)
	launcher.Stdout, launcher.Stderr = out, out
	launcher.WaitDelay = 10 * time.Second
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = launcher.Process.Kill() })
	return launcher, out
}

// TestWorkersEndWithTheLauncher: workers end with the launcher, even if it is killed, which
// only Linux signals to them.
func TestWorkersEndWithTheLauncher(t *testing.T) {
	t.Parallel()
	launcher, out := launcherOf(t, "echo pid $$ up; exec sleep 600")
	out.await(t, "up\n", 2)
	kill(t, launcher)
	soon(t, "the workers end", func() bool { return !slices.ContainsFunc(out.pids(t), running) })
}

// TestForeignSignalIsNamed: the error names the signal that ended a program, although a
// guard is between the program and the launcher.
func TestForeignSignalIsNamed(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGSEGV, unix.SIGABRT, unix.SIGTERM, unix.SIGPIPE} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			sweep, _ := shell(t, `echo last words; kill -`+strconv.Itoa(int(s))+` $$`, 1)
			parallel(t, &sweep)
			_, err := launch(t, sweep)
			wantError(t, err, "rank 0 was ended by signal "+strconv.Itoa(int(s))+" ("+unix.SignalName(s)+"); its last lines:\n    last words")
			if strings.Contains(err.Error(), "goroutine") {
				t.Errorf("stacks in %v", err)
			}
		})
	}
}
