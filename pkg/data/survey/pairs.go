// Package survey finds the images and masks of a folder, and collects facts about them: sizes,
// channels, values, classes. It decides nothing; package data does.
package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/runs"
)

// A Pair is an image and its mask.
type Pair struct {
	Name        string // of the image's file, without its extension
	Image, Mask string // paths
}

// ImageFolder and MaskFolder are the names that package data gives to the folders that it writes.
const (
	ImageFolder = "image"
	MaskFolder  = "label"
)

// pairFolders lists the names of the image folder and the mask folder, in order of preference.
var pairFolders = [...][2]string{{ImageFolder, MaskFolder}, {"images", "masks"}, {"images", "labels"}, {"images_collective", "masks_collective"}}

// pairLayout describes the files that FindPairs lists, for error messages.
const pairLayout = "a folder with image/ and label/ (or images/ and masks/), which contain " + picture.FormatNames + " files of the same names"

// FindPairs lists the images in dir/image (or images, images_collective) and their masks in
// dir/label (or masks, labels, masks_collective), sorted by name with numbers in numerical order.
// MatchMasks describes suffix. If it is not empty and dir has none of these folders, images and
// masks are in dir itself. An image without mask and a mask without image are errors.
func FindPairs(dir, suffix string) ([]Pair, error) {
	imageDir, maskDir, err := findPairFolders(dir, suffix != "")
	if err != nil {
		return nil, err
	}
	images, err := ListPictures(imageDir)
	if err != nil {
		return nil, err
	}
	if imageDir == maskDir {
		images = slices.DeleteFunc(images, func(path string) bool { return strings.HasSuffix(baseName(path), suffix) })
	}
	masks, unused, err := MatchMasks(images, maskDir, suffix)
	if err != nil {
		return nil, err
	}
	for _, m := range unused {
		return nil, fmt.Errorf("mask %s has no image %s: add the image or remove the mask", m, filepath.Join(imageDir, strings.TrimSuffix(baseName(m), suffix)+filepath.Ext(m)))
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s contains masks with the suffix %s, but no images: add the images", imageDir, suffix)
	}
	var pairs []Pair
	for i, image := range images {
		pairs = append(pairs, Pair{baseName(image), image, masks[i]})
	}
	return pairs, nil
}

// findPairFolders returns the paths of the image folder and the mask folder in dir. If together is
// true and dir has no such folders, both are dir.
func findPairFolders(dir string, together bool) (images, masks string, err error) {
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
	if together {
		return dir, dir, nil
	}
	return "", "", fmt.Errorf("%s contains neither image/ nor label/: want %s; if images and masks are in one folder, set data.mask_suffix to what the names of masks have at their end, such as _mask", dir, pairLayout)
}

// MatchMasks returns the path of each image's mask in the folder maskDir.
//
// The mask of image a.png is a.png (or another extension) or, if suffix is _mask, a_mask.png. If
// suffix is empty and no mask has the name of an image, files whose names contain the same numbers
// belong together (image_07.png, mask_07.png). unused lists the masks that belong to no image. An
// image without mask is an error.
func MatchMasks(images []string, maskDir, suffix string) (masks, unused []string, err error) {
	all, err := ListPictures(maskDir)
	if err != nil {
		return nil, nil, err
	}
	key := baseName
	if suffix != "" {
		all = slices.DeleteFunc(all, func(path string) bool { return slices.Contains(images, path) })
		for _, m := range all {
			if !strings.HasSuffix(baseName(m), suffix) {
				return nil, nil, fmt.Errorf("mask %s does not end with %s, as data.mask_suffix says: rename it, or remove it", m, suffix)
			}
		}
	} else if !haveCommonName(images, all) {
		if suffix := commonSuffix(images, all); suffix != "" {
			return nil, nil, &SuffixError{suffix, all[0]}
		}
		key = numbersInName
	}
	maskKey := func(path string) string { return key(strings.TrimSuffix(baseName(path), suffix)) }
	byKey := map[string]string{}
	for _, m := range all {
		if other, ok := byKey[maskKey(m)]; ok {
			return nil, nil, fmt.Errorf("masks %s and %s in %s could belong to the same image: give images and masks the same names", filepath.Base(other), filepath.Base(m), maskDir)
		}
		byKey[maskKey(m)] = m
	}
	used := map[string]string{}
	for _, path := range images {
		name := filepath.Base(path)
		mask, ok := byKey[key(baseName(path))]
		if !ok {
			return nil, nil, fmt.Errorf("image %s has no mask %s: add the mask or remove the image", path, filepath.Join(maskDir, baseName(path)+suffix+filepath.Ext(path)))
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

// A SuffixError is the error if the name of each mask is the name of an image followed by Suffix,
// which the caller did not pass.
type SuffixError struct {
	Suffix string
	Mask   string // path of a mask
}

func (e *SuffixError) Error() string {
	return fmt.Sprintf("masks in %s are named as the images, but with %s at the end (%s): set data.mask_suffix to %s", filepath.Dir(e.Mask), e.Suffix, filepath.Base(e.Mask), e.Suffix)
}

// commonSuffix returns the suffix that follows an image's name in the names of all masks, or "" if
// there is none.
func commonSuffix(images, masks []string) string {
	for _, image := range images {
		suffix, ok := strings.CutPrefix(baseName(masks[0]), baseName(image))
		if !ok || suffix == "" || strings.Trim(suffix, "0123456789") == "" {
			continue
		}
		names := map[string]bool{}
		for _, image := range images {
			names[baseName(image)+suffix] = true
		}
		if !slices.ContainsFunc(masks, func(m string) bool { return !names[baseName(m)] }) {
			return suffix
		}
	}
	return ""
}

// ListPictures returns the picture files in dir, sorted by name with numbers in numerical order. A
// folder without pictures is an error.
func ListPictures(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var paths []string
	other, folder := "", ""
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case e.IsDir():
			folder = name
		case picture.HasPictureExtension(name):
			paths = append(paths, filepath.Join(dir, name))
		default:
			other = name
		}
	}
	if len(paths) == 0 {
		switch {
		case other != "":
			return nil, fmt.Errorf("%s contains no %s files, only others such as %s: convert them to PNG", dir, picture.FormatNames, other)
		case folder != "":
			return nil, fmt.Errorf("%s contains no files, only folders such as %s: put the %s files into %s itself; if there is one folder of masks per class, make one mask per image, with the number of a class at each pixel, and name the numbers in data.mask_values",
				dir, folder, picture.FormatNames, dir)
		}
		return nil, fmt.Errorf("%s is empty: want %s files", dir, picture.FormatNames)
	}
	slices.SortFunc(paths, func(a, b string) int { return runs.NaturalCompare(filepath.Base(a), filepath.Base(b)) })
	return paths, nil
}

func baseName(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// haveCommonName reports whether a file of a and a file of b have the same name, apart from the extension.
func haveCommonName(a, b []string) bool {
	in := map[string]bool{}
	for _, path := range a {
		in[baseName(path)] = true
	}
	return slices.ContainsFunc(b, func(path string) bool { return in[baseName(path)] })
}

// numbersInName returns the numbers in a name, without leading zeros and separated by spaces. If the
// name has none, it returns the name.
func numbersInName(name string) string {
	fields := strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) == 0 {
		return name
	}
	for i, f := range fields {
		fields[i] = trimLeadingZeros(f)
	}
	return strings.Join(fields, " ")
}

func trimLeadingZeros(digits string) string {
	if t := strings.TrimLeft(digits, "0"); t != "" {
		return t
	}
	return "0"
}
