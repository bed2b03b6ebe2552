package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"lockstep/pkg/data/internal/filehash"
	"lockstep/pkg/data/internal/picture"
)

// A Survey contains the facts of all images and masks of a folder, in the order of the pairs.
type Survey struct {
	Images []Facts `json:"images"`
	Masks  []Facts `json:"masks"`
}

// Headers reads the headers of the images and masks of pairs, which must be in dir.
func Headers(ctx context.Context, dir string, pairs []Pair) (Survey, error) {
	header := func(path string) (Facts, error) {
		h, err := picture.ReadHeader(ctx, dir, path)
		return Facts{Height: h.Height, Width: h.Width, Channels: h.Channels, Bits: h.Bits}, err
	}
	return readFacts(ctx, pairs, header, header)
}

// Complete returns the facts of the images and masks of pairs, which must be in dir. It reads every
// pixel, unless the user's cache folder contains the facts.
func Complete(ctx context.Context, dir string, pairs []Pair) (Survey, error) {
	if s, ok := Cached(ctx, dir, pairs); ok {
		return s, nil
	}
	facts := func(of func(picture.Raw) Facts) func(string) (Facts, error) {
		return func(path string) (Facts, error) {
			r, err := picture.ReadRaw(ctx, dir, path)
			if err != nil {
				return Facts{}, err
			}
			return of(r), nil
		}
	}
	s, err := readFacts(ctx, pairs, facts(OfImage), facts(OfMask))
	if err == nil {
		s.Keep(ctx, dir, pairs)
	}
	return s, err
}

// Cached returns the facts of pairs that Keep has stored. ok is false if there are none or a file
// has changed since.
func Cached(ctx context.Context, dir string, pairs []Pair) (s Survey, ok bool) {
	e, err := newCacheEntry(ctx, dir, pairs)
	if err != nil {
		return s, false
	}
	text, ok := e.Read()
	return s, ok && json.Unmarshal([]byte(text), &s) == nil && len(s.Images) == len(pairs) && len(s.Masks) == len(pairs)
}

// Keep stores s, the facts of pairs, in the user's cache folder, so that unchanged files are not
// read again. It ignores errors.
func (s Survey) Keep(ctx context.Context, dir string, pairs []Pair) {
	e, err := newCacheEntry(ctx, dir, pairs)
	if err != nil {
		return
	}
	if text, err := json.Marshal(s); err == nil {
		e.Write(string(text))
	}
}

// newCacheEntry returns the cache entry for the facts of pairs. Change the version if facts are added.
func newCacheEntry(ctx context.Context, dir string, pairs []Pair) (filehash.CacheEntry, error) {
	const version = "survey v1\n"
	folder, err := os.UserCacheDir()
	if err != nil {
		return filehash.CacheEntry{}, err
	}
	var files []filehash.File
	for _, p := range pairs {
		files = append(files, filehash.File{Root: dir, Path: p.Image}, filehash.File{Root: dir, Path: p.Mask})
	}
	return filehash.NewCacheEntry(ctx, filepath.Join(folder, "lockstep", "survey"), version, files)
}

// readFacts calls image and mask for the files of pairs, several at a time, and returns the first error
// in the order of pairs.
func readFacts(ctx context.Context, pairs []Pair, image, mask func(path string) (Facts, error)) (Survey, error) {
	s := Survey{make([]Facts, len(pairs)), make([]Facts, len(pairs))}
	errs := make([]error, len(pairs))
	var next atomic.Int64
	var failed atomic.Bool
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(pairs)) {
		readers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(pairs) && ctx.Err() == nil && !failed.Load(); i = int(next.Add(1)) - 1 {
				var err error
				if s.Images[i], err = image(pairs[i].Image); err != nil {
					errs[i] = fmt.Errorf("read image %s: %w", pairs[i].Image, err)
				} else if s.Masks[i], err = mask(pairs[i].Mask); err != nil {
					errs[i] = fmt.Errorf("read mask %s: %w", pairs[i].Mask, err)
				}
				if errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	readers.Wait()
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	for _, err := range errs {
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
