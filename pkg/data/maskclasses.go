package data

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/data/internal/reading"
	"lockstep/pkg/internal/english"
)

// Ignored is the target of a pixel that counts neither in the loss nor in the scores: a pixel that
// the mask ignores, a pixel from outside a rotated image, or in evaluation a pixel that already
// counts in another tile.
const Ignored = 255

// Class names with a special meaning in Config.MaskValues.
const (
	ClassBackground = "background" // class 0
	ClassIgnore     = "ignore"     // no class: the pixels are ignored
)

// MaskValues maps the values of masks to the names of their classes; see Config.MaskValues.
type MaskValues map[int]string

// UnmarshalYAML replaces all values, so that no value of a base config remains.
func (m *MaskValues) UnmarshalYAML(n *yaml.Node) error {
	var values map[int]string
	if err := n.Decode(&values); err != nil {
		return err
	}
	*m = values
	return nil
}

// readingRules returns the fields of c that say how images and masks are read.
func (c Config) readingRules() reading.Rules {
	return reading.Rules{InputChannels: c.InputChannels, ToGray: c.ToGray, Range: c.Range, MaskValues: c.MaskValues, Foreground: c.Foreground}
}

// MaskClasses returns the names of the masks' classes by index: the background, then the others in
// ascending order of their values in Config.MaskValues. Values of the same name are one class. It
// returns nil if MaskValues is empty.
func (c Config) MaskClasses() []string { return c.readingRules().MaskClasses() }

// MaskLevels returns the mask value of each class, by class index. If several values have the class's
// name, it returns the smallest. Without MaskValues, it returns the values of background and foreground.
func (c Config) MaskLevels() []uint8 { return c.readingRules().MaskLevels() }

// NetworkClasses returns the number of logits per pixel that a network needs for masks with classes.
// It returns 0 if a single logit, for the foreground, suffices: without classes, or with two classes
// and no ignored pixels.
func (c Config) NetworkClasses() int {
	n := len(c.MaskClasses())
	if n == 2 && !c.readingRules().IgnoresPixels() {
		return 0
	}
	return n
}

func (c Config) validatePairs() error {
	if c.Kind != KindPairs {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"reading", c.Reading != 0},
			{"to_gray", c.ToGray},
			{"range", len(c.Range) > 0},
			{"mask_values", len(c.MaskValues) > 0},
			{"mask_suffix", c.MaskSuffix != ""},
			{"group", c.Group != ""},
		} {
			if f.set {
				return fmt.Errorf("data.%s is set, but is only for kind %s: leave it out", f.name, KindPairs)
			}
		}
		return nil
	}
	switch {
	case !slices.Contains([]int{0, ReadingGray, ReadingValues}, c.Reading):
		return fmt.Errorf("data.reading is %d: leave it out, or use %d or %d", c.Reading, ReadingGray, ReadingValues)
	case !slices.Contains([]int{0, 1, 3}, c.InputChannels):
		return fmt.Errorf("data.input_channels is %d: use 1 for gray images, 3 for RGB, or 0 for what the files have", c.InputChannels)
	case c.ToGray && c.InputChannels == 3:
		return fmt.Errorf("data.to_gray is true, but data.input_channels is 3: set only one of them")
	case len(c.Range) != 0 && (len(c.Range) != 2 || !(c.Range[0] < c.Range[1]) || c.Range[0] < 0 || c.Range[1] > 0xffff):
		return fmt.Errorf("data.range is %v: use two values of 16 bits, such as [0, 4095]; the first becomes black and the second white", c.Range)
	case c.Reading == ReadingGray && (c.InputChannels == 3 || c.ToGray || len(c.Range) > 0 || len(c.MaskValues) > 0 || c.MaskSuffix != "" || c.Group != ""):
		return fmt.Errorf("data.reading is %d, which knows only gray images and two classes: leave data.reading out", ReadingGray)
	}
	if _, err := c.groupPattern(); err != nil {
		return err
	}
	return c.readingRules().ValidateMaskValues()
}

// checkHeldOutClasses returns an error if a class occurs in a held-out mask but in no training mask.
// train and heldOut contain sample indices.
func (p *Pairs) checkHeldOutClasses(train, heldOut []int) error {
	if p.occurs == nil {
		return nil
	}
	var missing []string
	for class, name := range p.config.MaskClasses() {
		has := func(i int) bool { return p.occurs[i][class] }
		if slices.ContainsFunc(heldOut, has) && !slices.ContainsFunc(train, has) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("split %s: the held-out masks have the class %s, which no mask for training has, so it cannot be learned: use another data.data_seed or fewer data.test_images", p.dir, english.JoinAnd(missing))
	}
	return nil
}
