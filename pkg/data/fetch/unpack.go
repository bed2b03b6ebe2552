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

// maxUnpackedBytes limits the total size of an archive's files, in bytes.
const maxUnpackedBytes = 1 << 40

// Unpack unpacks a .tar.gz, .tgz or .zip file into dir, and ignores files with other extensions. It
// returns an error if a path in the archive leads out of dir. Links in the archive are skipped.
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
	remaining := int64(maxUnpackedBytes)
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := extractFile(ctx, dir, h.Name, t, &remaining); err != nil {
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
	remaining := int64(maxUnpackedBytes)
	for _, f := range z.File {
		if !f.Mode().IsRegular() {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		if err := errors.Join(extractFile(ctx, dir, f.Name, r, &remaining), r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// extractFile writes r, a file of an archive, to dir/name. It subtracts the file's size from
// remaining, the number of bytes that may still be unpacked.
func extractFile(ctx context.Context, dir, name string, r io.Reader, remaining *int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	local := filepath.FromSlash(strings.TrimPrefix(name, "./"))
	if !filepath.IsLocal(local) {
		return fmt.Errorf("refused file %q: its path leads out of %s", name, dir)
	}
	path := filepath.Join(dir, local)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		n, err := io.Copy(f, io.LimitReader(r, *remaining+1))
		if *remaining -= n; err == nil && *remaining < 0 {
			err = fmt.Errorf("refused archive: its files have more than %d bytes in total", int64(maxUnpackedBytes))
		}
		return err
	})
}
