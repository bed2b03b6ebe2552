package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/runs"
)

// PairsOptions configures how OpenPairs and OpenStacks interpret masks.
type PairsOptions struct {
	// ForegroundInverted means that black pixels of a mask are foreground and white pixels
	// are background.
	ForegroundInverted bool `yaml:"foreground_inverted" json:"foreground_inverted"`
}

// Pairs is a data set of images and their masks, read from a folder and kept in memory.
type Pairs struct {
	grayPairs
	dir        string
	files      []string // paths of the images and masks, in the order of the samples
	grey       int      // number of mask pixels that are neither nearly black nor nearly white
	foreground int      // number of foreground pixels in all masks
	brightest  uint8    // largest value of an image pixel
	colored    int      // number of images with colors
}

// Dir returns the folder that the pairs were read from.
func (p *Pairs) Dir() string { return p.dir }

// GreyMaskPixels returns the number of mask pixels that were neither nearly black nor
// nearly white, and were rounded to black or white.
func (p *Pairs) GreyMaskPixels() int { return p.grey }

// ForegroundFraction returns the fraction of mask pixels that are foreground, from 0 to 1.
func (p *Pairs) ForegroundFraction() float64 {
	return float64(p.foreground) / float64(p.maskPixels())
}

func (p *Pairs) maskPixels() int { return p.Len() * p.height * p.width }

// CheckMasks returns an error if nothing can be learned from the masks because no pixel,
// or every pixel, is foreground.
func (p *Pairs) CheckMasks() error {
	switch p.foreground {
	case 0:
		return fmt.Errorf("masks of %s have no foreground pixel: draw the foreground in white (255) and the background in black (0), or set data.foreground to black if it is the other way round; masks with class numbers (0, 1, …) are not supported", p.dir)
	case p.maskPixels():
		return fmt.Errorf("masks of %s have no background pixel: draw the foreground in white (255) and the background in black (0), or set data.foreground to black if it is the other way round; masks with class numbers (0, 1, …) are not supported", p.dir)
	}
	return nil
}

// Notes returns a message for each sign that the files may have been misread, such as very
// dark images. It returns nil if there is none.
func (p *Pairs) Notes() []string {
	var notes []string
	if f := p.ForegroundFraction(); f > 0.5 {
		notes = append(notes, fmt.Sprintf("%.1f %% of the mask pixels of %s are foreground: if that is the background, set data.foreground to the other one of white and black", 100*f, p.dir))
	}
	if f := float64(p.grey) / float64(p.maskPixels()); f > 0.01 {
		notes = append(notes, fmt.Sprintf("%.1f %% of the mask pixels of %s are neither black nor white, and were taken for the nearer of the two", 100*f, p.dir))
	}
	if p.colored > 0 {
		notes = append(notes, fmt.Sprintf("%d of the %d images of %s have colors, which were turned into gray", p.colored, p.Len(), p.dir))
	}
	if p.brightest < 26 { // a tenth of white
		notes = append(notes, fmt.Sprintf("the brightest image pixel of %s is %d of 255: values of 12 bits in a file of 16 must be multiplied by 16", p.dir, p.brightest))
	}
	return notes
}

// pairFolders lists the supported names of the image folder and the mask folder, in order
// of preference.
var pairFolders = [...][2]string{{"image", "label"}, {"images", "masks"}, {"images", "labels"}, {"images_collective", "masks_collective"}}

// pairLayout describes the files that OpenPairs reads, for error messages.
const pairLayout = "a folder with image/ and label/ (or images/ and masks/), which contain " + picture.FormatNames + " files of the same names"

// OpenPairs reads images (PNG, JPEG or TIFF, of 1, 8 or 16 bits) from dir/image (or images,
// images_collective) and their masks from dir/label (or masks, labels, masks_collective).
// Samples are sorted by name, with numbers in numerical order. An image and its mask have
// the same name. If no image has the same name as a mask, files with the same numbers in
// their names form a pair (image_07.png, mask_07.png). All files must have the same size.
//
// Colors and palettes are converted to gray, transparent pixels become black, and 16-bit
// values keep their upper 8 bits. Image values are divided by 255. A mask value (0 to 1)
// above 0.8 is foreground and below 0.2 background, as in the U-Net scaling study. A value
// in between, such as a soft edge after resizing, is rounded to 0 or 1 and counted in
// GreyMaskPixels.
func OpenPairs(ctx context.Context, dir string, o PairsOptions) (*Pairs, error) {
	p, err := openPairs(ctx, dir, o, false)
	if err != nil {
		return nil, fmt.Errorf("open pairs: %w", err)
	}
	return p, nil
}

