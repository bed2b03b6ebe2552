package data

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/volume"
)

// Kinds of data, the values of Config.Kind.
const (
	KindCells    = "cells"    // generated microscope images with masks
	KindPairs    = "pairs"    // a folder of images and masks
	KindStacks   = "stacks"   // a folder of TIFF stacks and masks
	KindShapes   = "shapes"   // generated pictures of ten classes, like CIFAR-10
	KindCIFAR10  = "cifar10"  // CIFAR-10, binary or Python version
	KindFolders  = "folders"  // one folder per class
	KindImageNet = "imagenet" // a folder with train_data.pkl
	KindFields   = "fields"   // generated volumes that imitate two simulations
	KindVolumes  = "volumes"  // volumes in HDF5 or .npy files
)

// Kinds returns all kinds of data, in the order of the documentation.
func Kinds() []string {
	return []string{KindCells, KindPairs, KindStacks, KindShapes, KindCIFAR10, KindFolders, KindImageNet, KindFields, KindVolumes}
}

// Tasks that a network can learn from data.
const (
	TaskSegmentation   = "segmentation"
	TaskClassification = "classification"
	TaskRegression     = "regression"
)

// Config describes where samples come from, and how they are split, cut and augmented. Fields that
// do not apply to a kind of data are ignored or must be zero (see Validate).
type Config struct {
	Kind       string `yaml:"kind" json:"kind"`                           // one of Kinds
	Path       string `yaml:"path" json:"path"`                           // folder or file that is read; empty for generated data
	Foreground string `yaml:"foreground" json:"foreground"`               // for pairs and stacks: "white" or "black", the color of the foreground in masks; empty: white
	Count      int    `yaml:"count" json:"count"`                         // for cells, shapes and fields: number of images or boxes to generate
	Height     int    `yaml:"height" json:"height"`                       // for cells: pixels
	Width      int    `yaml:"width" json:"width"`                         // for cells: pixels
	Edge       int    `yaml:"edge,omitempty" json:"edge,omitempty"`       // for shapes (0: 32 pixels) and boxes of fields
	Classes    int    `yaml:"classes,omitempty" json:"classes,omitempty"` // for shapes: number of classes; 0: 10
	Resize     int    `yaml:"resize,omitempty" json:"resize,omitempty"`   // for cifar10, folders and imagenet: pictures are scaled to squares of this edge; 0: not scaled
	DataSeed   int64  `yaml:"data_seed" json:"data_seed"`                 // seed of the generator and the split, usually equal for all runs of a study
	// TestImages is the number of complete images or boxes that are held out of Path for tests. It
	// is 0 if there are separate test data: TestPath, or CIFAR-10's test batch.
	TestImages int    `yaml:"test_images" json:"test_images"`
	TestPath   string `yaml:"test_path,omitempty" json:"test_path,omitempty"` // for folders, imagenet and volumes: the test data
	Tile       int    `yaml:"tile" json:"tile"`                               // for cells and pairs: edge of the square tiles that images are cut into; 0: complete images
	// For stacks, fields and volumes: Samples is the number of random crops (of edge augment.crop) per
	// epoch; 0: one per box. TestSamples is the number of test crops, which are the same in every epoch.
	Samples     int    `yaml:"samples,omitempty" json:"samples,omitempty"`
	TestSamples int    `yaml:"test_samples,omitempty" json:"test_samples,omitempty"`
	Input       string `yaml:"input,omitempty" json:"input,omitempty"`   // for volumes: name of the input's data; empty: Nbody
	Target      string `yaml:"target,omitempty" json:"target,omitempty"` // for volumes: name of the target's data; empty: Hydro
	// InputChannels and TargetChannels are the numbers of channels that volumes must have; 0 allows any
	// number. For pairs, InputChannels is 1 (gray) or 3 (RGB), and 0 means the number in the files.
	InputChannels  int `yaml:"input_channels,omitempty" json:"input_channels,omitempty"`
	TargetChannels int `yaml:"target_channels,omitempty" json:"target_channels,omitempty"`

	// ValidationImages is, for cells and pairs, the number of further images that are held out of
	// training. If it is not 0, OpenedData.Test has these images, which are scored after each
	// epoch, and OpenedData.Final has the TestImages images, which are scored once, at the end.
	ValidationImages int `yaml:"validation_images,omitempty" json:"validation_images,omitempty"`

	// The fields from Reading to Group are for pairs.
	//
	// Reading selects the rules by which files are converted to values: ReadingGray or
	// ReadingValues; 0 means ReadingValues. Runs record it, so that they can be resumed and verified
	// with the same values.
	Reading int       `yaml:"reading,omitempty" json:"reading,omitempty"`
	ToGray  bool      `yaml:"to_gray,omitempty" json:"to_gray,omitempty"` // convert colors to gray
	Range   []float64 `yaml:"range,omitempty" json:"range,omitempty"`     // of 16-bit images: the values that become 0 and 255
	// MaskValues names the classes of a mask's values (gray levels, or indices of a palette). Pixels
	// of the class ClassIgnore count neither in the loss nor in the scores. If MaskValues is empty,
	// masks have a foreground and a background; see Foreground.
	MaskValues MaskValues `yaml:"mask_values,omitempty" json:"mask_values,omitempty"`
	MaskSuffix string     `yaml:"mask_suffix,omitempty" json:"mask_suffix,omitempty"` // added to an image's name in the name of its mask, such as _mask
	// Group is a regular expression for the names of images. Images belong together if its first
	// group (or the whole expression, if it has no group) matches the same text, such as a patient's
	// number. Open never divides them between training and tests.
	Group string `yaml:"group,omitempty" json:"group,omitempty"`

	// SideMultiple is a number that the height and width of the network's images must be multiples
	// of; 0 if unknown. It is not set by users: Open uses it to propose a tile size.
	SideMultiple int `yaml:"-" json:"-"`

	Augment  Augment `yaml:"augment" json:"augment"`
	DropLast bool    `yaml:"drop_last" json:"drop_last"`
	// Stage is a folder on each node, such as /dev/shm or $TMPDIR. The files of Path and TestPath
	// are copied there once per node before training, and removed after it. If Stage is empty, files
	// are read from Path and TestPath.
	Stage string `yaml:"stage,omitempty" json:"stage,omitempty"`
}

