package data

import "fmt"

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
	r := keyed(c.seed, purposeCrops, uint64(i))
	from, _ := spatial(c.ds.ImageShape())
	to, _ := spatial(c.ImageShape())
	for k := range w.at {
		w.at[k] += r.IntN(from[k] - to[k] + 1)
	}
	return readWindow(c.ds, i%c.ds.Len(), w, image, target)
}
