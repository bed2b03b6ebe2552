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

// SharedMemory is the group of processes of one machine: the memory is a file
// that all of them have mapped. Rank 0 calls CreateSharedMemory and tells the
// others the Path, they call OpenSharedMemory, and as soon as all have, rank 0
// calls Unlink: from then on the file has no name, and the last process that
// ends, however it ends, takes it along. rendezvous.Join does all this.
//
// A rank that waits looks again for some microseconds, then sleeps in the
// kernel until the one it waits for arrives: ranks may outnumber cores.
type SharedMemory struct {
	memoryGroup
	path string
	file *os.File // of rank 0, until Unlink
}

// memoryFolders are where the file may lie: memory first.
func memoryFolders() []string { return []string{"/dev/shm", os.TempDir()} }

// CreateSharedMemory makes the memory for size ranks and joins it as rank 0.
func CreateSharedMemory(size int, o Options) (*SharedMemory, error) {
	if size < 1 {
		return nil, fmt.Errorf("create shared memory: %d ranks: use at least 1", size)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	piece := pieceBytes(size, o.ChunkBytes)
	n := segmentBytes(size, piece)
	var errs []error
	for _, dir := range memoryFolders() {
		f, err := createMemoryFile(dir, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s, err := mapMemory(f, n, 0, size, o)
		if err != nil {
			return nil, errors.Join(err, discard(f))
		}
		s.file = f
		return s, nil
	}
	return nil, fmt.Errorf("create shared memory of %d bytes for %d ranks: %w; make room there, or set TMPDIR to a folder that has it", n, size, errors.Join(errs...))
}

// createMemoryFile makes a file of n bytes, all of them really there: writing
// to a mapped page that the file system has no room for kills the process.
func createMemoryFile(dir string, n int) (*os.File, error) {
	f, err := newMemoryFile(dir)
	if err != nil {
		return nil, err
	}
	if err := reserve(f, int64(n)); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve %d bytes in %s: %w", n, dir, err), discard(f))
	}
	return f, nil
}

// newNamedFile makes a file that only this user may open, and whose name
// nobody can guess beforehand.
func newNamedFile(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lockstep-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// discard closes f, and takes its name away where it has one.
func discard(f *os.File) error {
	var err error
	if hasName(f) {
		err = os.Remove(f.Name())
	}
	return errors.Join(err, f.Close())
}

// OpenSharedMemory joins the memory that rank 0 created for as many ranks and
// with the same Options.
func OpenSharedMemory(path string, rank, size int, o Options) (*SharedMemory, error) {
	if rank < 1 || rank >= size {
		return nil, fmt.Errorf("open shared memory: rank is %d of %d: use 1 to %d", rank, size, size-1)
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
		return nil, errors.Join(fmt.Errorf("open shared memory %s: it has not the %d bytes that %d ranks need: all ranks must have the same world size and chunk size", path, n, size), err, f.Close())
	}
	s, err := mapMemory(f, n, rank, size, o)
	return s, errors.Join(err, f.Close()) // the mapping stays
}

// mapMemory maps f.
func mapMemory(f *os.File, n, rank, size int, o Options) (*SharedMemory, error) {
	memory, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory %s: %w", f.Name(), err)
	}
	life, err := holdLife(f, rank)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock shared memory %s: %w", f.Name(), err), unix.Munmap(memory))
	}
	seg := segment{memory: memory, size: size, pieceBytes: pieceBytes(size, o.ChunkBytes)}
	s := &SharedMemory{path: f.Name(), memoryGroup: memoryGroup{
		name: "shared memory", rank: rank, size: size,
		memory: seg, control: seg.control(rank), bell: newProcessBell(seg), options: o,
		running: func(rank int) bool {
			c := seg.control(rank) // which has a pid once its process holds the lock
			return c.running() && (c.pid.Load() == 0 || life.holds(rank))
		},
		release: func() error { return errors.Join(unix.Munmap(memory), life.Close()) },
	}}
	s.control.sign()
	return s, nil
}

// Path is the file; it is a secret of the ranks' user.
func (s *SharedMemory) Path() string { return s.path }

// Unlink takes the file's name away, once all ranks have opened it. It is for
// rank 0, once.
func (s *SharedMemory) Unlink() error {
	if err := discard(s.file); err != nil {
		return fmt.Errorf("unlink shared memory: %w", err)
	}
	return nil
}
