// Package filehash computes one hash of the content of many files, and keeps it in a cache, so that
// unchanged files are not read again.
//
// The hash covers the files' names, order, sizes and all bytes, but neither folders nor times. Of
// files that have more than a limit together, it covers only a sample of the bytes.
package filehash

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

const (
	// CompleteBytes is the total size of files up to which Hasher reads all bytes.
	CompleteBytes = 2 << 30

	sampleBlocks = 1024      // number of blocks that a sample consists of, at equal distances
	blockBytes   = 256 << 10 // size of such a block
	chunkBytes   = 1 << 20   // number of bytes read between two checks whether the context is canceled
	readers      = 8         // number of files read in parallel: small files mostly wait for the disk

	// settleTime is how long a file must have been unchanged before its hash is kept: within the
	// resolution of a file system's clock, a second change has the same time as the first.
	settleTime = 2 * time.Second
)

// File is a file whose content is hashed.
type File struct {
	Name string // stands for the file in the hash, wherever the file is
	Root string // folder that the file must be in, or Path itself if the user has named it
	Path string
}

// Digest is the result of Hasher.Sum.
type Digest struct {
	Hash    string // SHA-256 in hexadecimal form of names, sizes and contents
	Names   string // SHA-256 in hexadecimal form of the names
	Bytes   int64  // total size of the files
	Sampled bool   // whether Hash covers only a sample of the contents
	Cached  bool   // whether Hash is from the cache
}

// Hasher computes hashes of files, and caches them.
type Hasher struct {
	Cache string // folder of the cache, which is created if it does not exist; empty: no cache
	Limit int64  // total size of files up to which all bytes are read; 0: CompleteBytes

	now func() time.Time // nil: time.Now
}

// Sum returns the hash of files. Errors of the cache are ignored. If ctx is canceled, Sum returns
// the cause.
func (h Hasher) Sum(ctx context.Context, files []File) (Digest, error) {
	h.Limit = cmp.Or(h.Limit, CompleteBytes)
	if h.now == nil {
		h.now = time.Now
	}
	states, err := statFiles(ctx, files)
	if err != nil {
		return Digest{}, err
	}
	var s Digest
	names := sha256.New()
	for i, f := range files {
		s.Bytes += states[i].size
		fmt.Fprintf(names, "%q\n", f.Name)
	}
	s.Names, s.Sampled = hex.EncodeToString(names.Sum(nil)), s.Bytes > h.Limit
	entry := newCacheEntry(h.Cache, fmt.Sprintln(h.Limit), files, states, h.now())
	if s.Hash, s.Cached = entry.Read(); s.Cached {
		return s, nil
	}
	if s.Sampled {
		s.Hash, err = hashSampledBlocks(ctx, files, states, s.Bytes)
	} else {
		s.Hash, err = hashAll(ctx, files, states)
	}
	if err == nil {
		entry.Write(s.Hash)
	}
	return s, err
}

// fileState contains the metadata by which a change of a file is detected. Programs can set the
// modification time back, but not the change time, which also changes when a file is renamed.
type fileState struct {
	size                   int64
	inode                  uint64
	modifyTime, changeTime int64 // Unix nanoseconds
}

