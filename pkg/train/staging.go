package train

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Samples are the training samples and the held-out samples of a config.
type Samples struct {
	data.OpenedData
	config DataConfig // of Variants
}

// OpenSamples opens the data of c; see data.Open. A notebook cell shows the notes about the data.
func OpenSamples(ctx context.Context, c DataConfig) (Samples, error) {
	samples, err := openData(ctx, c)
	if err == nil && notebook.InNotebook() && len(samples.Notes) > 0 {
		err = notebook.Display("note: " + strings.Join(samples.Notes, "\nnote: "))
	}
	return samples, err
}

// openData is OpenSamples without the notes.
func openData(ctx context.Context, c DataConfig) (Samples, error) {
	o, err := data.Open(ctx, c)
	return Samples{o, c}, err
}

// rankReportInterval is how often ranks report to each other in runOnAllRanks.
const rankReportInterval = time.Second

// openSamples opens the config's data, or the copy of them that it makes in data.stage.
func (t *Trainer) openSamples(ctx context.Context) (err error) {
	c, note := t.cfg.Data, ""
	if c.Stage != "" {
		if t.staged, err = stageOnAllRanks(ctx, t.group, c); err != nil {
			return err
		}
		c, note = t.staged.Config, t.staged.String()
	}
	work := "reading the data in " + c.Path
	if c.Path == "" {
		work = fmt.Sprintf("generating the data (kind %s, count %d)", c.Kind, c.Count)
	}
	defer t.logIfSlow(work)()
	if t.samples, err = openData(ctx, c); err != nil {
		return err
	}
	if note != "" {
		t.samples.Notes = append(t.samples.Notes, note)
	}
	if c.Kind == data.KindPairs && c.Reading != data.ReadingGray { // run.json says what the network reads
		t.cfg.Data.InputChannels = t.samples.Train.ImageShape()[0]
	}
	return nil
}

// readAsBefore makes a resumed run read its data by the rules by which it was started.
func (t *Trainer) readAsBefore() {
	if !t.options.Resume || t.options.Dir == "" || t.cfg.Data.Reading != 0 {
		return
	}
	before, err := runs.Read(t.options.Dir)
	if err != nil {
		return // readResumable returns the error
	}
	if c, err := ConfigOf(before.Info); err == nil && c.Data.Kind == t.cfg.Data.Kind {
		t.cfg.Data.Reading = c.Data.Reading
	}
}

// stageOnAllRanks stages the data on every rank and waits for all ranks.
func stageOnAllRanks(ctx context.Context, group collective.Group, c DataConfig) (staged *data.Staged, err error) {
	err = runOnAllRanks(ctx, group, "stage data", func(ctx context.Context) (err error) {
		staged, err = data.Stage(ctx, c)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, staged.Close())
	}
	return staged, nil
}

// runOnAllRanks runs work on every rank and waits for all. Because work may take longer than the
// time-out of an exchange, each rank reports to the others until it has ended. what names the work
// in errors. If work fails on a rank, it is canceled on the others, and every rank gets an error.
func runOnAllRanks(ctx context.Context, group collective.Group, what string, work func(context.Context) error) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	var workErr error
	go func() {
		defer close(ended)
		workErr = work(working)
	}()
	err := waitForAllRanks(ctx, group, what, ended, &workErr)
	if err != nil {
		cancel()
	}
	<-ended
	if workErr != nil && !errors.Is(workErr, context.Canceled) {
		return workErr
	}
	return err
}

// waitForAllRanks waits until ended is closed on every rank, or returns an error on every rank as
// soon as one has failed. When ended is closed, *failure is this rank's error, or nil. what names
// the work in errors.
func waitForAllRanks(ctx context.Context, group collective.Group, what string, ended <-chan struct{}, failure *error) error {
	for {
		var state [2]float64 // number of ranks that have ended, and of ranks that have failed
		select {
		case <-ended:
			state[0] = 1
			if *failure != nil {
				state[1] = 1
			}
		case <-time.After(rankReportInterval):
		}
		if err := strategy.AllReduceFloat64s(ctx, group, state[:]); err != nil {
			return fmt.Errorf("wait for the data of all ranks: %w", err)
		}
		switch {
		case state[1] > 0:
			return fmt.Errorf("%s: failed on %g of %d ranks, see their error messages", what, state[1], group.Size())
		case state[0] == float64(group.Size()):
			return nil
		}
	}
}
