package reading

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/english"
)

// The values of data.ClassBackground, data.ClassIgnore and data.Ignored.
const (
	classBackground = "background"
	classIgnore     = "ignore"
	ignored         = 255
)

// MaskClasses returns the names of the masks' classes by index: the background, then the others in
// ascending order of their values in MaskValues. Values of the same name are one class. It
// returns nil if MaskValues is empty.
func (c Rules) MaskClasses() []string {
	var names []string
	for _, v := range slices.Sorted(maps.Keys(c.MaskValues)) {
		switch name := c.MaskValues[v]; {
		case name == classIgnore || slices.Contains(names, name):
		case name == classBackground:
			names = slices.Insert(names, 0, name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// IgnoresPixels reports whether MaskValues has a value with the name classIgnore, whose pixels do
// not count.
func (c Rules) IgnoresPixels() bool {
	return slices.Contains(slices.Collect(maps.Values(c.MaskValues)), classIgnore)
}

// ValidateMaskValues returns an error if MaskValues contains an invalid value or name.
func (c Rules) ValidateMaskValues() error {
	if len(c.MaskValues) == 0 {
		return nil
	}
	for _, v := range slices.Sorted(maps.Keys(c.MaskValues)) {
		switch name := c.MaskValues[v]; {
		case v < 0 || v > 255:
			return fmt.Errorf("data.mask_values has the value %d: use 0 to 255", v)
		case name == "" || strings.ContainsAny(name, ",\n\t\"/"):
			return fmt.Errorf("data.mask_values names the value %d %q: use a name without commas, quotes and slashes", v, name)
		}
	}
	names := c.MaskClasses()
	switch {
	case !slices.Contains(names, classBackground):
		return fmt.Errorf("data.mask_values has no value named %s (got %s): name the value of the pixels that belong to nothing %s, usually 0", classBackground, english.JoinAnd(names), classBackground)
	case len(names) < 2:
		return fmt.Errorf("data.mask_values has only the class %s: name at least one other value", classBackground)
	case c.Foreground != "":
		return fmt.Errorf("data.foreground is %s, but data.mask_values is set: leave data.foreground out, because the classes have names", c.Foreground)
	}
	return nil
}

// MaskLevels returns the mask value of each class, by class index. If several values have the class's
// name, it returns the smallest. Without MaskValues, it returns the values of background and foreground.
func (c Rules) MaskLevels() []uint8 {
	classes := c.MaskClasses()
	switch {
	case classes == nil && c.Foreground == "black":
		return []uint8{255, 0}
	case classes == nil:
		return []uint8{0, 255}
	}
	levels := make([]uint8, len(classes))
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(c.MaskValues))) {
		if i := slices.Index(classes, c.MaskValues[v]); i >= 0 {
			levels[i] = uint8(v)
		}
	}
	return levels
}

// classByMaskValue returns for each possible mask value its class index, or data.Ignored, and whether
// MaskValues contains the value.
func (c Rules) classByMaskValue() (index [256]uint8, known [256]bool) {
	classes := c.MaskClasses()
	for v, name := range c.MaskValues {
		index[v], known[v] = ignored, true
		if name != classIgnore {
			index[v] = uint8(slices.Index(classes, name))
		}
	}
	return index, known
}

// CheckMask returns an error if the mask at path, with the facts f, cannot be read by the rules of c.
func (c Rules) CheckMask(path string, f survey.Facts) error {
	if !f.Complete {
		return nil
	}
	levels := slices.Sorted(maps.Keys(f.Levels))
	switch {
	case f.Transparent:
		return fmt.Errorf("mask %s has transparent pixels: save it without an alpha channel (for example, in ImageMagick, with convert -alpha off)", path)
	case f.Palette && f.Vivid && len(c.MaskValues) == 0 && len(levels) > 2:
		return fmt.Errorf("mask %s has a palette and the %s: name them in data.mask_values, for example %s", path, DescribeMaskValues(levels, f.MorePixels), Rules{MaskValues: ProposeMaskValues(levels)}.FormatMaskValues())
	case f.Vivid && !f.Palette:
		return fmt.Errorf("mask %s has colors: save it in gray, with black and white for two classes, or with one gray level or one index of a palette per class and their names in data.mask_values", path)
	case len(c.MaskValues) == 0:
		return nil
	}
	_, known := c.classByMaskValue()
	unknown, pixels := []int{}, f.MorePixels
	for _, v := range levels {
		if v > 255 || !known[v] {
			unknown = append(unknown, v)
			pixels += f.Levels[v]
		}
	}
	if pixels > 0 {
		return fmt.Errorf("mask %s has the %s in %s, which data.mask_values (%s) does not name: name each value there, with the name %s if its pixels shall not count, or correct the mask",
			path, DescribeMaskValues(unknown, f.MorePixels), english.FormatCount(pixels, "pixel"), c.FormatMaskValues(), classIgnore)
	}
	return nil
}

// DescribeMaskValues lists mask values, as in "values 0, 1 and 2". If more is positive, it adds "others".
func DescribeMaskValues(levels []int, more int) string {
	const most = 8
	var list []string
	for _, v := range levels[:min(most, len(levels))] {
		list = append(list, fmt.Sprint(v))
	}
	if n := len(levels) - most; n > 0 || more > 0 {
		list = append(list, "others")
	}
	if len(list) == 1 {
		return "value " + list[0]
	}
	return "values " + english.JoinAnd(list)
}

// ProposeMaskValues proposes a MaskValues for masks with the given values, which must be in ascending order.
func ProposeMaskValues(levels []int) map[int]string {
	values := map[int]string{}
	for i, v := range levels {
		switch {
		case i == 0:
			values[v] = classBackground
		case v == 255 && len(levels) > 2:
			values[v] = classIgnore
		default:
			values[v] = fmt.Sprintf("class%d", i)
		}
	}
	return values
}

// FormatMaskValues formats MaskValues as in a config, such as {0: background, 1: cell}.
func (c Rules) FormatMaskValues() string {
	var list []string
	for _, v := range slices.Sorted(maps.Keys(c.MaskValues)) {
		list = append(list, fmt.Sprintf("%d: %s", v, c.MaskValues[v]))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// MaskClassIndices returns the class index of each pixel of a mask, which must have passed CheckMask.
// Without MaskValues, the index is 1 for the foreground and 0 for the background, and grey counts
// the values that are neither nearly black nor nearly white.
func (c Rules) MaskClassIndices(r picture.Raw) (classes []uint8, grey int) {
	if len(c.MaskValues) == 0 {
		g := r.Gray()
		if g.Words != nil {
			g.Bytes = make([]uint8, len(g.Words))
			for i, v := range g.Words {
				g.Bytes[i] = uint8(v >> 8)
			}
		}
		return g.Bytes, Binarize(g.Bytes, c.Foreground == "black")
	}
	index, _ := c.classByMaskValue()
	values := r.Indices
	if values == nil {
		g := r.Gray()
		values = g.Bytes
		if g.Words != nil {
			values = make([]uint8, len(g.Words))
			for i, v := range g.Words {
				values[i] = uint8(v) // at most 255, as CheckMask knows
			}
		}
	}
	for i, v := range values {
		values[i] = index[v]
	}
	return values, 0
}

// Binarize replaces each gray value (0 to 255) of a mask by 1 if it is bright and 0 if it is dark,
// or vice versa if inverted is true. grey counts the values from 0.2·255 to 0.8·255.
func Binarize(mask []uint8, inverted bool) (grey int) {
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
	}
	return grey
}

// maxClassMaskValues is the largest number of different values in masks with classes. Masks with more
// values have soft edges, or a number for each object.
const maxClassMaskValues = 32

// DistinctMaskValues returns the different values of all masks. It returns nil if there are more than
// maxClassMaskValues.
func DistinctMaskValues(masks []survey.Facts) []int {
	all := map[int]bool{}
	for _, f := range masks {
		for v := range f.Levels {
			all[v] = true
		}
		if f.MorePixels > 0 || len(all) > maxClassMaskValues {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(all))
}
