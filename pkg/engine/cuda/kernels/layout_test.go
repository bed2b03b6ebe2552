package kernels_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/engine/cuda/kernels"
)

// TestTranspose goes from planar to rows, with padding, and back.
func TestTranspose(t *testing.T) {
	for _, shape := range [][]int{{1, 1, 1}, {2, 3, 35}, {3, 40, 33}, {2, 8, 9}, {1, 67, 100}} { // batch, channels, spatial
		t.Run(name(shape), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n := elements(shape)
				x := d.normal(d.typ, n, 0, 1)
				rows, back := d.rows("rows", shape, nil), d.flat("back", kernels.F32, n, nil)
				a := kernels.Transposition{
					Batch: shape[0], Channels: shape[1], Spatial: shape[2], Padded: kernels.PaddedChannels(shape[1]),
					Planar: d.flat("planar", kernels.F32, n, x).pointer(), Rows: rows.m().Data, Pitch: rows.pitch,
				}
				d.run(a.ToRows(d.typ))
				d.near("rows", d.typ, d.logical(rows), int64Arg(x), 0, 0)
				a.Planar = back.pointer()
				d.run(a.ToPlanar(d.typ))
				d.near("planar", kernels.F32, back.values(n), int64Arg(x), 0, 0)
			})
		})
	}
}

// bytesOf is a tensor of bytes; values are random.
func (d *device) bytesOf(name string, n int) (*tensor, []byte) {
	x := d.alloc(name, n)
	for i := range x.mem.Bytes() {
		x.mem.Bytes()[i] = byte(d.random.IntN(256))
	}
	x.before = bytes.Clone(x.mem.Bytes())
	return x, x.before
}

func TestNormalize(t *testing.T) {
	for _, shape := range [][]int{{1, 1, 1}, {3, 1, 300}, {2, 3, 77}, {2, 11, 20}} {
		t.Run(name(shape), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				src, pixels := d.bytesOf("src", elements(shape))
				mean, invstd := d.normal(kernels.F32, shape[1], 0.5, 0.1), d.normal(kernels.F32, shape[1], 4, 0.1)
				dst, plain := d.rows("dst", shape, nil), d.flat("plain", kernels.F32, elements(shape), nil)
				a := kernels.Normalization{
					PixelConversion: kernels.PixelConversion{
						Channels: shape[1], Padded: kernels.PaddedChannels(shape[1]), Divisor: 255, Dst: dst.m().Data, Pitch: dst.pitch,
						Mean: d.flat("mean", kernels.F32, shape[1], mean).pointer(), InvStd: d.flat("invstd", kernels.F32, shape[1], invstd).pointer(),
					},
					Batch: shape[0], Spatial: shape[2], Src: src.pointer(),
				}
				d.run(a.Launches(d.typ))
				want := make([]float64, len(pixels))
				for i, p := range pixels {
					c := i / shape[2] % shape[1]
					want[i] = (float64(p)/255 - float64(mean[c])) * float64(invstd[c])
				}
				d.near("rows", d.typ, d.logical(dst), want, 4*0x1p-24, 8*0x1p-24)

				// Without padding, as for masks: rows of any width, no vectors.
				a.Mean, a.InvStd, a.Divisor = 0, 0, 1
				a.Padded, a.Pitch, a.Dst = shape[1], shape[1], plain.pointer()
				if shape[1]%8 != 0 {
					d.run(a.Launches(kernels.F32))
					for i, p := range pixels {
						at := (i/shape[2]/shape[1]*shape[2]+i%shape[2])*shape[1] + i/shape[2]%shape[1]
						if got := plain.mem.F32()[at]; got != float32(p) {
							d.Fatalf("pixel %d is %g, want %d", i, got, p)
						}
					}
				}
			})
		})
	}
}

// pictures is a data set of bytes, value/255 as all of pkg/data's are.
type pictures struct {
	image, target []int
	images, masks []byte
	n             int
}

func (p pictures) Len() int              { return p.n }
func (p pictures) ImageShape() []int     { return p.image }
func (p pictures) TargetShape() []int    { return p.target }
func (p pictures) SampleName(int) string { return "" }
func (p pictures) Get(i int, image, target []float32) error {
	for j, v := range p.images[i*len(image):][:len(image)] {
		image[j] = float32(v) / 255
	}
	for j, v := range p.masks[i*len(target):][:len(target)] {
		target[j] = float32(v)
	}
	return nil
}

