//go:build unix

package safeopen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const maxPrivateFolders = 10_000

// CreatePrivateFolder returns the path of a folder in parent that only this user can enter, and
// creates it if necessary. Use it in a folder in which other users can create files, such as /tmp.
// The path is parent/name, or if another user has taken that name, the first of parent/name-2,
// parent/name-3, … that is not taken. All processes of a user get the same path.
func CreatePrivateFolder(parent, name string) (string, error) {
	path := filepath.Join(parent, name)
	for i := 1; i <= maxPrivateFolders; i++ {
		if i > 1 {
			path = filepath.Join(parent, name+"-"+strconv.Itoa(i))
		}
		err := os.Mkdir(path, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if IsPrivateFolder(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("create a private folder in %s: all names up to %s are taken", parent, filepath.Base(path))
}

// IsPrivateFolder reports whether path is a folder, not a link, of this user that no other
// user can enter.
func IsPrivateFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return info.IsDir() && info.Mode().Perm()&0o077 == 0 && ok && int(owner.Uid) == os.Geteuid()
}
