package data

import (
	"context"
	"fmt"
	"sort"

	"lockstep/pkg/data/internal/stream"
)

// Split splits the samples 0 to n−1 at random into testCount test samples and the remaining
// training samples. The result depends only on n, testCount and seed. Both lists are in
// ascending order. A negative testCount is treated as 0, and one above n as n.
func Split(n, testCount int, seed int64) (train, test []int) {
	n = max(n, 0)
	testCount = min(max(testCount, 0), n)
	perm := stream.New(seed, stream.Split, uint64(n)).Perm(n)
	test, train = perm[:testCount:testCount], perm[testCount:]
	sort.Ints(train)
	sort.Ints(test)
	return train, test
}

// Subset returns a data set of the samples of ds with the given indices, in the given
// order. If ds has no sample with an index, Get returns an error for it.
func Subset(ds Dataset, indices []int) Dataset {
	return &subsetDataset{ds: ds, indices: append([]int(nil), indices...)}
}

// subsetDataset is the data set that Subset returns.
type subsetDataset struct {
	ds      Dataset
	indices []int
}

func (s *subsetDataset) Len() int                { return len(s.indices) }
func (s *subsetDataset) ImageShape() []int       { return s.ds.ImageShape() }
func (s *subsetDataset) TargetShape() []int      { return s.ds.TargetShape() }
func (s *subsetDataset) SampleName(i int) string { return s.ds.SampleName(s.indices[i]) }

func (s *subsetDataset) Get(i int, image, target []float32) error {
	return s.getSample(context.Background(), i, image, target)
}

func (s *subsetDataset) getSample(ctx context.Context, i int, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return readSample(ctx, s.ds, s.indices[i], image, target)
}

func (s *subsetDataset) getWindow(ctx context.Context, i int, w window, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return readWindow(ctx, s.ds, s.indices[i], w, image, target)
}

// Tiles cuts every image of ds and its mask into tiles of height×width pixels, row by row.
// Sample i·tilesPerImage+k is tile k of image i. The tiles contain each pixel exactly once,
// so height and width must divide the height and width of the images.
func Tiles(ds Dataset, height, width int) (Dataset, error) {
	is, ts := ds.ImageShape(), ds.TargetShape()
	switch {
	case height < 1 || width < 1:
		return nil, fmt.Errorf("cut tiles: tile size is %d×%d: height and width must be at least 1", height, width)
	case len(is) != 3 || len(ts) != 3:
		return nil, fmt.Errorf("cut tiles: images have shape %v and targets %v: want images [C,H,W] and masks [C,H,W]", is, ts)
	case !isAligned(is, ts):
		return nil, fmt.Errorf("cut tiles: images have size %d×%d, but masks have %d×%d: make them equal", is[1], is[2], ts[1], ts[2])
	case is[1] < height || is[2] < width:
		return nil, fmt.Errorf("cut tiles: images of %d×%d are smaller than tiles of %d×%d: set data.tile to a divisor of height and width, or to 0 for complete images", is[1], is[2], height, width)
	case is[1]%height != 0:
		return nil, fmt.Errorf("cut tiles: tile height %d does not divide image height %d: use one that does (nearest: %d)", height, is[1], nearestDivisor(is[1], height))
	case is[2]%width != 0:
		return nil, fmt.Errorf("cut tiles: tile width %d does not divide image width %d: use one that does (nearest: %d)", width, is[2], nearestDivisor(is[2], width))
	}
	return &tileDataset{ds: ds, height: height, width: width, rows: is[1] / height, columns: is[2] / width}, nil
}

// nearestDivisor returns the divisor of n that is closest to d.
func nearestDivisor(n, d int) int {
	best := 1
	for k := 1; k <= n; k++ {
		if n%k == 0 && abs(k-d) < abs(best-d) {
			best = k
		}
	}
	return best
}

func abs(v int) int { return max(v, -v) }

// tileDataset is the data set that Tiles returns.
type tileDataset struct {
	ds            Dataset
	height, width int
	rows, columns int
}

func (t *tileDataset) Len() int           { return t.ds.Len() * t.rows * t.columns }
func (t *tileDataset) ImageShape() []int  { return []int{t.ds.ImageShape()[0], t.height, t.width} }
func (t *tileDataset) TargetShape() []int { return []int{t.ds.TargetShape()[0], t.height, t.width} }

