// Package classlist reads the pickled lists of pictures and classes of ImageNet folders.
package classlist

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"lockstep/pkg/data/internal/pickle"
)

// maxClassNumber limits class numbers. A list with a larger number probably contains something other
// than classes.
const maxClassNumber = 1 << 20

// Read parses a pickled dict whose keys are paths of pictures and whose values are their classes.
func Read(text []byte) (paths []string, classes []any, err error) {
	v, err := pickle.Read(text)
	if err != nil {
		return nil, nil, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok || len(d.Keys) == 0 {
		return nil, nil, errors.New("the file is not a pickled dict from paths to classes")
	}
	for i, key := range d.Keys {
		path, ok := pickle.AsText(key)
		if !ok || path == "" {
			return nil, nil, fmt.Errorf("key %d is %v, want the path of a picture", i, key)
		}
		paths = append(paths, path)
	}
	return paths, d.Values, nil
}

// ClassIndices converts classes, which are all names or all numbers, to indices. names contains the name
// of each class, and labels the class index of each picture.
func ClassIndices(paths []string, classes []any) (names []string, labels []int32, err error) {
	labels = make([]int32, len(classes))
	if _, isText := pickle.AsText(classes[0]); isText {
		at := map[string]int32{}
		for i, c := range classes {
			name, ok := pickle.AsText(c)
			if !ok {
				return nil, nil, fmt.Errorf("class of picture %s is %v, want a name, like the class of the first picture", paths[i], c)
			}
			at[name] = 0
		}
		names = slices.Sorted(maps.Keys(at))
		for i, name := range names {
			at[name] = int32(i)
		}
		for i, c := range classes {
			name, _ := pickle.AsText(c)
			labels[i] = at[name]
		}
		return names, labels, nil
	}
	highest := int64(0)
	for i, c := range classes {
		class, ok := pickle.AsInt(c)
		if !ok || class < 0 || class >= maxClassNumber {
			return nil, nil, fmt.Errorf("class of picture %s is %v, want a number from 0 to %d (or names for all pictures)", paths[i], c, maxClassNumber-1)
		}
		labels[i], highest = int32(class), max(highest, class)
	}
	for i := range highest + 1 {
		names = append(names, fmt.Sprint(i))
	}
	return names, labels, nil
}
