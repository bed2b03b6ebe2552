package runs

import (
	"bytes"
	"errors"
	"io"
	"os"

	"lockstep/pkg/internal/safeopen"
)

// sampleBytes is how much of what was read is compared, at its beginning and
// at its end, to see that the file still holds it.
const sampleBytes = 256

// Growing reads a file that is still written, each time what was appended
// since. A file that was truncated, replaced or written anew is read from its
// beginning again. It asks the file system and does not wait for events, which
// network file systems do not have. It is for one goroutine at a time.
type Growing struct {
	open       func() (*os.File, error)
	path       string
	info       os.FileInfo // when it was last opened; nil before
	offset     int64
	head, tail []byte // samples of what was read
	read       int64
}

// NewGrowing makes a reader of the file at path, of which nothing was read yet.
// The path may be a link.
func NewGrowing(path string) *Growing {
	return &Growing{path: path, open: func() (*os.File, error) { return safeopen.File(path) }}
}

// newGrowingIn is NewGrowing for a file of the folder dir, out of which no link
// may lead.
func newGrowingIn(dir, path string) *Growing {
	return &Growing{path: path, open: func() (*os.File, error) { return safeopen.Open(dir, path) }}
}

// Appended is what was appended to a file. What is not read of it, or skipped,
// comes again the next time. It must be closed.
type Appended struct {
	// Anew says that what was read before does not count any more: this is the
	// file from its beginning.
	Anew bool

	g    *Growing
	f    *os.File
	left int64
}

// Open gives what was appended since the last time; nil where nothing was.
func (g *Growing) Open() (*Appended, error) {
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
	info, err = f.Stat() // of what was opened, whatever lies there by now
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	a := &Appended{g: g, f: f, Anew: !g.continues(f, info)}
	if a.Anew {
		g.offset, g.head, g.tail = 0, nil, nil
	}
	g.info, a.left = info, info.Size()-g.offset
	if _, err := f.Seek(g.offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

// continues says whether the file still begins with what was read. A file of
// the same length that was written to was changed in place.
func (g *Growing) continues(f *os.File, info os.FileInfo) bool {
	return g.info != nil && os.SameFile(g.info, info) && info.Size() > g.offset &&
		holds(f, 0, g.head) && holds(f, g.offset-int64(len(g.tail)), g.tail)
}

func holds(f *os.File, at int64, want []byte) bool {
	got := make([]byte, len(want))
	_, err := f.ReadAt(got, at)
	return err == nil && bytes.Equal(got, want)
}

// Read reads as from any file; what is written after Open comes the next time.
func (a *Appended) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, io.EOF
	}
	n, err := a.f.Read(p[:min(int64(len(p)), a.left)])
	g := a.g
	a.left -= int64(n)
	g.offset, g.read = g.offset+int64(n), g.read+int64(n)
	if room := sampleBytes - len(g.head); room > 0 {
		g.head = append(g.head, p[:min(room, n)]...)
	}
	g.tail = append(g.tail, p[max(0, n-sampleBytes):n]...)
	g.tail = append(g.tail[:0], g.tail[max(0, len(g.tail)-sampleBytes):]...)
	if errors.Is(err, io.EOF) && a.left > 0 { // truncated meanwhile; the next Open sees it
		a.left = 0
	}
	return n, err
}

// Skip passes over what was not read yet: what is appended from now on comes
// the next time.
func (a *Appended) Skip() {
	a.g.offset += a.left
	a.left, a.g.tail = 0, nil
}

// Close closes the file.
func (a *Appended) Close() error { return a.f.Close() }

// BytesRead is how many bytes of content were read so far, all in all. The
// samples that are compared, at most 512 bytes each time, are not among them.
func (g *Growing) BytesRead() int64 { return g.read }
