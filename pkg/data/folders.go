package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/pickle"
	"lockstep/pkg/data/internal/picture"
)

// OpenFolders lists pictures (PNG, JPEG or TIFF) in a tree with one folder per class:
// dir/cat/1.png, dir/dog/7.jpg. Classes are numbered in the order of the sorted folder
// names. Get reads a picture from its file each time; InMemory keeps pictures in memory.
func OpenFolders(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	c, err := openFolders(ctx, dir, o)
	if err != nil {
		return nil, fmt.Errorf("open folders of classes: %w", err)
	}
	return c, nil
}

const classLayout = "a folder for each class that holds its " + picture.Kinds + " files"

func openFolders(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("there is no folder %s: name one with %s", dir, classLayout)
		}
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) < 2 {
		return nil, fmt.Errorf("%s holds %d folders: expected %s, of at least two classes", dir, len(names), classLayout)
	}
	slices.SortFunc(names, compareNatural)
	s := &files{dir: dir}
	var labels []int32
	for class, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, err := listPictures(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for _, file := range list {
			s.paths = append(s.paths, filepath.Join(name, file))
			labels = append(labels, int32(class))
		}
	}
	return s.classes(names, labels, o)
}

// OpenImageNet lists the pictures in dir/train_data.pkl, a pickled dict from the path of
// a picture (relative to dir) to its class. A class is a number from 0, or a name; names
// are numbered in sorted order. Reading the pickle runs no code. Get reads a picture
// from its file each time; InMemory keeps pictures in memory.
func OpenImageNet(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	c, err := openImageNet(ctx, dir, o)
	if err != nil {
		return nil, fmt.Errorf("open ImageNet folder: %w", err)
	}
	return c, nil
}

// maxClasses limits the number of classes. A list with a larger class number is rejected
// as another kind of file.
const maxClasses = 1 << 20

func openImageNet(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "train_data.pkl")
	text, err := picture.ReadFile(ctx, dir, file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: expected a pickled dict from a picture's path to its class beside the pictures; a folder a class is data kind folders", file)
	}
	if err != nil {
		return nil, err
	}
	paths, classes, err := readClassList(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, labels, err := numberClasses(paths, classes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return (&files{dir: dir, paths: paths}).classes(names, labels, o)
}

// readClassList returns the keys and values of a pickled dict from paths to classes.
func readClassList(text []byte) (paths []string, classes []any, err error) {
	v, err := pickle.Read(text)
	if err != nil {
		return nil, nil, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok || len(d.Keys) == 0 {
		return nil, nil, errors.New("it holds no dict from paths to classes")
	}
	for i, key := range d.Keys {
		path, ok := pickle.Text(key)
		if !ok || path == "" {
			return nil, nil, fmt.Errorf("key %d is no path of a picture but %v", i, key)
		}
		paths = append(paths, path)
	}
	return paths, d.Values, nil
}

// numberClasses returns the names of the classes, and for each picture the index of its
// class.
func numberClasses(paths []string, classes []any) (names []string, labels []int32, err error) {
	labels = make([]int32, len(classes))
	if _, isText := pickle.Text(classes[0]); isText {
		at := map[string]int32{}
		for i, c := range classes {
			name, ok := pickle.Text(c)
			if !ok {
				return nil, nil, fmt.Errorf("the class of %s is %v, others are names", paths[i], c)
			}
			at[name] = 0
		}
		for name := range at {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			at[name] = int32(i)
		}
		for i, c := range classes {
			name, _ := pickle.Text(c)
			labels[i] = at[name]
		}
		return names, labels, nil
	}
	highest := int64(0)
	for i, c := range classes {
		class, ok := pickle.Int(c)
		if !ok || class < 0 || class >= maxClasses {
			return nil, nil, fmt.Errorf("the class of %s is %v: expected a number of 0 to %d, or a name", paths[i], c, maxClasses-1)
		}
		labels[i], highest = int32(class), max(highest, class)
	}
	for i := range highest + 1 {
		names = append(names, fmt.Sprint(i))
	}
	return names, labels, nil
}

// files is a source of pictures that are separate files.
type files struct {
	dir   string
	paths []string // relative to dir, or absolute
}

func (s *files) name(i int) string { return s.paths[i] }

func (s *files) path(i int) string {
	if filepath.IsAbs(s.paths[i]) {
		return s.paths[i]
	}
	return filepath.Join(s.dir, s.paths[i])
}

// read reads the file of picture i. The list of an ImageNet folder may contain absolute
// paths, also outside the folder. There is no context because Dataset.Get, which calls
// read, has none; it reads only one picture.
func (s *files) read(i int) ([]byte, error) {
	if filepath.IsAbs(s.paths[i]) {
		return picture.ReadFile(context.Background(), filepath.Dir(s.paths[i]), s.paths[i])
	}
	return picture.ReadFile(context.Background(), s.dir, s.path(i))
}

func (s *files) picture(i int) (image.Image, error) {
	text, err := s.read(i)
	if err != nil {
		return nil, err
	}
	m, err := picture.Decode(context.Background(), text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(i), err)
	}
	return m, nil
}

// classes returns the data set of these files. The first picture determines the size.
func (s *files) classes(names []string, labels []int32, o ClassOptions) (*Classes, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	text, err := s.read(0)
	if err != nil {
		return nil, err
	}
	f, err := picture.FormatOf(text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(0), err)
	}
	height, width, err := f.Size(text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(0), err)
	}
	return newClasses(s, names, labels, height, width, o), nil
}
