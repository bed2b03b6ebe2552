package strategy

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// slotPrefix is the prefix of the names of the optimizer's state tensors:
// optimizer.<slot>.<parameter>.
const slotPrefix = "optimizer."

// shards is the part of a strategy that applies the optimizer's update itself. This rank
// owns a range of each bucket: only it updates these parameters, and only it has the
// optimizer's slots for them. The ranges may be empty.
type shards struct {
	exe     engine.HostMemory
	buckets []engine.BucketMemory
	owned   [][2]int                   // by bucket: this rank's range [lo, hi)
	pieces  []piece                    // all parameters, in the same order on every rank
	slots   map[string][]device.Buffer // by the slot's name and by bucket: its values in the owned range
	staging device.Buffer              // for the values of one bucket
}

// piece is the part of a parameter that this rank owns, possibly nothing.
type piece struct {
	bucket, lo, hi    int // range in the bucket
	weights, gradient device.Buffer
	vector            bool
}

// start divides the parameters of exe. own returns the range of a bucket of n elements that
// this rank owns. Slots begin with zeros.
func (s *shards) start(exe engine.Executable, own func(n int) (lo, hi int)) error {
	memory, err := hostMemoryOf(exe)
	if err != nil {
		return err
	}
	*s = shards{exe: memory, buckets: memory.BucketMemory(), slots: map[string][]device.Buffer{}}
	for _, b := range s.buckets {
		lo, hi := own(b.Gradients.Len())
		s.owned = append(s.owned, [2]int{lo, hi})
	}
	s.listPieces()
	s.staging = newStaging(s.buckets)
	return nil
}

// listPieces sets s.pieces to the parts of the parameters in s.buckets that this rank owns.
func (s *shards) listPieces() {
	s.pieces = nil
	for i, b := range s.buckets {
		lo, hi := s.owned[i][0], s.owned[i][1]
		for _, p := range b.Parameters {
			from := max(p.Offset, lo)
			to := max(from, min(p.Offset+p.Weights.Len(), hi))
			if to == from { // this rank owns nothing
				from, to = p.Offset, p.Offset
			}
			s.pieces = append(s.pieces, piece{i, from, to, p.Weights.Slice(from-p.Offset, to-p.Offset), b.Gradients.Slice(from, to), p.Vector})
		}
	}
}

// separate copies the parameters and allocates gradients, so that s no longer uses the memory
// of the executable.
func (s *shards) separate() {
	buckets := slices.Clone(s.buckets)
	for i, b := range buckets {
		buckets[i].Gradients = newBuffer(b.Gradients, b.Gradients.Len())
		buckets[i].Parameters = slices.Clone(b.Parameters)
		for j, p := range b.Parameters {
			w := newBuffer(p.Weights, p.Weights.Len())
			copyBuffer(w, p.Weights)
			buckets[i].Parameters[j].Weights = w
		}
	}
	s.buckets = buckets
	s.listPieces()
}

// newBuffer returns a buffer of n zeros of the precision of like.
func newBuffer(like device.Buffer, n int) device.Buffer {
	if like.F64 != nil {
		return device.Buffer{F64: make([]float64, n)}
	}
	return device.Buffer{F32: make([]float32, n)}
}

// hostMemoryOf returns exe as an engine.HostMemory, or an error that says why a strategy
// cannot update the parameters of exe itself.
func hostMemoryOf(exe engine.Executable) (engine.HostMemory, error) {
	memory, ok := exe.(engine.HostMemory)
	if !ok {
		return nil, fmt.Errorf("update parameters: the engine does not share the memory of its parameters: use device cpu or reference, or strategy %s", NameDDP)
	}
	return memory, nil
}

