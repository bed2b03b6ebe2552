package generate

import (
	"math"
	"math/rand/v2"

	"lockstep/pkg/data/internal/stream"
)

// ShapeNames contains the class names of generated pictures by class index.
var ShapeNames = [...]string{"disc", "ring", "square", "triangle", "cross", "bar", "pair", "stripes", "checkers", "star"}

// DrawShapePicture draws a random picture of the shape ShapeNames[class], which depends only on the
// arguments. It returns the red, the green and the blue plane, each of edge×edge bytes.
func DrawShapePicture(seed int64, i, class, edge int) []uint8 {
	r := stream.NewRand(seed, stream.Classes, uint64(i), uint64(edge))
	n := edge * edge
	size := 0.55 + 0.3*r.Float64()
	cy, cx := (2*r.Float64()-1)*(0.95-size), (2*r.Float64()-1)*(0.95-size)
	sine, cosine := math.Sincos(0.5 * (2*r.Float64() - 1))
	inside, outside := randomColors(r)
	slopeY, slopeX := 0.2*(2*r.Float64()-1), 0.2*(2*r.Float64()-1)
	pixels := make([]uint8, 3*n)
	pitch := 2 / float64(edge)
	for k := range n {
		y, x := (float64(k/edge)+0.5)*pitch-1, (float64(k%edge)+0.5)*pitch-1
		// Four samples per pixel make smooth edges.
		cover := 0.0
		for q := range 4 {
			v, u := y+pitch*(float64(q/2)-0.5)/2-cy, x+pitch*(float64(q%2)-0.5)/2-cx
			if shapeContains(class, (cosine*u-sine*v)/size, (sine*u+cosine*v)/size) {
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

func randomColors(r *rand.Rand) (a, b [3]float64) {
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

// shapeContains reports whether the shape of a class, drawn in the unit circle around the origin,
// contains the point (u, v).
func shapeContains(class int, u, v float64) bool {
	d := math.Hypot(u, v)
	box := max(math.Abs(u), math.Abs(v))
	switch ShapeNames[class] {
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
