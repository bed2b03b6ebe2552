// Package volume reads and writes files of volumes.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/hdf5"
	"lockstep/pkg/data/internal/npy"
	"lockstep/pkg/data/internal/window"
	"lockstep/pkg/internal/safeopen"
)

// Options is data.VolumeOptions with defaults filled in.
type Options struct {
	Input, Target                 string
	InputChannels, TargetChannels int
}

// Files contains open files of boxes. Each box has an input [C,D,H,W] and a target [C',D,H,W].
type Files struct {
	Boxes         []MaskedVolume
	Image, Target []int // the shapes
	Paths         []string
	files         []io.Closer
}

// MaskedVolume is an input and a target.
type MaskedVolume struct {
	Name          string
	Image, Target Reader
}

// Reader is a volume of shape [C,D,H,W] in a file. Read copies a window of all channels.
type Reader interface {
	Shape() []int
	Read(dst []float32, w window.Window) error
}

// Layout describes the files that Open opens, for error messages.
const Layout = "an HDF5 file (.h5, .hdf5) with input and target of shape [C,D,H,W], or a folder of such files or of pairs NAME_Nbody.npy and NAME_Hydro.npy of shape [D,H,W,C]"

// Open opens an HDF5 file, the HDF5 files of a folder, or the pairs of .npy files of a folder.
func Open(ctx context.Context, path string, o Options) (v *Files, err error) {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%s does not exist: set data.path (or --data DIR) to %s", path, Layout)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v = &Files{}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.Close())
			v = nil
		}
	}()
	if !info.IsDir() {
		return v, v.addHDF5(path, safeopen.OpenUserFile, o)
	}
	inFolder := func(file string) (*os.File, error) { return safeopen.Open(path, file) }
	entries, err := os.ReadDir(path)
	if err != nil {
		return v, err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		name := e.Name()
		file := filepath.Join(path, name)
		stem := strings.TrimSuffix(name, ".npy")
		switch ext := strings.ToLower(filepath.Ext(name)); {
		case e.IsDir():
		case ext == ".h5" || ext == ".hdf5":
			err = v.addHDF5(file, inFolder, o)
		case ext == ".npy" && hasSuffixFold(stem, o.Input):
			err = v.addNPY(path, inFolder, stem[:len(stem)-len(o.Input)], stem[len(stem)-len(o.Input):], o)
		}
		if err != nil {
			return v, err
		}
	}
	if len(v.Boxes) == 0 {
		return v, fmt.Errorf("%s contains no volumes: want %s", path, Layout)
	}
	return v, nil
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// openFunc opens a file for reading. It returns an error unless the file is a regular one inside
// the folder that may be read.
type openFunc func(path string) (*os.File, error)

// addHDF5 adds the box in an HDF5 file.
func (v *Files) addHDF5(path string, open openFunc, o Options) error {
	opened, err := open(path)
	if err != nil {
		return err
	}
	f, err := hdf5.Open(opened)
	if err != nil {
		if errors.Is(err, hdf5.ErrNotHDF5) {
			return fmt.Errorf("%w; want %s", err, Layout)
		}
		return err
	}
	v.files, v.Paths = append(v.files, f), append(v.Paths, path)
	var both [2]Reader
	for i, name := range []string{o.Input, o.Target} {
		d, err := f.Dataset(name)
		if err != nil {
			return fmt.Errorf("%s: %w (data.input and data.target select the data sets)", path, err)
		}
		both[i] = hdf5Volume{d.Reader()}
	}
	return v.addVolumePair(path, both[0], both[1], o)
}

// addNPY adds the box in two files of dir: prefix+inputName+".npy" contains the input, and
// prefix+target+".npy" the target. target is o.Target, in lower case if inputName is.
func (v *Files) addNPY(dir string, open openFunc, prefix, inputName string, o Options) error {
	target := o.Target
	if inputName == strings.ToLower(inputName) {
		target = strings.ToLower(target)
	}
	var both [2]Reader
	for i, end := range []string{inputName, target} {
		path := filepath.Join(dir, prefix+end+".npy")
		opened, err := open(path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("file %s does not exist, but %s%s.npy does: want %s", path, prefix, inputName, Layout)
		}
		if err != nil {
			return err
		}
		f, err := npy.Open(opened)
		if err != nil {
			return err
		}
		v.files, v.Paths = append(v.files, f), append(v.Paths, path)
		if s := f.Shape(); len(s) != 4 {
			return fmt.Errorf("%s has shape %v, want [D,H,W,C]", path, s)
		}
		both[i] = npyVolume{f}
	}
	return v.addVolumePair(filepath.Join(dir, prefix+inputName+".npy"), both[0], both[1], o)
}

// addVolumePair adds a box. It returns an error if the shape of the input or the target is invalid, or
// differs from the first box's.
func (v *Files) addVolumePair(path string, image, target Reader, o Options) error {
	is, ts := image.Shape(), target.Shape()
	for _, c := range []struct {
		name  string
		shape []int
		want  int
	}{{o.Input, is, o.InputChannels}, {o.Target, ts, o.TargetChannels}} {
		switch {
		case len(c.shape) != 4:
			return fmt.Errorf("%s: %s has shape %v, want [C,D,H,W]", path, c.name, c.shape)
		case c.want > 0 && c.shape[0] != c.want:
			return fmt.Errorf("%s: %s has %d channels, want %d (its shape is %v): choose other data (data.input, data.target), or set the number of channels (data.input_channels, data.target_channels)", path, c.name, c.shape[0], c.want, c.shape)
		case slices.Min(c.shape) < 1:
			return fmt.Errorf("%s: %s is empty (shape %v)", path, c.name, c.shape)
		}
	}
	if !window.AreShapesAligned(is, ts) {
		return fmt.Errorf("%s: %s has size %s, but %s has size %s: make them equal", path, o.Input, window.FormatSize(is[1:]), o.Target, window.FormatSize(ts[1:]))
	}
	if len(v.Boxes) == 0 {
		v.Image, v.Target = is, ts
	}
	if !slices.Equal(is, v.Image) || !slices.Equal(ts, v.Target) {
		return fmt.Errorf("%s: input and target have shapes %v and %v, but the shapes in %s are %v and %v: all volumes must have the same shapes", path, is, ts, v.Boxes[0].Name, v.Image, v.Target)
	}
	v.Boxes = append(v.Boxes, MaskedVolume{path, image, target})
	return nil
}

// Close closes the files.
func (v *Files) Close() error {
	var errs []error
	for _, f := range v.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

type hdf5Volume struct{ r *hdf5.Reader }

func (g hdf5Volume) Shape() []int { return g.r.Shape() }
func (g hdf5Volume) Read(dst []float32, w window.Window) error {
	return g.r.Read(dst, []int{0, w.Start[0], w.Start[1], w.Start[2]}, []int{g.r.Shape()[0], w.Size[0], w.Size[1], w.Size[2]})
}

// npyVolume is a volume in a .npy file of shape [D,H,W,C].
type npyVolume struct{ f *npy.File }

func (g npyVolume) Shape() []int {
	s := g.f.Shape()
	return []int{s[3], s[0], s[1], s[2]}
}

func (g npyVolume) Read(dst []float32, w window.Window) error { return g.f.Read(dst, w.Start, w.Size) }
