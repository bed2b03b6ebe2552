package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/pickle"
	"lockstep/pkg/data/internal/picture"
)

// A record of CIFAR-10's binary version consists of one byte for the class and one plane
// of 32×32 bytes for each color (https://www.cs.toronto.edu/~kriz/cifar.html).
const (
	cifarEdge       = 32
	cifarPixels     = 3 * cifarEdge * cifarEdge
	cifarRecord     = 1 + cifarPixels
	cifarClassCount = 10
)

const cifarLayout = "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version) or data_batch_1 to data_batch_5 and test_batch (the Python version)"

// CIFAROptions selects the part of CIFAR-10 to read.
type CIFAROptions struct {
	ClassOptions `yaml:",inline"`
	Test         bool `yaml:"test" json:"test"` // read the test batch instead of the training batches
}

// OpenCIFAR10 reads the training batches or the test batch of CIFAR-10 into memory (3 kB per
// picture), in the binary or the Python version; the latter's pickles are parsed without running
// code. dir is the unpacked folder or its parent, which contains cifar-10-batches-bin or
// cifar-10-batches-py. There may be fewer than five training batches, and fewer than the original
// 10,000 pictures per batch, but the same number in each.
func OpenCIFAR10(ctx context.Context, dir string, o CIFAROptions) (*Classes, error) {
	return openCIFAR10(ctx, dir, o, false)
}

// openCIFAR10 implements OpenCIFAR10. With outline, it reads only the first batch.
func openCIFAR10(ctx context.Context, dir string, o CIFAROptions, outline bool) (_ *Classes, err error) {
	defer addOperation(&err, "open CIFAR-10")
	if err := o.Validate(); err != nil {
		return nil, err
	}
	files, binary, err := findCIFARBatches(dir, o.Test)
	if err != nil {
		return nil, err
	}
	if err := checkBatchesMemory(files); err != nil {
		return nil, err
	}
	s := &cifarPictures{}
	var labels []int32
	for i, path := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if outline && i > 0 {
			s.paths, s.images = append(s.paths, path), append(s.images, make([][]uint8, s.each)...)
			labels = append(labels, make([]int32, s.each)...)
			continue
		}
		text, err := picture.ReadFile(ctx, dir, path)
		if err != nil {
			return nil, err
		}
		read := readPythonBatch
		if binary {
			read = readBinaryBatch
		}
		pixels, classes, err := read(text)
		if err != nil {
			return nil, fmt.Errorf("read batch %s: %w", path, err)
		}
		if i > 0 && len(pixels) != s.each {
			return nil, fmt.Errorf("read batch %s: got %d pictures, but %s has %d: one of the two files is truncated; copy or download it again", path, len(pixels), files[0], s.each)
		}
		s.each = len(pixels)
		s.paths = append(s.paths, path)
		s.images = append(s.images, pixels...)
		labels = append(labels, classes...)
	}
	names, err := readCIFARClassNames(ctx, filepath.Dir(files[0]), binary)
	if err != nil {
		return nil, err
	}
	return newClasses(s, names, labels, cifarEdge, cifarEdge, o.ClassOptions), nil
}

func checkBatchesMemory(files []string) error {
	bytes := 0.0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		bytes += float64(info.Size())
	}
	return memory.CheckFits(fmt.Sprintf("%s has %s of batches", filepath.Dir(files[0]), memory.GiB(bytes)), 1, bytes)
}

// cifarPictures contains CIFAR-10's batch files as planes of bytes. Each file has the same number
// of pictures.
type cifarPictures struct {
	paths  []string // of the batch files
	each   int      // pictures per file
	images [][]uint8
}

func (s *cifarPictures) name(i int) string {
	return fmt.Sprintf("%s[%d]", filepath.Base(s.paths[i/s.each]), i%s.each)
}
func (s *cifarPictures) planes(i int) []uint8 { return s.images[i] }
func (s *cifarPictures) picture(_ context.Context, i int) (image.Image, error) {
	return interleavePlanes(s.images[i], cifarEdge, cifarEdge), nil
}

