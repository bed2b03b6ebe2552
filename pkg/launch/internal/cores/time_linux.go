package cores

import (
	"os"
	"syscall"
	"time"
)

// changeTime returns the time of the last change of a file or of its name, which is set by the kernel.
func changeTime(info os.FileInfo) time.Time {
	return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix())
}
