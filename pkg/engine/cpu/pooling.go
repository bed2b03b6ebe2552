package cpu

import "lockstep/pkg/internal/plan"

// pool prepares the maximum over windows, and its gradient.
func (x *executable) pool(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if c.Op == plan.OpMaxPoolBackward {
		y = c.in[1]
	}
	kh, kw, ok1 := pair(c.Attr.Kernel, 1)
	sh, sw, ok2 := pair(c.Attr.Stride, 1)
	if !ok1 || !ok2 {
		return nil, c.errorf("kernel is %v and stride %v: give two numbers of at least 1 each", c.Attr.Kernel, c.Attr.Stride)
	}
	s := in.Shape
	if in.layout != activationLayout || s[2] < kh || s[3] < kw ||
		!y.is(s[0], s[1], (s[2]-kh)/sh+1, (s[3]-kw)/sw+1) {
		return nil, c.errorf("the shapes do not fit together with kernel %v and stride %v", c.Attr.Kernel, c.Attr.Stride)
	}
	if len(c.Attr.Pad) > 0 {
		if ph, pw, ok := pair(c.Attr.Pad, 0); !ok || ph != 0 || pw != 0 {
			return nil, c.errorf("pad is %v: pooling takes no padding", c.Attr.Pad)
		}
	}
	planes, rows, cols := s[0]*blocks(s[1]), y.Shape[2], y.Shape[3]
	inRow, outRow := s[3]*lanes, cols*lanes
	if c.Op == plan.OpMaxPool {
		maxPool := x.engine.kernels.maxPool
		return []task{{planes * rows, func(_ *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				plane, r := i/rows, i%rows
				maxPool(&in.data[(plane*s[2]+r*sh)*inRow], &y.data[i*outRow], cols, kh, kw, inRow*4, sw*lanes*4)
			}
		}}}, nil
	}
	dy, dx := c.in[2], c.out[0]
	if !dy.is(y.Shape[0], y.Shape[1], rows, cols) || !dx.is(s[0], s[1], s[2], s[3]) {
		return nil, c.errorf("dy must have the shape of y, and dx that of x")
	}
	grad := x.engine.kernels.maxPoolGrad
	return []task{{planes, func(_ *worker, lo, hi int) {
		for p := lo; p < hi; p++ {
			cleared := 0 // rows of dx, cleared just before they are written, while they are in the cache
			for r := range rows {
				if end := min(s[2], r*sh+kh); end > cleared {
					clear(dx.data[(p*s[2]+cleared)*inRow : (p*s[2]+end)*inRow])
					cleared = end
				}
				top, o := (p*s[2]+r*sh)*inRow, (p*rows+r)*outRow
				grad(&in.data[top], &y.data[o], &dy.data[o], &dx.data[top], cols, kh, kw, inRow*4, sw*lanes*4)
			}
			clear(dx.data[(p*s[2]+cleared)*inRow : (p+1)*s[2]*inRow])
		}
	}}}, nil
}
