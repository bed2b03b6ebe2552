package filehash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeFiles writes files with the given contents to a new folder, and returns them.
func writeFiles(t *testing.T, contents ...string) []File {
	t.Helper()
	dir := t.TempDir()
	var files []File
	for i, text := range contents {
		name := string(rune('a' + i))
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name, Root: dir, Path: path})
	}
	return files
}

func (h Hasher) mustSum(t *testing.T, files []File) Digest {
	t.Helper()
	s, err := h.Sum(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// later is a clock by which all files of a test are old enough for the cache.
func later() time.Time { return time.Now().Add(time.Hour) }

func TestSum(t *testing.T) {
	a := writeFiles(t, "one", "two", "")
	want := Hasher{}.mustSum(t, a)
	if want.Bytes != 6 || want.Sampled || want.Cached || len(want.Hash) != 64 {
		t.Errorf("got %+v", want)
	}
	if got := (Hasher{}).mustSum(t, writeFiles(t, "one", "two", "")); got != want {
		t.Errorf("a copy: got %+v, want %+v", got, want)
	}
	for _, contents := range [][]string{{"two", "one", ""}, {"one", "twp", ""}, {"onet", "wo", ""}, {"one", "", "two"}, {"one", "two"}, {"one", "two", "", ""}} {
		if got := (Hasher{}).mustSum(t, writeFiles(t, contents...)); got.Hash == want.Hash {
			t.Errorf("%q has the same hash as the files one and two", contents)
		}
	}
	a[1].Name = "z"
	if got := (Hasher{}).mustSum(t, a); got.Hash == want.Hash || got.Names == want.Names {
		t.Error("another name does not change the hash")
	}
}

// TestCache changes files in every way in which a cache could miss the change: the result is
// always that of a hasher without a cache.
func TestCache(t *testing.T) {
	t.Parallel()
	files := writeFiles(t, "1111", "2222", "3333")
	old := time.Now().Add(-time.Hour)
	restoreTime := func() {
		for _, f := range files {
			if err := os.Chtimes(f.Path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	restoreTime()
	h := Hasher{Cache: filepath.Join(t.TempDir(), "new", "cache"), now: later}
	if first := h.mustSum(t, files); first.Cached {
		t.Errorf("first: got %+v", first)
	}
	for name, change := range map[string]func() error{
		"nothing": func() error { return nil },
		"a content of the same size and modification time": func() error {
			return os.WriteFile(files[0].Path, []byte("9111"), 0o644)
		},
		"exchanged names": func() error {
			return errors.Join(os.Rename(files[0].Path, files[0].Path+"x"), os.Rename(files[1].Path, files[0].Path), os.Rename(files[0].Path+"x", files[1].Path))
		},
		"another size": func() error { return os.WriteFile(files[2].Path, []byte("33"), 0o644) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		restoreTime()
		want := Hasher{}.mustSum(t, files)
		got := h.mustSum(t, files)
		again := h.mustSum(t, files)
		if got.Hash != want.Hash || again.Hash != want.Hash {
			t.Errorf("after %s: got %s and then %s, want %s", name, got.Hash, again.Hash, want.Hash)
		}
		if !again.Cached {
			t.Errorf("after %s: the second result is not from the cache", name)
		}
	}
	// A damaged entry is not used.
	entries, err := os.ReadDir(h.Cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.WriteFile(filepath.Join(h.Cache, e.Name()), []byte(strings.Repeat("0", 129)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.mustSum(t, files); got.Cached {
		t.Error("a damaged entry is used")
	}
}

func TestChangedSince(t *testing.T) {
	files := writeFiles(t, "1", "2", "3")
	if got := ChangedSince(files, later()); got != nil {
		t.Errorf("got %q, want none", got)
	}
	if err := os.Remove(files[1].Path); err != nil {
		t.Fatal(err)
	}
	if got := ChangedSince(files, later()); len(got) != 1 || got[0] != files[1].Path {
		t.Errorf("got %q, want only the file that is gone", got)
	}
	if got := ChangedSince(files, time.Now().Add(-time.Hour)); len(got) != 3 {
		t.Errorf("got %q, want all", got)
	}
}

// TestCacheNotUsed: files that have changed a moment ago are hashed each time, and a cache that
// cannot be written is no error.
func TestCacheNotUsed(t *testing.T) {
	files := writeFiles(t, "1")
	cache := t.TempDir()
	for _, h := range []Hasher{
		{Cache: cache, now: time.Now},
		{Cache: filepath.Join(files[0].Path, "in a file"), now: later},
	} {
		h.mustSum(t, files)
		if got := h.mustSum(t, files); got.Cached {
			t.Errorf("cache %s: the result is from the cache", h.Cache)
		}
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) > 0 {
		t.Errorf("the cache contains %v (%v), want nothing", entries, err)
	}
}

// TestCacheForgets: an entry is removed long after its last use, when another one is written.
func TestCacheForgets(t *testing.T) {
	h := Hasher{Cache: t.TempDir(), now: later}
	used, unused := writeFiles(t, "used"), writeFiles(t, "unused")
	h.mustSum(t, used)
	h.mustSum(t, unused)
	entries, err := os.ReadDir(h.Cache)
	if err != nil || len(entries) != 2 {
		t.Fatalf("got entries %v, %v, want 2", entries, err)
	}
	old := time.Now().Add(-2 * entryKeepTime)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(h.Cache, e.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	h.mustSum(t, used)
	h.mustSum(t, writeFiles(t, "other"))
	if !h.mustSum(t, used).Cached || h.mustSum(t, unused).Cached {
		t.Error("the cache should have kept the entry that was used, and removed the other one")
	}
}

// TestSample: above the limit, names, sizes and a sample of the contents are hashed, and the
// result says so.
func TestSample(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 1<<12) // 64 KiB: the blocks cover all of it
	h := Hasher{Limit: 1 << 10}
	want := h.mustSum(t, writeFiles(t, text, "", text[:100]))
	if !want.Sampled || want.Bytes != 64<<10+100 {
		t.Errorf("got %+v", want)
	}
	for name, files := range map[string][]File{
		"the first byte": writeFiles(t, "x"+text[1:], "", text[:100]),
		"a byte":         writeFiles(t, text[:1<<15]+"x"+text[1<<15+1:], "", text[:100]),
		"a size":         writeFiles(t, text, "", text[:99]),
		"order":          writeFiles(t, text, text[:100], ""),
	} {
		if got := h.mustSum(t, files); got.Hash == want.Hash {
			t.Errorf("%s does not change the hash", name)
		}
	}
	if got := (Hasher{Limit: 1 << 20}).mustSum(t, writeFiles(t, text, "", text[:100])); got.Sampled || got.Hash == want.Hash {
		t.Errorf("below the limit: got %+v", got)
	}
}

func TestSumErrors(t *testing.T) {
	files := writeFiles(t, "one", "two")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Hasher{}).Sum(ctx, files); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
	private := writeFiles(t, "private")
	link := filepath.Join(files[0].Root, "link")
	if err := os.Symlink(private[0].Path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (Hasher{}).Sum(t.Context(), []File{{Name: "link", Root: files[0].Root, Path: link}}); err == nil || !strings.Contains(err.Error(), "it is a link out of the folder") {
		t.Errorf("a link out of the folder: got %v", err)
	}
	if err := os.Remove(files[1].Path); err != nil {
		t.Fatal(err)
	}
	if _, err := (Hasher{}).Sum(t.Context(), files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: got %v", err)
	}
}

// TestCanceledWhileReading: a context that is canceled while a file is read ends the reading.
func TestCanceledWhileReading(t *testing.T) {
	files := writeFiles(t, strings.Repeat("x", 4*chunkBytes))
	ctx := &cancelingContext{Context: t.Context(), after: 3}
	if _, err := files[0].hashBlocks(ctx, 4*chunkBytes, []int64{0}, 4*chunkBytes); !errors.Is(err, context.Canceled) || ctx.calls != 3 {
		t.Errorf("got %v after %d checks, want a canceled context after 3", err, ctx.calls)
	}
}

// cancelingContext is canceled at a given call of Err.
type cancelingContext struct {
	context.Context
	after, calls int
}

func (c *cancelingContext) Err() error {
	if c.calls++; c.calls >= c.after {
		return context.Canceled
	}
	return nil
}