// Values of Config.Reading.
const (
	// ReadingGray are the rules of earlier versions: colors, transparency and 16 bits become 8-bit gray.
	ReadingGray = 1
	// ReadingValues are the rules of OpenPairs.
	ReadingValues = 2
)

// Recorded returns c as recorded in run.json, with the default values of Reading and Foreground filled in.
func (c Config) Recorded() Config {
	if c.Kind == KindPairs && c.Reading == 0 {
		c.Reading = ReadingValues
	}
	if c.Foreground == "" && len(c.MaskValues) == 0 {
		c.Foreground = "white"
	}
	return c
}

// Task returns the task that a network can learn from the data.
func (c Config) Task() string {
	switch c.Kind {
	case KindShapes, KindCIFAR10, KindFolders, KindImageNet:
		return TaskClassification
	case KindFields, KindVolumes:
		return TaskRegression
	}
	return TaskSegmentation
}

func (c Config) hasVolumes() bool {
	return c.Kind == KindStacks || c.Kind == KindFields || c.Kind == KindVolumes
}

// hasTestData reports whether there are separate test data. All images of Path are then used for training.
func (c Config) hasTestData() bool {
	return c.TestPath != "" || (c.Kind == KindCIFAR10 && c.TestImages == 0)
}

// Validate returns an error for the first invalid field, with the allowed values.
func (c Config) Validate() error {
	generated := c.Kind == KindCells || c.Kind == KindShapes || c.Kind == KindFields
	switch {
	case !slices.Contains(Kinds(), c.Kind):
		return fmt.Errorf("unknown data.kind %q: use %s", c.Kind, strings.Join(Kinds(), ", "))
	case !generated && c.Path == "":
		return fmt.Errorf("data.path is empty: set it (or --data DIR) to %s", requiredFilesByKind[c.Kind])
	case generated && c.Stage != "":
		return fmt.Errorf("data.stage is %s, but data of kind %s are generated, not read from files: leave data.stage out", c.Stage, c.Kind)
	case c.Stage != "" && !filepath.IsAbs(c.Stage) && !strings.HasPrefix(c.Stage, "$"):
		return fmt.Errorf("data.stage is %q: use an absolute path, such as /dev/shm, or $TMPDIR", c.Stage)
	case !slices.Contains([]string{"", "white", "black"}, c.Foreground):
		return fmt.Errorf("unknown data.foreground %q: use white or black", c.Foreground)
	case c.Kind == KindCells && (c.Count < 1 || c.Height < 1 || c.Width < 1):
		return fmt.Errorf("data.count, height and width are %d, %d, %d: each must be at least 1", c.Count, c.Height, c.Width)
	case c.TestPath != "" && c.Kind != KindFolders && c.Kind != KindImageNet && c.Kind != KindVolumes:
		return fmt.Errorf("data.test_path is set, but is not supported for kind %s: use data.test_images", c.Kind)
	case c.TestPath != "" && c.TestImages != 0:
		return fmt.Errorf("data.test_path and data.test_images (%d) are both set: set only one of them", c.TestImages)
	case c.TestImages < 1 && !c.hasTestData():
		return fmt.Errorf("data.test_images is %d: use at least 1", c.TestImages)
	case c.Tile < 0:
		return fmt.Errorf("data.tile is %d pixels: use a positive number, or 0 for complete images", c.Tile)
	case c.Tile > 0 && c.Kind != KindCells && c.Kind != KindPairs:
		return fmt.Errorf("data.tile is %d, but only kinds cells and pairs are cut into tiles: set it to 0", c.Tile)
	case c.Samples < 0 || c.TestSamples < 0:
		return fmt.Errorf("data.samples and test_samples are %d and %d: use positive numbers of crops, or 0 for one sample per box", c.Samples, c.TestSamples)
	case (c.Samples > 0 || c.TestSamples > 0) && (!c.hasVolumes() || c.Augment.Crop == 0):
		return fmt.Errorf("data.samples or data.test_samples is set, but applies only to crops of stacks, fields and volumes: set data.augment.crop, or both to 0")
	case c.Task() == TaskRegression && (c.Augment.Brightness != 0 || c.Augment.Contrast != 0):
		return fmt.Errorf("data.augment.brightness and contrast are %g and %g: they apply only to pictures, because they clamp values to [0, 1]: leave them out", c.Augment.Brightness, c.Augment.Contrast)
	case c.ValidationImages < 0 || c.ValidationImages > 0 && c.Kind != KindCells && c.Kind != KindPairs:
		return fmt.Errorf("data.validation_images is %d: use a positive number with kind cells or pairs, else 0", c.ValidationImages)
	case c.InputChannels < 0 || c.TargetChannels < 0:
		return fmt.Errorf("data.input_channels and target_channels are %d and %d: use positive numbers, or 0 for any number", c.InputChannels, c.TargetChannels)
	case c.hasVolumes() && c.Augment.Crop > 0 && c.TestSamples == 0:
		return fmt.Errorf("data.test_samples is 0: set the number of test crops")
	}
	switch c.Kind {
	case KindShapes:
		if err := c.shapesOptions().Validate(); err != nil {
			return err
		}
	case KindFields:
		if err := c.fieldsOptions().Validate(); err != nil {
			return err
		}
	}
	if err := (ClassOptions{Resize: c.Resize}).Validate(); err != nil {
		return err
	}
	if err := c.validatePairs(); err != nil {
		return err
	}
	return c.Augment.Validate()
}

