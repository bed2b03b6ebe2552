package cores

import (
	"os"
	"syscall"
	"time"
)

// changeTime returns the change time (ctime) of a file, which the kernel sets and users cannot
// choose.
func changeTime(info os.FileInfo) time.Time {
	return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix())
}
