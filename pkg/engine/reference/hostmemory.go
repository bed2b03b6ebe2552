package reference

import (
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// Capabilities returns access to host memory, and SetInputBuffer and OutputBuffer for the
// engine's precision.
func (x *executable[T]) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		HostMemory:     &engine.HostMemory{Buckets: x.bucketMemory, Unpack: x.unpackParameter, Pack: x.packParameter},
		SetInputBuffer: x.setInputBuffer, OutputBuffer: x.outputBuffer,
	}
}

func (x *executable[T]) bucketMemory() []engine.BucketMemory {
	var all []engine.BucketMemory
	for i, b := range x.program.Buckets {
		m := engine.BucketMemory{Gradients: asBuffer(x.buckets[i])}
		offset := 0
		for _, j := range b.Params {
			p := x.program.Params[j]
			m.Parameters = append(m.Parameters, engine.ParameterMemory{
				Name: p.Name, Weights: asBuffer(x.tensors[p.Tensor]), Offset: offset, Vector: len(x.program.Tensors[p.Tensor].Shape) == 1,
			})
			offset += len(x.tensors[p.Grad])
		}
		all = append(all, m)
	}
	return all
}

func (x *executable[T]) unpackParameter(param string, stored device.Buffer) ([]float64, error) {
	if n := len(x.store.tensors[param]); n == 0 || stored.Len() != n {
		return nil, fmt.Errorf("unpack values: got %d stored values of %q, want %d", stored.Len(), param, n)
	}
	if stored.F64 != nil {
		return toFloat64(stored.F64), nil
	}
	return toFloat64(stored.F32), nil
}

func (x *executable[T]) packParameter(param string, v []float64, stored device.Buffer) error {
	if n := len(x.store.tensors[param]); n == 0 || stored.Len() != n || len(v) != n {
		return fmt.Errorf("pack values: got %d values and memory for %d of %q, want %d", len(v), stored.Len(), param, n)
	}
	copy(stored.F64, v)
	for i := range stored.F32 {
		stored.F32[i] = float32(v[i])
	}
	return nil
}
