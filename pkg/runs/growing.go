package runs

import (
	"bytes"
	"errors"
	"io"
	"os"

	"lockstep/pkg/internal/safeopen"
)

// comparedBytes is how many bytes isContinuation compares at each end of the part already read.
const comparedBytes = 256

// GrowingFile reads a file that is still being written: each Open returns the bytes appended since
// the last one. A file that was truncated, replaced or rewritten is read again. GrowingFile polls,
// because network file systems have no events. It must not be used by several goroutines at once.
type GrowingFile struct {
	open       func() (*os.File, error)
	path       string
	info       os.FileInfo // of the file when it was last opened; nil before
	offset     int64       // end of the bytes that were read
	head, tail []byte      // the first and the last bytes that were read
	read       int64       // all bytes read so far
}

// NewGrowingFile returns a reader of the file at path, which may be a link.
func NewGrowingFile(path string) *GrowingFile {
	return &GrowingFile{path: path, open: func() (*os.File, error) { return safeopen.OpenUserFile(path) }}
}

// newGrowingFileIn is like NewGrowingFile, but refuses links that lead out of the folder dir.
func newGrowingFileIn(dir, path string) *GrowingFile {
	return &GrowingFile{path: path, open: func() (*os.File, error) { return safeopen.Open(dir, path) }}
}

// AppendedReader reads the bytes appended to a file. The next Open returns bytes that were neither
// read nor skipped again. The caller must close it.
type AppendedReader struct {
	// Restarted reports that the file was replaced or rewritten: the bytes start at its beginning,
	// and those read before are no longer valid.
	Restarted bool

	g    *GrowingFile
	f    *os.File
	left int64
}

// Open returns a reader of the bytes appended since the last Open, or nil if there are none.
func (g *GrowingFile) Open() (*AppendedReader, error) {
	info, err := os.Stat(g.path)
	if err != nil {
		return nil, err
	}
	if g.info != nil && os.SameFile(g.info, info) && info.Size() == g.offset && info.ModTime().Equal(g.info.ModTime()) {
		return nil, nil
	}
	f, err := g.open()
	if err != nil {
		return nil, err
	}
	info, err = f.Stat() // of the opened file: the path may lead to another one by now
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	a := &AppendedReader{g: g, f: f, Restarted: !g.isContinuation(f, info)}
	if a.Restarted {
		g.offset, g.head, g.tail = 0, nil, nil
	}
	g.info, a.left = info, info.Size()-g.offset
	if _, err := f.Seek(g.offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

// isContinuation reports whether f still starts with the bytes read before. It is called only if f
// has changed, so if f is not longer than these bytes, it was truncated or changed in place.
func (g *GrowingFile) isContinuation(f *os.File, info os.FileInfo) bool {
	return g.info != nil && os.SameFile(g.info, info) && info.Size() > g.offset &&
		containsAt(f, 0, g.head) && containsAt(f, g.offset-int64(len(g.tail)), g.tail)
}

func containsAt(f *os.File, offset int64, want []byte) bool {
	got := make([]byte, len(want))
	_, err := f.ReadAt(got, offset)
	return err == nil && bytes.Equal(got, want)
}

// Read returns io.EOF at the size that the file had at Open; the next Open returns later bytes.
func (a *AppendedReader) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, io.EOF
	}
	n, err := a.f.Read(p[:min(int64(len(p)), a.left)])
	g := a.g
	a.left -= int64(n)
	g.offset, g.read = g.offset+int64(n), g.read+int64(n)
	if missing := comparedBytes - len(g.head); missing > 0 {
		g.head = append(g.head, p[:min(missing, n)]...)
	}
	g.tail = append(g.tail, p[max(0, n-comparedBytes):n]...)
	g.tail = append(g.tail[:0], g.tail[max(0, len(g.tail)-comparedBytes):]...)
	if errors.Is(err, io.EOF) && a.left > 0 { // truncated meanwhile; the next Open sees it
		a.left = 0
	}
	return n, err
}

// Skip skips the unread bytes. The next Open returns only bytes appended after this one.
func (a *AppendedReader) Skip() {
	a.g.offset += a.left
	a.left, a.g.tail = 0, nil
}

// Close closes the file.
func (a *AppendedReader) Close() error { return a.f.Close() }

// BytesRead returns the number of bytes read so far. It does not include bytes that Open reads
// again to detect a changed file, which are at most 512 per call.
func (g *GrowingFile) BytesRead() int64 { return g.read }
