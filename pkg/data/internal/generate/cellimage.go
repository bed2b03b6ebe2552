// Package generate draws the samples of the generated data sets: images of cells,
// pictures of shapes, and boxes of fields.
package generate

import (
	"math"
	"math/rand/v2"

	"lockstep/pkg/data/internal/stream"
)

// Parameters of generated images. Lengths are in pixels, gray values from 0 to 1.
const (
	cellRadiusMin, cellRadiusMax = 6.0, 15.0
	cellsPerPixel                = 0.30 / (math.Pi * 110) // 30 % of the area, by the mean area of a cell
	cellContrastMin              = 0.07                   // of the interior against the background
	cellContrastMax              = 0.16
	membraneContrast             = 0.14
	speckContrast                = 0.16
	noiseDeviation               = 0.045
)

// scene is an image being drawn.
type scene struct {
	r             *rand.Rand
	height, width int
	value         []float64
	mask          []uint8
}

// CellImage draws the i-th image of cells for a seed. It returns the pixels in 8 bits,
// and the mask, which is 1 inside a cell and 0 outside. Both are row by row.
func CellImage(seed int64, i, height, width int) (pixels, mask []uint8) {
	s := &scene{
		r:      stream.New(seed, stream.Cells, uint64(i), uint64(height), uint64(width)),
		height: height, width: width,
		value: make([]float64, height*width), mask: make([]uint8, height*width),
	}
	s.background()
	s.specks()
	s.cells()
	blur(s.value, height, width)
	pixels = make([]uint8, len(s.value))
	for k, v := range s.value {
		v += noiseDeviation * s.r.NormFloat64()
		pixels[k] = uint8(min(max(v, 0), 1)*255 + 0.5)
	}
	return pixels, s.mask
}

// background draws a brightness gradient, a vignette, and smooth texture.
func (s *scene) background() {
	angle := s.r.Float64() * 2 * math.Pi
	slope := 0.10 + 0.15*s.r.Float64()
	vignette := 0.15 * s.r.Float64()
	for y := range s.height {
		for x := range s.width {
			u, v := float64(x)/float64(s.width)-0.5, float64(y)/float64(s.height)-0.5
			s.value[y*s.width+x] = 0.5 + slope*(u*math.Cos(angle)+v*math.Sin(angle)) - vignette*(u*u+v*v)
		}
	}
	for _, t := range [...]struct{ spacing, amplitude float64 }{{40, 0.12}, {13, 0.06}, {5, 0.04}} {
		s.texture(t.spacing, t.amplitude)
	}
}

// texture adds value noise: random values on a grid, smoothly interpolated.
func (s *scene) texture(spacing, amplitude float64) {
	columns := int(float64(s.width)/spacing) + 2
	rows := int(float64(s.height)/spacing) + 2
	grid := make([]float64, rows*columns)
	for i := range grid {
		grid[i] = amplitude * (2*s.r.Float64() - 1)
	}
	for y := range s.height {
		gy := float64(y) / spacing
		j := int(gy)
		fy := smooth(gy - float64(j))
		for x := range s.width {
			gx := float64(x) / spacing
			i := int(gx)
			fx := smooth(gx - float64(i))
			at := grid[j*columns+i:]
			top := at[0]*(1-fx) + at[1]*fx
			bottom := at[columns]*(1-fx) + at[columns+1]*fx
			s.value[y*s.width+x] += top*(1-fy) + bottom*fy
		}
	}
}

// smooth is the cubic polynomial that rises from 0 to 1 with slope 0 at both ends.
func smooth(t float64) float64 { return t * t * (3 - 2*t) }

// specks adds blurred spots, bright or dark, that do not belong to the foreground.
func (s *scene) specks() {
	for range s.count(cellsPerPixel) {
		cy, cx := s.r.Float64()*float64(s.height), s.r.Float64()*float64(s.width)
		sigma := 2 + 5*s.r.Float64()
		amplitude := s.sign() * speckContrast * (0.5 + s.r.Float64()/2)
		s.around(cy, cx, 3*sigma, func(at int, dy, dx float64) {
			s.value[at] += amplitude * math.Exp(-(dy*dy+dx*dx)/(2*sigma*sigma))
		})
	}
}

