package data

import (
	"context"
	"fmt"
	"slices"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/reading"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/english"
)

// Pairs is a data set of images and their masks, read from a folder and kept in memory.
type Pairs struct {
	byteImageDataset
	dir       string
	files     []string       // paths of the images and masks, in the order of the samples
	config    Config         // by which they were read
	grey      int            // number of mask pixels that are neither nearly black nor nearly white
	counts    [Ignored]int   // number of mask pixels by class
	occurs    []map[int]bool // classes in each mask; nil without classes
	brightest uint8          // largest value of an image pixel
	colored   int            // number of images with colors that were turned into gray
	levels    []int          // values of the masks, if they are few and the masks have no classes; else nil
	notes     []string       // about channels
}

// Dir returns the folder that the pairs were read from.
func (p *Pairs) Dir() string { return p.dir }

// GreyMaskPixels returns the number of mask pixels between nearly black and nearly white, which
// were rounded to black or white. It is 0 if the masks have classes.
func (p *Pairs) GreyMaskPixels() int { return p.grey }

// ForegroundFraction returns the fraction of mask pixels, from 0 to 1, that are not background.
// Ignored pixels do not count.
func (p *Pairs) ForegroundFraction() float64 {
	all := p.countMaskPixels()
	return float64(all-p.counts[0]) / float64(max(1, all))
}

func (p *Pairs) countMaskPixels() int {
	n := 0
	for _, c := range p.counts {
		n += c
	}
	return n
}

// CheckMasks returns an error if either all or none of the masks' pixels are background, because
// then nothing can be learned.
func (p *Pairs) CheckMasks() error {
	const advice = "draw the foreground in white (255) and the background in black (0), or set data.foreground to black if it is the other way round; if the masks have class numbers (0, 1, …), name them in data.mask_values, such as {0: background, 1: cell}"
	classes := p.config.MaskClasses()
	switch p.counts[0] {
	case p.countMaskPixels():
		if classes != nil {
			return fmt.Errorf("masks of %s have no pixel of a class other than %s: check the values in data.mask_values (%s)", p.dir, ClassBackground, p.config.readingRules().FormatMaskValues())
		}
		return fmt.Errorf("masks of %s have no foreground pixel: %s", p.dir, advice)
	case 0:
		if classes == nil {
			return fmt.Errorf("masks of %s have no background pixel: %s", p.dir, advice)
		}
	}
	if len(p.levels) > 2 && slices.Contains(p.levels, 1) { // class numbers, not soft edges
		return fmt.Errorf("masks of %s have the %s: name them in data.mask_values, for example %s", p.dir, reading.DescribeMaskValues(p.levels, 0), p.formatProposedValues())
	}
	return nil
}

func (p *Pairs) formatProposedValues() string {
	return reading.Rules{MaskValues: reading.ProposeMaskValues(p.levels)}.FormatMaskValues()
}

