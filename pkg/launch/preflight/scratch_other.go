//go:build !linux

package preflight

import "os"

// forgetContent does nothing: only Linux is asked to drop the content of a file from memory.
func forgetContent(*os.File) {}
