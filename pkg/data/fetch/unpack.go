package fetch

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockstep/pkg/internal/wholefile"
)

// maxUnpacked bounds what an archive unpacks to, in bytes.
const maxUnpacked = 1 << 40

// Unpack unpacks a .tar.gz, .tgz or .zip file into dir; other files stay as they
// are. A path that leads out of dir is an error; links are left out.
func Unpack(ctx context.Context, path, dir string) error {
	var err error
	switch name := strings.ToLower(path); {
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		err = untar(ctx, path, dir)
	case strings.HasSuffix(name, ".zip"):
		err = unzip(ctx, path, dir)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", path, err)
	}
	return nil
}

func untar(ctx context.Context, path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	left := int64(maxUnpacked)
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := place(ctx, dir, h.Name, t, &left); err != nil {
				return err
			}
		}
	}
}

func unzip(ctx context.Context, path, dir string) error {
	z, err := zip.OpenReader(path)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	left := int64(maxUnpacked)
	for _, f := range z.File {
		if !f.Mode().IsRegular() {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		if err := errors.Join(place(ctx, dir, f.Name, r, &left), r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// place writes a file of an archive below dir.
func place(ctx context.Context, dir, name string, r io.Reader, left *int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	local := filepath.FromSlash(strings.TrimPrefix(name, "./"))
	if !filepath.IsLocal(local) {
		return fmt.Errorf("it holds %q, which would lie outside of %s: refused", name, dir)
	}
	path := filepath.Join(dir, local)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		n, err := io.Copy(f, io.LimitReader(r, *left+1))
		if *left -= n; err == nil && *left < 0 {
			err = fmt.Errorf("it unpacks to more than %d bytes: refused", int64(maxUnpacked))
		}
		return err
	})
}
