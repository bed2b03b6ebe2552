//go:build unix

package collective

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"lockstep/pkg/collective/internal/segment"
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

// CreateSharedMemory creates the shared memory of size ranks and joins it as rank 0.
func CreateSharedMemory(size int, o Options) (*SharedMemory, error) {
	if size < 1 {
		return nil, fmt.Errorf("create shared memory: invalid number of ranks %d: use at least 1", size)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	piece := segment.PieceBytes(size, o.ChunkBytes)
	n := segment.TotalBytes(size, piece)
	var errs []error
	for _, dir := range segment.SharedFileFolders() {
		f, err := segment.CreateFile(dir, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s, err := mapSharedMemory(f, n, 0, size, o)
		if err != nil {
			return nil, errors.Join(err, segment.CloseAndRemove(f))
		}
		s.file = f
		return s, nil
	}
	return nil, fmt.Errorf("create shared memory of %d bytes for %d ranks: %w; free some space, or set TMPDIR to a folder with enough space", n, size, errors.Join(errs...))
}

// OpenSharedMemory joins the shared memory that rank 0 created for the same number of
// ranks and with the same Options. It refuses a path that CreateSharedMemory cannot have
// returned: without a secret, any local program may have sent it.
func OpenSharedMemory(path string, rank, size int, o Options) (*SharedMemory, error) {
	if rank < 1 || rank >= size {
		return nil, fmt.Errorf("open shared memory: invalid rank %d for %d ranks: use 1 to %d, since rank 0 creates it", rank, size, size-1)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	n := segment.TotalBytes(size, segment.PieceBytes(size, o.ChunkBytes))
	f, err := segment.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open shared memory: %w: rank %d does not see rank 0's files; do the two share /dev/shm (same machine, same container)?", err, rank)
	}
	if err != nil {
		return nil, fmt.Errorf("open shared memory: %w", err)
	}
	if s, err := f.Stat(); err != nil || s.Size() != int64(n) {
		return nil, errors.Join(fmt.Errorf("open shared memory %s: want a file of %d bytes for %d ranks: all ranks must have the same world size and chunk size", path, n, size), err, f.Close())
	}
	s, err := mapSharedMemory(f, n, rank, size, o)
	return s, errors.Join(err, f.Close()) // the mapping stays
}

func mapSharedMemory(f *os.File, n, rank, size int, o Options) (*SharedMemory, error) {
	memory, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory %s: %w", f.Name(), err)
	}
	life, err := segment.LockRankByte(f, rank)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock shared memory %s: %w", f.Name(), err), unix.Munmap(memory))
	}
	seg := segment.Segment{Memory: memory, Size: size, PieceBytes: segment.PieceBytes(size, o.ChunkBytes)}
	s := &SharedMemory{path: f.Name(), memoryGroup: memoryGroup{
		name: "shared memory", rank: rank, size: size,
		memory: seg, control: seg.ControlBlock(rank), notifier: segment.NewProcessNotifier(seg), options: o,
		algorithm: newAlgorithmSelector(o, AlgorithmDirect, rank, size),
		isAlive: func(rank int) bool {
			c := seg.ControlBlock(rank) // its pid is set after the process has locked its byte
			return c.ProcessExists() && (c.PID.Load() == 0 || life.IsAlive(rank))
		},
		release: func() error { return errors.Join(unix.Munmap(memory), life.Close()) },
	}}
	s.control.RecordProcess()
	return s, nil
}

// Path returns the path of the shared file. Every process of the same user that knows the
// path can join.
func (s *SharedMemory) Path() string { return s.path }

// Unlink removes the file's name. Rank 0 calls it once, after all ranks have opened the
// file.
func (s *SharedMemory) Unlink() error {
	if err := segment.CloseAndRemove(s.file); err != nil {
		return fmt.Errorf("unlink shared memory: %w", err)
	}
	return nil
}
