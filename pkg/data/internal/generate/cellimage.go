// Package generate draws the samples of the generated data sets: images of cells,
// pictures of shapes, and boxes of fields.
package generate

import (
	"context"
	"math"
	"math/rand/v2"

	"lockstep/pkg/data/internal/stream"
)

// Parameters of generated images. Lengths are in pixels; gray values are from 0 to 1.
const (
	cellRadiusMin, cellRadiusMax = 6.0, 15.0
	cellsPerPixel                = 0.30 / (math.Pi * 110) // cells cover 30 % of the image; π·110 is their mean area
	cellContrastMin              = 0.07                   // between the interior and the background
	cellContrastMax              = 0.16
	membraneContrast             = 0.14
	speckContrast                = 0.16
	noiseDeviation               = 0.045
)

// scene is an image being drawn. Its functions return early if ctx is canceled: an image of the
// largest size takes minutes.
type scene struct {
	ctx           context.Context
	r             *rand.Rand
	height, width int
	value         []float64
	mask          []uint8
}

// DrawCellImage draws a random image of cells, which depends only on the seed, i and the size. It
// returns the 8-bit pixels, and the mask, which is 1 inside cells and 0 outside, in row-major
// order. If ctx is canceled, it returns ctx's error.
func DrawCellImage(ctx context.Context, seed int64, i, height, width int) (pixels, mask []uint8, err error) {
	s := &scene{
		ctx:    ctx,
		r:      stream.NewRand(seed, stream.Cells, uint64(i), uint64(height), uint64(width)),
		height: height, width: width,
		value: make([]float64, height*width), mask: make([]uint8, height*width),
	}
	s.drawBackground()
	s.drawSpecks()
	s.drawCells()
	s.blur()
	pixels = make([]uint8, len(s.value))
	for k, v := range s.value {
		if k%width == 0 && ctx.Err() != nil {
			break
		}
		v += noiseDeviation * s.r.NormFloat64()
		pixels[k] = uint8(min(max(v, 0), 1)*255 + 0.5)
	}
	return pixels, s.mask, ctx.Err()
}

// drawBackground draws a brightness gradient, a vignette, and smooth texture.
func (s *scene) drawBackground() {
	angle := s.r.Float64() * 2 * math.Pi
	slope := 0.10 + 0.15*s.r.Float64()
	vignette := 0.15 * s.r.Float64()
	for y := range s.height {
		if s.ctx.Err() != nil {
			return
		}
		for x := range s.width {
			u, v := float64(x)/float64(s.width)-0.5, float64(y)/float64(s.height)-0.5
			s.value[y*s.width+x] = 0.5 + slope*(u*math.Cos(angle)+v*math.Sin(angle)) - vignette*(u*u+v*v)
		}
	}
	for _, t := range [...]struct{ spacing, amplitude float64 }{{40, 0.12}, {13, 0.06}, {5, 0.04}} {
		s.addTexture(t.spacing, t.amplitude)
	}
}

// addTexture adds value noise: random values of up to ±amplitude on a grid, smoothly interpolated.
// spacing is the distance of the grid points in pixels.
func (s *scene) addTexture(spacing, amplitude float64) {
	columns := int(float64(s.width)/spacing) + 2
	rows := int(float64(s.height)/spacing) + 2
	grid := make([]float64, rows*columns)
	for i := range grid {
		grid[i] = amplitude * (2*s.r.Float64() - 1)
	}
	for y := range s.height {
		if s.ctx.Err() != nil {
			return
		}
		gy := float64(y) / spacing
		j := int(gy)
		fy := smoothstep(gy - float64(j))
		for x := range s.width {
			gx := float64(x) / spacing
			i := int(gx)
			fx := smoothstep(gx - float64(i))
			at := grid[j*columns+i:]
			top := at[0]*(1-fx) + at[1]*fx
			bottom := at[columns]*(1-fx) + at[columns+1]*fx
			s.value[y*s.width+x] += top*(1-fy) + bottom*fy
		}
	}
}

// smoothstep returns 3t² − 2t³, which rises from 0 to 1 with slope 0 at both ends.
func smoothstep(t float64) float64 { return t * t * (3 - 2*t) }

// drawSpecks adds blurred bright or dark spots that are not part of the mask.
func (s *scene) drawSpecks() {
	for range s.randomCount(cellsPerPixel) {
		if s.ctx.Err() != nil {
			return
		}
		cy, cx := s.r.Float64()*float64(s.height), s.r.Float64()*float64(s.width)
		sigma := 2 + 5*s.r.Float64()
		amplitude := s.randomSign() * speckContrast * (0.5 + s.r.Float64()/2)
		s.forEachPixelNear(cy, cx, 3*sigma, func(at int, dy, dx float64) {
			s.value[at] += amplitude * math.Exp(-(dy*dy+dx*dx)/(2*sigma*sigma))
		})
	}
}

