package data

import (
	"fmt"
	"regexp"
	"slices"

	"lockstep/pkg/data/internal/stream"
	"lockstep/pkg/internal/english"
)

func (c Config) groupPattern() (*regexp.Regexp, error) {
	if c.Group == "" {
		return nil, nil
	}
	r, err := regexp.Compile(c.Group)
	if err != nil {
		return nil, fmt.Errorf("data.group is no regular expression: %w: for names such as p07_slice3, use ^(p[0-9]+)_", err)
	}
	return r, nil
}

// groupNames returns the name of each sample's group: the text that the first parenthesis of Group
// matches in the sample's name, or without parenthesis the text that Group matches.
func (c Config) groupNames(ds Dataset) ([]string, error) {
	pattern, err := c.groupPattern()
	if err != nil {
		return nil, err
	}
	names := make([]string, ds.Len())
	for i := range names {
		m := pattern.FindStringSubmatch(ds.SampleName(i))
		if m == nil {
			return nil, fmt.Errorf("split data: data.group (%s) does not match the image %s: use a regular expression that matches all names", c.Group, ds.SampleName(i))
		}
		names[i] = m[min(1, len(m)-1)]
	}
	return names, nil
}

// splitSamples splits the samples of ds into three lists of indices, each in ascending order: for
// training, for validation after each epoch, and for the test at the end. notes are remarks for the user.
func (c Config) splitSamples(ds Dataset) (train, validation, test []int, notes []string, err error) {
	n := ds.Len()
	heldOut := c.TestImages + c.ValidationImages
	if heldOut >= n {
		what := fmt.Sprintf("data.test_images is %d", c.TestImages)
		if c.ValidationImages > 0 {
			what += fmt.Sprintf(" and data.validation_images %d", c.ValidationImages)
		}
		return nil, nil, nil, nil, fmt.Errorf("split data: %s of %d images: leave at least one image for training", what, n)
	}
	if c.Group != "" {
		train, validation, test, notes, err = c.splitByGroup(ds)
	} else {
		train, test = Split(n, c.TestImages, c.DataSeed)
		if c.ValidationImages > 0 {
			rest, chosen := Split(len(train), c.ValidationImages, c.DataSeed)
			train, validation = elementsAt(train, rest), elementsAt(train, chosen)
		}
	}
	if n := len(validation) + len(test); err == nil && len(train) < n {
		notes = append(notes, fmt.Sprintf("%d images are left for training, fewer than the %d that are held out: use fewer data.test_images", len(train), n))
	}
	return train, validation, test, notes, err
}

func elementsAt(list, indices []int) []int {
	picked := make([]int, len(indices))
	for k, i := range indices {
		picked[k] = list[i]
	}
	return picked
}

// splitByGroup is like splitSamples, but puts all samples of a group into the same part. validation
// and test may have more samples than the config asks for, but not fewer.
func (c Config) splitByGroup(ds Dataset) (train, validation, test []int, notes []string, err error) {
	names, err := c.groupNames(ds)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	groups := slices.Compact(slices.Sorted(slices.Values(names)))
	members := map[string][]int{}
	for i, name := range names {
		members[name] = append(members[name], i)
	}
	for _, g := range stream.NewRand(c.DataSeed, stream.Split, uint64(len(groups))).Perm(len(groups)) {
		part := &train
		switch {
		case len(test) < c.TestImages:
			part = &test
		case len(validation) < c.ValidationImages:
			part = &validation
		}
		*part = append(*part, members[groups[g]]...)
	}
	if len(train) == 0 {
		return nil, nil, nil, nil, fmt.Errorf("split data: the %s of data.group (%s) leave no image for training if %s are held out: use fewer data.test_images, or another data.group",
			english.FormatCount(len(groups), "group"), c.Group, english.FormatCount(c.TestImages+c.ValidationImages, "image"))
	}
	for _, part := range [][]int{train, validation, test} {
		slices.Sort(part)
	}
	notes = append(notes, fmt.Sprintf("the images are in %s by data.group, which are kept together", english.FormatCount(len(groups), "group")))
	if len(test) > c.TestImages || len(validation) > c.ValidationImages {
		notes[0] += fmt.Sprintf(": %d are held out for tests, not %d", len(test), c.TestImages)
		if c.ValidationImages > 0 {
			notes[0] += fmt.Sprintf(", and %d for validation, not %d", len(validation), c.ValidationImages)
		}
	}
	return train, validation, test, notes, nil
}