// findCIFARBatches returns the paths of the batch files in dir, in order. binary reports whether
// they are of the binary version.
func findCIFARBatches(dir string, test bool) (files []string, binary bool, err error) {
	if info, err := os.Stat(dir); err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("folder %s does not exist: want a folder with %s; \"lockstep data get cifar10\" downloads CIFAR-10, \"lockstep data make cifar10\" generates similar data", dir, cifarLayout)
		}
		return nil, false, err
	} else if !info.IsDir() {
		return nil, false, fmt.Errorf("%s is a file, not a folder: unpack it and give the folder with %s", dir, cifarLayout)
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
	return nil, false, fmt.Errorf("%s contains no batches: want %s", dir, cifarLayout)
}

// readBinaryBatch parses a file of the binary version into the pictures' planes and classes.
func readBinaryBatch(text []byte) (images [][]uint8, classes []int32, err error) {
	if len(text) == 0 {
		return nil, nil, errors.New("the file is empty: copy or download it again")
	}
	if rest := len(text) % cifarRecord; rest != 0 {
		return nil, nil, fmt.Errorf("file is truncated: picture %d, which begins at byte %d, has %d of %d bytes: copy or download it again", len(text)/cifarRecord, len(text)-rest, rest, cifarRecord)
	}
	for at := 0; at < len(text); at += cifarRecord {
		class := text[at]
		if class >= cifarClassCount {
			return nil, nil, fmt.Errorf("byte %d, the class of picture %d, is %d, want 0 to %d: not a file of CIFAR-10's binary version", at, at/cifarRecord, class, cifarClassCount-1)
		}
		images = append(images, text[at+1:at+cifarRecord:at+cifarRecord])
		classes = append(classes, int32(class))
	}
	return images, classes, nil
}

// readPythonBatch parses a file of the Python version: a dict with the keys data, an array [N,3072]
// of bytes, and labels, a list of N classes.
func readPythonBatch(text []byte) (images [][]uint8, classes []int32, err error) {
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
	if !ok || a.Kind != "u1" || a.Fortran || len(a.Shape) != 2 || a.Shape[1] != cifarPixels || a.Shape[0] == 0 {
		return nil, nil, fmt.Errorf("key data is not an array [N,%d] of bytes: not a file of CIFAR-10's Python version", cifarPixels)
	}
	labels, _ := d.Get("labels")
	l, ok := labels.(*pickle.List)
	if !ok || len(l.Items) != a.Shape[0] {
		return nil, nil, fmt.Errorf("key labels is not a list of %d classes, one per picture", a.Shape[0])
	}
	for i, item := range l.Items {
		class, ok := pickle.AsInt(item)
		if !ok || class < 0 || class >= cifarClassCount {
			return nil, nil, fmt.Errorf("label %d is %v, want 0 to %d", i, item, cifarClassCount-1)
		}
		images = append(images, a.Data[i*cifarPixels:(i+1)*cifarPixels:(i+1)*cifarPixels])
		classes = append(classes, int32(class))
	}
	return images, classes, nil
}

// readCIFARClassNames reads batches.meta or batches.meta.txt in dir, or returns the names of
// CIFAR-10's classes if there is no such file.
func readCIFARClassNames(ctx context.Context, dir string, binary bool) ([]string, error) {
	file := filepath.Join(dir, "batches.meta")
	if binary {
		file += ".txt"
	}
	text, err := picture.ReadFile(ctx, dir, file)
	if errors.Is(err, os.ErrNotExist) {
		return slices.Clone(cifarClassNames[:]), nil
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
	if len(names) != cifarClassCount || slices.Contains(names, "") {
		return nil, fmt.Errorf("read class names %s: got %d names, want %d, none empty", file, len(names), cifarClassCount)
	}
	return names, nil
}

var cifarClassNames = [...]string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
