package tidy

import "lockstep/pkg/runs"

// exchange sums what the workers of a run have exchanged in the steps of an epoch.
type exchange struct {
	steps, dropped, oldest int
	staleness, sent        float64
}

// sumExchanges returns the sums of each epoch over all ranks of a run with several workers, from
// the steps in its folder. It returns nil for logs of other programs.
func sumExchanges(run *runs.Run) (map[int]exchange, error) {
	if run.Info.Schema == 0 || run.Info.Workers < 2 {
		return nil, nil
	}
	ranks, err := runs.Ranks(run.Dir)
	if err != nil {
		return nil, err
	}
	sums := map[int]exchange{}
	for _, rank := range ranks {
		_, steps, _, err := runs.ReadSteps(run.Dir, rank) // Steps reports the problems
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			x := sums[s.Epoch]
			x.steps++
			x.sent += float64(s.Sent)
			x.staleness += float64(s.Staleness)
			x.oldest = max(x.oldest, s.Staleness)
			if s.Dropped {
				x.dropped++
			}
			sums[s.Epoch] = x
		}
	}
	return sums, nil
}

// values returns the means over the steps of all workers, as far as there is anything.
func (x exchange) values() []Value {
	var values []Value
	n := float64(x.steps)
	if x.sent > 0 {
		values = append(values, Value{"sent_bytes_per_step", x.sent / n})
	}
	if x.oldest > 0 {
		values = append(values, Value{"mean_staleness", x.staleness / n}, Value{"max_staleness", float64(x.oldest)})
	}
	if x.dropped > 0 {
		values = append(values, Value{"dropped_steps", float64(x.dropped)})
	}
	return values
}