// openPairs implements OpenPairs. If outline is set, it reads only the size of the first pair;
// see Outline.
func openPairs(ctx context.Context, dir string, o PairsOptions, outline bool) (*Pairs, error) {
	imageDir, maskDir, err := findPairFolders(dir)
	if err != nil {
		return nil, err
	}
	pairs, err := matchPairs(imageDir, maskDir)
	if err != nil {
		return nil, err
	}
	if err := checkPairsMemory(ctx, dir, pairs); err != nil {
		return nil, err
	}
	p := &Pairs{dir: dir}
	for i, pair := range pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if outline && i > 0 {
			p.names, p.images, p.masks = append(p.names, pair.name), append(p.images, nil), append(p.masks, nil)
			continue
		}
		read := picture.ReadGray
		if outline {
			read = picture.ReadOutline
		}
		img, err := read(ctx, dir, pair.image)
		if err != nil {
			return nil, fmt.Errorf("read image %s: %w", pair.image, err)
		}
		mask, err := read(ctx, dir, pair.mask)
		if err != nil {
			return nil, fmt.Errorf("read mask %s: %w", pair.mask, err)
		}
		if i == 0 {
			p.height, p.width = img.Height, img.Width
		}
		if mask.Height != img.Height || mask.Width != img.Width {
			return nil, fmt.Errorf("mask %s is %d×%d, but its image %s is %d×%d (height×width): make them equal", pair.mask, mask.Height, mask.Width, pair.image, img.Height, img.Width)
		}
		if img.Height != p.height || img.Width != p.width {
			return nil, fmt.Errorf("image %s is %d×%d, but %s is %d×%d (height×width): crop or resize to one size", pair.image, img.Height, img.Width, pairs[0].image, p.height, p.width)
		}
		grey, foreground := binarize(mask.Pixels, o.ForegroundInverted)
		p.grey += grey
		p.foreground += foreground
		if len(img.Pixels) > 0 {
			p.brightest = max(p.brightest, slices.Max(img.Pixels))
		}
		if img.Colored {
			p.colored++
		}
		p.names = append(p.names, pair.name)
		p.files = append(p.files, pair.image, pair.mask)
		p.images = append(p.images, img.Pixels)
		p.masks = append(p.masks, mask.Pixels)
	}
	return p, nil
}

// checkPairsMemory returns an error if the pairs do not fit into memory, assuming that all
// have the size of the first image. If the first image is damaged, it returns nil, because
// openPairs reports the damage.
func checkPairsMemory(ctx context.Context, dir string, pairs []imagePair) error {
	text, err := picture.ReadFile(ctx, dir, pairs[0].image)
	if err != nil {
		return fmt.Errorf("read image %s: %w", pairs[0].image, err)
	}
	f, err := picture.DetectFormat(text)
	if err != nil {
		return nil
	}
	height, width, err := f.ReadSize(text)
	if err != nil {
		return nil
	}
	return memory.CheckFits(fmt.Sprintf("%s has %d pairs of %d×%d pixels", dir, len(pairs), height, width), len(pairs), 2*float64(height)*float64(width))
}

// findPairFolders returns the paths of the image folder and the mask folder in dir.
func findPairFolders(dir string) (images, masks string, err error) {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return "", "", fmt.Errorf("folder %s does not exist: want %s", dir, pairLayout)
	case err != nil:
		return "", "", err
	case !info.IsDir():
		return "", "", fmt.Errorf("%s is a file, not a folder: want %s", dir, pairLayout)
	}
	isDir := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	}
	for _, f := range pairFolders {
		images, masks = filepath.Join(dir, f[0]), filepath.Join(dir, f[1])
		if isDir(images) && isDir(masks) {
			return images, masks, nil
		}
	}
	for _, f := range pairFolders {
		for k, name := range f {
			if isDir(filepath.Join(dir, name)) {
				return "", "", fmt.Errorf("%s contains %s/ but not %s/: want %s", dir, name, f[1-k], pairLayout)
			}
		}
	}
	return "", "", fmt.Errorf("%s contains neither image/ nor label/: want %s", dir, pairLayout)
}

// imagePair is the name of a sample, and the paths of its image and its mask.
type imagePair struct{ name, image, mask string }

// matchPairs finds the mask of each image. It returns an error if an image has no mask or a
// mask has no image.
func matchPairs(imageDir, maskDir string) ([]imagePair, error) {
	images, err := ListPictures(imageDir)
	if err != nil {
		return nil, err
	}
	masks, unused, err := MatchMasks(images, maskDir)
	if err != nil {
		return nil, err
	}
	for _, m := range unused {
		return nil, fmt.Errorf("mask %s has no image %s: add the image or remove the mask", m, filepath.Join(imageDir, filepath.Base(m)))
	}
	var pairs []imagePair
	for i, image := range images {
		pairs = append(pairs, imagePair{name: trimExtension(filepath.Base(image)), image: image, mask: masks[i]})
	}
	return pairs, nil
}

