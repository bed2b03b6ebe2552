//go:build !linux

package cores

import (
	"os"
	"time"
)

// changeTime is not used: files have locks only on Linux.
func changeTime(info os.FileInfo) time.Time { return info.ModTime() }