// outline is the edge of a cell, in polar coordinates around its centre.
type outline struct {
	cy, cx, a, b, angle float64 // half axes and their direction
	amplitude, phase    [3]float64
}

// radius returns the distance of the edge from the center in a direction: an ellipse
// modulated by a few waves.
func (o *outline) radius(theta float64) float64 {
	c, s := math.Cos(theta-o.angle), math.Sin(theta-o.angle)
	r := o.a * o.b / math.Hypot(o.b*c, o.a*s)
	wave := 1.0
	for k := range o.amplitude {
		wave += o.amplitude[k] * math.Cos(float64(k+2)*theta+o.phase[k])
	}
	return r * wave
}

// cells draws cells that do not touch.
func (s *scene) cells() {
	var centres [][3]float64
	for range s.count(cellsPerPixel * 2.5) {
		o := outline{cy: s.r.Float64() * float64(s.height), cx: s.r.Float64() * float64(s.width), angle: s.r.Float64() * math.Pi}
		o.a = cellRadiusMin + (cellRadiusMax-cellRadiusMin)*s.r.Float64()
		o.b = o.a * (0.65 + 0.35*s.r.Float64())
		for k := range o.amplitude {
			o.amplitude[k], o.phase[k] = 0.07*s.r.Float64(), 2*math.Pi*s.r.Float64()
		}
		sign := s.sign() // of interior and membrane: opposite signs would cancel out near the edge
		body := sign * (cellContrastMin + (cellContrastMax-cellContrastMin)*s.r.Float64())
		rim := sign * membraneContrast * (0.6 + 0.4*s.r.Float64())
		if free(centres, o.cy, o.cx, o.a) {
			centres = append(centres, [3]float64{o.cy, o.cx, o.a})
			s.cell(&o, body, rim)
		}
	}
}

// free reports whether a cell of radius a around (cy, cx) is far enough from all other
// cells.
func free(centres [][3]float64, cy, cx, a float64) bool {
	for _, c := range centres {
		if math.Hypot(cy-c[0], cx-c[1]) < 0.95*(a+c[2])+2 {
			return false
		}
	}
	return true
}

// cell draws one cell: the interior fades towards the center, and the rim is the
// membrane.
func (s *scene) cell(o *outline, body, rim float64) {
	const rimWidth = 1.3
	s.around(o.cy, o.cx, 1.25*o.a+4*rimWidth, func(at int, dy, dx float64) {
		d := math.Hypot(dy, dx)
		edge := o.radius(math.Atan2(dy, dx))
		inside := edge - d // distance to the edge along the ray
		if inside >= 0 {
			s.mask[at] = 1
			s.value[at] += body * (0.5 + 0.5*d/edge)
		}
		t := (inside - rimWidth) / rimWidth
		s.value[at] += rim * math.Exp(-t*t/2)
	})
}

// around calls f for each pixel of the image at most reach away from (cy, cx).
func (s *scene) around(cy, cx, reach float64, f func(at int, dy, dx float64)) {
	for y := max(0, int(cy-reach)); y < min(s.height, int(cy+reach)+1); y++ {
		for x := max(0, int(cx-reach)); x < min(s.width, int(cx+reach)+1); x++ {
			f(y*s.width+x, float64(y)+0.5-cy, float64(x)+0.5-cx)
		}
	}
}

// count converts a density per pixel to a number of objects per image, at least 1.
func (s *scene) count(density float64) int {
	mean := density * float64(s.height*s.width)
	return max(1, int(mean*(0.75+0.5*s.r.Float64())+0.5))
}

func (s *scene) sign() float64 {
	if s.r.IntN(2) == 0 {
		return -1
	}
	return 1
}

// blur applies the microscope's point spread function: a 1-2-1 binomial filter along
// both axes.
func blur(v []float64, height, width int) {
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
		pass(y*width, 1, width)
	}
	for x := range width {
		pass(x, width, height)
	}
}
