package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/collective"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs/transfers"
)

// RecordOptions configures RecordAllReduce.
type RecordOptions struct {
	Workers   int    // processes on this machine; 0: 4
	Algorithm string // of package schedule; "": ring
	Transport string // of ScheduledTransports; "": shm, or tcp with several nodes
	Bytes     int    // size of the float32 buffer; 0: 1 MB
	PerNode   int    // workers that the algorithm takes for one node; 0: all
}

func (o RecordOptions) withDefaults() RecordOptions {
	o.Workers = cmp.Or(o.Workers, 4)
	o.Algorithm = cmp.Or(o.Algorithm, schedule.Ring)
	if o.Transport == "" {
		o.Transport = transportShared
		if o.PerNode > 0 {
			o.Transport = transportTCP
		}
	}
	o.Bytes = cmp.Or(o.Bytes, 1_000_000)
	return o
}

// Validate returns an error for the first invalid option.
func (o RecordOptions) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Workers < 2 || o.Workers > maxRecordedWorkers:
		return fmt.Errorf("record all-reduce: got %s, want 2 to %d", english.FormatCount(o.Workers, "worker"), maxRecordedWorkers)
	case o.Bytes < 4 || o.Bytes%4 != 0 || o.Bytes > maxBufferBytes:
		return fmt.Errorf("record all-reduce: invalid size %d: use a positive multiple of 4 bytes, the size of a float32, up to %d", o.Bytes, maxBufferBytes)
	case o.PerNode < 0 || o.PerNode > 0 && o.Workers%o.PerNode != 0:
		return fmt.Errorf("record all-reduce: %d workers cannot be divided into nodes of %d: use a divisor of the number of workers", o.Workers, o.PerNode)
	case !slices.Contains(schedule.Names(), o.Algorithm):
		return checkNames("record all-reduce", "algorithm", []string{o.Algorithm}, schedule.Names())
	case o.PerNode > 0 && o.Transport == transportShared:
		return fmt.Errorf("record all-reduce: several nodes share no memory: use the transport tcp or unix")
	}
	return checkNames("record all-reduce", "transport", []string{o.Transport}, ScheduledTransports())
}

const maxRecordedWorkers = 64

// RecordAllReduce runs an all-reduce in several processes on this machine, and returns a recording
// of each transfer: which chunk, from which rank to which, and when. It records the second of two
// all-reduces, because the first one also allocates memory.
func RecordAllReduce(ctx context.Context, o RecordOptions) (*transfers.Recording, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, err
	}
	side, err := comparison.Start(ctx, comparison.Program{
		Argv: append(command, "--task", taskAllReduce), Env: []string{"LOCKSTEP_COLLECTIVE=" + o.Transport, "LOCKSTEP_ALGORITHM="},
		Workers: o.Workers, PerNode: o.PerNode,
	})
	if err != nil {
		return nil, fmt.Errorf("record all-reduce: %w", comparison.ContextCause(ctx, err))
	}
	defer side.Close()
	var answers []comparison.Answer
	for range 2 {
		if answers, err = side.Ask(fmt.Sprintf("%s %d %s", comparison.RequestRecord, o.Bytes, o.Algorithm)); err != nil {
			return nil, fmt.Errorf("record all-reduce: %w", comparison.ContextCause(ctx, err))
		}
	}
	if r := answers[0].Recording; r != nil {
		return r, r.Validate()
	}
	return nil, fmt.Errorf("record all-reduce: the workers have recorded nothing")
}

// recordAllReduce records an all-reduce of zeros. Ranks other than 0 return no recording.
func (w *worker) recordAllReduce(bytes int, algorithm string) (comparison.Answer, error) {
	if n := bytes / 4; w.sum.Len() != n {
		w.sum = device.Buffer{F32: make([]float32, n)}
	}
	clear(w.sum.F32)
	r, err := collective.RecordAllReduce(w.ctx, w.group, w.sum, algorithm)
	if w.group.Rank() > 0 {
		r = nil
	}
	return comparison.Answer{Recording: r}, err
}
