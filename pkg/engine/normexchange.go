package engine

import (
	"errors"
	"fmt"
	"time"

	"lockstep/pkg/internal/device"
)

// NormSync is a GradSync that also exchanges what synchronised batch norms
// (plan.Attr.Sync) count. An engine calls ShareStatistics and Bucket in the order of the
// program, which is equal at all ranks, and that is the order in which ranks
// meet.
type NormSync interface {
	GradSync
	// ShareStatistics returns what every worker gives, one after another by rank; all give
	// as many numbers. It waits for the buckets that were handed over before. The
	// result is valid until the next call, and own is not kept.
	ShareStatistics(own []float64) (all []float64, err error)
}

// DeviceNormSync is a GradSync that adds up what synchronised batch norms count on the
// workers' devices, beside the buckets and in one order with them.
type DeviceNormSync interface {
	GradSync
	// SumStatistics puts in s the sum of v, float64 on the device, over all workers,
	// in place; all give as many numbers.
	SumStatistics(v device.Buffer, s device.Stream) error
}

// NormExchange joins the statistics of an executable's synchronized batch norms
// over all workers. Every worker computes the same bits, whatever carries them,
// and one that is alone those of a batch norm that is not synchronised.
type NormExchange struct {
	sync  NormSync // nil: the worker is alone
	own   []float64
	spent time.Duration
}

// Begin begins a step with sync; nil: the worker is alone.
func (s *NormExchange) Begin(sync GradSync) error {
	s.sync, s.spent = nil, 0
	if sync == nil {
		return nil
	}
	g, ok := sync.(NormSync)
	if !ok {
		return fmt.Errorf("synchronise batch norms: %T exchanges gradients alone: use sync_batchnorm=false", sync)
	}
	s.sync = g
	return nil
}

// Spent is the time in the exchange since the last call of it, or Begin.
func (s *NormExchange) Spent() time.Duration {
	d := s.spent
	s.spent = 0
	return d
}

// Moments replaces each channel's mean, and its sum of squared distances from
// that, by those over all workers, and returns the number of elements of a
// channel over all; count is this worker's. The sums of workers are joined as
// Chan, Golub and LeVeque do it (Updating Formulae and a Pairwise Algorithm for
// Computing Sample Variances, 1979, equation 2.1), which loses nothing where the
// mean is far from zero.
func (s *NormExchange) Moments(count float64, mean, squares []float64) (total float64, err error) {
	all, err := s.gather(count, mean, squares)
	if err != nil || len(all) == len(s.own) {
		return count, err
	}
	c := len(mean)
	total = all[0]
	copy(mean, all[1:])
	copy(squares, all[1+c:])
	for all = all[len(s.own):]; len(all) > 0; all = all[len(s.own):] {
		n := all[0]
		sum := total + n
		for k := range mean {
			d := all[1+k] - mean[k]
			mean[k] += d * n / sum
			squares[k] += all[1+c+k] + d*d*total*n/sum
		}
		total = sum
	}
	return total, nil
}

// Sums replaces each channel's two sums by those over all workers, and returns
// the number of elements of a channel over all; count is this worker's.
func (s *NormExchange) Sums(count float64, a, b []float64) (total float64, err error) {
	all, err := s.gather(count, a, b)
	if err != nil || len(all) == len(s.own) {
		return count, err
	}
	c := len(a)
	clear(a)
	clear(b)
	for ; len(all) > 0; all = all[len(s.own):] {
		total += all[0]
		for k := range a {
			a[k] += all[1+k]
			b[k] += all[1+c+k]
		}
	}
	return total, nil
}

// gather is every worker's count, a and b; this one's alone where it is alone.
func (s *NormExchange) gather(count float64, a, b []float64) ([]float64, error) {
	s.own = append(append(append(s.own[:0], count), a...), b...)
	if s.sync == nil {
		return s.own, nil
	}
	begin := time.Now()
	all, err := s.sync.ShareStatistics(s.own)
	s.spent += time.Since(begin)
	if err == nil && (len(all) == 0 || len(all)%len(s.own) != 0) {
		err = errors.New("workers give different numbers of them")
	}
	if err != nil {
		return nil, fmt.Errorf("exchange statistics: %w", err)
	}
	return all, nil
}
