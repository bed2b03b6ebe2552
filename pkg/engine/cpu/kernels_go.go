package cpu

import (
	"math"
	"unsafe"
)

// goKernels are the plain Go twins of the assembly.
func goKernels() *kernels {
	return &kernels{
		name: "go", gemm: goGemmSet(), winograd: goWinograd(), transpose: goTranspose,
		moments:   goMoments,
		normalize: goNormalize, normalizeReLU: goNormalizeReLU,
		normSums: goNormSums, normSumsReLU: goNormSumsReLU,
		normGrad: goNormGrad, normGradReLU: goNormGradReLU,
		sums: goSums, maxPool: goMaxPool, maxPoolGrad: goMaxPoolGrad,
		add: goAdd, relu: goReLU, reluGrad: goReLUGrad, adam: goAdam, momentum: goMomentum, sgd: goSGD,
	}
}

// blocksAt is n blocks of eight floats from p.
func blocksAt(p *float32, n int) []block {
	return unsafe.Slice((*block)(unsafe.Pointer(p)), n)
}

func goTranspose(dst, src *float32) {
	from, to := blocksAt(src, lanes), blocksAt(dst, lanes)
	for i := range from {
		for j := range to {
			to[j][i] = from[i][j]
		}
	}
}

func goMoments(x *float32, pixels int, out *float32) {
	var mean, m2 block
	for _, v := range blocksAt(x, pixels) {
		for j := range v {
			mean[j] += v[j]
		}
	}
	for j := range mean {
		mean[j] /= float32(pixels)
	}
	for _, v := range blocksAt(x, pixels) {
		for j := range v {
			d := v[j] - mean[j]
			m2[j] += d * d
		}
	}
	*blockAt(out, 0), *blockAt(out, 4*lanes) = mean, m2
}

func goNormalize(x, y, p *float32, pixels int) {
	c := blocksAt(p, 3)
	to := blocksAt(y, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			to[i][j] = (v[j]-c[0][j])*c[1][j] + c[2][j]
		}
	}
}

func goNormalizeReLU(x, y, p *float32, pixels int) {
	goNormalize(x, y, p, pixels)
	goReLU(y, y, pixels*lanes)
}

func goNormSums(x, dy, _, mean, out *float32, pixels int) {
	var sum, dot block
	m := *blockAt(mean, 0)
	g := blocksAt(dy, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			sum[j] += g[i][j]
			dot[j] += g[i][j] * (v[j] - m[j])
		}
	}
	*blockAt(out, 0), *blockAt(out, 4*lanes) = sum, dot
}

func goNormSumsReLU(x, dy, y, mean, out *float32, pixels int) {
	var sum, dot block
	m := *blockAt(mean, 0)
	g, on := blocksAt(dy, pixels), blocksAt(y, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			if on[i][j] > 0 {
				sum[j] += g[i][j]
				dot[j] += g[i][j] * (v[j] - m[j])
			}
		}
	}
	*blockAt(out, 0), *blockAt(out, 4*lanes) = sum, dot
}

func goNormGrad(x, dy, _, dx, p *float32, pixels int) {
	c := blocksAt(p, 4)
	g, to := blocksAt(dy, pixels), blocksAt(dx, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			to[i][j] = c[0][j]*g[i][j] + c[1][j]*(v[j]-c[2][j]) + c[3][j]
		}
	}
}

func goNormGradReLU(x, dy, y, dx, p *float32, pixels int) {
	c := blocksAt(p, 4)
	g, on, to := blocksAt(dy, pixels), blocksAt(y, pixels), blocksAt(dx, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			var d float32
			if on[i][j] > 0 {
				d = g[i][j]
			}
			to[i][j] = c[0][j]*d + c[1][j]*(v[j]-c[2][j]) + c[3][j]
		}
	}
}

func goSums(x *float32, pixels int, out *float32) {
	var sum block
	for _, v := range blocksAt(x, pixels) {
		for j := range v {
			sum[j] += v[j]
		}
	}
	*blockAt(out, 0) = sum
}

func goMaxPool(x, y *float32, count, kh, kw, row, step int) {
	for i, to := 0, blocksAt(y, count); i < count; i++ {
		best := *blockAt(x, i*step)
		for r := range kh {
			for s := range kw {
				v := blockAt(x, i*step+r*row+s*4*lanes)
				for j := range v {
					if v[j] > best[j] {
						best[j] = v[j]
					}
				}
			}
		}
		to[i] = best
	}
}

func goMaxPoolGrad(x, y, dy, dx *float32, count, kh, kw, row, step int) {
	top, g := blocksAt(y, count), blocksAt(dy, count)
	for i := range count {
		var taken [lanes]bool
		for r := range kh {
			for s := range kw {
				off := i*step + r*row + s*4*lanes
				v, to := blockAt(x, off), blockAt(dx, off)
				for j := range v {
					if !taken[j] && v[j] == top[i][j] {
						taken[j] = true
						to[j] += g[i][j]
					}
				}
			}
		}
	}
}

func goAdd(a, b, y *float32, n int) {
	q, to := unsafe.Slice(b, n), unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(a, n) {
		to[i] = v + q[i]
	}
}

func goReLU(x, y *float32, n int) {
	to := unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(x, n) {
		to[i] = max(v, 0)
	}
}

func goReLUGrad(y, dy, dx *float32, n int) {
	g, to := unsafe.Slice(dy, n), unsafe.Slice(dx, n)
	for i, v := range unsafe.Slice(y, n) {
		if v > 0 {
			to[i] = g[i]
		} else {
			to[i] = 0
		}
	}
}

func goAdam(w, g, m, v, c *float32, n int) {
	k := blockAt(c, 0)
	weights, grads := unsafe.Slice(w, n), unsafe.Slice(g, n)
	first, second := unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i := range weights {
		d := grads[i] + k[0]*weights[i]
		a := k[1]*first[i] + k[2]*d
		b := k[3]*second[i] + k[4]*(d*d)
		first[i], second[i] = a, b
		weights[i] -= k[7] * a / (float32(math.Sqrt(float64(b)))*k[5] + k[6])
	}
}

func goMomentum(w, g, buf, c *float32, n int) {
	k := blockAt(c, 0) // the caller's constants fill a block
	weights, grads, sums := unsafe.Slice(w, n), unsafe.Slice(g, n), unsafe.Slice(buf, n)
	for i := range weights {
		a := k[1]*sums[i] + (grads[i] + k[0]*weights[i])
		sums[i] = a
		weights[i] -= k[2] * a
	}
}

func goSGD(w, g, c *float32, n int) {
	k := blockAt(c, 0)
	weights, grads := unsafe.Slice(w, n), unsafe.Slice(g, n)
	for i := range weights {
		weights[i] -= k[2] * (grads[i] + k[0]*weights[i])
	}
}
