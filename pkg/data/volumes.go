package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/hdf5"
	"lockstep/pkg/data/internal/npy"
	"lockstep/pkg/internal/safeopen"
)

// VolumeOptions selects the input and the target in files of volumes.
type VolumeOptions struct {
	Input          string // data set of an HDF5 file, or the end of an .npy file's name; empty: "Nbody"
	Target         string // like Input; empty: "Hydro"
	InputChannels  int    // required number of channels; 0: any
	TargetChannels int    // required number of channels; 0: any
}

func (o VolumeOptions) withDefaults() VolumeOptions {
	o.Input, o.Target = cmp.Or(o.Input, "Nbody"), cmp.Or(o.Target, "Hydro")
	return o
}

// Volumes is a data set of boxes in files, each with an input [C,D,H,W] and a target [C',D,H,W]. A
// loader that crops the samples reads only the crops.
type Volumes struct {
	boxes         []volumePair
	image, target []int
	files         []interface{ Close() error }
	paths         []string // of files
}

type volumePair struct {
	name          string
	image, target volumeReader
}

// volumeReader is a volume of shape [C,D,H,W] in a file. read copies a window of all channels.
type volumeReader interface {
	shape() []int
	read(dst []float32, w window) error
}

// volumeLayout describes the files that OpenVolumes reads, for error messages.
const volumeLayout = "an HDF5 file (.h5, .hdf5) with input and target of shape [C,D,H,W], or a folder of such files or of pairs NAME_Nbody.npy and NAME_Hydro.npy of shape [D,H,W,C]"

// OpenVolumes opens an HDF5 file, the HDF5 files of a folder, or the pairs of .npy files of a folder,
// without reading their values. All boxes must have the same shape. HDF5 data may be chunked and compressed
// (gzip, lzf). A crop reads all chunks that it overlaps, so chunks should be about as large as the crops.
func OpenVolumes(ctx context.Context, path string, o VolumeOptions) (v *Volumes, err error) {
	defer addOperation(&err, "open volumes")
	o = o.withDefaults()
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%s does not exist: set data.path (or --data DIR) to %s", path, volumeLayout)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v = &Volumes{}
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
	if len(v.boxes) == 0 {
		return v, fmt.Errorf("%s contains no volumes: want %s", path, volumeLayout)
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
func (v *Volumes) addHDF5(path string, open openFunc, o VolumeOptions) error {
	opened, err := open(path)
	if err != nil {
		return err
	}
	f, err := hdf5.Open(opened)
	if err != nil {
		if errors.Is(err, hdf5.ErrNotHDF5) {
			return fmt.Errorf("%w; want %s", err, volumeLayout)
		}
		return err
	}
	v.files, v.paths = append(v.files, f), append(v.paths, path)
	var both [2]volumeReader
	for i, name := range []string{o.Input, o.Target} {
		d, err := f.Dataset(name)
		if err != nil {
			return fmt.Errorf("%s: %w (data.input and data.target select the data sets)", path, err)
		}
		both[i] = hdf5Volume{d.Reader()}
	}
	return v.addBox(path, both[0], both[1], o)
}

// addNPY adds the box in two files of dir: prefix+inputName+".npy" contains the input, and
// prefix+target+".npy" the target. target is o.Target, in lower case if inputName is.
func (v *Volumes) addNPY(dir string, open openFunc, prefix, inputName string, o VolumeOptions) error {
	target := o.Target
	if inputName == strings.ToLower(inputName) {
		target = strings.ToLower(target)
	}
	var both [2]volumeReader
	for i, end := range []string{inputName, target} {
		path := filepath.Join(dir, prefix+end+".npy")
		opened, err := open(path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("file %s does not exist, but %s%s.npy does: want %s", path, prefix, inputName, volumeLayout)
		}
		if err != nil {
			return err
		}
		f, err := npy.Open(opened)
		if err != nil {
			return err
		}
		v.files, v.paths = append(v.files, f), append(v.paths, path)
		if s := f.Shape(); len(s) != 4 {
			return fmt.Errorf("%s has shape %v, want [D,H,W,C]", path, s)
		}
		both[i] = npyVolume{f}
	}
	return v.addBox(filepath.Join(dir, prefix+inputName+".npy"), both[0], both[1], o)
}

// addBox returns an error if the shapes of input and target are invalid or differ from the first box's.
func (v *Volumes) addBox(path string, image, target volumeReader, o VolumeOptions) error {
	is, ts := image.shape(), target.shape()
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
	if !isAligned(is, ts) {
		return fmt.Errorf("%s: %s has size %s, but %s has size %s: make them equal", path, o.Input, formatSize(is[1:]), o.Target, formatSize(ts[1:]))
	}
	if len(v.boxes) == 0 {
		v.image, v.target = is, ts
	}
	if !slices.Equal(is, v.image) || !slices.Equal(ts, v.target) {
		return fmt.Errorf("%s: input and target have shapes %v and %v, but the shapes in %s are %v and %v: all volumes must have the same shapes", path, is, ts, v.boxes[0].name, v.image, v.target)
	}
	v.boxes = append(v.boxes, volumePair{path, image, target})
	return nil
}

// Close closes the files. The data set must not be read afterwards.
func (v *Volumes) Close() error {
	var errs []error
	for _, f := range v.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Len returns the number of boxes.
func (v *Volumes) Len() int { return len(v.boxes) }

// ImageShape returns the shape [C,D,H,W] of a complete box's input.
func (v *Volumes) ImageShape() []int { return v.image }

// TargetShape returns the shape [C',D,H,W] of a complete box's target.
func (v *Volumes) TargetShape() []int { return v.target }

// SampleName returns the path of box i's file.
func (v *Volumes) SampleName(i int) string { return v.boxes[i].name }

// Get reads the input and the target of the complete box i.
func (v *Volumes) Get(i int, image, target []float32) error {
	w := fullWindow(v.image)
	return v.getWindow(context.Background(), i, w, image, target)
}

func (v *Volumes) getWindow(ctx context.Context, i int, w window, image, target []float32) error {
	if err := checkGetArguments(v, i, w, image, target); err != nil {
		return err
	}
	if err := v.boxes[i].image.read(image, w); err != nil {
		return fmt.Errorf("read %s: %w", v.boxes[i].name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := v.boxes[i].target.read(target, w); err != nil {
		return fmt.Errorf("read %s: %w", v.boxes[i].name, err)
	}
	return nil
}

type hdf5Volume struct{ r *hdf5.Reader }

func (g hdf5Volume) shape() []int { return g.r.Shape() }
func (g hdf5Volume) read(dst []float32, w window) error {
	return g.r.Read(dst, []int{0, w.start[0], w.start[1], w.start[2]}, []int{g.r.Shape()[0], w.size[0], w.size[1], w.size[2]})
}

// npyVolume is a volume in a .npy file of shape [D,H,W,C].
type npyVolume struct{ f *npy.File }

func (g npyVolume) shape() []int {
	s := g.f.Shape()
	return []int{s[3], s[0], s[1], s[2]}
}
func (g npyVolume) read(dst []float32, w window) error { return g.f.Read(dst, w.start, w.size) }
