package selftest

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"lockstep/pkg/data"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/engine/cuda/kernels"
)

func (p *sandbox) uploadIndexes(indexes []int) kernels.Pointer {
	b := make([]byte, 0, 4*len(indexes))
	for _, i := range indexes {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return p.uploadInput(b)
}

// planarToRows converts planar samples to rows whose channels are padded to the given number.
func planarToRows(v []float32, channels, padded, spatial int) []float64 {
	rows := make([]float64, len(v)/channels*padded)
	for i, f := range v {
		rows[(i/(channels*spatial)*spatial+i%spatial)*padded+i/spatial%channels] = float64(f)
	}
	return rows
}

// measureAugment2DMismatch compares the kernel with the batches of pkg/data's loader for
// the same seed and epochs. Each bit must be equal.
func measureAugment2DMismatch(p *sandbox) float64 {
	const samples, batch, channels, height, width, crop, padded = 12, 4, 3, 12, 10, 7, 8
	const brightness, contrast = 0.2, 0.4
	set := workload.ByteImageSet{Image: []int{channels, height, width}, Pixels: p.randomBytes(samples * channels * height * width), N: samples}
	seed := int64(p.random.Uint32())
	sampler, err := data.NewSampler(data.SamplerOptions{Samples: samples, World: 1, BatchPerWorker: batch, Shuffle: true, Seed: seed})
	if err != nil {
		p.err = errors.Join(p.err, err)
		return 0
	}
	loader, err := data.NewLoader(set, sampler, data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true, Crop: crop, Brightness: brightness, Contrast: contrast}, Seed: seed})
	if err != nil {
		p.err = errors.Join(p.err, err)
		return 0
	}
	defer loader.Close()
	src, worst := p.uploadInput(set.Pixels), 0.0
	for epoch := range 2 {
		it := loader.Epoch(context.Background(), epoch)
		for it.Next() {
			b := it.Batch()
			to := p.newNaNOutput(batch * crop * crop * padded * p.low.Size())
			control := kernels.ControlBlock{Seed: seed, Epoch: int64(epoch)}
			p.launch(kernels.Augmentation{
				PixelConversion: kernels.PixelConversion{Channels: channels, Padded: padded, Divisor: 255, Dst: to, Pitch: padded},
				Batch:           batch, Size: [3]int{1, height, width}, Out: [3]int{1, crop, crop},
				Src: src, Samples: p.uploadIndexes(b.Indices), Control: p.uploadInput(control.Bytes()), Flip: true, Rotate: true,
				Brightness: brightness, Contrast: contrast,
			}.Launches(p.typ))
			want := planarToRows(p.roundToPrecision(b.Image), channels, padded, crop*crop)
			worst = max(worst, maxRelativeError(p.readElements(to, p.low, len(want)), want))
		}
		p.err = errors.Join(p.err, it.Err())
	}
	return worst
}

// newAugmentationStream returns pkg/data's random stream for a sample in an epoch.
func newAugmentationStream(seed int64, epoch, sample int) *rand.Rand {
	mix := func(x uint64) uint64 {
		x += 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	const augmentation = 3
	a := mix(uint64(seed)) ^ augmentation
	a = mix(a) ^ uint64(epoch)
	a = mix(a) ^ uint64(sample)
	return rand.New(rand.NewPCG(mix(a), mix(a+1)))
}

// cubeRotation returns rotation r of the cube: axis k of the result is axis[k] of the
// sample, reversed if mirror[k] is set.
func cubeRotation(r int) (axis [3]int, mirror [3]bool) {
	axis = [6][3]int{{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}}[r/4]
	mirror[0], mirror[1] = r&1 != 0, r&2 != 0
	// The determinant of a rotation is 1: the sign of the permutation (every other one here
	// is odd) times the sign of the mirrors.
	odd := r/4%2 == 1
	for _, m := range mirror {
		odd = odd != m
	}
	mirror[2] = odd
	return axis, mirror
}

// measureAugment3DMismatch compares the results of kernel augment_3d with loops that follow the
// definition in kernels.Augmentation.
func measureAugment3DMismatch(p *sandbox) float64 {
	const samples, channels, padded, brightness, contrast = 30, 2, 8, 0.2, 0.4
	size, out := [3]int{6, 7, 8}, [3]int{4, 4, 4}
	volume, cut := size[0]*size[1]*size[2], out[0]*out[1]*out[2]
	voxels := p.randomBytes(samples * channels * volume)
	seed, indexes := int64(p.random.Uint32()), p.random.Perm(samples)
	src, list, worst := p.uploadInput(voxels), p.uploadIndexes(indexes), 0.0
	for epoch := range 2 {
		to := p.newNaNOutput(samples * cut * padded * p.low.Size())
		control := kernels.ControlBlock{Seed: seed, Epoch: int64(epoch)}
		p.launch(kernels.Augmentation{
			PixelConversion: kernels.PixelConversion{Channels: channels, Padded: padded, Divisor: 255, Dst: to, Pitch: padded},
			Batch:           samples, Size: size, Out: out, Src: src, Samples: list, Control: p.uploadInput(control.Bytes()),
			Flip: true, Rotate: true, Brightness: brightness, Contrast: contrast,
		}.Launches(p.typ))
		want := make([]float32, 0, samples*channels*cut)
		for _, sample := range indexes {
			r := newAugmentationStream(seed, epoch, sample)
			var corner [3]int
			for k := range 3 {
				corner[k] = int(r.Float64() * float64(size[k]-out[k]+1))
			}
			flips := r.IntN(8)
			axis, mirror := cubeRotation(r.IntN(24))
			for k := range 3 {
				mirror[k] = mirror[k] != (flips>>k&1 != 0)
			}
			light, factor := (2*r.Float64()-1)*brightness, 1+(2*r.Float64()-1)*contrast
			for i := range channels * cut {
				o := [3]int{i % cut / (out[1] * out[2]), i % cut / out[2] % out[1], i % cut % out[2]}
				at := corner
				for k := range 3 {
					if mirror[k] {
						o[k] = out[k] - 1 - o[k]
					}
					at[axis[k]] += o[k]
				}
				v := float64(voxels[(sample*channels+i/cut)*volume+(at[0]*size[1]+at[1])*size[2]+at[2]]) / 255
				want = append(want, float32(min(max((v-0.5)*factor+0.5+light, 0), 1)))
			}
		}
		rows := planarToRows(want, channels, padded, cut)
		worst = max(worst, maxRelativeError(p.readElements(to, p.low, len(rows)), rows))
	}
	return worst
}
