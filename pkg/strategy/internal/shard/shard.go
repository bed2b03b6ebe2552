// Package shard divides the parameters, and the state of the optimizer, among the workers.
package shard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/vector"
)

// OptimizerSlotPrefix is the prefix of the names of the optimizer's state tensors:
// optimizer.<slot>.<parameter>.
const OptimizerSlotPrefix = "optimizer."

// Shard applies the optimizer's update to the parameters that this rank owns, for strategies that
// do not leave this to the executable. This rank owns a range of each bucket: only it updates the
// parameters in this range, and only it has their optimizer slots. The ranges may be empty.
type Shard struct {
	Buckets []engine.BucketMemory
	memory  *engine.HostMemory
	owned   [][2]int                   // by bucket: this rank's range [lo, hi)
	pieces  []parameterPiece           // all parameters, in the same order on every rank
	slots   map[string][]device.Buffer // by the slot's name and by bucket: its values in the owned range
	staging device.Buffer              // for the values of one bucket
}

// parameterPiece is the part of a parameter that this rank owns. It may be empty.
type parameterPiece struct {
	bucket, lo, hi    int // range in the bucket
	weights, gradient device.Buffer
	vector            bool
}

// Start divides the parameters of exe among the ranks. own returns the range of a bucket with n
// elements that this rank owns. Optimizer slots are initially zero.
func (s *Shard) Start(exe engine.Executable, own func(n int) (lo, hi int)) error {
	memory, err := HostMemoryOf(exe)
	if err != nil {
		return err
	}
	*s = Shard{memory: memory, Buckets: memory.Buckets(), slots: map[string][]device.Buffer{}}
	for _, b := range s.Buckets {
		lo, hi := own(b.Gradients.Len())
		s.owned = append(s.owned, [2]int{lo, hi})
	}
	s.setParameterPieces()
	s.staging = NewStagingBuffer(s.Buckets)
	return nil
}

func (s *Shard) setParameterPieces() {
	s.pieces = nil
	for i, b := range s.Buckets {
		lo, hi := s.owned[i][0], s.owned[i][1]
		for _, p := range b.Parameters {
			from := max(p.Offset, lo)
			to := max(from, min(p.Offset+p.Weights.Len(), hi))
			if to == from { // this rank owns nothing
				from, to = p.Offset, p.Offset
			}
			s.pieces = append(s.pieces, parameterPiece{i, from, to, p.Weights.Slice(from-p.Offset, to-p.Offset), b.Gradients.Slice(from, to), p.Vector})
		}
	}
}

// StartStage is like Start for a stage of the network p. exe has the parameters of the stage, and
// this rank owns all of them. Every rank lists the parameters of the whole network, so that the
// ranks can sum norms in the same order.
func (s *Shard) StartStage(exe engine.Executable, p *plan.Program) error {
	if err := s.Start(exe, func(n int) (lo, hi int) { return 0, n }); err != nil {
		return err
	}
	own := map[string]parameterPiece{}
	var nothing parameterPiece
	for i, b := range s.Buckets {
		for _, q := range b.Parameters {
			own[q.Name] = parameterPiece{i, q.Offset, q.Offset + q.Weights.Len(), q.Weights, b.Gradients.Slice(q.Offset, q.Offset+q.Weights.Len()), q.Vector}
			nothing = parameterPiece{weights: q.Weights.Slice(0, 0), gradient: q.Weights.Slice(0, 0)}
		}
	}
	s.pieces = nil
	for _, q := range p.Params {
		part, ok := own[q.Name]
		if !ok {
			part = nothing
			part.vector = len(p.Tensors[q.Tensor].Shape) == 1
		}
		s.pieces = append(s.pieces, part)
	}
	return nil
}

// Detach gives s its own copy of the parameters and its own gradients, so that it no longer uses
// the memory of the executable.
func (s *Shard) Detach() {
	buckets := slices.Clone(s.Buckets)
	for i, b := range buckets {
		buckets[i].Gradients = vector.NewLike(b.Gradients, b.Gradients.Len())
		buckets[i].Parameters = slices.Clone(b.Parameters)
		for j, p := range b.Parameters {
			w := vector.NewLike(p.Weights, p.Weights.Len())
			vector.Copy(w, p.Weights)
			buckets[i].Parameters[j].Weights = w
		}
	}
	s.Buckets = buckets
	s.setParameterPieces()
}

// HostMemoryOf returns the host memory of exe. If exe has none, the error says why a strategy cannot
// update the parameters of exe.
func HostMemoryOf(exe engine.Executable) (*engine.HostMemory, error) {
	memory := exe.Capabilities().HostMemory
	if memory == nil {
		return nil, errors.New("update parameters: the engine does not share the memory of its parameters: use device cpu or reference, or strategy ddp")
	}
	return memory, nil
}

// NewStagingBuffer returns a buffer that is large enough for each of the given buckets.
func NewStagingBuffer(buckets []engine.BucketMemory) device.Buffer {
	n, double := 0, false
	for _, b := range buckets {
		n = max(n, b.Gradients.Len())
		double = double || b.Gradients.F64 != nil
	}
	if double {
		return device.Buffer{F64: make([]float64, n)}
	}
	return device.Buffer{F32: make([]float32, n)}
}

// SlotValues returns the values of an optimizer slot in the owned range of each bucket. It allocates
// zeros if the slot does not exist yet.
func (s *Shard) SlotValues(name string) []device.Buffer {
	if s.slots[name] == nil {
		for i, b := range s.Buckets {
			s.slots[name] = append(s.slots[name], vector.NewLike(b.Gradients, s.owned[i][1]-s.owned[i][0]))
		}
	}
	return s.slots[name]
}