// requiredFilesByKind contains, for each kind of data in files, a description of the files that
// Config.Path must name. Error messages use it.
var requiredFilesByKind = map[string]string{
	KindPairs: "a folder with image/ and label/", KindStacks: "a folder with image/ and label/ of TIFF stacks",
	KindCIFAR10: "the folder of CIFAR-10's batches", KindFolders: classFolderLayout,
	KindImageNet: "a folder with train_data.pkl", KindVolumes: volume.Layout,
}

func (c Config) shapesOptions() ShapesOptions {
	return ShapesOptions{Count: c.Count, Classes: c.Classes, Edge: c.Edge, Seed: c.DataSeed}
}

func (c Config) fieldsOptions() FieldsOptions {
	return FieldsOptions{Count: c.Count, Edge: c.Edge, Seed: c.DataSeed}
}

func (c Config) volumeOptions() VolumeOptions {
	return VolumeOptions{Input: c.Input, Target: c.Target, InputChannels: c.InputChannels, TargetChannels: c.TargetChannels}
}

// OpenedData contains the training and test data of a config, split and cut.
type OpenedData struct {
	// Test is scored after each epoch. A pixel in two of its tiles is Ignored in one of them.
	Train, Test Dataset
	// TestImages contains the names of Test's images, before they are cut into tiles or crops.
	TestImages []string
	// Final contains complete images, possibly of different sizes, that are scored once, after
	// training. It is nil unless Config.ValidationImages is set.
	Final Dataset
	// ClassNames contains the class names of pictures or pixels by index; nil without classes.
	ClassNames []string
	// Notes contains a message for each sign that the data may have been misread.
	Notes []string

	trainFiles, testFiles []dataFile // the files of Config.Path and of separate test data; nil if generated
}

