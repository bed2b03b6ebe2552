package data_test

import (
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/safeopen"
)

// TestReadersRefuseUnsafeFiles: a named pipe blocks nobody, and a link is not
// followed out of the folder of the data.
func TestReadersRefuseUnsafeFiles(t *testing.T) {
	batch := make([]byte, 3073)
	picture := func(t *testing.T, path string) { writeImage(t, path, 4, 4, color.White) }
	for _, c := range []struct {
		name   string
		unsafe string // path of the file
		make   func(t *testing.T, dir string)
		open   func(dir string) error
	}{
		{
			"pairs", "image/1.png", func(t *testing.T, dir string) { picture(t, filepath.Join(dir, "label/1.png")) },
			func(dir string) error { _, err := data.OpenPairs(t.Context(), dir, data.Config{}); return err },
		},
		{
			"masks", "label/1.png", func(t *testing.T, dir string) { picture(t, filepath.Join(dir, "image/1.png")) },
			func(dir string) error { _, err := data.OpenPairs(t.Context(), dir, data.Config{}); return err },
		},
		{
			"stacks", "image/1.tif", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "label/1.tif"), []byte("II*\x00")) },
			func(dir string) error { _, err := data.OpenStacks(t.Context(), dir, data.Config{}); return err },
		},
		{
			"first of folders", "a/1.png", func(t *testing.T, dir string) { picture(t, filepath.Join(dir, "b/1.png")) },
			func(dir string) error { _, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{}); return err },
		},
		{
			"folders", "b/1.png", func(t *testing.T, dir string) { picture(t, filepath.Join(dir, "a/1.png")) },
			func(dir string) error {
				set, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{})
				if err != nil {
					return errors.New("opened the wrong file")
				}
				return set.Get(1, make([]float32, 3*4*4), make([]float32, 1))
			},
		},
		{
			"list", "train_data.pkl", func(*testing.T, string) {},
			func(dir string) error { _, err := data.OpenImageNet(t.Context(), dir, data.ClassOptions{}); return err },
		},
		{
			"batches", "data_batch_2.bin", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "data_batch_1.bin"), batch) },
			func(dir string) error { _, err := data.OpenCIFAR10(t.Context(), dir, data.CIFAROptions{}); return err },
		},
		{
			"class names", "batches.meta.txt", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "data_batch_1.bin"), batch) },
			func(dir string) error { _, err := data.OpenCIFAR10(t.Context(), dir, data.CIFAROptions{}); return err },
		},
		{
			"hdf5", "1.h5", func(*testing.T, string) {},
			func(dir string) error { _, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{}); return err },
		},
		{
			"hdf5 alone", "1.h5", func(*testing.T, string) {},
			func(dir string) error {
				_, err := data.OpenVolumes(t.Context(), filepath.Join(dir, "1.h5"), data.VolumeOptions{})
				return err
			},
		},
		{
			"npy", "1_Nbody.npy", func(*testing.T, string) {},
			func(dir string) error { _, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{}); return err },
		},
	} {
		for name, put := range map[string]func(dir, path string) error{
			"pipe": func(_, path string) error { return syscall.Mkfifo(path, 0o644) },
			"link": func(dir, path string) error {
				beside := dir + filepath.Ext(path)
				return errors.Join(os.WriteFile(beside, []byte("secret"), 0o644), os.Symlink(beside, path))
			},
		} {
			if name == "link" && c.name == "hdf5 alone" { // the user has named the link
				continue
			}
			t.Run(c.name+" "+name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "set")
				path := filepath.Join(dir, c.unsafe)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				c.make(t, dir)
				if err := put(dir, path); err != nil {
					t.Fatal(err)
				}
				result := make(chan error, 1)
				go func() { result <- c.open(dir) }()
				select {
				case err := <-result:
					var refused *safeopen.RefusedError
					if !errors.As(err, &refused) || !strings.HasSuffix(refused.Path, c.unsafe) {
						t.Errorf("got error %v, want one that refuses %s", err, c.unsafe)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("the reader does not return")
				}
			})
		}
	}
}