// SlotNames returns the names of the optimizer slots on this rank, in ascending order.
func (s *Shard) SlotNames() []string { return slices.Sorted(maps.Keys(s.slots)) }

// ApplyUpdate applies u to the parameters that this rank owns. sum must add up v over all ranks.
func (s *Shard) ApplyUpdate(u optim.Update, sum func(v []float64) error) error {
	var single []optim.Tensor32
	var double []optim.Tensor64
	for _, p := range s.pieces {
		var slots []device.Buffer
		for _, name := range u.Slots() {
			lo := s.owned[p.bucket][0]
			if p.lo == p.hi {
				lo = p.lo // nothing, at any place
			}
			slots = append(slots, s.SlotValues(name)[p.bucket].Slice(p.lo-lo, p.hi-lo))
		}
		if p.weights.F64 != nil {
			t := optim.Tensor64{Weights: p.weights.F64, Gradient: p.gradient.F64, Vector: p.vector}
			for _, v := range slots {
				t.Slots = append(t.Slots, v.F64)
			}
			double = append(double, t)
			continue
		}
		t := optim.Tensor32{Weights: p.weights.F32, Gradient: p.gradient.F32, Vector: p.vector}
		for _, v := range slots {
			t.Slots = append(t.Slots, v.F32)
		}
		single = append(single, t)
	}
	if len(double) > 0 {
		return optim.ApplySharded64(u, double, sum)
	}
	return optim.ApplySharded32(u, single, sum)
}

// ExchangeWeights calls exchange for each bucket, with a buffer that contains the weights in this
// rank's range. exchange must fill in the other ranges. ExchangeWeights then stores all weights of
// the bucket.
func (s *Shard) ExchangeWeights(exchange func(b device.Buffer) error) error {
	for i, b := range s.Buckets {
		stage := s.staging.Slice(0, b.Gradients.Len())
		for _, p := range s.pieces {
			if p.bucket == i {
				vector.Copy(stage.Slice(p.lo, p.hi), p.weights)
			}
		}
		if err := exchange(stage); err != nil {
			return fmt.Errorf("exchange parameters of bucket %d: %w", i, err)
		}
		for _, p := range b.Parameters {
			vector.Copy(p.Weights, stage.Slice(p.Offset, p.Offset+p.Weights.Len()))
		}
	}
	return nil
}

// CollectSlots returns all optimizer slots of all parameters by their names in a checkpoint, in
// row-major order. exchange is called with a buffer that contains this rank's range, and must fill
// in the other ranges.
func (s *Shard) CollectSlots(exchange func(b device.Buffer) error) (map[string][]float64, error) {
	all := map[string][]float64{}
	for _, name := range s.SlotNames() {
		for i, b := range s.Buckets {
			stage := s.staging.Slice(0, b.Gradients.Len())
			vector.Copy(stage.Slice(s.owned[i][0], s.owned[i][1]), s.slots[name][i])
			if err := exchange(stage); err != nil {
				return nil, fmt.Errorf("collect optimizer slot %s of bucket %d: %w", name, i, err)
			}
			for _, p := range b.Parameters {
				v, err := s.memory.Unpack(p.Name, stage.Slice(p.Offset, p.Offset+p.Weights.Len()))
				if err != nil {
					return nil, err
				}
				all[OptimizerSlotPrefix+name+"."+p.Name] = v
			}
		}
	}
	return all, nil
}

// RestoreSlots restores this rank's part of the optimizer slots from saved.
func (s *Shard) RestoreSlots(saved map[string][]float64) error {
	for key, v := range saved {
		slot, param, ok := strings.Cut(strings.TrimPrefix(key, OptimizerSlotPrefix), ".")
		if !ok || !strings.HasPrefix(key, OptimizerSlotPrefix) {
			continue
		}
		for i, b := range s.Buckets {
			for _, p := range b.Parameters {
				if p.Name != param {
					continue
				}
				stage := s.staging.Slice(p.Offset, p.Offset+p.Weights.Len())
				clear(stage.F32) // Pack does not write padding
				clear(stage.F64)
				if err := s.memory.Pack(param, v, stage); err != nil {
					return fmt.Errorf("restore %s: %w", key, err)
				}
				values := s.SlotValues(slot) // on every rank, so that all ranks have the same slots
				lo, hi := s.owned[i][0], s.owned[i][1]
				from, to := max(lo, p.Offset), min(hi, p.Offset+p.Weights.Len())
				if from < to {
					vector.Copy(values[i].Slice(from-lo, to-lo), s.staging.Slice(from, to))
				}
			}
		}
	}
	return nil
}

// OwnedBytes returns the size in bytes of the ranges that this rank owns, and of all buckets.
func (s *Shard) OwnedBytes() (owned, all int) {
	for i, b := range s.Buckets {
		owned += b.Gradients.Slice(s.owned[i][0], s.owned[i][1]).Bytes()
		all += b.Gradients.Bytes()
	}
	return owned, all
}

// OptimizerBytes returns the size in bytes of the optimizer slots of u on this rank, and of all
// slots.
func (s *Shard) OptimizerBytes(u optim.Update) (own, all int64) {
	o, a := s.OwnedBytes()
	n := int64(len(u.Slots()))
	return n * int64(o), n * int64(a)
}
