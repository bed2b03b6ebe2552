package data

import (
	"fmt"
	"sort"

	"lockstep/pkg/data/internal/stream"
)

// Split selects testCount of the samples 0 to n−1 as test data, at random by seed; the
// others are training data. Both lists are in ascending order and disjoint, and together
// contain every sample once. A negative count is treated as 0, and a count above n as n.
func Split(n, testCount int, seed int64) (train, test []int) {
	n = max(n, 0)
	testCount = min(max(testCount, 0), n)
	perm := stream.New(seed, stream.Split, uint64(n)).Perm(n)
	test, train = perm[:testCount:testCount], perm[testCount:]
	sort.Ints(train)
	sort.Ints(test)
	return train, test
}

// Subset returns a data set of the given samples of ds, in the given order. If ds has no
// sample of an index, Get returns an error for it.
func Subset(ds Dataset, indices []int) Dataset {
	return &subset{ds: ds, indices: append([]int(nil), indices...)}
}

type subset struct {
	ds      Dataset
	indices []int
}

func (s *subset) Len() int                { return len(s.indices) }
func (s *subset) ImageShape() []int       { return s.ds.ImageShape() }
func (s *subset) TargetShape() []int      { return s.ds.TargetShape() }
func (s *subset) SampleName(i int) string { return s.ds.SampleName(s.indices[i]) }

func (s *subset) Get(i int, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return s.ds.Get(s.indices[i], image, target)
}

func (s *subset) region(i int, w window, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return readWindow(s.ds, s.indices[i], w, image, target)
}

// Tiles cuts every image of ds into a grid of height×width tiles, row by row.
// Sample i·tilesPerImage+k is tile k of image i. Tiles neither overlap nor
// omit pixels, so that sums over all tiles are sums over every
// pixel once. A size that does not divide the image's size is therefore an error.
func Tiles(ds Dataset, height, width int) (Dataset, error) {
	is, ts := ds.ImageShape(), ds.TargetShape()
	switch {
	case height < 1 || width < 1:
		return nil, fmt.Errorf("cut tiles: size %d×%d: each side must be at least 1", height, width)
	case len(is) != 3 || len(ts) != 3:
		return nil, fmt.Errorf("cut tiles: samples are %v with targets %v: only images [C,H,W] with masks [C,H,W] are cut", is, ts)
	case !aligned(is, ts):
		return nil, fmt.Errorf("cut tiles: images are %d×%d and masks %d×%d: they must be equal", is[1], is[2], ts[1], ts[2])
	case is[1] < height || is[2] < width:
		return nil, fmt.Errorf("cut tiles: images of %d×%d are smaller than a tile of %d×%d: set data.tile to a divisor of both sides, or to 0 for whole images", is[1], is[2], height, width)
	case is[1]%height != 0:
		return nil, fmt.Errorf("cut tiles: tile height %d does not divide image height %d: use one that does (nearest: %d)", height, is[1], nearestDivisor(is[1], height))
	case is[2]%width != 0:
		return nil, fmt.Errorf("cut tiles: tile width %d does not divide image width %d: use one that does (nearest: %d)", width, is[2], nearestDivisor(is[2], width))
	}
	return &tiles{ds: ds, height: height, width: width, rows: is[1] / height, columns: is[2] / width}, nil
}

// nearestDivisor returns the divisor of n that is nearest to d.
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

type tiles struct {
	ds            Dataset
	height, width int
	rows, columns int
}

func (t *tiles) Len() int           { return t.ds.Len() * t.rows * t.columns }
func (t *tiles) ImageShape() []int  { return []int{t.ds.ImageShape()[0], t.height, t.width} }
func (t *tiles) TargetShape() []int { return []int{t.ds.TargetShape()[0], t.height, t.width} }

// place returns the image that tile i is cut from, and the tile's row and column in the
// grid.
func (t *tiles) place(i int) (image, row, column int) {
	k := i % (t.rows * t.columns)
	return i / (t.rows * t.columns), k / t.columns, k % t.columns
}

func (t *tiles) SampleName(i int) string {
	image, row, column := t.place(i)
	return fmt.Sprintf("%s[%d,%d]", t.ds.SampleName(image), row, column)
}

func (t *tiles) Get(i int, image, target []float32) error {
	return t.region(i, window{size: [3]int{1, t.height, t.width}}, image, target)
}

func (t *tiles) region(i int, w window, image, target []float32) error {
	if err := checkGet(t, i, w, image, target); err != nil {
		return err
	}
	from, row, column := t.place(i)
	w.at[1] += row * t.height
	w.at[2] += column * t.width
	return readWindow(t.ds, from, w, image, target)
}

// Repeat returns a data set of n samples: sample i is sample i mod ds.Len() of ds. With
// Augment.Crop, each repetition is a different crop, so that an epoch can have any
// number of crops of a few large boxes.
func Repeat(ds Dataset, n int) (Dataset, error) {
	if n < 1 || ds.Len() < 1 {
		return nil, fmt.Errorf("repeat samples: %d samples of a set of %d: both must be at least 1", n, ds.Len())
	}
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i % ds.Len()
	}
	return Subset(ds, indices), nil
}

// Crops returns a data set of n squares or cubes cut out of ds, with the given edge in
// pixels. Sample i is cut from sample i mod ds.Len() at a place that depends only on
// seed and i. So the crops are the same in every epoch, as test data must be.
func Crops(ds Dataset, edge, n int, seed int64) (Dataset, error) {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if n < 1 || ds.Len() < 1 {
		return nil, fmt.Errorf("cut crops: %d samples of a set of %d: both must be at least 1", n, ds.Len())
	}
	if edge < 1 {
		return nil, fmt.Errorf("cut crops: the edge is %d pixels: use at least 1", edge)
	}
	a := Augment{Crop: edge}
	if err := a.fits(is, ts); err != nil {
		return nil, fmt.Errorf("cut crops: %w", err)
	}
	return &crops{ds: ds, crop: a, n: n, seed: seed}, nil
}

type crops struct {
	ds   Dataset
	crop Augment
	n    int
	seed int64
}

func (c *crops) Len() int          { return c.n }
func (c *crops) ImageShape() []int { return c.crop.delivered(c.ds.ImageShape()) }
func (c *crops) TargetShape() []int {
	if ts := c.ds.TargetShape(); !aligned(c.ds.ImageShape(), ts) {
		return ts
	}
	return c.crop.delivered(c.ds.TargetShape())
}

func (c *crops) SampleName(i int) string {
	return fmt.Sprintf("%s[crop %d]", c.ds.SampleName(i%c.ds.Len()), i)
}

func (c *crops) Get(i int, image, target []float32) error {
	w, _ := fullWindow(c.ImageShape())
	return c.region(i, w, image, target)
}

func (c *crops) region(i int, w window, image, target []float32) error {
	if err := checkGet(c, i, w, image, target); err != nil {
		return err
	}
	r := stream.New(c.seed, stream.Crops, uint64(i))
	from, _ := spatial(c.ds.ImageShape())
	to, _ := spatial(c.ImageShape())
	for k := range w.at {
		w.at[k] += r.IntN(from[k] - to[k] + 1)
	}
	return readWindow(c.ds, i%c.ds.Len(), w, image, target)
}