// Open opens the data that c describes. It splits the data into training and test images before it
// cuts tiles or crops, so that no part of a test image is used for training. If ctx is canceled,
// Open returns ctx's error before the next sample or file.
func Open(ctx context.Context, c Config) (OpenedData, error) { return openData(ctx, c, false) }

// Outline returns the same data sets as Open, but quickly and without samples: only their lengths,
// shapes and names may be used. It generates nothing. Of data that Open reads into memory, it reads
// only the size of the first sample, the headers of pairs, or one file. Files that it does not read
// may be damaged or have another size; only Open notices that.
func Outline(ctx context.Context, c Config) (OpenedData, error) { return openData(ctx, c, true) }

func openData(ctx context.Context, c Config, outline bool) (OpenedData, error) {
	if err := c.Validate(); err != nil {
		return OpenedData{}, err
	}
	var o OpenedData
	all, err := o.openDataset(ctx, c, c.Path, false, outline)
	if err == nil {
		o.trainFiles, err = listFiles(all, c.Path)
	}
	if err != nil {
		return OpenedData{}, err
	}
	if c.hasTestData() {
		test := OpenedData{}
		o.Test, err = test.openDataset(ctx, c, c.testPath(), true, outline)
		if err == nil {
			o.testFiles, err = listFiles(o.Test, c.testPath())
		}
		if err != nil {
			return OpenedData{}, fmt.Errorf("open test data: %w", err)
		}
		if !slices.Equal(test.ClassNames, o.ClassNames) {
			return OpenedData{}, fmt.Errorf("test data %s and training data %s have different classes (%d and %d classes): use the same class names for both", c.testPath(), c.Path, len(test.ClassNames), len(o.ClassNames))
		}
		o.Train = all
		if err := checkSameChannels(o.Train, o.Test, c); err != nil {
			return OpenedData{}, err
		}
		for i := range o.Test.Len() {
			o.TestImages = append(o.TestImages, o.Test.SampleName(i))
		}
	} else {
		train, validation, test, notes, err := c.splitSamples(all)
		if err != nil {
			return OpenedData{}, err
		}
		if p, ok := all.(*Pairs); ok {
			if err := p.checkHeldOutClasses(train, slices.Concat(validation, test)); err != nil {
				return OpenedData{}, err
			}
		}
		o.Notes = append(o.Notes, notes...)
		if len(validation) > 0 {
			o.Final = Subset(all, test)
			test = validation
		}
		for _, i := range test {
			o.TestImages = append(o.TestImages, all.SampleName(i))
		}
		o.Train, o.Test = Subset(all, train), Subset(all, test)
	}
	if n := o.Train.Len(); !outline && n < minImagesWithoutWarning && (c.Kind == KindPairs || c.Kind == KindStacks) {
		o.Notes = append(o.Notes, fmt.Sprintf("there are few training images (%d), so the IoU differs much between seeds: compare several seeds", n))
	}
	return o, o.cutSamples(c)
}

