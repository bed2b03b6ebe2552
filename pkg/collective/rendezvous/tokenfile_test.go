package rendezvous

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestTokenFile checks that CreateToken writes a secret that only this user can read, and that
// a worker without LOCKSTEP_TOKEN uses it, with another token for each job.
func TestTokenFile(t *testing.T) {
	state := t.TempDir()
	getenv := func(job string) func(string) string {
		return getenvOf("XDG_STATE_HOME=" + state + " SLURM_JOB_ID=" + job + " SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=1 SLURM_STEP_NODELIST=a,b")
	}
	_, err := FromEnv(getenv("1"))
	wantError(t, err, "the ranks have no secret, so only a loopback address is allowed, but rank 0 listens on a", "run lockstep launch once", filepath.Join(state, "lockstep", "token"))

	var wg sync.WaitGroup
	for range 4 { // processes of several launches may create it at once
		wg.Go(func() {
			if _, err := CreateToken(getenv("1")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	path, err := CreateToken(getenv("1"))
	if err != nil || path != filepath.Join(state, "lockstep", "token") {
		t.Fatalf("got %s, %v", path, err)
	}
	s, err := os.Stat(path)
	if err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", s.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v, want the token alone", files, err)
	}
	secret, err := readToken(path)
	if err != nil || len(secret) < minTokenLength {
		t.Fatalf("a secret of %d characters, %v", len(secret), err)
	}
	seen := map[string]bool{secret: true}
	for _, job := range []string{"1", "2"} {
		e, err := FromEnv(getenv(job))
		if err != nil || e.Token == "" || seen[e.Token] || e.TokenFrom != path {
			t.Errorf("job %s: token %q from %s, %v, want another one", job, e.Token, e.TokenFrom, err)
		}
		again, _ := FromEnv(getenv(job))
		if again.Token != e.Token {
			t.Errorf("job %s: two ranks have different tokens", job)
		}
		seen[e.Token] = true
	}
}

// TestTokenFileIsRefused checks the error for a file that is not private to this user.
func TestTokenFileIsRefused(t *testing.T) {
	const good = "0123456789abcdef"
	write := func(path, text string, mode os.FileMode) error {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	for _, tt := range []struct {
		name   string
		create func(path string) error
		want   string
	}{
		{"readable by others", func(p string) error { return write(p, good, 0o604) }, "its mode is 0604, want 0600"},
		{"writable by the group", func(p string) error { return write(p, good, 0o620) }, "its mode is 0620, want 0600"},
		{"short", func(p string) error { return write(p, "guess", 0o600) }, "want a secret of 16 to 4096 characters"},
		{"long", func(p string) error { return write(p, strings.Repeat("x", maxTokenBytes+1), 0o600) }, "want a secret of 16 to 4096 characters"},
		{"a folder", func(p string) error { return os.Mkdir(p, 0o700) }, "it is not a file"},
		{"a link", func(p string) error {
			if err := write(p+"2", good, 0o600); err != nil {
				return err
			}
			return os.Symlink(p+"2", p)
		}, "it is a link"},
		{"of another user", func(p string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can create files of other users")
			}
			if err := write(p, good, 0o600); err != nil {
				return err
			}
			return os.Chown(p, 1, 1)
		}, "it belongs to user 1, want 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := t.TempDir()
			path := filepath.Join(state, "lockstep", "token")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tt.create(path); err != nil {
				t.Fatal(err)
			}
			getenv := getenvOf("XDG_STATE_HOME=" + state + " RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1")
			_, err := FromEnv(getenv)
			wantError(t, err, "read token file "+path, tt.want, "remove it, and lockstep launch writes a new one")
			_, err = CreateToken(getenv)
			wantError(t, err, tt.want)
		})
	}
	_, err := CreateToken(getenvOf("XDG_STATE_HOME=relative"))
	wantError(t, err, "neither XDG_STATE_HOME nor HOME is the path of a folder")
}
