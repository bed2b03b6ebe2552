//go:build !linux

package preflight

import "os"

// dropCachedPages does nothing: only Linux is asked to drop the content of a file from memory.
func dropCachedPages(*os.File) {}
