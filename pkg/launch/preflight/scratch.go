package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of the measurement of a scratch folder.
const (
	scratchBytes    = 64 << 20
	scratchDuration = 2 * time.Second // for writing, and for reading
	syncedBytes     = 8 << 20         // that are written between two calls of fsync
	slowScratch     = 20e6            // bytes per second; a data set is read for minutes below it
)

// scratchSpeedFinding writes a file to the folder dir and reads it, and reports the speed. If dir is "", it
// uses the folder for temporary files. site is the site whose profile names dir, or "" for this machine.
func scratchSpeedFinding(site, dir string) Finding {
	name, other := dir, "write another folder where you may write, and that every node has, to scratch in a copy of the profile; the site's documentation names it"
	switch {
	case site == "":
		other = "set TMPDIR to another folder where you may write"
	case dir == "":
		name = os.TempDir() + " (the profile names no scratch folder)"
	}
	dir = cmp.Or(dir, os.TempDir())
	name = cmp.Or(name, dir)
	w, r, err := measureFileSpeed(dir)
	if err != nil {
		var inFile *fs.PathError
		if errors.As(err, &inFile) {
			err = inFile.Err // the name of the temporary file means nothing to users
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			other = "delete files that you no longer need there, or " + other
		}
		return failedFinding(checkScratch, fmt.Sprintf("cannot use %s: %v", name, err), other)
	}
	detail := fmt.Sprintf("%s: writes %s, reads %s", name, formatRate(w), formatRate(r))
	if min(w, r) < slowScratch {
		return warningFinding(checkScratch, detail, "data sets load slowly from there: run the check again later, because the file system may be busy, or "+other)
	}
	return passedFinding(checkScratch, "%s", detail)
}

// measureFileSpeed writes a file to dir, reads it, and removes it. It returns the speeds of writing
// and of reading in bytes per second. Before it reads the file, it flushes the file to the disk and
// asks the system to drop it from memory.
func measureFileSpeed(dir string) (write, read float64, err error) {
	f, err := os.CreateTemp(dir, ".lockstep-doctor-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7 >> 3) // a file system may store zeros without writing
	}
	written := 0
	begin := time.Now()
	for written < scratchBytes && time.Since(begin) < scratchDuration {
		for range syncedBytes / len(block) {
			if _, err := f.Write(block); err != nil {
				return 0, 0, err
			}
			written += len(block)
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
	}
	write = float64(written) / max(time.Since(begin).Seconds(), 1e-9)
	dropCachedPages(f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, 0, err
	}
	got := 0
	begin = time.Now()
	for time.Since(begin) < scratchDuration {
		n, err := f.Read(block)
		got += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return write, float64(got) / max(time.Since(begin).Seconds(), 1e-9), nil
}

func formatRate(bytesPerSecond float64) string {
	if bytesPerSecond >= 1e9 {
		return fmt.Sprintf("%.1f GB/s", bytesPerSecond/1e9)
	}
	return fmt.Sprintf("%.3g MB/s", bytesPerSecond/1e6)
}
