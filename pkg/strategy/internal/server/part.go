package server

import (
	"context"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/internal/vector"
)

// bucketPart is the part of every bucket that belongs to one of several parameter servers. The
// gradients, or the parameters, of all its ranges are exchanged as one buffer.
type bucketPart struct {
	buckets         []engine.BucketMemory // of the executable, or of the server
	servers, server int
}

// forEachBucket calls f with each bucket, the range [lo, hi) of the bucket that belongs to the
// part, and the corresponding values in b. b contains the ranges of all buckets one after another.
func (p bucketPart) forEachBucket(b device.Buffer, f func(bucket engine.BucketMemory, lo, hi int, values device.Buffer)) {
	from := 0
	for _, bucket := range p.buckets {
		lo, hi := collective.Shard(bucket.Gradients.Len(), p.servers, p.server)
		f(bucket, lo, hi, b.Slice(from, from+hi-lo))
		from += hi - lo
	}
}

func (p bucketPart) newBuffer() device.Buffer {
	n := 0
	for _, bucket := range p.buckets {
		lo, hi := collective.Shard(bucket.Gradients.Len(), p.servers, p.server)
		n += hi - lo
	}
	return vector.NewLike(p.buckets[0].Gradients, n)
}

func (p bucketPart) copyGradientsTo(b device.Buffer) {
	p.forEachBucket(b, func(bucket engine.BucketMemory, lo, hi int, values device.Buffer) {
		vector.Copy(values, bucket.Gradients.Slice(lo, hi))
	})
}

func (p bucketPart) copyWeightsTo(b device.Buffer) {
	p.forEachWeight(b, func(weights, values device.Buffer) { vector.Copy(values, weights) })
}

func (p bucketPart) copyWeightsFrom(b device.Buffer) {
	p.forEachWeight(b, vector.Copy)
}

// forEachWeight calls f for each parameter, with the elements of the parameter that belong to the
// part, and the corresponding values in b.
func (p bucketPart) forEachWeight(b device.Buffer, f func(weights, values device.Buffer)) {
	p.forEachBucket(b, func(bucket engine.BucketMemory, lo, hi int, values device.Buffer) {
		for _, w := range bucket.Parameters {
			from, to := max(lo, w.Offset), min(hi, w.Offset+w.Weights.Len())
			if from < to {
				f(w.Weights.Slice(from-w.Offset, to-w.Offset), values.Slice(from-lo, to-lo))
			}
		}
	})
}

// parameterStore contains the part of the parameters that one server updates. It has its own
// memory, and applies the updates in the order of their numbers.
type parameterStore struct {
	timedCondition
	shard   *shard.Shard
	part    bucketPart
	update  optim.Update // all updates are equal except for the learning rate and the step
	version int          // number of the last update
	err     error        // why updates are no longer applied
}

// pushUpdate applies a worker's gradient as the update with the given number, with the learning
// rate rate. It first waits until the previous update has been applied. If ctx ends while it waits,
// it returns the cause.
func (s *parameterStore) pushUpdate(ctx context.Context, update int, rate float64, gradient device.Buffer) (err error) {
	for ok := false; !ok; {
		ok = s.waitFor(ctx, HeartbeatInterval, func() bool {
			if s.err == nil && s.version < update-1 {
				return false
			}
			if s.err == nil {
				s.err = s.applyUpdate(update, rate, gradient)
			}
			err = s.err
			return true
		})
		if !ok && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return err
}

// applyUpdate applies the update of pushUpdate, after the previous one.
func (s *parameterStore) applyUpdate(update int, rate float64, gradient device.Buffer) error {
	s.part.forEachBucket(gradient, func(bucket engine.BucketMemory, lo, hi int, values device.Buffer) {
		vector.Copy(bucket.Gradients.Slice(lo, hi), values)
	})
	s.version = update
	u := s.update
	u.LearningRate, u.Step = rate, update
	return s.shard.ApplyUpdate(u, nil)
}

// readParametersAtVersion copies the parameters to b as soon as their version is at least the given one. If
// this takes longer than limit, it returns false, and the worker must ask again.
func (s *parameterStore) readParametersAtVersion(ctx context.Context, limit time.Duration, version int, b device.Buffer) bool {
	return s.waitFor(ctx, limit, func() bool {
		if s.version < version {
			return false
		}
		s.part.copyWeightsTo(b)
		return true
	})
}
