package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestFolder: the locks are in a folder that no other user can enter, whatever another user has put
// into the temporary directory or in its place.
func TestFolder(t *testing.T) {
	t.Parallel()
	const private, public = 0o700, 0o755
	uid, host := os.Getuid(), hostName()
	for name, c := range map[string]struct {
		env   map[string]string // values are relative to the test's folder
		files map[string]os.FileMode
		want  string
	}{
		"chosen":                 {env: map[string]string{FolderVariable: "own", "HOME": "home", "XDG_RUNTIME_DIR": "run"}, files: map[string]os.FileMode{"run": private}, want: "own"},
		"runtime folder":         {env: map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "run"}, files: map[string]os.FileMode{"run": private}, want: "run/lockstep"},
		"name taken":             {env: map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "run"}, files: map[string]os.FileMode{"run": private, "run/lockstep": public}, want: "run/lockstep-2"},
		"runtime folder of all":  {env: map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "run"}, files: map[string]os.FileMode{"run": public}, want: "home/.local/state/lockstep/locks-" + host},
		"runtime folder is gone": {env: map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "run"}, want: "home/.local/state/lockstep/locks-" + host},
		"state folder":           {env: map[string]string{"HOME": "home", "XDG_STATE_HOME": "state"}, want: "state/lockstep/locks-" + host},
		"state folder is a file": {env: map[string]string{"HOME": "home"}, files: map[string]os.FileMode{"home": private, "home/.local": 0}, want: fmt.Sprintf("tmp/lockstep-%d", uid)},
		"no home folder":         {want: fmt.Sprintf("tmp/lockstep-%d", uid)},
		"temporary name taken":   {files: map[string]os.FileMode{fmt.Sprintf("tmp/lockstep-%d", uid): public}, want: fmt.Sprintf("tmp/lockstep-%d-2", uid)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			if err := os.Mkdir(filepath.Join(base, "tmp"), 0o777); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"home", "run", "home/.local", "run/lockstep", fmt.Sprintf("tmp/lockstep-%d", uid)} {
				mode, ok := c.files[path]
				var err error
				switch {
				case ok && mode == 0:
					err = os.WriteFile(filepath.Join(base, path), nil, 0o600)
				case ok:
					err = os.Mkdir(filepath.Join(base, path), mode)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			getenv := func(name string) string {
				if v, ok := c.env[name]; ok {
					return filepath.Join(base, v)
				}
				return ""
			}
			for range 2 { // another process finds the same folder
				if got, err := findLocksFolder(getenv, filepath.Join(base, "tmp")); err != nil || got != filepath.Join(base, c.want) {
					t.Errorf("got %s, %v, want %s", got, err, c.want)
				}
			}
		})
	}
	if _, err := findLocksFolder(func(string) string { return "" }, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("got no error without any folder")
	}
}
