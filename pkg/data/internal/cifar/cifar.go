// Package cifar reads and writes CIFAR-10.
package cifar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/pickle"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/internal/wholefile"
)

// A record of CIFAR-10's binary version consists of one byte for the class and one plane
// of 32×32 bytes for each color (https://www.cs.toronto.edu/~kriz/cifar.html).
const (
	Edge       = 32
	pixelCount = 3 * Edge * Edge
	recordSize = 1 + pixelCount
	ClassCount = 10
)

const batchFileLayout = "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version) or data_batch_1 to data_batch_5 and test_batch (the Python version)"

// Pictures contains the pictures of batch files as planes of bytes. Each file has the same number of
// pictures.
type Pictures struct {
	Paths      []string // of the batch files
	Images     [][]uint8
	Labels     []int32
	ClassNames []string
	each       int // pictures per file
}

// Name returns the name of picture i.
func (p *Pictures) Name(i int) string {
	return fmt.Sprintf("%s[%d]", filepath.Base(p.Paths[i/p.each]), i%p.each)
}

// Read reads the training batches or the test batch in dir. If outline is true, it reads only the
// first batch.
func Read(ctx context.Context, dir string, test, outline bool) (*Pictures, error) {
	files, binary, err := findBatches(dir, test)
	if err != nil {
		return nil, err
	}
	if err := checkBatchesFit(files); err != nil {
		return nil, err
	}
	p := &Pictures{Paths: files}
	for i, path := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if outline && i > 0 {
			p.Images, p.Labels = append(p.Images, make([][]uint8, p.each)...), append(p.Labels, make([]int32, p.each)...)
			continue
		}
		text, err := picture.ReadFile(ctx, dir, path)
		if err != nil {
			return nil, err
		}
		read := parsePythonBatch
		if binary {
			read = parseBinaryBatch
		}
		pixels, classes, err := read(text)
		if err != nil {
			return nil, fmt.Errorf("read batch %s: %w", path, err)
		}
		if i > 0 && len(pixels) != p.each {
			return nil, fmt.Errorf("read batch %s: got %d pictures, but %s has %d: one of the two files is truncated; copy or download it again", path, len(pixels), files[0], p.each)
		}
		p.each = len(pixels)
		p.Images, p.Labels = append(p.Images, pixels...), append(p.Labels, classes...)
	}
	p.ClassNames, err = readClassNames(ctx, filepath.Dir(files[0]), binary)
	return p, err
}

func checkBatchesFit(files []string) error {
	bytes := 0.0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		bytes += float64(info.Size())
	}
	return memory.CheckFits(fmt.Sprintf("%s has %s of batches", filepath.Dir(files[0]), memory.FormatGiB(bytes)), 1, bytes)
}

// findBatches returns the paths of the batch files in dir, in order. binary reports whether
// they are of the binary version.
func findBatches(dir string, test bool) (files []string, binary bool, err error) {
	if info, err := os.Stat(dir); err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("folder %s does not exist: want a folder with %s; \"lockstep data get cifar10\" downloads CIFAR-10, \"lockstep data make cifar10\" generates similar data", dir, batchFileLayout)
		}
		return nil, false, err
	} else if !info.IsDir() {
		return nil, false, fmt.Errorf("%s is a file, not a folder: unpack it and give the folder with %s", dir, batchFileLayout)
	}
	for _, folder := range []string{dir, filepath.Join(dir, "cifar-10-batches-bin"), filepath.Join(dir, "cifar-10-batches-py")} {
		for _, suffix := range []string{".bin", ""} {
			var found []string
			wanted := []string{"test_batch"}
			if !test {
				wanted = []string{"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"}
			}
			for _, name := range wanted {
				path := filepath.Join(folder, name+suffix)
				if info, err := os.Stat(path); err == nil && !info.IsDir() {
					found = append(found, path)
				}
			}
			if len(found) > 0 {
				return found, suffix != "", nil
			}
		}
	}
	return nil, false, fmt.Errorf("%s contains no batches: want %s", dir, batchFileLayout)
}

// parseBinaryBatch parses a file of the binary version into the pictures' planes and classes.
func parseBinaryBatch(text []byte) (images [][]uint8, classes []int32, err error) {
	if len(text) == 0 {
		return nil, nil, errors.New("the file is empty: copy or download it again")
	}
	if rest := len(text) % recordSize; rest != 0 {
		return nil, nil, fmt.Errorf("file is truncated: picture %d, which begins at byte %d, has %d of %d bytes: copy or download it again", len(text)/recordSize, len(text)-rest, rest, recordSize)
	}
	for at := 0; at < len(text); at += recordSize {
		class := text[at]
		if class >= ClassCount {
			return nil, nil, fmt.Errorf("byte %d, the class of picture %d, is %d, want 0 to %d: not a file of CIFAR-10's binary version", at, at/recordSize, class, ClassCount-1)
		}
		images = append(images, text[at+1:at+recordSize:at+recordSize])
		classes = append(classes, int32(class))
	}
	return images, classes, nil
}