// newStaging returns a buffer for the values of the largest of the given buckets.
func newStaging(buckets []engine.BucketMemory) device.Buffer {
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

// copyBuffer copies the elements of from to to. Both have the same precision and length.
func copyBuffer(to, from device.Buffer) {
	copy(to.F32, from.F32)
	copy(to.F64, from.F64)
}

// slot returns the values of an optimizer slot in the owned range of each bucket. If there
// are none yet, it allocates zeros.
func (s *shards) slot(name string) []device.Buffer {
	if s.slots[name] == nil {
		for i, b := range s.buckets {
			s.slots[name] = append(s.slots[name], newBuffer(b.Gradients, s.owned[i][1]-s.owned[i][0]))
		}
	}
	return s.slots[name]
}

// apply applies u to the parameters that this rank owns. sum sums values over all ranks.
func (s *shards) apply(u optim.Update, sum func(v []float64) error) error {
	var single []optim.Tensor32
	var double []optim.Tensor64
	for _, p := range s.pieces {
		var slots []device.Buffer
		for _, name := range u.Slots() {
			lo := s.owned[p.bucket][0]
			if p.lo == p.hi {
				lo = p.lo // nothing, at any place
			}
			slots = append(slots, s.slot(name)[p.bucket].Slice(p.lo-lo, p.hi-lo))
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

// exchangeWeights calls exchange for the weights of each bucket, and stores the values that
// the buffer then contains. Before, the buffer contains the owned range of this rank.
func (s *shards) exchangeWeights(exchange func(b device.Buffer) error) error {
	for i, b := range s.buckets {
		stage := s.staging.Slice(0, b.Gradients.Len())
		for _, p := range s.pieces {
			if p.bucket == i {
				copyBuffer(stage.Slice(p.lo, p.hi), p.weights)
			}
		}
		if err := exchange(stage); err != nil {
			return fmt.Errorf("exchange parameters of bucket %d: %w", i, err)
		}
		for _, p := range b.Parameters {
			copyBuffer(p.Weights, stage.Slice(p.Offset, p.Offset+p.Weights.Len()))
		}
	}
	return nil
}

// collectSlots returns all slots of all parameters by their names in a checkpoint, in
// row-major order. exchange completes a buffer that contains this rank's range.
func (s *shards) collectSlots(exchange func(b device.Buffer) error) (map[string][]float64, error) {
	all := map[string][]float64{}
	names := make([]string, 0, len(s.slots))
	for name := range s.slots {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for i, b := range s.buckets {
			stage := s.staging.Slice(0, b.Gradients.Len())
			copyBuffer(stage.Slice(s.owned[i][0], s.owned[i][1]), s.slots[name][i])
			if err := exchange(stage); err != nil {
				return nil, fmt.Errorf("collect optimizer slot %s of bucket %d: %w", name, i, err)
			}
			for _, p := range b.Parameters {
				v, err := s.exe.Unpack(p.Name, stage.Slice(p.Offset, p.Offset+p.Weights.Len()))
				if err != nil {
					return nil, err
				}
				all[slotPrefix+name+"."+p.Name] = v
			}
		}
	}
	return all, nil
}

// restoreSlots sets this rank's part of the slots to the values in saved.
func (s *shards) restoreSlots(saved map[string][]float64) error {
	for key, v := range saved {
		slot, param, ok := strings.Cut(strings.TrimPrefix(key, slotPrefix), ".")
		if !ok || !strings.HasPrefix(key, slotPrefix) {
			continue
		}
		for i, b := range s.buckets {
			for _, p := range b.Parameters {
				if p.Name != param {
					continue
				}
				stage := s.staging.Slice(p.Offset, p.Offset+p.Weights.Len())
				clear(stage.F32) // Pack does not write padding
				clear(stage.F64)
				if err := s.exe.Pack(param, v, stage); err != nil {
					return fmt.Errorf("restore %s: %w", key, err)
				}
				values := s.slot(slot) // on every rank, so that all ranks have the same slots
				lo, hi := s.owned[i][0], s.owned[i][1]
				from, to := max(lo, p.Offset), min(hi, p.Offset+p.Weights.Len())
				if from < to {
					copyBuffer(values[i].Slice(from-lo, to-lo), s.staging.Slice(from, to))
				}
			}
		}
	}
	return nil
}

// ownedBytes returns the size of the owned ranges, and of all buckets.
func (s *shards) ownedBytes() (owned, all int) {
	for i, b := range s.buckets {
		owned += b.Gradients.Slice(s.owned[i][0], s.owned[i][1]).Bytes()
		all += b.Gradients.Bytes()
	}
	return owned, all
}

// withoutSlots returns the names of the persistent tensors of exe except for the optimizer's
// slots: an executable that is given no update needs no memory for them.
func withoutSlots(exe engine.Executable) []string {
	return slices.DeleteFunc(slices.Clone(exe.Names()), func(name string) bool { return strings.HasPrefix(name, slotPrefix) })
}
