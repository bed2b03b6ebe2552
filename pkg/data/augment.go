package data

import "fmt"

// Augment varies training samples. What is done to a sample depends on seed,
// epoch and the sample's index alone, never on the rank or the goroutine that
// loads it. The zero value changes nothing.
type Augment struct {
	Flip   bool `yaml:"flip" json:"flip"`     // upside down, left to right: each by a coin
	Rotate bool `yaml:"rotate" json:"rotate"` // by 0, 90, 180 or 270 degrees; by 0 or 180 where height and width differ
	Crop   int  `yaml:"crop" json:"crop"`     // edge of a square cut out at a random place, in pixels; 0: the whole sample
}

// Validate reports a value that cannot be.
func (a Augment) Validate() error {
	if a.Crop < 0 {
		return fmt.Errorf("validate augmentation: crop is %d pixels: use 0 for whole samples", a.Crop)
	}
	return nil
}

// size is the height and width of a sample of shape after augmentation.
func (a Augment) size(shape [3]int) (height, width int) {
	if a.Crop > 0 {
		return a.Crop, a.Crop
	}
	return shape[1], shape[2]
}

// change is what augmentation does to one sample: out(y, x) is in(y', x') of
// the window, where transpose swaps the axes before the flips.
type change struct {
	window           window
	transpose        bool
	flipRow, flipCol bool
}

func (c change) identity() bool { return !c.transpose && !c.flipRow && !c.flipCol }

// draw decides what happens to a sample. All random numbers are drawn whatever
// is switched on, so that one switch does not change what another one does.
func (a Augment) draw(seed int64, epoch, sample int, shape [3]int) change {
	r := keyed(seed, purposeAugment, uint64(epoch), uint64(sample))
	uy, ux := r.Float64(), r.Float64()
	flips, turns := r.IntN(4), r.IntN(4)
	h, w := a.size(shape)
	c := change{window: window{
		y: int(uy * float64(shape[1]-h+1)), x: int(ux * float64(shape[2]-w+1)),
		height: h, width: w,
	}}
	if a.Flip {
		c.flipRow, c.flipCol = flips&1 != 0, flips&2 != 0
	}
	if a.Rotate {
		if h == w {
			c.transpose = turns&1 != 0
		}
		// Half a turn is both flips; a quarter is a transposition and one flip.
		if turns >= 2 {
			c.flipRow, c.flipCol = !c.flipRow, !c.flipCol
		}
		if c.transpose {
			c.flipCol = !c.flipCol
		}
	}
	return c
}

// apply writes src, channels×height×width, changed to dst.
func (c change) apply(dst, src []float32, channels int) {
	h, w := c.window.height, c.window.width
	row, col := w, 1 // how far a step along out's axes goes in src
	if c.transpose {
		row, col = 1, w // h = w here
	}
	start := 0
	if c.flipRow {
		start += (h - 1) * row
		row = -row
	}
	if c.flipCol {
		start += (w - 1) * col
		col = -col
	}
	for ch := range channels {
		from := ch*h*w + start
		to := dst[ch*h*w:][:h*w]
		for y := range h {
			at := from + y*row
			for x := range w {
				to[y*w+x] = src[at]
				at += col
			}
		}
	}
}