// Notes returns a message for each sign that the files may have been misread, such as very dark images.
func (p *Pairs) Notes() []string {
	notes := slices.Clone(p.notes)
	classes := p.config.MaskClasses()
	if f := p.ForegroundFraction(); f > 0.5 && classes == nil {
		notes = append(notes, fmt.Sprintf("%.1f %% of the mask pixels of %s are foreground: if that is the background, set data.foreground to the other one of white and black", 100*f, p.dir))
	}
	if f := float64(p.grey) / float64(max(1, p.countMaskPixels())); f > 0.01 {
		notes = append(notes, fmt.Sprintf("%.1f %% of the mask pixels of %s are neither black nor white, and were taken for the nearer of the two", 100*f, p.dir))
	}
	if len(p.levels) > 2 {
		notes = append(notes, fmt.Sprintf("the masks of %s have the %s, which are read by brightness, as foreground from 128 on: if they are classes, name them in data.mask_values, for example %s", p.dir, reading.DescribeMaskValues(p.levels, 0), p.formatProposedValues()))
	}
	if p.colored > 0 {
		notes = append(notes, fmt.Sprintf("%d of the %d images of %s have colors, which were turned into gray", p.colored, p.Len(), p.dir))
	}
	if p.brightest < 26 { // a tenth of white
		advice := "if the files have 16 bits per value, set data.range to the values that shall become black and white"
		if p.config.Reading == ReadingGray {
			advice = "values of 12 bits in a file of 16 must be multiplied by 16"
		}
		notes = append(notes, fmt.Sprintf("the brightest image pixel of %s is %d of 255: %s", p.dir, p.brightest, advice))
	}
	var absent []string
	for i, name := range classes {
		if p.counts[i] == 0 {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		notes = append(notes, fmt.Sprintf("no mask of %s has a pixel of the class %s", p.dir, english.JoinAnd(absent)))
	}
	return notes
}

// OpenPairs reads images (PNG, JPEG or TIFF) and their masks from dir and keeps them in memory.
// survey.FindPairs describes the names of folders and files. Samples are sorted by name. The fields
// of c that begin with Reading describe the rules.
//
// An image is gray or RGB. RGB files in which red, green and blue are equal everywhere count as
// gray. Values are divided by 255; 16-bit values are scaled as c.Range says. Transparent pixels are
// errors, as are files with different channels. All files must have the same size, unless c.Tile is
// set: then read them through Tiles.
//
// With c.MaskValues, a mask's values (of a palette: the indices) are classes. Otherwise, a mask value
// (0 to 1) above 0.8 is foreground and below 0.2 background, as in the U-Net scaling study. A value
// in between, such as a soft edge after resizing, is rounded to 0 or 1 and counted in GreyMaskPixels.
func OpenPairs(ctx context.Context, dir string, c Config) (*Pairs, error) {
	return openPairs(ctx, dir, c, false)
}

// openPairs implements OpenPairs. If outline is true, it reads only the headers of the files.
func openPairs(ctx context.Context, dir string, c Config, outline bool) (_ *Pairs, err error) {
	defer prefixError(&err, "open pairs")
	list, err := survey.FindPairs(dir, c.MaskSuffix)
	if err != nil {
		return nil, err
	}
	s, cached := survey.Cached(ctx, dir, list)
	if !cached {
		if s, err = survey.Headers(ctx, dir, list); err != nil {
			return nil, err
		}
	}
	p := &Pairs{dir: dir, config: c}
	for _, pair := range list {
		p.names = append(p.names, pair.Name)
		p.files = append(p.files, pair.Image, pair.Mask)
	}
	p.images, p.masks = make([][]uint8, len(list)), make([][]uint8, len(list))
	if err := p.setSizes(list, s); err != nil {
		return nil, err
	}
	if c.Reading == ReadingGray {
		p.channels = 1
		if !outline {
			err = p.readGrayPairs(ctx, list)
		}
		return p, err
	}
	if outline || cached { // without reading a pixel
		if p.channels, p.notes, err = c.readingRules().InspectPairs(dir, list, s); err != nil || outline {
			return p, err
		}
	}
	if err := p.readPairFiles(ctx, list, &s); err != nil {
		return nil, err
	}
	if !cached {
		s.Keep(ctx, dir, list)
	}
	if p.channels, p.notes, err = c.readingRules().InspectPairs(dir, list, s); err != nil {
		return nil, err
	}
	if len(c.MaskValues) == 0 && !slices.ContainsFunc(s.Masks, func(f survey.Facts) bool { return f.Palette }) {
		p.levels = reading.DistinctMaskValues(s.Masks)
	}
	for i, v := range p.images {
		p.images[i] = slices.Clip(v[:p.channels*len(p.masks[i])])
	}
	return p, nil
}

// setSizes sets the sizes of p from the facts in s. It returns an error if the sizes are
// inconsistent, or if the images do not fit into memory.
func (p *Pairs) setSizes(list []survey.Pair, s survey.Survey) error {
	bytes := 0.0
	for i, img := range s.Images {
		if mask := s.Masks[i]; mask.Height != img.Height || mask.Width != img.Width {
			return fmt.Errorf("mask %s is %d×%d, but its image %s is %d×%d (height×width): make them equal", list[i].Mask, mask.Height, mask.Width, list[i].Image, img.Height, img.Width)
		}
		if i == 0 {
			p.height, p.width = img.Height, img.Width
		}
		if img.Height != p.height || img.Width != p.width {
			if p.config.Tile == 0 {
				return fmt.Errorf("image %s is %d×%d, but %s is %d×%d (height×width): set data.tile (such as %d), so that all are cut into tiles of one size, or crop or resize the files",
					list[i].Image, img.Height, img.Width, list[0].Image, p.height, p.width, proposeTileSize(0, smallestSide(s.Images), p.config.SideMultiple))
			}
			p.sizes = make([][2]int, len(list))
		}
		bytes += float64(img.Height) * float64(img.Width) * float64(img.Channels+1)
	}
	for i := range p.sizes {
		p.sizes[i] = [2]int{s.Images[i].Height, s.Images[i].Width}
	}
	what := fmt.Sprintf("%s has %d pairs of %d×%d pixels", p.dir, len(list), p.height, p.width)
	if p.sizes != nil {
		what = fmt.Sprintf("%s has %d pairs of different sizes", p.dir, len(list))
	}
	return memory.CheckFits(what, 1, bytes)
}

func smallestSide(images []survey.Facts) int {
	side := images[0].Height
	for _, img := range images {
		side = min(side, img.Height, img.Width)
	}
	return side
}

// readPairFiles reads the files by the rules of ReadingValues, and replaces s, which was made from
// headers, by the complete facts.
func (p *Pairs) readPairFiles(ctx context.Context, list []survey.Pair, s *survey.Survey) error {
	c := p.config
	if len(c.MaskValues) > 0 {
		p.occurs = make([]map[int]bool, len(list))
	}
	for i, pair := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		img, err := picture.ReadRaw(ctx, p.dir, pair.Image)
		if err != nil {
			return fmt.Errorf("read image %s: %w", pair.Image, err)
		}
		mask, err := picture.ReadRaw(ctx, p.dir, pair.Mask)
		if err != nil {
			return fmt.Errorf("read mask %s: %w", pair.Mask, err)
		}
		if !s.Images[i].Complete {
			s.Images[i], s.Masks[i] = survey.OfImage(img), survey.OfMask(mask)
		}
		if err := c.readingRules().CheckMask(pair.Mask, s.Masks[i]); err != nil {
			return err
		}
		p.images[i] = c.readingRules().ImageBytes(img)
		classes, grey := c.readingRules().MaskClassIndices(mask)
		p.grey += grey
		p.addMask(i, classes)
	}
	return nil
}

