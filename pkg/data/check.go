package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/reading"
	"lockstep/pkg/data/internal/window"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/english"
)

// A Check describes the images and masks of a folder, and a config that reads them.
type Check struct {
	Dir       string         `json:"dir"`
	Pairs     int            `json:"pairs"`
	Sizes     map[string]int `json:"sizes"` // number of images by size, as in 160×200 (height×width)
	Kinds     map[string]int `json:"kinds"` // number of images by channels and bits, as in 8-bit RGB
	Min       int            `json:"min"`   // smallest value of the images
	Max       int            `json:"max"`
	Mean      float64        `json:"mean"` // of all values of the images, as they are in the files
	Deviation float64        `json:"deviation"`
	// Levels contains the values of the masks in ascending order. For masks with a palette, these
	// are the palette's indices.
	Levels []LevelShare `json:"levels"`
	// EmptyMasks are the masks that have only one value.
	EmptyMasks []string `json:"empty_masks"`
	// EqualFiles lists groups of images with the same bytes. One of a group may be held out for
	// tests while another is used for training.
	EqualFiles [][]string `json:"equal_files"`
	Notes      []string   `json:"notes"`  // what a user should know or mend
	Config     []string   `json:"config"` // lines of a config that reads the folder
}

// LevelShare counts the pixels of all masks that have one value.
type LevelShare struct {
	Value  int     `json:"value"`
	Pixels int     `json:"pixels"`
	Share  float64 `json:"share"` // of all pixels, 0 to 1
	Masks  int     `json:"masks"` // number of masks that have it
}

