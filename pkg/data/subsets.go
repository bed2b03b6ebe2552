package data

import (
	"fmt"
	"sort"

	"lockstep/pkg/data/internal/stream"
)

// Split draws testCount of the samples 0 to n−1 by seed to be held out; the
// rest is for training. Both lists are in ascending order, disjoint, and
// together hold every sample once. A count below 0 or above n is taken as 0 or n.
func Split(n, testCount int, seed int64) (train, test []int) {
	n = max(n, 0)
	testCount = min(max(testCount, 0), n)
	perm := stream.New(seed, stream.Split, uint64(n)).Perm(n)
	test, train = perm[:testCount:testCount], perm[testCount:]
	sort.Ints(train)
	sort.Ints(test)
	return train, test
}

// Subset is the given samples of ds, in the given order. An index that ds does
// not have is an error when that sample is read.
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
// leave anything out, so that counts over all tiles are counts over every
// pixel once; a size that does not divide the image's is therefore an error.
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

// nearestDivisor is the divisor of n that is nearest to d.
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

// place is the image that tile i is cut from, and its grid position.
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

// Repeat is n samples of ds: sample i is that of number i mod ds.Len(). With
// Augment.Crop each is another part of it, so that an epoch sees as many crops of
// a few large boxes as it is told.
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

// Crops is n squares or cubes of ds, of an edge in pixels, cut out at places that
// depend on seed and i alone: sample i is cut from sample i mod ds.Len(). They
// are the same in every epoch, as held-out samples must be.
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
	w, _ := whole(c.ImageShape())
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
