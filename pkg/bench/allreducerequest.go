package bench

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/internal/device"
)

// allReduceRequest asks a side to time or check all-reduces.
type allReduceRequest struct {
	size  int // bytes of the buffer
	count int // all-reduces to time; 0: check one
}

// parseReduceRequest reads "allreduce BYTES COUNT" or "check BYTES".
func parseReduceRequest(words []string) (r allReduceRequest, err error) {
	wantWords := 2
	if words[0] == comparison.RequestAllReduce {
		wantWords = 3
	}
	if len(words) != wantWords {
		return r, fmt.Errorf("request %s: got %d words, want %d", words[0], len(words), wantWords)
	}
	if r.size, err = strconv.Atoi(words[1]); err == nil && wantWords == 3 {
		r.count, err = strconv.Atoi(words[2])
	}
	if err == nil && (r.size < 4 || r.size%4 != 0 || wantWords == 3 && r.count < 1) {
		err = fmt.Errorf("request %s: got %d bytes and %d all-reduces, want a positive multiple of 4 bytes and at least 1", words[0], r.size, r.count)
	}
	return r, err
}

// answer answers r on one rank. reduce sums b over all ranks, and barrier waits for all ranks. Every side
// fills its buffer before the clock starts, so that no side's time includes the allocation of memory pages.
func (r allReduceRequest) answer(b []float32, rank, ranks int, barrier, reduce func() error) (comparison.Answer, error) {
	if r.count == 0 {
		return checkAllReduce(b, rank, ranks, reduce)
	}
	clear(b) // zeros, because sums of other numbers would overflow
	if err := barrier(); err != nil {
		return comparison.Answer{}, err
	}
	begin := time.Now()
	for range r.count {
		if err := reduce(); err != nil {
			return comparison.Answer{}, err
		}
	}
	return comparison.Answer{Seconds: time.Since(begin).Seconds()}, nil
}

// combineAnswers combines the answers of all ranks to the longest time and the total number of wrong
// elements. a is this rank's answer, and reduce sums its argument over all ranks.
func combineAnswers(a comparison.Answer, rank, ranks int, reduce func([]float64) error) (comparison.Answer, error) {
	all := make([]float64, ranks+1) // the time of each rank, and the number of wrong elements
	all[rank] = a.Seconds
	if a.Wrong != nil {
		all[ranks] = float64(*a.Wrong)
	}
	if err := reduce(all); err != nil {
		return a, err
	}
	a.Seconds = slices.Max(all[:ranks])
	if a.Wrong != nil {
		*a.Wrong = int(all[ranks])
	}
	return a, nil
}

// shareRequest replaces r by rank 0's request. Its size is 0 if there are no more requests.
func (w *worker) shareRequest(r *allReduceRequest) error {
	b := device.Buffer{F64: []float64{float64(r.size), float64(r.count)}}
	err := w.group.Broadcast(w.ctx, b, 0)
	r.size, r.count = int(b.F64[0]), int(b.F64[1])
	return err
}

func (w *worker) followRequests() error {
	for {
		var r allReduceRequest
		if err := w.shareRequest(&r); err != nil || r.size == 0 {
			return err
		}
		if _, err := w.answerReduceRequest(r); err != nil {
			return err
		}
	}
}

// answerReduceRequest answers r by all-reduces of the group or, in the task stream, by exchanges
// through the stream.
func (w *worker) answerReduceRequest(r allReduceRequest) (comparison.Answer, error) {
	if n := r.size / 4; w.sum.Len() != n {
		w.sum = device.Buffer{F32: make([]float32, n)}
	}
	reduce := func() error { return w.group.AllReduce(w.ctx, w.sum) }
	if w.stream != nil {
		reduce = func() error { return w.stream.exchange(w.sum.F32, r.count == 0) }
	}
	a, err := r.answer(w.sum.F32, w.group.Rank(), w.group.Size(), func() error { return w.group.Barrier(w.ctx) }, reduce)
	if err != nil || !w.answersForAll {
		return a, err
	}
	return combineAnswers(a, w.group.Rank(), w.group.Size(), func(all []float64) error {
		return w.group.AllReduce(w.ctx, device.Buffer{F64: all})
	})
}

// checkPatternPeriod is the length of checkAllReduce's pattern. It is prime, so that the sums are
// wrong if a part of the buffer was added at the wrong offset.
const checkPatternPeriod = 97

// checkAllReduce fills b with i modulo checkPatternPeriod plus the rank, adds up b over all ranks and counts the wrong
// elements. The numbers are small and whole, so their sums are exact in any order.
func checkAllReduce(b []float32, rank, ranks int, reduce func() error) (comparison.Answer, error) {
	for i := range b {
		b[i] = float32(i%checkPatternPeriod + rank)
	}
	if err := reduce(); err != nil {
		return comparison.Answer{}, err
	}
	wrong := 0
	for i, v := range b {
		if v != float32(ranks*(i%checkPatternPeriod)+ranks*(ranks-1)/2) {
			wrong++
		}
	}
	return comparison.Answer{Wrong: &wrong}, nil
}