func statFile(path string) (fileState, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fileState{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileState{size: s.Size, inode: s.Ino, modifyTime: s.Mtim.Nano(), changeTime: s.Ctim.Nano()}, nil
}

// ChangedSince returns the paths of the files that are gone, or whose content, name or times have
// changed after t.
func ChangedSince(files []File, t time.Time) []string {
	var paths []string
	for _, f := range files {
		s, err := statFile(f.Path)
		if err != nil || max(s.modifyTime, s.changeTime) > t.UnixNano() {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// hashAll hashes all bytes of files. states contains the state of each file.
func hashAll(ctx context.Context, files []File, states []fileState) (string, error) {
	sums := make([][]byte, len(files))
	if err := forEachParallel(ctx, len(files), func(i int) (err error) {
		sums[i], err = files[i].hashBlocks(ctx, states[i].size, []int64{0}, states[i].size)
		return err
	}); err != nil {
		return "", err
	}
	return combineSums(files, states, sums), nil
}

// hashSampledBlocks hashes blocks at equal distances in the concatenated files. states contains the state
// of each file, and total is the sum of their sizes.
func hashSampledBlocks(ctx context.Context, files []File, states []fileState, total int64) (string, error) {
	offsets := make([][]int64, len(files)) // of the blocks in each file
	file, begin := 0, int64(0)             // the file of the next block, and its offset in the contents
	for k := range int64(sampleBlocks) {
		at := k * ((total - 1) / (sampleBlocks - 1))
		for at >= begin+states[file].size {
			begin += states[file].size
			file++
		}
		offsets[file] = append(offsets[file], at-begin)
	}
	sums := make([][]byte, len(files))
	if err := forEachParallel(ctx, len(files), func(i int) (err error) {
		if offsets[i] != nil {
			sums[i], err = files[i].hashBlocks(ctx, states[i].size, offsets[i], blockBytes)
		}
		return err
	}); err != nil {
		return "", err
	}
	return combineSums(files, states, sums), nil
}

// combineSums returns the hash of the names, the sizes and the hashes of files.
func combineSums(files []File, states []fileState, sums [][]byte) string {
	h := sha256.New()
	for i, f := range files {
		fmt.Fprintf(h, "%q %d %x\n", f.Name, states[i].size, sums[i])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashBlocks returns the SHA-256 of several blocks of f. A block has the given number of bytes,
// fewer at the end of the file, and starts at one of offsets. It is an error if the file does not
// have the given size.
func (f File) hashBlocks(ctx context.Context, size int64, offsets []int64, bytes int64) (sum []byte, err error) {
	var in *os.File
	if f.Path == f.Root {
		in, err = safeopen.OpenUserFile(f.Path)
	} else {
		in, err = safeopen.Open(f.Root, f.Path)
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	h := sha256.New()
	buffer := make([]byte, min(chunkBytes, size+1))
	for _, offset := range offsets {
		part := io.NewSectionReader(in, offset, bytes)
		for {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n, err := part.Read(buffer)
			_, _ = h.Write(buffer[:n]) // never fails
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", f.Path, err)
			}
		}
	}
	info, err := in.Stat()
	if err == nil && info.Size() != size {
		err = fmt.Errorf("read %s: the size changed from %d to %d bytes: try again when no program writes to the file", f.Path, size, info.Size())
	}
	return h.Sum(nil), err
}

// forEachParallel calls do for 0 to n−1, several at a time. It stops at the first error, or when ctx is canceled.
func forEachParallel(ctx context.Context, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(readers, n) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// A CacheEntry is a cached text that was computed from the contents of files.
type CacheEntry struct {
	path  string // empty: nothing is kept
	state string // hash of the purpose and of the state of the files
	fresh bool   // a file was changed just now
}

// NewCacheEntry returns the entry, in the folder cache, of the text computed from files for a
// purpose. If a file changes, the entry is another one. If cache is empty, nothing is cached.
func NewCacheEntry(ctx context.Context, cache, purpose string, files []File) (CacheEntry, error) {
	states, err := statFiles(ctx, files)
	if err != nil {
		return CacheEntry{}, err
	}
	return newCacheEntry(cache, purpose, files, states, time.Now()), nil
}

func newCacheEntry(cache, purpose string, files []File, states []fileState, now time.Time) CacheEntry {
	settled := now.Add(-settleTime).UnixNano()
	h := sha256.New()
	fmt.Fprint(h, purpose)
	var e CacheEntry
	for i, f := range files {
		fmt.Fprintf(h, "%q %q %+v\n", f.Name, f.Path, states[i])
		e.fresh = e.fresh || max(states[i].modifyTime, states[i].changeTime) >= settled
	}
	e.state = hex.EncodeToString(h.Sum(nil))
	if cache != "" {
		e.path = filepath.Join(cache, e.state)
	}
	return e
}

func statFiles(ctx context.Context, files []File) ([]fileState, error) {
	states := make([]fileState, len(files))
	return states, forEachParallel(ctx, len(files), func(i int) (err error) {
		states[i], err = statFile(files[i].Path)
		return err
	})
}

const maxCacheEntryBytes = 256 << 20

// Read returns the text of the entry. ok is false if it is not in the cache. Read also updates the
// entry's time, because old entries are removed.
func (e CacheEntry) Read() (text string, ok bool) {
	if e.path == "" {
		return "", false
	}
	content, err := safeopen.ReadUserFile(context.Background(), e.path, maxCacheEntryBytes)
	if err != nil {
		return "", false
	}
	text = string(content)
	text = text[:max(0, strings.LastIndexByte(text, ' '))]
	if string(content) != e.withChecksum(text) {
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(e.path, now, now) // without it, the entry is removed too early
	return text, true
}

// Write stores the text in the cache and removes entries that were not used for entryKeepTime. It
// stores nothing if a file was changed so recently that another change might have the same time. It
// ignores errors, because the text can be computed again.
func (e CacheEntry) Write(text string) {
	folder := filepath.Dir(e.path)
	if e.path == "" || e.fresh || os.MkdirAll(folder, 0o700) != nil || wholefile.WriteBytes(e.path, []byte(e.withChecksum(text)), 0o600) != nil {
		return
	}
	entries, _ := os.ReadDir(folder) // those that can be read
	for _, other := range entries {
		if info, err := other.Info(); err == nil && time.Since(info.ModTime()) > entryKeepTime {
			_ = os.Remove(filepath.Join(folder, other.Name()))
		}
	}
}

// entryKeepTime is how long an entry is kept after its last use.
const entryKeepTime = 90 * 24 * time.Hour

// withChecksum appends a checksum to text, so that Read recognizes a damaged entry.
func (e CacheEntry) withChecksum(text string) string {
	return fmt.Sprintf("%s %x\n", text, sha256.Sum256([]byte(e.state+text)))
}
