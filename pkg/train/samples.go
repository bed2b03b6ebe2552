package train

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/ranks"
)

// Samples are the training samples and the held-out samples of a config.
type Samples struct {
	data.OpenedData
	config DataConfig // of Variants
}

// OpenSamples opens the data of c; see data.Open. In a notebook, the cell shows notes about the
// data.
func OpenSamples(ctx context.Context, c DataConfig) (Samples, error) {
	samples, err := openSamplesSilently(ctx, c)
	if err == nil && notebook.InNotebook() && len(samples.Notes) > 0 {
		err = notebook.Display("note: " + strings.Join(samples.Notes, "\nnote: "))
	}
	return samples, err
}

// openSamplesSilently is like OpenSamples, but does not show notes.
func openSamplesSilently(ctx context.Context, c DataConfig) (Samples, error) {
	o, err := data.Open(ctx, c)
	return Samples{o, c}, err
}

// openSamples opens the config's data. If data.stage is set, it copies the data there and opens the
// copy.
func (t *Trainer) openSamples(ctx context.Context) (err error) {
	c, note := t.cfg.Data, ""
	if c.Stage != "" {
		if t.staged, err = stageDataOnAllRanks(ctx, t.group, c); err != nil {
			return err
		}
		c, note = t.staged.Config, t.staged.String()
	}
	work := "reading the data in " + c.Path
	if c.Path == "" {
		work = fmt.Sprintf("generating the data (kind %s, count %d)", c.Kind, c.Count)
	}
	defer t.logIfSlow(work)()
	if t.samples, err = openSamplesSilently(ctx, c); err != nil {
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

// restoreDataReadingRules makes a resumed run read its data by the same rules as when it was started.
func (t *Trainer) restoreDataReadingRules() {
	if !t.options.Resume || t.options.Dir == "" || t.cfg.Data.Reading != 0 {
		return
	}
	before, err := runs.Read(t.options.Dir)
	if err != nil {
		return // readResumableRun returns the error
	}
	if c, err := ConfigOf(before.Info); err == nil && c.Data.Kind == t.cfg.Data.Kind {
		t.cfg.Data.Reading = c.Data.Reading
	}
}

// stageDataOnAllRanks stages the data on every rank and waits for all ranks.
func stageDataOnAllRanks(ctx context.Context, group collective.Group, c DataConfig) (staged *data.Staged, err error) {
	err = ranks.RunOnAllRanks(ctx, group, "stage data", func(ctx context.Context) (err error) {
		staged, err = data.Stage(ctx, c)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, staged.Close())
	}
	return staged, nil
}
