package data

import (
	"context"
	"fmt"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/window"
	"lockstep/pkg/data/survey"
)

// OpenStacks reads TIFF stacks (one page per slice) and their masks into memory, as volumes
// [1,D,H,W] of float32 values. Folders, names and masks follow the rules of OpenPairs. Pages may
// contain floats, which are not scaled, or integers of 8, 16 or 32 bits, which are divided by the
// largest value of their type. All stacks must have the same size.
func OpenStacks(ctx context.Context, dir string, c Config) (Dataset, error) {
	return asDataset(openStacks(ctx, dir, c, false))
}

// openStacks implements OpenStacks. If outline is true, it reads only the size of the first pair.
func openStacks(ctx context.Context, dir string, c Config, outline bool) (_ *floatDataset, err error) {
	defer prefixError(&err, "open stacks")
	pairs, err := survey.FindPairs(dir, "")
	if err != nil {
		return nil, err
	}
	s := &floatDataset{}
	var first [3]int
	for i, pair := range pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.names, s.images, s.targets = append(s.names, pair.Name), append(s.images, nil), append(s.targets, nil)
		if outline && i > 0 {
			continue
		}
		file, size, err := picture.ParseTIFFStack(ctx, dir, pair.Image)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			what := fmt.Sprintf("%s has %d pairs of stacks of %s pixels", dir, len(pairs), window.FormatSize(size[:]))
			if err := memory.CheckFits(what, len(pairs), 2*4*float64(window.ElementCount(size[:]))); err != nil {
				return nil, err
			}
		}
		maskFile, maskSize, err := picture.ParseTIFFStack(ctx, dir, pair.Mask)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = size
			s.image = []int{1, size[0], size[1], size[2]}
			s.target = s.image
		}
		if maskSize != size || size != first {
			return nil, fmt.Errorf("stack %s has size %s and its mask %s, but the first stack has %s (pages×height×width): make them equal", pair.Image, window.FormatSize(size[:]), window.FormatSize(maskSize[:]), window.FormatSize(first[:]))
		}
		if outline {
			continue
		}
		image, err := picture.DecodeTIFFStack(ctx, file, pair.Image)
		if err != nil {
			return nil, err
		}
		mask, err := picture.DecodeTIFFStack(ctx, maskFile, pair.Mask)
		if err != nil {
			return nil, err
		}
		for k, v := range mask {
			mask[k] = 0
			if (v >= 0.5) != (c.Foreground == "black") {
				mask[k] = 1
			}
		}
		s.images[i], s.targets[i] = image, mask
		s.files = append(s.files, pair.Image, pair.Mask)
	}
	return s, nil
}

type floatDataset struct {
	names           []string
	files           []string // paths of the images and targets, in the order of the samples; nil if generated
	image, target   []int
	images, targets [][]float32
}

func (s *floatDataset) Len() int                { return len(s.images) }
func (s *floatDataset) ImageShape() []int       { return s.image }
func (s *floatDataset) TargetShape() []int      { return s.target }
func (s *floatDataset) SampleName(i int) string { return s.names[i] }

func (s *floatDataset) Get(i int, image, target []float32) error {
	if i < 0 || i >= len(s.images) {
		return fmt.Errorf("get sample %d: the data set has samples 0 to %d", i, len(s.images)-1)
	}
	if err := window.CheckBuffers(s.names[i], image, target, len(s.images[i]), len(s.targets[i])); err != nil {
		return err
	}
	copy(image, s.images[i])
	copy(target, s.targets[i])
	return nil
}

func (s *floatDataset) getWindow(_ context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(s, i, w, image, target); err != nil {
		return err
	}
	window.Copy(image, s.images[i], s.image, w)
	if window.AreShapesAligned(s.image, s.target) {
		window.Copy(target, s.targets[i], s.target, w)
	} else {
		copy(target, s.targets[i])
	}
	return nil
}
