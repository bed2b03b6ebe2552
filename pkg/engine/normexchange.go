package engine

import (
	"errors"
	"fmt"
	"time"
)

// NormExchange combines the statistics of an executable's synchronized batch norms over all
// workers. All workers compute identical bits, with any transport. With a single worker the
// result is identical to that of a batch norm without synchronization.
type NormExchange struct {
	share func(own []float64) (all []float64, err error) // nil: there is one worker
	own   []float64
	spent time.Duration
}

// BeginStep starts a step in which sync exchanges the statistics. If there is only one worker,
// sync is nil. BeginStep returns an error if sync cannot exchange statistics.
func (s *NormExchange) BeginStep(sync GradSync) error {
	s.share, s.spent = nil, 0
	if sync == nil {
		return nil
	}
	c := sync.Capabilities()
	if s.share = c.ShareStatistics; s.share == nil {
		if c.Accumulation != nil {
			sync = c.Accumulation.Mean
		}
		return fmt.Errorf("synchronize batch norms: %T exchanges only gradients: use sync_batchnorm=false", sync)
	}
	return nil
}

// TakeExchangeTime returns the time spent in exchanges since BeginStep or since the previous
// call of TakeExchangeTime.
func (s *NormExchange) TakeExchangeTime() time.Duration {
	d := s.spent
	s.spent = 0
	return d
}

// CombineMoments combines the moments of all workers. It replaces the mean of each channel, and
// the channel's sum of squared differences from the mean, by their values over all workers.
// count is the number of elements per channel on this worker, and total is the number on all
// workers. The sums are combined as in Chan, Golub and LeVeque (Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances, 1979, equation 2.1), which is accurate
// even if the mean is far from zero.
func (s *NormExchange) CombineMoments(count float64, mean, squares []float64) (total float64, err error) {
	all, err := s.gatherValues(count, mean, squares)
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

// CombineSums replaces the elements of a and b, two sums per channel, by their sums over all
// workers. count is the number of elements per channel on this worker, and total is the number
// on all workers.
func (s *NormExchange) CombineSums(count float64, a, b []float64) (total float64, err error) {
	all, err := s.gatherValues(count, a, b)
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

func (s *NormExchange) gatherValues(count float64, a, b []float64) ([]float64, error) {
	s.own = append(append(append(s.own[:0], count), a...), b...)
	if s.share == nil {
		return s.own, nil
	}
	begin := time.Now()
	all, err := s.share(s.own)
	s.spent += time.Since(begin)
	if err == nil && (len(all) == 0 || len(all)%len(s.own) != 0) {
		err = errors.New("the workers passed different numbers of statistics: all workers must run the same program")
	}
	if err != nil {
		return nil, fmt.Errorf("exchange statistics: %w", err)
	}
	return all, nil
}
