package cpu

import (
	"math"
	"unsafe"
)

// wideGoKernels returns the plain Go twins of the AVX-512 assembly, which differ
// from goKernels in the layout of the matrix kernel's tiles.
func wideGoKernels() *kernels {
	k := goKernels()
	k.vector, k.gemm = 2*lanes, goGemmSet(12, 4, true)
	k.winograd.weightPair, k.winograd.weightGradientPair = goWinogradWeightPair, goWinogradWeightGradientPair
	return k
}

// goKernels returns the plain Go twins of the AVX2 assembly.
func goKernels() *kernels {
	return &kernels{
		name: "go", vector: lanes, gemm: goGemmSet(6, 2, false), winograd: goWinograd(), transpose: goTranspose, spread: goSpread,
		deviations: goDeviations, normalize: goNormalize, normSums: goNormSums, normGrad: goNormGrad,
		sums: goSums, maxPool: goMaxPool, maxPoolGrad: goMaxPoolGrad,
		bce: goBCE, bceGrad: goBCEGrad, leaky: goLeaky, tanhGrad: goTanhGrad, distances: goDistances, signs: goSigns,
		add: goAdd, relu: goReLU, reluGrad: goReLUGrad, adam: goAdam, momentum: goMomentum, sgd: goSGD,
	}
}

// blocksAt is n blocks of eight floats from p.
func blocksAt(p *float32, n int) []block {
	return unsafe.Slice((*block)(unsafe.Pointer(p)), n)
}

func goTranspose(dst, src *float32, stride int) {
	for i, from := range blocksAt(src, lanes) {
		for j, v := range from {
			blockAt(dst, j*stride)[i] = v
		}
	}
}

func goSpread(dst, src *float32, stride, n int) {
	for i, v := range blocksAt(src, n) {
		*blockAt(dst, i*stride) = v
	}
}

func goDeviations(x *float32, pixels int, out *float32) {
	var sum, squares block
	to := blocksAt(out, 3)
	for _, v := range blocksAt(x, pixels) {
		for j := range v {
			d := v[j] - to[0][j]
			sum[j] += d
			squares[j] += d * d
		}
	}
	for j := range sum {
		to[1][j] += sum[j]
		to[2][j] += squares[j]
	}
}

// goNormalized is max(v·c[0] + c[1], c[2]), NaN where v is.
func goNormalized(v *block, c []block) (to block) {
	for j := range v {
		to[j] = max(v[j]*c[0][j]+c[1][j], c[2][j])
	}
	return to
}

func goNormalize(x, y, p *float32, pixels int) {
	c := blocksAt(p, 3)
	from, to := blocksAt(x, pixels), blocksAt(y, pixels)
	for i := range from {
		to[i] = goNormalized(&from[i], c)
	}
}

func goNormSums(x, dy, p, mean, out *float32, pixels int) {
	var sum, dot block
	c, m := blocksAt(p, 3), *blockAt(mean, 0)
	g := blocksAt(dy, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			if v[j]*c[0][j]+c[1][j] > c[2][j] {
				sum[j] += g[i][j]
				dot[j] += g[i][j] * (v[j] - m[j])
			}
		}
	}
	*blockAt(out, 0), *blockAt(out, 4*lanes) = sum, dot
}

func goNormGrad(x, dy, dx, p, q *float32, pixels int) {
	c, k := blocksAt(p, 3), blocksAt(q, 4)
	g, to := blocksAt(dy, pixels), blocksAt(dx, pixels)
	for i, v := range blocksAt(x, pixels) {
		for j := range v {
			var d float32
			if v[j]*c[0][j]+c[1][j] > c[2][j] {
				d = g[i][j]
			}
			to[i][j] = k[0][j]*d + k[1][j]*(v[j]-k[2][j]) + k[3][j]
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

func goMaxPool(x, y, p *float32, index *byte, count, kh, kw, row, step int) {
	c, to, at := blocksAt(p, 3), blocksAt(y, count), unsafe.Slice((*[lanes]byte)(unsafe.Pointer(index)), count)
	for i := range count {
		best := goNormalized(blockAt(x, i*step), c)
		at[i] = [lanes]byte{}
		for e := range kh * kw {
			v := goNormalized(blockAt(x, i*step+e/kw*row+e%kw*4*lanes), c)
			for j := range v {
				if v[j] > best[j] {
					best[j], at[i][j] = v[j], byte(e)
				}
			}
		}
		to[i] = best
	}
}

func goMaxPoolGrad(index *byte, dy, dx *float32, count, kh, kw, row, step int) {
	g, at := blocksAt(dy, count), unsafe.Slice((*[lanes]byte)(unsafe.Pointer(index)), count)
	for i := range count {
		for j, e := range at[i] {
			blockAt(dx, i*step+int(e)/kw*row+int(e)%kw*4*lanes)[j] += g[i][j]
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

func goLeaky(a, b, y, slope *float32, n int) {
	from, to := unsafe.Slice(b, n), unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(a, n) {
		f := *slope * from[i]
		if v > 0 {
			f = from[i]
		}
		to[i] = f
	}
}

func goTanhGrad(y, dy, dx *float32, n int) {
	g, to := unsafe.Slice(dy, n), unsafe.Slice(dx, n)
	for i, v := range unsafe.Slice(y, n) {
		to[i] = g[i] * (1 - v*v)
	}
}

func goDistances(a, b, out *float32, n int) {
	var sum block
	q := blocksAt(b, n/lanes)
	for i, v := range blocksAt(a, n/lanes) {
		for j := range v {
			sum[j] += float32(math.Abs(float64(v[j] - q[i][j])))
		}
	}
	*blockAt(out, 0) = sum
}

func goSigns(a, b, y, scale *float32, n int) {
	q, to := unsafe.Slice(b, n), unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(a, n) {
		switch {
		case v > q[i]:
			to[i] = *scale
		case v < q[i]:
			to[i] = -*scale
		default:
			to[i] = 0
		}
	}
}

func goBCE(z, t, out *float32, n int) {
	var sum [lanes]float64
	targets := unsafe.Slice(t, n)
	for i, f := range unsafe.Slice(z, n) {
		v := float64(f)
		sum[i%lanes] += max(v, 0) - v*float64(targets[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	for j, v := range sum {
		blockAt(out, 0)[j] = float32(v)
	}
}

func goBCEGrad(z, t, dz, scale *float32, n int) {
	targets, to := unsafe.Slice(t, n), unsafe.Slice(dz, n)
	for i, v := range unsafe.Slice(z, n) {
		to[i] = float32(float64(*scale) * (1/(1+math.Exp(-float64(v))) - float64(targets[i])))
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