// CheckPairs reads the images and masks in dir, as OpenPairs does. suffix ends the names of masks;
// see survey.FindPairs. CheckPairs detects the suffix itself if images and masks are in two folders.
func CheckPairs(ctx context.Context, dir, suffix string) (*Check, error) {
	list, err := survey.FindPairs(dir, suffix)
	if e := (&survey.SuffixError{}); errors.As(err, &e) {
		suffix = e.Suffix
		list, err = survey.FindPairs(dir, suffix)
	}
	var s survey.Survey
	if err == nil {
		s, err = survey.Complete(ctx, dir, list)
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	k := &Check{Dir: dir, Pairs: len(list), Sizes: map[string]int{}, Kinds: map[string]int{}, Min: math.MaxInt, EmptyMasks: []string{}, EqualFiles: [][]string{}, Notes: []string{}}
	k.addImageStatistics(s.Images)
	k.addMaskStatistics(list, s.Masks)
	if err := k.addDuplicateImages(ctx, list); err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	k.proposeConfig(list, s, suffix)
	return k, nil
}

// addImageStatistics sets the fields of k that describe the images.
func (k *Check) addImageStatistics(images []survey.Facts) {
	values, sum, squares := 0.0, 0.0, 0.0
	for _, f := range images {
		k.Sizes[window.FormatSize([]int{f.Height, f.Width})]++
		k.Kinds[f.Kind()]++
		n := float64(f.Height) * float64(f.Width)
		if f.Colored {
			n *= float64(f.Channels)
		}
		values += n
		sum += n * f.Mean
		squares += n * (f.Deviation*f.Deviation + f.Mean*f.Mean)
		k.Min, k.Max = min(k.Min, f.Min), max(k.Max, f.Max)
	}
	k.Mean = sum / values
	k.Deviation = math.Sqrt(max(0, squares/values-k.Mean*k.Mean))
}

func (k *Check) addMaskStatistics(list []survey.Pair, masks []survey.Facts) {
	levels, total := map[int]*LevelShare{}, 0
	for i, f := range masks {
		if len(f.Levels) == 1 {
			k.EmptyMasks = append(k.EmptyMasks, filepath.Base(list[i].Mask))
		}
		for v, n := range f.Levels {
			if levels[v] == nil {
				levels[v] = &LevelShare{Value: v}
			}
			levels[v].Pixels += n
			levels[v].Masks++
		}
		total += f.Height * f.Width
	}
	for _, v := range slices.Sorted(maps.Keys(levels)) {
		levels[v].Share = float64(levels[v].Pixels) / float64(total)
		k.Levels = append(k.Levels, *levels[v])
	}
}

func (k *Check) addDuplicateImages(ctx context.Context, list []survey.Pair) error {
	bySize := map[int64][]string{}
	for _, p := range list {
		info, err := os.Stat(p.Image)
		if err != nil {
			return err
		}
		bySize[info.Size()] = append(bySize[info.Size()], p.Image)
	}
	byHash := map[[sha256.Size]byte][]string{}
	for _, paths := range bySize {
		if len(paths) < 2 {
			continue
		}
		for _, path := range paths {
			text, err := picture.ReadFile(ctx, k.Dir, path)
			if err != nil {
				return err
			}
			h := sha256.Sum256(text)
			byHash[h] = append(byHash[h], filepath.Base(path))
		}
	}
	for _, names := range byHash {
		if len(names) > 1 {
			k.EqualFiles = append(k.EqualFiles, names)
		}
	}
	slices.SortFunc(k.EqualFiles, slices.Compare)
	return nil
}

func (k *Check) proposeConfig(list []survey.Pair, s survey.Survey, suffix string) {
	c := Config{Kind: KindPairs, Path: k.Dir, MaskSuffix: suffix, TestImages: max(1, k.Pairs/5)}
	lines := []string{"data:", "  kind: pairs", "  path: " + k.Dir, fmt.Sprintf("  test_images: %d", c.TestImages)}
	add := func(format string, a ...any) { lines = append(lines, "  "+fmt.Sprintf(format, a...)) }
	if suffix != "" {
		add("mask_suffix: %s", suffix)
	}
	smallest := smallestSide(s.Images)
	const usualMultiple = 8 // of a U-Net of depth 3
	uneven := slices.ContainsFunc(s.Images, func(f survey.Facts) bool { return f.Height%usualMultiple != 0 || f.Width%usualMultiple != 0 })
	tile := proposeTileSize(0, smallest, usualMultiple)
	if large := tile < smallest-usualMultiple; (len(k.Sizes) > 1 || uneven || large) && tile > 0 {
		c.Tile = tile
		add("tile: %d", tile)
	}
	if s.Images[0].Bits == 16 {
		c.Range = []float64{float64(k.Min), float64(max(k.Max, k.Min+1))}
		add("range: [%d, %d]", k.Min, max(k.Max, k.Min+1))
	}
	gray := slices.ContainsFunc(s.Images, func(f survey.Facts) bool { return f.Channels == 1 })
	if gray && slices.ContainsFunc(s.Images, func(f survey.Facts) bool { return f.Colored }) {
		c.ToGray = true
		add("to_gray: true")
	}
	values := k.proposeMaskValues(s.Masks)
	if last := k.Levels[len(k.Levels)-1]; values == nil && last.Share > 0.5 && len(k.Levels) > 1 {
		k.Notes = append(k.Notes, fmt.Sprintf("%.1f %% of the mask pixels have the value %d, which is the foreground: if it is the background, add foreground: black to the config", 100*last.Share, last.Value))
	}
	if values != nil {
		c.MaskValues = values
		add("mask_values: %s", c.readingRules().FormatMaskValues())
		k.Notes = append(k.Notes, "the names of the classes in mask_values are proposals: change them, and name values that shall not count ignore")
	}
	if _, notes, err := c.readingRules().InspectPairs(k.Dir, list, s); err != nil {
		k.Notes = append(k.Notes, err.Error())
	} else {
		k.Notes = append(k.Notes, notes...)
	}
	if err := (&Pairs{dir: k.Dir, config: c}).setSizes(list, s); err != nil {
		k.Notes = append(k.Notes, err.Error())
	}
	if n := len(k.EmptyMasks); n > 0 {
		k.Notes = append(k.Notes, fmt.Sprintf("%s with only one value: %s", english.FormatCount(n, "mask"), english.JoinFirstFew(k.EmptyMasks)))
	}
	for _, names := range k.EqualFiles {
		k.Notes = append(k.Notes, "these images have the same bytes, so that a test with one of them may not be a test: "+english.JoinFirstFew(names))
	}
	k.Config = lines
}

// proposeMaskValues proposes a Config.MaskValues. It returns nil if the masks have only a dark and a
// bright value, for background and foreground, or too many values for classes.
func (k *Check) proposeMaskValues(masks []survey.Facts) map[int]string {
	levels := reading.DistinctMaskValues(masks)
	palette := slices.ContainsFunc(masks, func(f survey.Facts) bool { return f.Palette && f.Vivid })
	grays := slices.ContainsFunc(masks, func(f survey.Facts) bool { return f.Palette && !f.Vivid })
	bright := len(levels) == 2 && (grays || levels[0] < 51 && levels[1] > 204) || len(levels) == 1
	if levels == nil || bright && !palette || levels[len(levels)-1] > 255 {
		return nil
	}
	return reading.ProposeMaskValues(levels)
}

// String formats the check as a table, followed by the notes and the config.
func (k *Check) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	counts := func(m map[string]int) string {
		var list []string
		for _, v := range slices.Sorted(maps.Keys(m)) {
			if len(m) == 1 {
				return v
			}
			list = append(list, fmt.Sprintf("%s (%d)", v, m[v]))
		}
		return english.JoinFirstFew(list)
	}
	row := func(name, format string, a ...any) { fmt.Fprintln(w, name+"\t"+fmt.Sprintf(format, a...)) }
	row("pairs", "%d in %s", k.Pairs, k.Dir)
	row("sizes", "%s (height×width)", counts(k.Sizes))
	row("images", "%s, values %d to %d, mean %.4g, deviation %.4g", counts(k.Kinds), k.Min, k.Max, k.Mean, k.Deviation)
	for i, l := range k.Levels {
		const most = 16
		if i == most {
			row("", "and %d other values", len(k.Levels)-most)
			break
		}
		row(map[bool]string{true: "masks"}[i == 0], "value %d: %.2f %% of the pixels, in %s", l.Value, 100*l.Share, english.FormatCount(l.Masks, "mask"))
	}
	row("empty masks", "%d", len(k.EmptyMasks))
	row("equal images", "%d", len(k.EqualFiles))
	_ = w.Flush() // a strings.Builder returns no error
	for _, n := range k.Notes {
		fmt.Fprintln(&b, "note: "+n)
	}
	fmt.Fprintln(&b, "\nconfig to use:\n"+strings.Join(k.Config, "\n"))
	return b.String()
}
