package localcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/safeopen"
)

const (
	copiers    = 8           // number of files copied in parallel: copying small files mostly waits for the disk
	chunkBytes = 64 << 20    // number of bytes copied between two checks whether the context is canceled
	touchEvery = time.Second // minimum time between two updates of the progress file
)

// sourceFiles lists the files and folders to copy, from the sources passed to Open.
type sourceFiles struct {
	base  []string // name of each source in the copy
	all   []sourceFile
	bytes int64  // total size of the files
	key   string // name of the copy: a hash of the sources' paths and their files' names, sizes and modification times
}

// sourceFile is a regular file or a folder of a source.
type sourceFile struct {
	root     string // path of the source
	original string // path of the file or folder
	copied   string // path relative to the copy's folder
	bytes    int64  // size of the file
	folder   bool   // whether it is a folder
}

// isCopyName reports whether name is the name of a copy's folder, including a copy that is being removed.
func isCopyName(name string) bool {
	b, err := hex.DecodeString(strings.TrimSuffix(name, removedSuffix))
	return err == nil && len(b) == copyNameHashBytes
}

const copyNameHashBytes = 16 // length of a hash in names of copies

// listSources finds all files of the sources. It follows links within a source; a link out of its
// source is an error.
func listSources(ctx context.Context, sources []string) (*sourceFiles, error) {
	set := &sourceFiles{}
	h := sha256.New()
	// After a reboot, do not reuse a copy on a disk, which may be damaged if the machine crashed.
	fmt.Fprintf(h, "%s\n", process.BootID())
	for i, source := range sources {
		path, err := filepath.Abs(source)
		if err != nil {
			return nil, err
		}
		base := fmt.Sprintf("%d-%s", i, filepath.Base(path))
		set.base = append(set.base, base)
		fmt.Fprintf(h, "%d %q\n", i, path)
		if err := set.addPath(ctx, path, path, base, nil, h); err != nil {
			return nil, err
		}
	}
	set.key = hex.EncodeToString(h.Sum(nil)[:copyNameHashBytes])
	return set, nil
}

// addPath adds the file or folder at path original, with its content. root is the path of its
// source, copied its path in the copy, and parents are the folders that contain it. Names, sizes
// and modification times are added to the hash h.
func (s *sourceFiles) addPath(ctx context.Context, root, original, copied string, parents []os.FileInfo, h io.Writer) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	info, err := os.Stat(original)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		s.all = append(s.all, sourceFile{root: root, original: original, copied: copied, bytes: info.Size()})
		s.bytes += info.Size()
		fmt.Fprintf(h, "%q %d %d\n", copied, info.Size(), info.ModTime().UnixNano())
		return nil
	case !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a folder", original)
	case slices.ContainsFunc(parents, func(f os.FileInfo) bool { return os.SameFile(f, info) }):
		return fmt.Errorf("%s is a link to a folder that contains it: remove the link, or leave data.stage out", original)
	}
	entries, err := os.ReadDir(original)
	if err != nil {
		return err
	}
	s.all = append(s.all, sourceFile{copied: copied, folder: true})
	fmt.Fprintf(h, "%q\n", copied)
	parents = append(slices.Clip(parents), info)
	for _, e := range entries {
		path := filepath.Join(original, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			if _, err := safeopen.RelativePath(root, path); err != nil {
				return err
			}
		}
		if err := s.addPath(ctx, root, path, filepath.Join(copied, e.Name()), parents, h); err != nil {
			return err
		}
	}
	return nil
}

// requiredBytes returns the copy's size on a file system with blocks of 4096 bytes.
func (s *sourceFiles) requiredBytes() int64 {
	const block = 4096
	var sum int64
	for _, f := range s.all {
		sum += (f.bytes + block - 1) / block * block
	}
	return sum
}

// freeBytes returns the bytes available to users on dir's file system.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil // Bsize is uint32 on darwin
}

// makeCopy copies set to dir. The caller must hold the exclusive lock of dir.
func (o localCopier) makeCopy(ctx context.Context, dir string, set *sourceFiles) error {
	part := filepath.Join(dir, partName)
	if err := os.RemoveAll(part); err != nil { // left by a process that was killed while it copied
		return err
	}
	available, err := o.free(dir)
	if err != nil {
		return err
	}
	if need := set.requiredBytes(); need > available {
		return fmt.Errorf("the data set needs %s, but only %s are free: free some space, name another folder in data.stage, or leave data.stage out", english.FormatBytes(need), english.FormatBytes(available))
	}
	for _, f := range set.all {
		to := filepath.Join(part, f.copied)
		if !f.folder {
			to = filepath.Dir(to)
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
	}
	if o.began != nil {
		o.began()
	}
	p := progressFile{path: filepath.Join(dir, progressName)}
	if err := p.touch(); err != nil {
		return err
	}
	if err := copyFiles(ctx, part, set.all, &p); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, dataName))
}

// copyFiles copies files to dir in parallel, and stops at the first error.
func copyFiles(ctx context.Context, dir string, files []sourceFile, p *progressFile) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range copiers {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return
				}
				if files[i].folder {
					continue
				}
				if err := copyFile(ctx, files[i], filepath.Join(dir, files[i].copied), p); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// open returns an error if the file has been replaced by a link out of its source since it was listed.
func (f sourceFile) open() (*os.File, error) {
	if f.original == f.root {
		return safeopen.OpenUserFile(f.original)
	}
	return safeopen.Open(f.root, f.original)
}

// copyFile returns an error if the size of f has changed since it was listed.
func copyFile(ctx context.Context, f sourceFile, dst string, p *progressFile) (err error) {
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var written int64
	for {
		n, err := io.CopyN(out, in, chunkBytes)
		written += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.original, err)
		}
		if err := p.touch(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if written != f.bytes {
		return fmt.Errorf("copy %s: the size changed from %d to %d bytes: try again when no program writes to the file", f.original, f.bytes, written)
	}
	return p.touch()
}

// progressFile is a file in the copy's folder. Its modification time shows waiting processes that
// the process that makes the copy is still working.
type progressFile struct {
	path string
	mu   sync.Mutex
	last time.Time
}

// touch updates the modification time, at most once per touchEvery.
func (p *progressFile) touch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.last) < touchEvery {
		return nil
	}
	p.last = now
	f, err := os.OpenFile(p.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(p.path, now, now))
}