// TestAugment2D compares the kernel bit for bit in float32 with the batches of pkg/data's
// loader: crops, flips, rotations, several epochs and seeds, and images that are not square.
func TestAugment2D(t *testing.T) {
	for _, c := range []struct {
		height, width, crop int
		flip, rotate        bool
	}{
		{9, 9, 0, true, true}, {12, 10, 7, true, true}, {8, 13, 0, true, true}, {8, 13, 0, false, true}, {20, 16, 16, true, false}, {11, 11, 5, false, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				const samples, batch, channels = 12, 4, 3
				plane := c.height * c.width
				images, imageBytes := d.bytesOf("images", samples*channels*plane)
				masks := d.alloc("masks", samples*plane)
				for i := range masks.mem.Bytes() {
					masks.mem.Bytes()[i] = byte(d.random.IntN(2))
				}
				set := pictures{[]int{channels, c.height, c.width}, []int{1, c.height, c.width}, imageBytes, bytes.Clone(masks.mem.Bytes()), samples}
				for _, seed := range []int64{1, -77} {
					sampler, err := data.NewSampler(data.SamplerOptions{Samples: samples, World: 1, BatchPerWorker: batch, Shuffle: true, Seed: seed})
					if err != nil {
						d.Fatal(err)
					}
					loader, err := data.NewLoader(set, sampler, data.LoaderOptions{Augment: data.Augment{Flip: c.flip, Rotate: c.rotate, Crop: c.crop}, Seed: seed})
					if err != nil {
						d.Fatal(err)
					}
					out := loader.ImageShape()
					for epoch := range 2 {
						it := loader.Epoch(context.Background(), epoch)
						for it.Next() {
							b := it.Batch()
							image := d.rows("image", []int{batch, channels, out[1], out[2]}, nil)
							mask := d.flat("mask", kernels.F32, batch*out[1]*out[2], nil)
							a := kernels.Augmentation{
								PixelConversion: kernels.PixelConversion{Channels: channels, Padded: 8, Divisor: 255, Dst: image.m().Data, Pitch: image.pitch},
								Batch:           batch, Size: [3]int{1, c.height, c.width}, Out: [3]int{1, out[1], out[2]},
								Src: images.pointer(), Samples: d.int32s("samples", b.Indices).pointer(),
								Control: d.control(kernels.ControlBlock{Seed: seed, Epoch: int64(epoch)}).pointer(),
								Flip:    c.flip, Rotate: c.rotate,
							}
							d.run(a.Launches(d.typ))
							want := int64Arg(b.Image)
							if d.typ == kernels.F32 {
								d.same("image", d.logical(image), want)
							} else {
								d.near("image", d.typ, d.logical(image), want, 0, 0)
							}
							a.PixelConversion = kernels.PixelConversion{Channels: 1, Padded: 1, Divisor: 1, Dst: mask.pointer(), Pitch: 1}
							a.Src = masks.pointer()
							d.run(a.Launches(kernels.F32))
							d.same("mask", mask.values(len(b.Target)), int64Arg(b.Target))
						}
						if err := it.Err(); err != nil {
							d.Fatal(err)
						}
					}
					loader.Close()
				}
			})
		})
	}
}

func (d *device) same(what string, got, want []float64) {
	d.Helper()
	for i := range want {
		if got[i] != want[i] {
			d.Fatalf("%s: value %d is %g, want exactly %g", what, i, got[i], want[i])
		}
	}
}

func (d *device) int32s(name string, values []int) *tensor {
	x := d.alloc(name, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(x.mem.Bytes()[4*i:], uint32(v))
	}
	x.before = bytes.Clone(x.mem.Bytes())
	return x
}

// mix and stream are pkg/data's keyed random stream for augmentation (purpose 3),
// written down once more: a change there must show here.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func stream(seed int64, epoch, sample int) *rand.Rand {
	a := mix(uint64(seed)) ^ 3
	a = mix(a) ^ uint64(epoch)
	a = mix(a) ^ uint64(sample)
	return rand.New(rand.NewPCG(mix(a), mix(a+1)))
}

// permutations in the order that Augmentation documents by number: even and odd in turn.
var permutations = [6][3]int{{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}}

// rotation r of the cube: axis k of the output runs along axis[k] of the sample,
// backwards where mirror[k].
func rotation(r int) (axis [3]int, mirror [3]bool) {
	axis = permutations[r/4]
	mirror[0], mirror[1] = r&1 != 0, r&2 != 0
	// A rotation has determinant 1: the permutation's sign times that of the mirrors.
	if determinant(axis, mirror) < 0 {
		mirror[2] = true
	}
	return axis, mirror
}

