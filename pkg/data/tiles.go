package data

import "fmt"

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
