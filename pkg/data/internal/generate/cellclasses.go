package generate

import (
	"context"
	"math"

	"lockstep/pkg/data/internal/stream"
)

// StainedCellClasses contains the names of the classes in DrawStainedCells' masks, by mask value.
var StainedCellClasses = []string{"background", "cell", "nucleus", "bacterium"}

// Values in the mask that DrawStainedCells returns.
const (
	levelCell      = 1
	levelNucleus   = 2
	levelBacterium = 3
)

// Parameters of images of stained cells. Lengths are in pixels; colors are red, green and
// blue from 0 to 1.
const (
	stainedRadiusMin, stainedRadiusMax = 9.0, 16.0
	stainedPerPixel                    = 0.19 / 400  // cells cover 19 % of the image; 400 is their mean area
	bacteriaPerPixel                   = 0.045 / 130 // and bacteria 4.5 %
	stainedNoise                       = 0.03
)

// stainColors contains the colors of the classes, as in a stain with eosin, hematoxylin and
// malachite green.
var stainColors = [...][3]float64{{0.91, 0.87, 0.90}, {0.87, 0.62, 0.74}, {0.46, 0.34, 0.63}, {0.36, 0.62, 0.55}}

type stainedScene struct {
	scene              // the value is the brightness of the light
	grain    []float64 // texture, in ±1
	planes   [3][]float64
	occupied [][3]float64 // center and radius of the objects
}

// DrawStainedCells draws a random image of stained cells with nuclei, and bacteria between them. It
// depends only on the seed, i and the size. pixels contains each pixel's red, green and blue (8 bits
// each), and mask each pixel's class (see StainedCellClasses), in row-major order. If ctx is canceled,
// DrawStainedCells returns ctx's error.
func DrawStainedCells(ctx context.Context, seed int64, i, height, width int) (pixels, mask []uint8, err error) {
	n := height * width
	s := &stainedScene{scene: scene{
		ctx:    ctx,
		r:      stream.NewRand(seed, stream.Cells, uint64(i), uint64(height), uint64(width)),
		height: height, width: width,
		value: make([]float64, n), mask: make([]uint8, n),
	}}
	s.addTexture(2.5, 1)
	s.grain, s.value = s.value, make([]float64, n)
	s.drawBackground()
	s.drawSpecks()
	for c := range s.planes {
		s.planes[c] = make([]float64, n)
	}
	for k := range n {
		s.paintPixel(k, 0, 1+0.03*s.grain[k])
	}
	s.placeObjects(stainedPerPixel, s.drawStainedCell)
	s.placeObjects(bacteriaPerPixel, s.drawBacterium)
	light := s.value
	pixels = make([]uint8, 3*n)
	for c, plane := range s.planes {
		for k := range plane {
			plane[k] *= 0.7 + 0.6*light[k]
		}
		s.value = plane
		s.blur()
		for k, v := range plane {
			if k%width == 0 && ctx.Err() != nil {
				break
			}
			v += stainedNoise * s.r.NormFloat64()
			pixels[3*k+c] = uint8(min(max(v, 0), 1)*255 + 0.5)
		}
	}
	return pixels, s.mask, ctx.Err()
}

// paintPixel sets pixel i to the color of a class, multiplied by shade. level is the class's mask value.
func (s *stainedScene) paintPixel(i int, level uint8, shade float64) {
	for c := range s.planes {
		s.planes[c][i] = stainColors[level][c] * shade
	}
	s.mask[i] = level
}

// placeObjects calls draw for random outlines that touch no other object. The number of objects is
// random, with a mean of density per pixel. It is smaller if there is no place left.
func (s *stainedScene) placeObjects(density float64, draw func(o *cellOutline, shade float64)) {
	const triesPerObject = 40
	wanted := s.randomCount(density)
	for range triesPerObject * wanted {
		if wanted == 0 || s.ctx.Err() != nil {
			return
		}
		o := &cellOutline{a: stainedRadiusMin + (stainedRadiusMax-stainedRadiusMin)*s.r.Float64(), angle: s.r.Float64() * math.Pi}
		o.b = o.a * (0.7 + 0.3*s.r.Float64())
		o.cy, o.cx = s.r.Float64()*float64(s.height), s.r.Float64()*float64(s.width)
		for k := range o.amplitude {
			o.amplitude[k], o.phase[k] = 0.06*s.r.Float64(), 2*math.Pi*s.r.Float64()
		}
		shade := 0.92 + 0.16*s.r.Float64()
		if touchesNoCell(s.occupied, o.cy, o.cx, o.a) {
			s.occupied = append(s.occupied, [3]float64{o.cy, o.cx, o.a})
			draw(o, shade)
			wanted--
		}
	}
}

func (s *stainedScene) drawStainedCell(o *cellOutline, shade float64) {
	const rimWidth = 1.5
	shift := 0.25 * o.a * s.r.Float64() // of the nucleus from the center
	angle := 2 * math.Pi * s.r.Float64()
	nucleus := cellOutline{cy: shift * math.Sin(angle), cx: shift * math.Cos(angle), a: o.a * (0.42 + 0.12*s.r.Float64()), angle: o.angle, amplitude: o.amplitude, phase: o.phase}
	nucleus.b = nucleus.a * (0.75 + 0.25*s.r.Float64())
	s.forEachPixelNear(o.cy, o.cx, 1.25*o.a, func(i int, dy, dx float64) {
		inside := o.radius(math.Atan2(dy, dx)) - math.Hypot(dy, dx)
		if inside < 0 {
			return
		}
		rim := inside / rimWidth
		s.paintPixel(i, levelCell, shade*(1-0.15*math.Exp(-rim*rim))*(1+0.08*s.grain[i]))
		if ny, nx := dy-nucleus.cy, dx-nucleus.cx; math.Hypot(ny, nx) < nucleus.radius(math.Atan2(ny, nx)) {
			s.paintPixel(i, levelNucleus, shade*(1+0.25*s.grain[i]))
		}
	})
}

// drawBacterium draws a rod along the longer axis of o, with a light core.
func (s *stainedScene) drawBacterium(o *cellOutline, shade float64) {
	radius := 2.5 + 1.5*s.r.Float64()
	s.forEachPixelNear(o.cy, o.cx, o.a, func(i int, dy, dx float64) {
		sin, cos := math.Sincos(o.angle)
		along := max(math.Abs(dx*cos+dy*sin)-(o.a-radius), 0)
		if d := math.Hypot(along, dy*cos-dx*sin) / radius; d < 1 {
			s.paintPixel(i, levelBacterium, shade*(1.12-0.3*d*d)*(1+0.06*s.grain[i]))
		}
	})
}
