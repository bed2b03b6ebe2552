package data

import (
	"context"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
)

// ShapesConfig says which pictures of shapes to generate.
type ShapesConfig struct {
	Count   int   `yaml:"count" json:"count"`     // pictures; classes come in turns
	Classes int   `yaml:"classes" json:"classes"` // 2 to 10; 0: 10
	Edge    int   `yaml:"edge" json:"edge"`       // height and width in pixels; 0: 32
	Seed    int64 `yaml:"seed" json:"seed"`
}

// shapeNames are the classes of generated pictures.
var shapeNames = [...]string{"disc", "ring", "square", "triangle", "cross", "bar", "pair", "stripes", "checkers", "star"}

// Validate reports the first value that cannot be.
func (c ShapesConfig) Validate() error {
	switch {
	case c.Count < 1:
		return fmt.Errorf("validate shapes: count is %d: generate at least 1 picture", c.Count)
	case c.Classes != 0 && (c.Classes < 2 || c.Classes > len(shapeNames)):
		return fmt.Errorf("validate shapes: classes is %d: use 2 to %d", c.Classes, len(shapeNames))
	case c.Edge != 0 && (c.Edge < 8 || c.Edge > 1024):
		return fmt.Errorf("validate shapes: edge is %d pixels: use 8 to 1024", c.Edge)
	}
	return nil
}

func (c ShapesConfig) filled() ShapesConfig {
	if c.Classes == 0 {
		c.Classes = len(shapeNames)
	}
	if c.Edge == 0 {
		c.Edge = cifarEdge
	}
	return c
}

// Shapes generates coloured pictures in the form of CIFAR-10's, of one shape
// each: a disc, a ring, a square, … (ClassNames). Size, place, direction, colours,
// shading and noise are drawn, so that no single pixel or mean colour tells the
// class. They are held in memory, three bytes a pixel.
//
// Picture i, of class i mod Classes, depends on seed, i and the edge alone.
func Shapes(ctx context.Context, c ShapesConfig) (*Classes, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	const perPicture = 32 // of slices
	if err := checkMemory(fmt.Sprintf("generate shapes: data.count is %d of %d×%d pixels", c.Count, c.Edge, c.Edge), c.Count, perPicture+3*float64(c.Edge)*float64(c.Edge)); err != nil {
		return nil, err
	}
	s := &shapes{seed: c.Seed, edge: c.Edge, images: make([][]uint8, c.Count)}
	labels := make([]int32, c.Count)
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), c.Count)
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < c.Count && ctx.Err() == nil; i += workers {
				labels[i] = int32(i % c.Classes)
				s.images[i] = drawShape(c.Seed, i, i%c.Classes, c.Edge)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("generate shapes: %w", err)
	}
	return newClasses(s, append([]string(nil), shapeNames[:c.Classes]...), labels, c.Edge, c.Edge, ClassOptions{}), nil
}

// shapes is generated pictures.
type shapes struct {
	seed   int64
	edge   int
	images [][]uint8
}

func (s *shapes) name(i int) string    { return fmt.Sprintf("shapes-%d-%d", s.seed, i) }
func (s *shapes) planes(i int) []uint8 { return s.images[i] }
func (s *shapes) picture(i int) (image.Image, error) {
	return interleaved(s.images[i], s.edge, s.edge), nil
}

// drawShape draws picture i as three planes of bytes.
func drawShape(seed int64, i, class, edge int) []uint8 {
	r := keyed(seed, purposeClasses, uint64(i), uint64(edge))
	n := edge * edge
	size := 0.55 + 0.3*r.Float64()
	cy, cx := (2*r.Float64()-1)*(0.95-size), (2*r.Float64()-1)*(0.95-size)
	sine, cosine := math.Sincos(0.5 * (2*r.Float64() - 1))
	inside, outside := colours(r)
	slopeY, slopeX := 0.2*(2*r.Float64()-1), 0.2*(2*r.Float64()-1)
	pixels := make([]uint8, 3*n)
	pitch := 2 / float64(edge)
	for k := range n {
		y, x := (float64(k/edge)+0.5)*pitch-1, (float64(k%edge)+0.5)*pitch-1
		// Four samples a pixel make smooth edges.
		cover := 0.0
		for q := range 4 {
			v, u := y+pitch*(float64(q/2)-0.5)/2-cy, x+pitch*(float64(q%2)-0.5)/2-cx
			if shapeHolds(class, (cosine*u-sine*v)/size, (sine*u+cosine*v)/size) {
				cover += 0.25
			}
		}
		light := slopeY*y + slopeX*x
		for c := range 3 {
			v := outside[c] + cover*(inside[c]-outside[c]) + light + 0.05*r.NormFloat64()
			pixels[c*n+k] = uint8(min(max(v, 0), 1)*255 + 0.5)
		}
	}
	return pixels
}

// colours are two that differ.
func colours(r *rand.Rand) (a, b [3]float64) {
	for {
		distance := 0.0
		for c := range 3 {
			a[c], b[c] = 0.1+0.8*r.Float64(), 0.1+0.8*r.Float64()
			distance += (a[c] - b[c]) * (a[c] - b[c])
		}
		if distance > 0.3 {
			return a, b
		}
	}
}

// shapeHolds says whether the shape of a class, of radius 1 around 0, holds a point.
func shapeHolds(class int, u, v float64) bool {
	d := math.Hypot(u, v)
	box := max(math.Abs(u), math.Abs(v))
	switch shapeNames[class] {
	case "disc":
		return d < 0.85
	case "ring":
		return d < 0.95 && d > 0.6
	case "square":
		return box < 0.72
	case "triangle":
		return v > -0.5 && v < 1-math.Sqrt(3)*math.Abs(u)
	case "cross":
		return box < 0.9 && min(math.Abs(u), math.Abs(v)) < 0.25
	case "bar":
		return math.Abs(u) < 0.95 && math.Abs(v) < 0.25
	case "pair":
		return math.Hypot(math.Abs(u)-0.55, v) < 0.4
	case "stripes":
		return box < 0.8 && math.Mod(v+0.8, 0.64) < 0.32
	case "checkers":
		return box < 0.8 && (math.Mod(v+0.8, 0.8) < 0.4) != (math.Mod(u+0.8, 0.8) < 0.4)
	default: // star: five rays
		return d < 0.45+0.5*math.Pow(math.Abs(math.Cos(2.5*math.Atan2(v, u))), 3)
	}
}
