//go:build unix && !linux

package collective

import "os"

func newMemoryFile(dir string) (*os.File, error) { return newNamedFile(dir) }

// hasName reports whether a file has a name in its folder and must be removed.
func hasName(*os.File) bool { return true }
