//go:build unix

package collective

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SharedMemory is a Group of processes on one machine that exchange data through a
// mapped file. Rank 0 calls CreateSharedMemory and sends the Path to the other ranks,
// which call OpenSharedMemory. Then rank 0 calls Unlink, which removes the file's name,
// so that the file disappears when the last process ends, however it ends. rendezvous.Join
// does all this.
//
// A waiting rank polls for some microseconds, then sleeps in the kernel until the other
// rank arrives, so there may be more ranks than cores.
type SharedMemory struct {
	memoryGroup
	path string
	file *os.File // on rank 0 only, open until Unlink
}

// sharedFileFolders returns the folders in which the shared file may be created, in the
// order in which they are tried. The first one is a file system in memory.
func sharedFileFolders() []string { return []string{"/dev/shm", os.TempDir()} }

// CreateSharedMemory creates the shared memory of size ranks and joins it as rank 0.
func CreateSharedMemory(size int, o Options) (*SharedMemory, error) {
	if size < 1 {
		return nil, fmt.Errorf("create shared memory: invalid number of ranks %d: use at least 1", size)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	piece := pieceBytes(size, o.ChunkBytes)
	n := segmentBytes(size, piece)
	var errs []error
	for _, dir := range sharedFileFolders() {
		f, err := createMemoryFile(dir, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s, err := mapSharedMemory(f, n, 0, size, o)
		if err != nil {
			return nil, errors.Join(err, closeAndRemove(f))
		}
		s.file = f
		return s, nil
	}
	return nil, fmt.Errorf("create shared memory of %d bytes for %d ranks: %w; free some space, or set TMPDIR to a folder with enough space", n, size, errors.Join(errs...))
}

// createMemoryFile creates a file of n bytes in dir and allocates all of them, because
// writing to an unallocated page would kill the process when the file system is full.
func createMemoryFile(dir string, n int) (*os.File, error) {
	f, err := newMemoryFile(dir)
	if err != nil {
		return nil, err
	}
	if err := allocateFile(f, int64(n)); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve %d bytes in %s: %w", n, dir, err), closeAndRemove(f))
	}
	return f, nil
}

// newNamedFile creates a file in dir with an unpredictable name. Only this user may open it.
func newNamedFile(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lockstep-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// closeAndRemove closes f and removes its name, if it has one.
func closeAndRemove(f *os.File) error {
	var err error
	if hasName(f) {
		err = os.Remove(f.Name())
	}
	return errors.Join(err, f.Close())
}

// OpenSharedMemory joins the shared memory that rank 0 created for the same number of
// ranks and with the same Options.
func OpenSharedMemory(path string, rank, size int, o Options) (*SharedMemory, error) {
	if rank < 1 || rank >= size {
		return nil, fmt.Errorf("open shared memory: invalid rank %d for %d ranks: use 1 to %d, since rank 0 creates it", rank, size, size-1)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open shared memory: %w: rank %d does not see rank 0's files; do the two share /dev/shm (same machine, same container)?", err, rank)
	}
	if err != nil {
		return nil, fmt.Errorf("open shared memory: %w", err)
	}
	n := segmentBytes(size, pieceBytes(size, o.ChunkBytes))
	if s, err := f.Stat(); err != nil || s.Size() != int64(n) {
		return nil, errors.Join(fmt.Errorf("open shared memory %s: want a file of %d bytes for %d ranks: all ranks must have the same world size and chunk size", path, n, size), err, f.Close())
	}
	s, err := mapSharedMemory(f, n, rank, size, o)
	return s, errors.Join(err, f.Close()) // the mapping stays
}

// mapSharedMemory maps the n bytes of f and joins the group as rank.
func mapSharedMemory(f *os.File, n, rank, size int, o Options) (*SharedMemory, error) {
	memory, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory %s: %w", f.Name(), err)
	}
	life, err := lockRankByte(f, rank)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock shared memory %s: %w", f.Name(), err), unix.Munmap(memory))
	}
	seg := segment{memory: memory, size: size, pieceBytes: pieceBytes(size, o.ChunkBytes)}
	s := &SharedMemory{path: f.Name(), memoryGroup: memoryGroup{
		name: "shared memory", rank: rank, size: size,
		memory: seg, control: seg.controlBlock(rank), notifier: newProcessNotifier(seg), options: o,
		algorithm: newAlgorithm(o, AlgorithmDirect, rank, size),
		isAlive: func(rank int) bool {
			c := seg.controlBlock(rank) // its pid is set after the process has locked its byte
			return c.processExists() && (c.pid.Load() == 0 || life.isAlive(rank))
		},
		release: func() error { return errors.Join(unix.Munmap(memory), life.Close()) },
	}}
	s.control.recordProcess()
	return s, nil
}

// Path returns the path of the shared file. Every process of the same user that knows the
// path can join.
func (s *SharedMemory) Path() string { return s.path }

// Unlink removes the file's name. Rank 0 calls it once, after all ranks have opened the
// file.
func (s *SharedMemory) Unlink() error {
	if err := closeAndRemove(s.file); err != nil {
		return fmt.Errorf("unlink shared memory: %w", err)
	}
	return nil
}
