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

	"lockstep/pkg/data/internal/classlist"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/runs"
)

// OpenFolders opens a folder of pictures (PNG, JPEG or TIFF) with one subfolder per class:
// dir/cat/1.png, dir/dog/7.jpg. Classes are numbered in the order of the sorted folder names. Get
// reads a picture from its file each time; InMemory keeps pictures in memory.
func OpenFolders(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	return openFolders(ctx, dir, o)
}

func openFolders(ctx context.Context, dir string, o ClassOptions) (_ *Classes, err error) {
	defer prefixError(&err, "open class folders")
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("folder %s does not exist: want a folder with %s", dir, classFolderLayout)
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
		return nil, fmt.Errorf("%s contains %d folders: want %s, and at least two classes", dir, len(names), classFolderLayout)
	}
	slices.SortFunc(names, runs.NaturalCompare)
	s := &pictureFiles{dir: dir}
	var labels []int32
	for class, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, err := survey.ListPictures(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for _, file := range list {
			s.paths = append(s.paths, filepath.Join(name, filepath.Base(file)))
			labels = append(labels, int32(class))
		}
	}
	return s.newDataset(ctx, names, labels, o)
}

const classFolderLayout = "one subfolder per class with " + picture.FormatNames + " files"

// OpenImageNet opens the pictures listed in dir/train_data.pkl, a pickled dict. Its keys are the
// paths of the pictures, relative to dir. Its values are the classes: either numbers from 0, or
// names, which are numbered in sorted order. The pickle is parsed without running code. Get reads a
// picture from its file each time; InMemory keeps pictures in memory.
func OpenImageNet(ctx context.Context, dir string, o ClassOptions) (*Classes, error) {
	return openImageNet(ctx, dir, o)
}

func openImageNet(ctx context.Context, dir string, o ClassOptions) (_ *Classes, err error) {
	defer prefixError(&err, "open ImageNet folder")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "train_data.pkl")
	text, err := picture.ReadFile(ctx, dir, file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("file %s does not exist: want a pickled dict from the path of each picture to its class; for one folder per class, use data kind folders", file)
	}
	if err != nil {
		return nil, err
	}
	paths, classes, err := classlist.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, labels, err := classlist.ClassIndices(paths, classes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return (&pictureFiles{dir: dir, paths: paths}).newDataset(ctx, names, labels, o)
}

type pictureFiles struct {
	dir   string
	paths []string // relative to dir, or absolute
}

func (s *pictureFiles) name(i int) string { return s.paths[i] }

func (s *pictureFiles) path(i int) string {
	if filepath.IsAbs(s.paths[i]) {
		return s.paths[i]
	}
	return filepath.Join(s.dir, s.paths[i])
}

// readFile returns the file of picture i. An ImageNet list may contain absolute paths outside its folder.
func (s *pictureFiles) readFile(ctx context.Context, i int) ([]byte, error) {
	if filepath.IsAbs(s.paths[i]) {
		return picture.ReadFile(ctx, filepath.Dir(s.paths[i]), s.paths[i])
	}
	return picture.ReadFile(ctx, s.dir, s.path(i))
}

func (s *pictureFiles) picture(ctx context.Context, i int) (image.Image, error) {
	text, err := s.readFile(ctx, i)
	if err != nil {
		return nil, err
	}
	m, err := picture.Decode(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(i), err)
	}
	return m, nil
}

// newDataset returns a data set of these files. The first picture determines the size of all.
func (s *pictureFiles) newDataset(ctx context.Context, names []string, labels []int32, o ClassOptions) (*Classes, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	text, err := s.readFile(ctx, 0)
	if err != nil {
		return nil, err
	}
	f, err := picture.DetectFormat(text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(0), err)
	}
	height, width, err := f.ReadSize(text)
	if err != nil {
		return nil, fmt.Errorf("read picture %s: %w", s.path(0), err)
	}
	return newClasses(s, names, labels, height, width, o), nil
}