// addMask stores the class indices of mask i, and counts the pixels of each class.
func (p *Pairs) addMask(i int, classes []uint8) {
	p.masks[i] = classes
	var counts [256]int
	for _, v := range classes {
		counts[v]++
	}
	for v := range p.counts {
		p.counts[v] += counts[v]
		if counts[v] > 0 && p.occurs != nil {
			if p.occurs[i] == nil {
				p.occurs[i] = map[int]bool{}
			}
			p.occurs[i][v] = true
		}
	}
	p.brightest = max(p.brightest, slices.Max(p.images[i]))
}

// readGrayPairs reads the files by the rules of ReadingGray: colors and palettes become gray,
// transparent pixels black, and 16-bit values keep their upper 8 bits.
func (p *Pairs) readGrayPairs(ctx context.Context, list []survey.Pair) error {
	for i, pair := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		img, err := picture.ReadGray(ctx, p.dir, pair.Image)
		if err != nil {
			return fmt.Errorf("read image %s: %w", pair.Image, err)
		}
		mask, err := picture.ReadGray(ctx, p.dir, pair.Mask)
		if err != nil {
			return fmt.Errorf("read mask %s: %w", pair.Mask, err)
		}
		p.grey += reading.Binarize(mask.Pixels, p.config.Foreground == "black")
		if img.Colored {
			p.colored++
		}
		p.images[i] = img.Pixels
		p.addMask(i, mask.Pixels)
	}
	return nil
}