func determinant(axis [3]int, mirror [3]bool) int {
	var m [3][3]int
	for k := range 3 {
		m[k][axis[k]] = 1
		if mirror[k] {
			m[k][axis[k]] = -1
		}
	}
	return m[0][0]*(m[1][1]*m[2][2]-m[1][2]*m[2][1]) - m[0][1]*(m[1][0]*m[2][2]-m[1][2]*m[2][0]) + m[0][2]*(m[1][0]*m[2][1]-m[1][1]*m[2][0])
}

func TestRotations(t *testing.T) {
	seen := map[string]bool{}
	for r := range 24 {
		axis, mirror := rotation(r)
		if determinant(axis, mirror) != 1 {
			t.Errorf("%d is no rotation", r)
		}
		seen[fmt.Sprint(axis, mirror)] = true
	}
	if len(seen) != 24 {
		t.Errorf("%d rotations, want the cube's 24", len(seen))
	}
}

// TestAugment3D compares with the definition, written out here. In 60 samples and 2
// epochs all 24 rotations come up.
func TestAugment3D(t *testing.T) {
	for _, c := range []struct {
		size, out    [3]int
		flip, rotate bool
		jitter       float64
	}{
		{[3]int{5, 5, 5}, [3]int{5, 5, 5}, true, true, 0},
		{[3]int{6, 7, 8}, [3]int{4, 4, 4}, false, true, 0.2},
		{[3]int{4, 6, 5}, [3]int{3, 6, 5}, true, true, 0},
		{[3]int{4, 3, 5}, [3]int{2, 3, 4}, true, false, 0.1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				const samples, channels, seed = 60, 2, 9
				volume, cut := c.size[0]*c.size[1]*c.size[2], c.out[0]*c.out[1]*c.out[2]
				src, voxels := d.bytesOf("src", samples*channels*volume)
				indices := rand.New(rand.NewPCG(1, 2)).Perm(samples)
				at, turned := d.int32s("samples", indices), map[int]bool{}
				for epoch := range 2 {
					shape := []int{samples, channels, c.out[0], c.out[1], c.out[2]}
					dst := d.rows("dst", shape, nil)
					d.run(kernels.Augmentation{
						PixelConversion: kernels.PixelConversion{Channels: channels, Padded: 8, Divisor: 255, Dst: dst.m().Data, Pitch: dst.pitch},
						Batch:           samples, Size: c.size, Out: c.out, Src: src.pointer(), Samples: at.pointer(),
						Control: d.control(kernels.ControlBlock{Seed: seed, Epoch: int64(epoch)}).pointer(),
						Flip:    c.flip, Rotate: c.rotate, Brightness: c.jitter, Contrast: 2 * c.jitter,
					}.Launches(d.typ))
					want := make([]float64, 0, samples*channels*cut)
					for _, sample := range indices {
						r := stream(seed, epoch, sample)
						var corner [3]int
						for k := range 3 {
							corner[k] = int(r.Float64() * float64(c.size[k]-c.out[k]+1))
						}
						flips, turn := r.IntN(8), r.IntN(24)
						brightness, contrast := (2*r.Float64()-1)*c.jitter, 1+(2*r.Float64()-1)*2*c.jitter
						if c.out[0] != c.out[1] || c.out[1] != c.out[2] {
							turn %= 4
						}
						axis, mirror := rotation(0)
						if c.rotate {
							axis, mirror = rotation(turn)
							turned[turn] = true
						}
						for k := range 3 {
							mirror[k] = mirror[k] != (c.flip && flips>>k&1 != 0)
						}
						for channel := range channels {
							for i := range cut {
								o := [3]int{i / (c.out[1] * c.out[2]), i / c.out[2] % c.out[1], i % c.out[2]}
								p := corner
								for k := range 3 {
									if mirror[k] {
										p[axis[k]] += c.out[k] - 1 - o[k]
									} else {
										p[axis[k]] += o[k]
									}
								}
								v := float64(voxels[(sample*channels+channel)*volume+(p[0]*c.size[1]+p[1])*c.size[2]+p[2]]) / 255
								if c.jitter != 0 {
									v = min(max((v-0.5)*contrast+0.5+brightness, 0), 1)
								}
								want = append(want, v)
							}
						}
					}
					d.near("rows", d.typ, d.logical(dst), want, 0, 4*0x1p-24)
				}
				if c.rotate && c.out[0] == c.out[1] && c.out[1] == c.out[2] && len(turned) != 24 {
					d.Fatalf("%d of 24 rotations came up", len(turned))
				}
			})
		})
	}
}
