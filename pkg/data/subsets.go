package data

import (
	"cmp"
	"context"
	"fmt"
	"sort"

	"lockstep/pkg/data/internal/stream"
	"lockstep/pkg/data/internal/window"
)

// Split splits the samples 0 to n−1 at random into testCount test samples and the remaining
// training samples, in ascending order. The result depends only on n, testCount and seed. A
// negative testCount is treated as 0, and one above n as n.
func Split(n, testCount int, seed int64) (train, test []int) {
	n = max(n, 0)
	testCount = min(max(testCount, 0), n)
	perm := stream.NewRand(seed, stream.Split, uint64(n)).Perm(n)
	test, train = perm[:testCount:testCount], perm[testCount:]
	sort.Ints(train)
	sort.Ints(test)
	return train, test
}

// Subset returns a data set of the samples of ds with the given indices, in the given order. Get
// returns an error if an index is out of range.
func Subset(ds Dataset, indices []int) Dataset {
	return &subsetDataset{ds: ds, indices: append([]int(nil), indices...)}
}

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

func (s *subsetDataset) getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return readWindow(ctx, s.ds, s.indices[i], w, image, target)
}

func (s *subsetDataset) sampleSize(i int) (height, width int) {
	size := sampleSpatialSize(s.ds, s.indices[i])
	return size[1], size[2]
}

// Tiles cuts every image of ds and its mask into tiles of height×width pixels, row by row. If the tile
// size does not divide the image size, the last column and the last row of tiles are shifted inwards
// and overlap their neighbors. Images may differ in size, but none may be smaller than a tile.
func Tiles(ds Dataset, height, width int) (Dataset, error) {
	return asDataset(newTiles(ds, height, width))
}

func newTiles(ds Dataset, height, width int) (*tileDataset, error) {
	is, ts := ds.ImageShape(), ds.TargetShape()
	switch {
	case height < 1 || width < 1:
		return nil, fmt.Errorf("cut tiles: tile size is %d×%d: height and width must be at least 1", height, width)
	case len(is) != 3 || len(ts) != 3:
		return nil, fmt.Errorf("cut tiles: images have shape %v and targets %v: want images [C,H,W] and masks [C,H,W]", is, ts)
	case !window.AreShapesAligned(is, ts):
		return nil, fmt.Errorf("cut tiles: images have size %d×%d, but masks have %d×%d: make them equal", is[1], is[2], ts[1], ts[2])
	}
	t := &tileDataset{ds: ds, height: height, width: width}
	for i := range ds.Len() {
		size := sampleSpatialSize(ds, i)
		if size[1] < height || size[2] < width {
			return nil, fmt.Errorf("cut tiles: image %s of %d×%d is smaller than tiles of %d×%d: set data.tile to at most %d, or to 0 for complete images", ds.SampleName(i), size[1], size[2], height, width, min(size[1], size[2]))
		}
		for row := range (size[1] + height - 1) / height {
			for column := range (size[2] + width - 1) / width {
				t.tiles = append(t.tiles, tilePosition{i, row, column})
			}
		}
	}
	return t, nil
}

// proposeTileSize returns a tile size near wanted (if 0, near 256) that is a multiple of step. It is at
// most smallest, the smallest side of the images. If there is no such size, proposeTileSize returns 0.
func proposeTileSize(wanted, smallest, step int) int {
	const usual = 256
	step = max(1, step)
	wanted = cmp.Or(wanted, usual)
	return min(max(step, (wanted+step/2)/step*step), smallest/step*step)
}

// checkSideMultiple returns an error if c.SideMultiple does not divide the sizes of the images in sets, or
// of their tiles.
func (c Config) checkSideMultiple(sets ...Dataset) error {
	if c.SideMultiple <= 1 || c.hasVolumes() {
		return nil
	}
	smallest, name, odd := 0, "", "" // odd is an image that the network cannot have
	for _, ds := range sets {
		if ds == nil || len(ds.ImageShape()) != 3 || len(ds.TargetShape()) != 3 {
			continue
		}
		for i := range ds.Len() {
			size := sampleSpatialSize(ds, i)
			if side := min(size[1], size[2]); smallest == 0 || side < smallest {
				smallest, name = side, ds.SampleName(i)
			}
			if h, w, m := size[1], size[2], c.SideMultiple; odd == "" && (h%m != 0 || w%m != 0) {
				odd = fmt.Sprintf("image %s is %d×%d (height×width), but the network needs multiples of %d: crop or enlarge the images (nearest: %d×%d), or", ds.SampleName(i), h, w, m, max(m, (h+m/2)/m*m), max(m, (w+m/2)/m*m))
			}
		}
	}
	proposal := proposeTileSize(c.Tile, smallest, c.SideMultiple)
	switch {
	case smallest == 0:
		return nil
	case proposal == 0:
		return fmt.Errorf("image %s has a side of %d pixels, but the network needs at least %d: use larger images, or a smaller model.depth", name, smallest, c.SideMultiple)
	case c.Tile > smallest:
		return fmt.Errorf("data.tile is %d, but image %s has a side of %d pixels: set data.tile to at most %d, a multiple of the network's %d that fits into all images", c.Tile, name, smallest, proposal, c.SideMultiple)
	case c.Tile > 0 && c.Tile%c.SideMultiple != 0:
		return fmt.Errorf("data.tile is %d, but the network needs a multiple of %d: set data.tile to %d, which fits into all images", c.Tile, c.SideMultiple, proposal)
	case c.Tile == 0 && odd != "" && c.Augment.Crop == 0:
		return fmt.Errorf("%s set data.tile to %d, which fits into all images", odd, proposal)
	}
	return nil
}

