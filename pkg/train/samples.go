package train

import (
	"fmt"

	"lockstep/pkg/data"
)

// Samples is a config's data, split and cut: what is trained on, and what is
// held out for IoU and Dice.
type Samples struct {
	Train, Test data.Dataset
	// TestImages names the held-out images, before they are cut into tiles.
	TestImages []string
	// Notes are what makes one doubt whether the data are meant as they were read.
	Notes []string
}

// OpenSamples opens the data of c. The split is by whole images, so that no
// tile of a held-out image is trained on.
func OpenSamples(c DataConfig) (Samples, error) {
	var s Samples
	var all data.Dataset
	var err error
	switch c.Kind {
	case "pairs":
		var pairs *data.Pairs
		if pairs, err = data.OpenPairs(c.Path, data.PairsOptions{ForegroundInverted: c.Foreground == "black"}); err == nil {
			all, s.Notes, err = pairs, pairs.Notes(), pairs.CheckMasks()
		}
	default:
		all, err = data.Cells(data.CellsConfig{Count: c.Count, Height: c.Height, Width: c.Width, Seed: c.DataSeed})
	}
	if err != nil {
		return Samples{}, err
	}
	if c.TestImages >= all.Len() {
		return Samples{}, fmt.Errorf("split data: test_images is %d of %d images: leave at least one to train on (set data.test_images)", c.TestImages, all.Len())
	}
	trainIdx, testIdx := data.Split(all.Len(), c.TestImages, c.DataSeed)
	for _, i := range testIdx {
		s.TestImages = append(s.TestImages, all.SampleName(i))
	}
	s.Train, s.Test = data.Subset(all, trainIdx), data.Subset(all, testIdx)
	if c.Tile > 0 {
		if s.Train, err = data.Tiles(s.Train, c.Tile, c.Tile); err != nil {
			return Samples{}, err
		}
		if s.Test, err = data.Tiles(s.Test, c.Tile, c.Tile); err != nil {
			return Samples{}, err
		}
	}
	return s, nil
}
