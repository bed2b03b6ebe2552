//go:build unix && !linux

package collective

import "os"

func newMemoryFile(dir string) (*os.File, error) { return newNamedFile(dir) }

// hasName says whether a file must be removed.
func hasName(*os.File) bool { return true }
