package data

import (
	"maps"
	"slices"
)

// Ignored is the value of a target's pixel that counts neither in the loss nor in the scores: one
// that the mask ignores, one outside a rotated image, and in evaluation one that another tile
// counts.
const Ignored = 255

// ClassIgnore is the name in Config.MaskValues of the pixels that are ignored.
const ClassIgnore = "ignore"

// MaskClasses returns the names of the classes in masks, by class index, in ascending order of
// their values in Config.MaskValues. It returns nil if MaskValues is empty.
func (c Config) MaskClasses() []string {
	var names []string
	for _, v := range slices.Sorted(maps.Keys(c.MaskValues)) {
		if c.MaskValues[v] != ClassIgnore {
			names = append(names, c.MaskValues[v])
		}
	}
	return names
}

// NetworkClasses returns the number of logits per pixel that a network for masks with classes has.
// It is 0 if the masks have a foreground and a background and nothing is ignored: the network
// then has one logit, that of the foreground.
func (c Config) NetworkClasses() int {
	if len(c.MaskValues) == 2 && len(c.MaskClasses()) == 2 {
		return 0
	}
	return len(c.MaskClasses())
}