// locateTile returns the index of the image that contains tile i, and the tile's row and
// column in the grid of the image's tiles.
func (t *tileDataset) locateTile(i int) (image, row, column int) {
	k := i % (t.rows * t.columns)
	return i / (t.rows * t.columns), k / t.columns, k % t.columns
}

func (t *tileDataset) SampleName(i int) string {
	image, row, column := t.locateTile(i)
	return fmt.Sprintf("%s, tile row %d, column %d", t.ds.SampleName(image), row, column)
}

func (t *tileDataset) Get(i int, image, target []float32) error {
	return t.getWindow(context.Background(), i, window{size: [3]int{1, t.height, t.width}}, image, target)
}

func (t *tileDataset) getWindow(ctx context.Context, i int, w window, image, target []float32) error {
	if err := checkGetArguments(t, i, w, image, target); err != nil {
		return err
	}
	from, row, column := t.locateTile(i)
	w.start[1] += row * t.height
	w.start[2] += column * t.width
	return readWindow(ctx, t.ds, from, w, image, target)
}

// ImageOf returns the index of the image in ds, before it was cut into tiles, that sample i is a
// part of. If ds is not cut into tiles, it is i.
func ImageOf(ds Dataset, i int) int {
	if t, ok := ds.(*tileDataset); ok {
		i, _, _ = t.locateTile(i)
	}
	return i
}

// Repeat returns a data set of n samples, in which sample i is sample i mod ds.Len() of ds.
// With Augment.Crop, each repetition is cropped differently, so that an epoch can have any
// number of crops of a few large boxes.
func Repeat(ds Dataset, n int) (Dataset, error) {
	if n < 1 || ds.Len() < 1 {
		return nil, fmt.Errorf("repeat samples: got %d repeated samples of a data set with %d samples, want at least 1 of each", n, ds.Len())
	}
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i % ds.Len()
	}
	return Subset(ds, indices), nil
}

// Crops returns a data set of n square or cubic crops of the given edge in pixels. Sample i
// is a crop of sample i mod ds.Len() of ds. Its position depends only on seed and i, so
// that, as test data require, the crops are the same in every epoch.
func Crops(ds Dataset, edge, n int, seed int64) (Dataset, error) {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if n < 1 || ds.Len() < 1 {
		return nil, fmt.Errorf("cut crops: got %d crops of a data set with %d samples, want at least 1 of each", n, ds.Len())
	}
	if edge < 1 {
		return nil, fmt.Errorf("cut crops: edge is %d pixels: use at least 1", edge)
	}
	a := Augment{Crop: edge}
	if err := a.checkShapes(is, ts); err != nil {
		return nil, fmt.Errorf("cut crops: %w", err)
	}
	return &cropDataset{ds: ds, crop: a, n: n, seed: seed}, nil
}

// cropDataset is the data set that Crops returns.
type cropDataset struct {
	ds   Dataset
	crop Augment
	n    int
	seed int64
}

func (c *cropDataset) Len() int          { return c.n }
func (c *cropDataset) ImageShape() []int { return c.crop.outputShape(c.ds.ImageShape()) }
func (c *cropDataset) TargetShape() []int {
	if ts := c.ds.TargetShape(); !isAligned(c.ds.ImageShape(), ts) {
		return ts
	}
	return c.crop.outputShape(c.ds.TargetShape())
}

func (c *cropDataset) SampleName(i int) string {
	return fmt.Sprintf("%s[crop %d]", c.ds.SampleName(i%c.ds.Len()), i)
}

func (c *cropDataset) Get(i int, image, target []float32) error {
	w, _ := fullWindow(c.ImageShape())
	return c.getWindow(context.Background(), i, w, image, target)
}

func (c *cropDataset) getWindow(ctx context.Context, i int, w window, image, target []float32) error {
	if err := checkGetArguments(c, i, w, image, target); err != nil {
		return err
	}
	r := stream.New(c.seed, stream.Crops, uint64(i))
	from, _ := spatialSize(c.ds.ImageShape())
	to, _ := spatialSize(c.ImageShape())
	for k := range w.start {
		w.start[k] += r.IntN(from[k] - to[k] + 1)
	}
	return readWindow(ctx, c.ds, i%c.ds.Len(), w, image, target)
}
