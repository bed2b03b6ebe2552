package cpu

import (
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/device"
)

// bucketMemory, unpack and pack implement engine.HostMemory.
func (x *executable) bucketMemory() []engine.BucketMemory {
	var all []engine.BucketMemory
	start := 0
	for i, b := range x.program.Buckets {
		m := engine.BucketMemory{Gradients: device.Buffer{F32: x.gradients.buckets[i]}}
		for k, j := range b.Params {
			name := x.program.Tensors[x.program.Params[j].Tensor].Name
			at, r := x.gradients.at[name], x.store.paramAt[name]
			if k == 0 {
				start = at.offset
			}
			m.Parameters = append(m.Parameters, engine.ParameterMemory{
				Name: name, Weights: device.Buffer{F32: r.view(x.store.params)}, Offset: at.offset - start, Vector: len(r.shape) == 1,
			})
		}
		all = append(all, m)
	}
	return all
}

// parameterRegion returns an error if stored does not have the parameter's size.
func (x *executable) parameterRegion(param string, stored device.Buffer) (tensorRegion, error) {
	r, ok := x.store.paramAt[param]
	if !ok {
		return r, fmt.Errorf("the program has no parameter %q", param)
	}
	if len(stored.F32) != r.size() {
		return r, fmt.Errorf("got %d stored values of %q, want %d", len(stored.F32), param, r.size())
	}
	return r, nil
}

func (x *executable) unpackParameter(param string, stored device.Buffer) ([]float64, error) {
	r, err := x.parameterRegion(param, stored)
	if err != nil {
		return nil, fmt.Errorf("unpack values: %w", err)
	}
	v := make([]float64, tensor.ElementCount(r.shape))
	tensor.Unpack(r.layout, r.shape, v, stored.F32)
	return v, nil
}

func (x *executable) packParameter(param string, v []float64, stored device.Buffer) error {
	r, err := x.parameterRegion(param, stored)
	if err == nil && len(v) != tensor.ElementCount(r.shape) {
		err = fmt.Errorf("got %d values of %q, want %d for shape %v", len(v), param, tensor.ElementCount(r.shape), r.shape)
	}
	if err != nil {
		return fmt.Errorf("pack values: %w", err)
	}
	tensor.Pack(r.layout, r.shape, stored.F32, v)
	return nil
}