// minImagesWithoutWarning is the number of training images below which OpenedData.Notes contains a warning. It
// allows the 24 to 30 training images of the ISBI 2012 challenge.
const minImagesWithoutWarning = 20

// checkSameChannels returns an error if training and test data have different numbers of channels.
func checkSameChannels(train, test Dataset, c Config) error {
	for _, s := range []struct {
		what        string
		train, test []int
	}{{"images", train.ImageShape(), test.ImageShape()}, {"targets", train.TargetShape(), test.TargetShape()}} {
		if len(s.train) != len(s.test) || s.train[0] != s.test[0] {
			return fmt.Errorf("%s of test data %s have shape %v, but %s of training data %s have shape %v (channels first): make the numbers of channels equal", s.what, c.testPath(), s.test, s.what, c.Path, s.train)
		}
	}
	return nil
}

// testPath returns TestPath, or Path if TestPath is empty.
func (c Config) testPath() string {
	if c.TestPath != "" {
		return c.TestPath
	}
	return c.Path
}

// openDataset opens the data set at path, without splitting or cutting it, and sets o.ClassNames and
// o.Notes. If test is true, it opens CIFAR-10's test batch.
func (o *OpenedData) openDataset(ctx context.Context, c Config, path string, test, outline bool) (Dataset, error) {
	classes := func(set *Classes, err error) (Dataset, error) {
		if err != nil {
			return nil, err
		}
		o.ClassNames = set.ClassNames()
		return set, nil
	}
	size := ClassOptions{Resize: c.Resize}
	switch c.Kind {
	case KindPairs:
		pairs, err := openPairs(ctx, path, c, outline)
		if err != nil {
			return nil, err
		}
		o.ClassNames = c.MaskClasses()
		if outline {
			return pairs, nil
		}
		o.Notes = pairs.Notes()
		return pairs, pairs.CheckMasks()
	case KindStacks:
		return asDataset(openStacks(ctx, path, c, outline))
	case KindShapes:
		return classes(openShapes(ctx, c.shapesOptions(), outline))
	case KindCIFAR10:
		return classes(openCIFAR10(ctx, path, CIFAROptions{ClassOptions: size, Test: test}, outline))
	case KindFolders:
		return classes(OpenFolders(ctx, path, size))
	case KindImageNet:
		return classes(OpenImageNet(ctx, path, size))
	case KindFields:
		return openFields(ctx, c.fieldsOptions(), outline)
	case KindVolumes:
		return asDataset(OpenVolumes(ctx, path, c.volumeOptions()))
	}
	return openCells(ctx, CellsOptions{Count: c.Count, Height: c.Height, Width: c.Width, Seed: c.DataSeed}, outline)
}

// cutSamples cuts the training and the test data into the tiles or crops that c describes.
func (o *OpenedData) cutSamples(c Config) (err error) {
	if err := c.checkSideMultiple(o.Train, o.Test, o.Final); err != nil {
		return err
	}
	if c.Tile > 0 {
		if o.Train, err = Tiles(o.Train, c.Tile, c.Tile); err != nil {
			return err
		}
		test, err := newTiles(o.Test, c.Tile, c.Tile)
		if err == nil {
			test.countOnce = true
			o.Test = test
		}
		return err
	}
	if !c.hasVolumes() || c.Augment.Crop == 0 {
		return nil
	}
	if c.Samples > 0 {
		if o.Train, err = Repeat(o.Train, c.Samples); err != nil {
			return err
		}
	}
	o.Test, err = Crops(o.Test, c.Augment.Crop, c.TestSamples, c.DataSeed)
	return err
}