// MatchMasks returns the path of the mask of each image. maskDir is a folder of masks, which
// are matched by name as in OpenPairs. unused are the masks in maskDir that are of no image. An
// image without mask is an error.
func MatchMasks(images []string, maskDir string) (masks, unused []string, err error) {
	all, err := ListPictures(maskDir)
	if err != nil {
		return nil, nil, err
	}
	key := trimExtension
	if !haveCommonName(images, all) {
		key = numbersInName
	}
	byKey := map[string]string{}
	for _, m := range all {
		name := filepath.Base(m)
		if other, ok := byKey[key(name)]; ok {
			return nil, nil, fmt.Errorf("masks %s and %s in %s could belong to the same image: give images and masks the same names", filepath.Base(other), name, maskDir)
		}
		byKey[key(name)] = m
	}
	used := map[string]string{}
	for _, path := range images {
		name := filepath.Base(path)
		mask, ok := byKey[key(name)]
		if !ok {
			return nil, nil, fmt.Errorf("image %s has no mask %s: add the mask or remove the image", path, filepath.Join(maskDir, name))
		}
		if other, ok := used[mask]; ok {
			return nil, nil, fmt.Errorf("images %s and %s in %s could both belong to mask %s: give images and masks the same names", other, name, filepath.Dir(path), filepath.Base(mask))
		}
		used[mask] = name
		masks = append(masks, mask)
	}
	for _, m := range all {
		if _, ok := used[m]; !ok {
			unused = append(unused, m)
		}
	}
	return masks, unused, nil
}

// ListPictures returns the paths of the picture files in dir, sorted by name with numbers in
// numerical order. A folder without pictures is an error.
func ListPictures(dir string) ([]string, error) {
	names, err := listPictures(dir)
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}

// listPictures implements ListPictures. It returns names without the folder.
func listPictures(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var names []string
	other := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir() || strings.HasPrefix(name, "."):
		case picture.HasPictureExtension(name):
			names = append(names, name)
		default:
			other = name
		}
	}
	if len(names) == 0 {
		if other != "" {
			return nil, fmt.Errorf("%s contains no %s files, only others such as %s: convert them to PNG", dir, picture.FormatNames, other)
		}
		return nil, fmt.Errorf("%s is empty: want %s files", dir, picture.FormatNames)
	}
	slices.SortFunc(names, runs.NaturalCompare)
	return names, nil
}

// trimExtension returns a file name without its extension.
func trimExtension(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// haveCommonName reports whether the names of some path in a and some path in b differ at most
// in their extensions.
func haveCommonName(a, b []string) bool {
	in := map[string]bool{}
	for _, name := range a {
		in[trimExtension(filepath.Base(name))] = true
	}
	return slices.ContainsFunc(b, func(name string) bool { return in[trimExtension(filepath.Base(name))] })
}

// numbersInName returns the numbers in a file name, without leading zeros and separated by
// spaces. If the name has no number, it returns the name without its extension.
func numbersInName(name string) string {
	fields := strings.FieldsFunc(trimExtension(name), func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) == 0 {
		return trimExtension(name)
	}
	for i, f := range fields {
		fields[i] = trimLeadingZeros(f)
	}
	return strings.Join(fields, " ")
}

// trimLeadingZeros removes leading zeros from a number; all zeros become "0".
func trimLeadingZeros(digits string) string {
	if t := strings.TrimLeft(digits, "0"); t != "" {
		return t
	}
	return "0"
}

// binarize replaces the gray values (0 to 255) of a mask by 1 (foreground) or 0, in place.
// grey is the number of values between 0.2·255 and 0.8·255, foreground the number of
// foreground pixels.
func binarize(mask []uint8, inverted bool) (grey, foreground int) {
	var one, zero uint8 = 1, 0
	if inverted {
		one, zero = 0, 1
	}
	for i, v := range mask {
		// 0.2·255 = 51 and 0.8·255 = 204 exactly.
		if v >= 51 && v <= 204 {
			grey++
		}
		if v >= 128 {
			mask[i] = one
		} else {
			mask[i] = zero
		}
		foreground += int(mask[i])
	}
	return grey, foreground
}

// sampleFileName returns the PNG file name of sample i of n. The number is padded with
// zeros, so that the lexical order of the names equals the order of the samples.
func sampleFileName(i, n int) string {
	return fmt.Sprintf("%0*d.png", len(strconv.Itoa(max(n-1, 0))), i)
}
