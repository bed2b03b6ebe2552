package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/engine/cuda/internal/number"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
)

// confirmedElements is how many elements are compared at the beginning, in the middle and
// at the end of a result.
const confirmedElements = 1 << 18

// confirmed returns the fastest candidate whose result another engine of cuDNN's confirms,
// best where only one engine was timed. It is asked of 3-D convolutions, some of whose
// engines had wrong results in cuDNN 9.8 to 9.15. Where no two results agree, best stays,
// with a notice.
func (x *executable) confirmed(c convolution, key string, all []candidate, list []variant, best int, times []float64) (int, error) {
	var order []int
	for i, ms := range times {
		if ms > 0 && !strings.Contains(c.extra, " sums of") {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(times[i], times[j]) })
	if !slices.ContainsFunc(order, func(i int) bool { return all[i].plan.Engine != all[best].plan.Engine }) {
		return best, nil
	}
	if err := x.disturb(); err != nil {
		return best, err
	}
	results := map[int][]float32{}
	for at, i := range order {
		var err error
		if results[i], err = x.resultOf(c, all[i], list[all[i].variant]); err != nil {
			return best, err
		}
		for _, j := range order[:at] {
			if all[i].plan.Engine != all[j].plan.Engine && c.agree(results[i], results[j], x.engine.tf32) {
				return j, nil
			}
		}
	}
	x.notices = append(x.notices, fmt.Sprintf("no two of cuDNN's algorithms give the same result of the 3-D convolution %s: its results may be wrong; another version of cuDNN may help", key))
	return best, nil
}

// resultOf runs a candidate on noise and reads parts of its result.
func (x *executable) resultOf(c convolution, one candidate, v variant) (out []float32, err error) {
	g, p, at := x.gpu, c.result(), c.resultAt()
	size, pitch, channels, rows := int64(p.typ.Size()), p.pitch, p.padded(), p.bytes()/p.typ.Size()
	if gap := pitch - channels; gap == 0 {
		pitch, channels = 1, 1
		// What a plan does not write is no number.
		if err := g.driver.MemsetD8Async(at, 0xff, int64(p.bytes()), g.compute); err != nil {
			return nil, g.failed(err)
		}
	} else {
		rows /= channels
	}
	if err := x.grow(one.plan.Workspace); err != nil {
		return nil, err
	}
	pack, err := g.cudnn.NewPack(v.pointers, x.workspace.ptr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pack.Close()) }()
	if err := g.runAll(v.around(&planCall{one.plan.String(), one.plan, pack}), g.compute); err != nil {
		return nil, err
	}
	n := min(rows, max(1, confirmedElements/pitch))
	for _, first := range []int{0, (rows - n) / 2, rows - n} {
		data, err := g.read(at.Add(int64(first*pitch)*size), int64((n-1)*pitch+channels)*size)
		if err != nil {
			return nil, err
		}
		values := number.Decode(p.typ, data)
		for i := range n {
			out = append(out, values[i*pitch:][:channels]...)
		}
	}
	return out, nil
}

// resultAt is the address of what a convolution writes.
func (c convolution) resultAt() driver.Ptr {
	switch c.relation {
	case dataGrad:
		return c.px
	case filterGrad:
		return c.pw
	}
	return c.py
}

// agree reports whether two results of c differ by roundings alone: by a part of their
// root mean square that is some times the unit roundoff of the operands.
func (c convolution) agree(a, b []float32, tf32 bool) bool {
	tolerance := 1e-3
	switch {
	case c.x.typ == device.BF16:
		tolerance = 5e-2
	case c.x.typ == device.F16, tf32:
		tolerance = 1e-2
	}
	square := 0.0
	for _, v := range a {
		square += float64(v) * float64(v)
	}
	rms := math.Sqrt(square / float64(max(1, len(a))))
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= tolerance*(rms+math.Abs(float64(a[i])))) {
			return false
		}
	}
	return true
}
