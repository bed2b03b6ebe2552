package cuda

import (
	"fmt"
	"slices"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// volumes checks cuDNN's convolutions in three dimensions, every plan of them, the
// way that the engine calls them: programs, and engine/reference, have two
// dimensions as yet.
func (t *tester) volumes() error {
	for _, r := range []relation3{
		{n: 2, largeC: 5, smallC: 9, taps: 3, stride: 1, pad: 1, large: [3]int{4, 5, 7}},
		{n: 1, largeC: 16, smallC: 8, taps: 2, stride: 2, pad: 0, large: [3]int{4, 6, 8}}, // a U-Net's transposed one: forward is backward data
	} {
		for i, s := range r.large {
			r.small[i] = (s+2*r.pad-r.taps)/r.stride + 1
		}
		for _, which := range []relation{forward, dataGrad, filterGrad} {
			if err := t.volume(r, which); err != nil {
				return err
			}
		}
	}
	return nil
}

// volume checks one of the three computations.
func (t *tester) volume(r relation3, which relation) error {
	cube := r.taps * r.taps * r.taps
	terms := map[relation]int{forward: r.largeC * cube, dataGrad: r.smallC * cube, filterGrad: r.n * elements(r.small[:])}[which]
	c := Check{
		Name: fmt.Sprintf("conv in 3-D, %s, every plan", which), Bound: t.terms(terms, 1),
		Shape: fmt.Sprintf("%d×%d×%d×%d×%d to %d channels, window %d, stride %d, pad %d", r.n, r.largeC, r.large[0], r.large[1], r.large[2], r.smallC, r.taps, r.stride, r.pad),
	}
	if !t.wanted(c.Name) {
		return nil
	}
	p := &probe{tester: t, gpu: t.engine.gpu, typ: kernelType(t.low)}
	err := t.engine.Do(func() error {
		plans, err := t.volumePlans(p, &c, r, which)
		if c.Detail == "" {
			c.Detail = fmt.Sprintf("%d plans", plans)
		}
		return firstOf(firstOf(err, p.err), p.end())
	})
	if err != nil {
		return t.failed(c, err)
	}
	t.add(c)
	return nil
}

func (t *tester) volumePlans(p *probe, c *Check, r relation3, which relation) (plans int, err error) {
	at := func(f form, shape ...int) place {
		l := layout{form: f, typ: t.low, shape: shape}
		return place{layout: l, pitch: l.padded()}
	}
	conv := convolution{
		relation: which,
		x:        at(mapForm, r.n, r.largeC, r.large[0], r.large[1], r.large[2]),
		w:        at(weightForm, r.smallC, r.largeC, r.taps, r.taps, r.taps),
		y:        at(mapForm, r.n, r.smallC, r.small[0], r.small[1], r.small[2]),
		stride:   slices.Repeat([]int64{int64(r.stride)}, 3), pad: slices.Repeat([]int64{int64(r.pad)}, 3),
	}
	values := map[*place][]float32{}
	for q, ptr := range map[*place]*driver.Ptr{&conv.x: &conv.px, &conv.w: &conv.pw, &conv.y: &conv.py} {
		values[q] = t.normal(elements(q.shape))
		memory := make([]float32, q.size())
		pack(q.layout, memory, values[q])
		*ptr = driver.Ptr(p.inOut(encode(q.typ, memory)))
	}
	result, to, index := conv.y, conv.py, 0
	switch which {
	case dataGrad:
		result, to, index = conv.x, conv.px, 1
	case filterGrad:
		result, to, index = conv.w, conv.pw, 2
	}
	want := r.compute(index, widened(values[&conv.y]), widened(values[&conv.x]), widened(values[&conv.w]))
	x := &executable{engine: t.engine, gpu: t.engine.gpu, low: t.low}
	defer func() { err = firstOf(err, x.gpu.free(x.workspace)) }()
	list := []variant{{ops: []cudnn.Op{conv.op()}, pointers: map[int64]driver.Ptr{idX: conv.px, idW: conv.pw, idY: conv.py}}}
	all, _, err := x.candidates(conv, list, cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
	if err != nil {
		return 0, err
	}
	for _, one := range all {
		if p.err == nil && one.plan.Workspace <= tuneLimit {
			plans++
			got, runErr := x.runPlan(one, list[0], result, to)
			p.err = firstOf(p.err, runErr)
			if d := mismatch(got, want); p.err == nil {
				c.Error = max(c.Error, d)
				if !(d <= c.Bound) {
					c.Detail = fmt.Sprintf("off is %s", one.plan)
				}
			}
		}
		p.err = firstOf(p.err, one.plan.Close())
	}
	return plans, nil
}

// relation3 is what a convolution in three dimensions relates: position p of the
// small map and tap q meet position p·stride+q−pad of the large one.
type relation3 struct {
	n, smallC, largeC, taps, stride, pad int
	small, large                         [3]int
}

// compute makes one of small (0), large (1) and weights (2) from the other two.
func (r relation3) compute(which int, small, large, w []float64) []float64 {
	volume := func(s [3]int) int { return s[0] * s[1] * s[2] }
	cube := r.taps * r.taps * r.taps
	out := make([]float64, [3]int{r.n * r.smallC * volume(r.small), r.n * r.largeC * volume(r.large), r.smallC * r.largeC * cube}[which])
	for at := range r.n * r.smallC * volume(r.small) {
		p := at % volume(r.small)
		position := [3]int{p / (r.small[1] * r.small[2]), p / r.small[2] % r.small[1], p % r.small[2]}
		n, k := at/volume(r.small)/r.smallC, at/volume(r.small)%r.smallC
		for tap := range cube {
			to, inside := 0, true
			for axis, q := range [3]int{tap / (r.taps * r.taps), tap / r.taps % r.taps, tap % r.taps} {
				v := position[axis]*r.stride + q - r.pad
				inside = inside && v >= 0 && v < r.large[axis]
				to = to*r.large[axis] + v
			}
			for c := 0; inside && c < r.largeC; c++ {
				i, j := (n*r.largeC+c)*volume(r.large)+to, (k*r.largeC+c)*cube+tap
				switch which {
				case 0:
					out[at] += large[i] * w[j]
				case 1:
					out[i] += small[at] * w[j]
				default:
					out[j] += small[at] * large[i]
				}
			}
		}
	}
	return out
}