type tileDataset struct {
	ds            Dataset
	height, width int
	tiles         []tilePosition
	countOnce     bool // targets in two tiles of an image are Ignored in the later one
}

// tilePosition is the position of a tile: the index of its image, and its row and column in that image.
type tilePosition struct{ image, row, column int }

func (t *tileDataset) Len() int           { return len(t.tiles) }
func (t *tileDataset) ImageShape() []int  { return []int{t.ds.ImageShape()[0], t.height, t.width} }
func (t *tileDataset) TargetShape() []int { return []int{t.ds.TargetShape()[0], t.height, t.width} }

func (t *tileDataset) SampleName(i int) string {
	return fmt.Sprintf("%s, tile row %d, column %d", t.ds.SampleName(t.tiles[i].image), t.tiles[i].row, t.tiles[i].column)
}

func (t *tileDataset) Get(i int, image, target []float32) error {
	return t.getWindow(context.Background(), i, window.Window{Size: [3]int{1, t.height, t.width}}, image, target)
}

func (t *tileDataset) getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(t, i, w, image, target); err != nil {
		return err
	}
	from := t.tiles[i]
	size := sampleSpatialSize(t.ds, from.image)
	y, x := min(from.row*t.height, size[1]-t.height), min(from.column*t.width, size[2]-t.width)
	// Rows and columns that tiles before this one contain too.
	rows, columns := from.row*t.height-y-w.Start[1], from.column*t.width-x-w.Start[2]
	w.Start[1] += y
	w.Start[2] += x
	if err := readWindow(ctx, t.ds, from.image, w, image, target); err != nil || !t.countOnce {
		return err
	}
	for k := range target {
		if k/w.Size[2]%w.Size[1] < rows || k%w.Size[2] < columns {
			target[k] = Ignored
		}
	}
	return nil
}

// ImageOf returns the index of the image from which tile i of ds was cut. If Tiles did not make ds,
// it returns i.
func ImageOf(ds Dataset, i int) int {
	if t, ok := ds.(*tileDataset); ok {
		return t.tiles[i].image
	}
	return i
}

// Images returns the data set from which Tiles made ds. If Tiles did not make ds, it returns ds.
func Images(ds Dataset) Dataset {
	if t, ok := ds.(*tileDataset); ok {
		return t.ds
	}
	return ds
}

// GetSized returns sample i of a data set of images [C,H,W] with masks, whose sizes may differ.
func GetSized(ctx context.Context, ds Dataset, i int) (image, target []float32, height, width int, err error) {
	size := sampleSpatialSize(ds, i)
	pixels := size[1] * size[2]
	image, target = make([]float32, ds.ImageShape()[0]*pixels), make([]float32, ds.TargetShape()[0]*pixels)
	return image, target, size[1], size[2], readWindow(ctx, ds, i, window.Window{Size: size}, image, target)
}

// Repeat returns n samples, of which sample i is sample i mod ds.Len() of ds. With Augment.Crop, each
// repetition is cropped differently, so that an epoch can have any number of crops of a few large boxes.
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

// Crops returns n square or cubic crops of the given edge in pixels. Sample i is a crop of sample i
// mod ds.Len() of ds. Its position depends only on seed and i, so that, as test data require, the
// crops are the same in every epoch.
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

type cropDataset struct {
	ds   Dataset
	crop Augment
	n    int
	seed int64
}

func (c *cropDataset) Len() int          { return c.n }
func (c *cropDataset) ImageShape() []int { return c.crop.outputShape(c.ds.ImageShape()) }
func (c *cropDataset) TargetShape() []int {
	if ts := c.ds.TargetShape(); !window.AreShapesAligned(c.ds.ImageShape(), ts) {
		return ts
	}
	return c.crop.outputShape(c.ds.TargetShape())
}

func (c *cropDataset) SampleName(i int) string {
	return fmt.Sprintf("%s[crop %d]", c.ds.SampleName(i%c.ds.Len()), i)
}

func (c *cropDataset) Get(i int, image, target []float32) error {
	w := window.Full(c.ImageShape())
	return c.getWindow(context.Background(), i, w, image, target)
}

func (c *cropDataset) getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(c, i, w, image, target); err != nil {
		return err
	}
	r := stream.NewRand(c.seed, stream.Crops, uint64(i))
	from, _ := window.SpatialSize(c.ds.ImageShape())
	to, _ := window.SpatialSize(c.ImageShape())
	for k := range w.Start {
		w.Start[k] += r.IntN(from[k] - to[k] + 1)
	}
	return readWindow(ctx, c.ds, i%c.ds.Len(), w, image, target)
}
