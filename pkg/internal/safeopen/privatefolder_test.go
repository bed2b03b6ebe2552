//go:build unix

package safeopen

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCreatePrivateFolder: whatever another user may have put in the way is neither used nor changed,
// and each call returns the same folder.
func TestCreatePrivateFolder(t *testing.T) {
	elsewhere := t.TempDir() // a private folder of this user
	if err := os.Chmod(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		block func(path string) error
		want  string
	}{
		"nothing":            {func(string) error { return nil }, "a"},
		"own folder":         {func(p string) error { return os.Mkdir(p, 0o700) }, "a"},
		"readable for all":   {func(p string) error { return os.Mkdir(p, 0o755) }, "a-2"},
		"file":               {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "a-2"},
		"link":               {func(p string) error { return os.Symlink(elsewhere, p) }, "a-2"},
		"link to nothing":    {func(p string) error { return os.Symlink(elsewhere+"/none", p) }, "a-2"},
		"two names":          {func(p string) error { _ = os.Mkdir(p, 0o755); return os.WriteFile(p+"-2", nil, 0o600) }, "a-3"},
		"of another user":    {func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chown(p, 12345, 12345) }, "a-2"},
		"for all to write":   {func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chmod(p, 0o777) }, "a-2"},
		"own, second name":   {func(p string) error { _ = os.Mkdir(p, 0o755); return os.Mkdir(p+"-2", 0o700) }, "a-2"},
		"own, of the group":  {func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chmod(p, 0o750) }, "a-2"},
		"own, with no right": {func(p string) error { return os.Mkdir(p, 0) }, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			if err := c.block(filepath.Join(parent, "a")); err != nil {
				if os.Geteuid() != 0 {
					return // only root can give a folder to another user
				}
				t.Fatal(err)
			}
			for range 2 {
				if got, err := CreatePrivateFolder(parent, "a"); err != nil || got != filepath.Join(parent, c.want) {
					t.Errorf("got %s, %v, want %s", got, err, c.want)
				}
			}
		})
	}
	if _, err := CreatePrivateFolder(filepath.Join(elsewhere, "none"), "a"); err == nil {
		t.Error("got no error for a folder that does not exist")
	}
}
