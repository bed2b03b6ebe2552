package generate

import (
	"context"
	"math"
	"runtime"
	"sync"

	"lockstep/pkg/data/internal/stream"
)

// Channel counts of the generated fields.
const (
	FieldInputs  = 4 // density contrast and velocity x, y, z of dark matter
	FieldTargets = 5 // density, temperature, and velocity x, y, z of gas
)

// wave is a plane wave amplitude·cos(2π/edge·k·x + phase) of the density contrast. k is the
// wave vector in periods per box.
type wave struct {
	k          [3]int
	amplitude  float64
	phase      float64
	damping    float64    // factor by which smoothing reduces the amplitude
	velocities [3]float64 // amplitudes of the velocity
}

const (
	fieldWaves  = 32
	fieldSmooth = 1.5 // standard deviation of the Gaussian filter, in cells
)

// randomWaves returns the random waves of box i. Their wavelengths are 6 to 32 cells, so that a crop
// of a few tens of cells contains several periods.
func randomWaves(seed int64, i, edge int) []wave {
	r := stream.NewRand(seed, stream.Fields, uint64(i), uint64(edge))
	all := make([]wave, fieldWaves)
	for n := range all {
		w := &all[n]
		for {
			length := 6 + 26*r.Float64()
			theta, cosine := 2*math.Pi*r.Float64(), 2*r.Float64()-1
			sine := math.Sqrt(1 - cosine*cosine)
			turns := float64(edge) / length
			w.k = [3]int{
				int(math.Round(turns * cosine)), int(math.Round(turns * sine * math.Cos(theta))), int(math.Round(turns * sine * math.Sin(theta))),
			}
			if w.k != [3]int{} {
				break
			}
		}
		w.amplitude = math.Sqrt(2.0/fieldWaves) * (0.5 + r.Float64())
		w.phase = 2 * math.Pi * r.Float64()
		square := 0.0
		for _, k := range w.k {
			square += math.Pow(2*math.Pi*float64(k)/float64(edge), 2)
		}
		w.damping = math.Exp(-square * fieldSmooth * fieldSmooth / 2)
		for a, k := range w.k {
			// φ = δ/|k|²; −∂φ/∂x is k/|k|² times the sine.
			w.velocities[a] = w.amplitude * (2 * math.Pi * float64(k) / float64(edge)) / square
		}
	}
	// Scale the velocities to unit expected variance.
	variance := 0.0
	for _, w := range all {
		for _, v := range w.velocities {
			variance += v * v / 6
		}
	}
	for n := range all {
		for a := range all[n].velocities {
			all[n].velocities[a] /= math.Sqrt(variance)
		}
	}
	return all
}

// FieldVolume generates a random box that depends only on the seed, i and the edge. image has
// the shape [4,edge,edge,edge], and target [5,edge,edge,edge]. Slices are computed in parallel. If
// ctx is canceled, FieldVolume returns ctx's error.
func FieldVolume(ctx context.Context, seed int64, i, edge int) (image, target []float32, err error) {
	all := randomWaves(seed, i, edge)
	n := edge * edge * edge
	image, target = make([]float32, FieldInputs*n), make([]float32, FieldTargets*n)
	// Cosine and sine of the angles 2πt/edge.
	circle := make([][2]float64, edge)
	for t := range circle {
		circle[t][1], circle[t][0] = math.Sincos(2 * math.Pi * float64(t) / float64(edge))
	}
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), edge)
	for worker := range workers {
		wg.Go(func() {
			for z := worker; z < edge && ctx.Err() == nil; z += workers {
				computeFieldSlice(image, target, all, circle, z)
			}
		})
	}
	wg.Wait()
	return image, target, ctx.Err()
}

// computeFieldSlice computes slice z of image and target as a sum of waves. circle[t] contains the cosine
// and the sine of 2πt/edge.
func computeFieldSlice(image, target []float32, waves []wave, circle [][2]float64, z int) {
	edge := len(circle)
	n := edge * edge * edge
	phase := make([][2]float64, len(waves))
	for k, w := range waves {
		phase[k][1], phase[k][0] = math.Sincos(w.phase)
	}
	for y := range edge {
		for x := range edge {
			var contrast, smoothed float64
			var v [3]float64
			for k := range waves {
				w := &waves[k]
				t := ((w.k[0]*z+w.k[1]*y+w.k[2]*x)%edge + edge) % edge
				c := circle[t][0]*phase[k][0] - circle[t][1]*phase[k][1]
				s := circle[t][1]*phase[k][0] + circle[t][0]*phase[k][1]
				contrast += w.amplitude * c
				smoothed += w.amplitude * w.damping * c
				v[0] += w.velocities[0] * s
				v[1] += w.velocities[1] * s
				v[2] += w.velocities[2] * s
			}
			at := (z*edge+y)*edge + x
			image[at] = float32(contrast)
			target[at] = float32(math.Tanh(smoothed))
			target[n+at] = float32(math.Tanh(smoothed*smoothed - 1))
			drag := 1 - 0.5*math.Pow(math.Tanh(smoothed), 2)
			for a := range v {
				image[(1+a)*n+at] = float32(v[a])
				target[(2+a)*n+at] = float32(math.Tanh(v[a]) * drag)
			}
		}
	}
}
