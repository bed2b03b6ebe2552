package kernel

import (
	"math"
	"unsafe"
)

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

func goLeakyReLU(a, b, y, slope *float32, n int) {
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

func goSumAbsDifferences(a, b, out *float32, n int) {
	var sum FloatBlock
	q := FloatBlocksAt(b, n/Lanes)
	for i, v := range FloatBlocksAt(a, n/Lanes) {
		for j := range v {
			sum[j] += float32(math.Abs(float64(v[j] - q[i][j])))
		}
	}
	*blockAtByteOffset(out, 0) = sum
}

func goScaledDifferenceSigns(a, b, y, scale *float32, n int) {
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

func goTranspose(dst, src *float32, stride int) {
	for i, from := range FloatBlocksAt(src, Lanes) {
		for j, v := range from {
			blockAtByteOffset(dst, j*stride)[i] = v
		}
	}
}

func goCopyStrided(dst, src *float32, stride, n int) {
	for i, v := range FloatBlocksAt(src, n) {
		*blockAtByteOffset(dst, i*stride) = v
	}
}