// parsePythonBatch parses a file of the Python version: a dict with the keys data, an array [N,3072]
// of bytes, and labels, a list of N classes.
func parsePythonBatch(text []byte) (images [][]uint8, classes []int32, err error) {
	v, err := pickle.Read(text)
	if err != nil {
		return nil, nil, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, nil, errors.New("pickle is not a dict with data and labels: not a file of CIFAR-10's Python version")
	}
	data, _ := d.Get("data")
	a, ok := data.(*pickle.Array)
	if !ok || a.Kind != "u1" || a.Fortran || len(a.Shape) != 2 || a.Shape[1] != pixelCount || a.Shape[0] == 0 {
		return nil, nil, fmt.Errorf("key data is not an array [N,%d] of bytes: not a file of CIFAR-10's Python version", pixelCount)
	}
	labels, _ := d.Get("labels")
	l, ok := labels.(*pickle.List)
	if !ok || len(l.Items) != a.Shape[0] {
		return nil, nil, fmt.Errorf("key labels is not a list of %d classes, one per picture", a.Shape[0])
	}
	for i, item := range l.Items {
		class, ok := pickle.AsInt(item)
		if !ok || class < 0 || class >= ClassCount {
			return nil, nil, fmt.Errorf("label %d is %v, want 0 to %d", i, item, ClassCount-1)
		}
		images = append(images, a.Data[i*pixelCount:(i+1)*pixelCount:(i+1)*pixelCount])
		classes = append(classes, int32(class))
	}
	return images, classes, nil
}

// readClassNames reads batches.meta or batches.meta.txt in dir, or returns the names of
// CIFAR-10's classes if there is no such file.
func readClassNames(ctx context.Context, dir string, binary bool) ([]string, error) {
	file := filepath.Join(dir, "batches.meta")
	if binary {
		file += ".txt"
	}
	text, err := picture.ReadFile(ctx, dir, file)
	if errors.Is(err, os.ErrNotExist) {
		return slices.Clone(classNames[:]), nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	if binary {
		for line := range strings.Lines(string(bytes.TrimSpace(text))) {
			names = append(names, strings.TrimSpace(line))
		}
	} else {
		v, err := pickle.Read(text)
		if err != nil {
			return nil, fmt.Errorf("read class names %s: %w", file, err)
		}
		if d, ok := v.(*pickle.Dict); ok {
			list, _ := d.Get("label_names")
			if l, ok := list.(*pickle.List); ok {
				for _, item := range l.Items {
					name, _ := pickle.AsText(item)
					names = append(names, name)
				}
			}
		}
	}
	if len(names) != ClassCount || slices.Contains(names, "") {
		return nil, fmt.Errorf("read class names %s: got %d names, want %d, none empty", file, len(names), ClassCount)
	}
	return names, nil
}

var classNames = [...]string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}

const trainingBatches = 5

// PictureSource contains pictures of Edge×Edge pixels and at most ClassCount classes.
type PictureSource interface {
	Len() int
	Get(i int, image, target []float32) error
}

// Write saves pictures in the binary version in dir: the training pictures in five batches of equal
// size, the test pictures in one. names contains the names of the classes.
func Write(ctx context.Context, dir string, names []string, train, test PictureSource) error {
	each := train.Len() / trainingBatches
	if each == 0 {
		return fmt.Errorf("got %d training pictures, want at least one for each of the %d batches", train.Len(), trainingBatches)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for b := range trainingBatches {
		if err := writeBatch(ctx, filepath.Join(dir, fmt.Sprintf("data_batch_%d.bin", b+1)), train, b*each, (b+1)*each); err != nil {
			return err
		}
	}
	if err := writeBatch(ctx, filepath.Join(dir, "test_batch.bin"), test, 0, test.Len()); err != nil {
		return err
	}
	for len(names) < ClassCount {
		names = append(names, fmt.Sprintf("none%d", len(names)))
	}
	return wholefile.WriteBytes(filepath.Join(dir, "batches.meta.txt"), []byte(strings.Join(names, "\n")+"\n"), 0o666)
}

func writeBatch(ctx context.Context, path string, s PictureSource, lo, hi int) error {
	text := make([]byte, 0, (hi-lo)*recordSize)
	picture, class := make([]float32, pixelCount), make([]float32, 1)
	for i := lo; i < hi; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.Get(i, picture, class); err != nil {
			return err
		}
		text = append(text, byte(class[0]))
		for _, v := range picture {
			text = append(text, byte(v*255+0.5))
		}
	}
	return wholefile.WriteBytes(path, text, 0o666)
}