// cellOutline is a cell's edge in polar coordinates: an ellipse with half-axes a and b around
// (cy, cx), modulated by a few waves.
type cellOutline struct {
	cy, cx, a, b, angle float64    // angle is the direction of a
	amplitude, phase    [3]float64 // of the waves
}

// radius returns the distance of the edge from the center in pixels.
func (o *cellOutline) radius(theta float64) float64 {
	c, s := math.Cos(theta-o.angle), math.Sin(theta-o.angle)
	r := o.a * o.b / math.Hypot(o.b*c, o.a*s)
	wave := 1.0
	for k := range o.amplitude {
		wave += o.amplitude[k] * math.Cos(float64(k+2)*theta+o.phase[k])
	}
	return r * wave
}

func (s *scene) drawCells() {
	var drawn [][3]float64
	for range s.randomCount(cellsPerPixel * 2.5) {
		if s.ctx.Err() != nil {
			return
		}
		o := cellOutline{cy: s.r.Float64() * float64(s.height), cx: s.r.Float64() * float64(s.width), angle: s.r.Float64() * math.Pi}
		o.a = cellRadiusMin + (cellRadiusMax-cellRadiusMin)*s.r.Float64()
		o.b = o.a * (0.65 + 0.35*s.r.Float64())
		for k := range o.amplitude {
			o.amplitude[k], o.phase[k] = 0.07*s.r.Float64(), 2*math.Pi*s.r.Float64()
		}
		sign := s.randomSign() // the same for interior and membrane, because opposite signs would cancel out near the edge
		body := sign * (cellContrastMin + (cellContrastMax-cellContrastMin)*s.r.Float64())
		rim := sign * membraneContrast * (0.6 + 0.4*s.r.Float64())
		if touchesNoCell(drawn, o.cy, o.cx, o.a) {
			drawn = append(drawn, [3]float64{o.cy, o.cx, o.a})
			s.drawCell(&o, body, rim)
		}
	}
}

// touchesNoCell reports whether a cell of radius a around (cy, cx) touches none of the other cells.
// An element of others contains another cell's cy, cx and a.
func touchesNoCell(others [][3]float64, cy, cx, a float64) bool {
	for _, c := range others {
		if math.Hypot(cy-c[0], cx-c[1]) < 0.95*(a+c[2])+2 {
			return false
		}
	}
	return true
}

// drawCell draws the cell o. body is the contrast of its interior, which fades towards the center,
// and rim the contrast of its membrane.
func (s *scene) drawCell(o *cellOutline, body, rim float64) {
	const rimWidth = 1.3
	s.forEachPixelNear(o.cy, o.cx, 1.25*o.a+4*rimWidth, func(i int, dy, dx float64) {
		d := math.Hypot(dy, dx)
		edge := o.radius(math.Atan2(dy, dx))
		inside := edge - d // distance to the edge along the ray
		if inside >= 0 {
			s.mask[i] = 1
			s.value[i] += body * (0.5 + 0.5*d/edge)
		}
		t := (inside - rimWidth) / rimWidth
		s.value[i] += rim * math.Exp(-t*t/2)
	})
}

// forEachPixelNear calls f for each pixel in the square of edge 2·reach around (cy, cx). dy and dx
// are pixel i's distances from the center.
func (s *scene) forEachPixelNear(cy, cx, reach float64, f func(i int, dy, dx float64)) {
	for y := max(0, int(cy-reach)); y < min(s.height, int(cy+reach)+1); y++ {
		for x := max(0, int(cx-reach)); x < min(s.width, int(cx+reach)+1); x++ {
			f(y*s.width+x, float64(y)+0.5-cy, float64(x)+0.5-cx)
		}
	}
}

// randomCount returns a random number, at least 1, for a mean density in objects per pixel.
func (s *scene) randomCount(density float64) int {
	mean := density * float64(s.height*s.width)
	return max(1, int(mean*(0.75+0.5*s.r.Float64())+0.5))
}

func (s *scene) randomSign() float64 {
	if s.r.IntN(2) == 0 {
		return -1
	}
	return 1
}

// blur imitates a microscope's point spread function by a 1-2-1 binomial filter along both axes.
func (s *scene) blur() {
	v, height, width := s.value, s.height, s.width
	line := make([]float64, max(height, width))
	pass := func(start, stride, n int) {
		for i := range n {
			line[i] = v[start+i*stride]
		}
		for i := range n {
			v[start+i*stride] = (line[max(i-1, 0)] + 2*line[i] + line[min(i+1, n-1)]) / 4
		}
	}
	for y := range height {
		if s.ctx.Err() != nil {
			return
		}
		pass(y*width, 1, width)
	}
	for x := range width {
		if s.ctx.Err() != nil {
			return
		}
		pass(x, width, height)
	}
}
