package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

// ErrNoCheckpoint is the error that OpenPredictor wraps if a run folder has no checkpoint.
var ErrNoCheckpoint = checkpoint.ErrNoCheckpoint

// checkpointSnapshot is a checkpoint in memory that may be written later.
type checkpointSnapshot struct {
	checkpoint.Checkpoint
	tensors []weights.Tensor
}

// takeCheckpointSnapshot copies all persistent tensors on rank 0. On the other ranks, the result contains
// only the checkpoint's save point.
func (t *Trainer) takeCheckpointSnapshot() (s checkpointSnapshot, err error) {
	s.Epochs, s.Step, s.Network = t.epoch, t.step, t.net.Name()
	if t.group.Rank() != 0 {
		return s, nil
	}
	if t.untrained != nil {
		if s.Untrained, err = json.Marshal(t.untrained); err != nil {
			return s, err
		}
	}
	if t.average != nil {
		s.HasAverages, s.AverageUpdates = true, t.average.updates
	}
	if s.LossScale, err = marshalLossScale(t.can); err != nil {
		return s, err
	}
	s.tensors, err = t.persistentTensors()
	t.strategyState = nil // the snapshot has it
	return s, err
}

// saveCheckpointIfDue takes a snapshot after an epoch. It saves the snapshot if Checkpoint.Every
// requires it. Otherwise it keeps it in memory, to be saved if the run ends early.
func (t *Trainer) saveCheckpointIfDue(files *runFiles) error {
	if t.options.Dir == "" {
		return nil
	}
	now, err := t.takeCheckpointSnapshot()
	if err != nil {
		return err
	}
	// The snapshot may be saved now or at an interrupt, because every rank has written its
	// steps to disk; see prepareCheckpoint.
	t.unsaved = &now
	if t.epoch%t.cfg.Checkpoint.Every != 0 && t.epoch != t.cfg.Epochs {
		return nil
	}
	return t.saveLastEpoch(files)
}

// saveLastEpoch saves the snapshot of the last complete epoch, unless it is saved already.
func (t *Trainer) saveLastEpoch(files *runFiles) error {
	s := t.unsaved
	if s == nil {
		return nil
	}
	t.unsaved, files.saved = nil, s.SavePoint.Path()
	return t.writeCheckpoint(files, *s)
}

// writeCheckpoint writes s on rank 0, completely or not at all, records it in run.json, and deletes old
// checkpoints. It returns a *runs.LostError if another program has deleted the previous checkpoint.
func (t *Trainer) writeCheckpoint(files *runFiles, s checkpointSnapshot) error {
	if t.group.Rank() != 0 {
		return nil
	}
	if t.saved != "" {
		before := filepath.Join(t.options.Dir, t.saved)
		if _, err := os.Stat(before); errors.Is(err, fs.ErrNotExist) {
			return &runs.LostError{Path: before}
		}
	}
	// Not MkdirAll: a run folder that was deleted must not come back without its files.
	if err := os.Mkdir(filepath.Join(t.options.Dir, checkpoint.FolderName), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.Write(t.options.Dir, s.tensors); err != nil {
		return err
	}
	t.saved = s.SavePoint.Path()
	// Record the new checkpoint before an older one is deleted, so that the recorded one, or a
	// newer one, always exists.
	if err := files.writer.UpdateInfo(func(i *runs.Info) { i.Checkpoint = t.saved }); err != nil {
		return err
	}
	return checkpoint.DeleteOld(t.options.Dir, t.saved, t.cfg.Checkpoint.Keep)
}

// persistentTensors returns the parameters, the running statistics, the optimizer's state, and the
// averaged parameters if there are any.
func (t *Trainer) persistentTensors() ([]weights.Tensor, error) {
	p := t.train.Program()
	shapes := map[string][]int{}
	for _, x := range p.Tensors {
		if x.Role == plan.Parameter || x.Role == plan.State {
			shapes[x.Name] = x.Shape
		}
	}
	slots := t.cfg.Optimizer.Update(0, 1).Slots()
	values := maps.Clone(t.strategyState)
	if values == nil {
		values = map[string][]float64{}
	}
	names := t.train.Names()
	for _, name := range names {
		slot, _, isState := checkpoint.ParseOptimizerSlotName(name)
		if _, ok := values[name]; ok || isState && !slices.Contains(slots, slot) {
			continue
		}
		v, err := t.train.Get(name)
		if err != nil {
			return nil, err
		}
		values[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(t.strategyState)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var out []weights.Tensor
	for _, name := range names {
		v, ok := values[name]
		if !ok {
			continue
		}
		of := checkpoint.TrimRankPrefix(name)
		if _, param, isState := checkpoint.ParseOptimizerSlotName(of); isState {
			of = param
		}
		if strings.HasPrefix(of, strategy.CompressionPrefix) {
			shapes[of] = []int{len(v)}
		}
		w, err := weights.FromFloat64s(name, shapes[of], v, t.cfg.Engine.Precision == "fp32")
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	if t.average == nil {
		return out, nil
	}
	for _, name := range t.average.names {
		w, err := weights.FromFloat64s(averagePrefix+name, shapes[name], t.average.values[name], false)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// restoreCheckpoint restores the newest undamaged checkpoint of before, the run to resume. It
// initializes the parameters if there is no checkpoint or if before is nil, which means that the
// run was never started. Every rank reads the checkpoint, although New then broadcasts the tensors
// of rank 0.
func (t *Trainer) restoreCheckpoint(ctx context.Context, before *runs.Run) error {
	var all []string
	var err error
	if before != nil {
		all, err = checkpoint.ListCheckedPaths(*before, checkpointInterval(before.Info))
	}
	if errors.Is(err, ErrNoCheckpoint) && before.Info.Status == runs.StatusDone && checkpoint.LastEpoch(before.Epochs) >= t.cfg.Epochs {
		t.finished, all, err = before, nil, nil
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.options.Dir, err)
	}
	if len(all) == 0 { // the run ended before its first checkpoint, was never started, or is finished
		if err := t.checkSameCheckpoint(ctx, checkpoint.Checkpoint{}); err != nil {
			return err
		}
		return t.initParameters(ctx)
	}
	file, damaged, err := checkpoint.ReadNewest(ctx, t.options.Dir, all, t.net.Name())
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.options.Dir, err)
	}
	if err := t.checkRecordedFiles(file); err != nil {
		return err
	}
	t.saved = all[len(all)-1-len(damaged)]
	// Wait until every rank has read the damaged files before they are renamed.
	if err := t.checkSameCheckpoint(ctx, file); err != nil {
		return err
	}
	if t.group.Rank() == 0 {
		notes, err := checkpoint.RenameDamaged(damaged, t.saved)
		if t.notes = append(t.notes, notes...); err != nil {
			return fmt.Errorf("resume %s: %w", t.options.Dir, err)
		}
	}
	if file.Epochs > t.cfg.Epochs {
		return fmt.Errorf("resume %s: the run has %s already, but epochs is %d: set epochs to at least %d", t.options.Dir, english.FormatCount(file.Epochs, "epoch"), t.cfg.Epochs, file.Epochs)
	}
	if file.Steps > 0 {
		switch {
		case file.Epochs+1 > t.cfg.Epochs:
			return fmt.Errorf("resume %s: the checkpoint is in epoch %d, but epochs is %d: set epochs to at least %[2]d", t.options.Dir, file.Epochs+1, t.cfg.Epochs)
		case file.Steps > t.stepsPerEpoch() || len(file.Losses) != t.group.Size():
			return fmt.Errorf("resume %s: checkpoint %s was saved after step %d of an epoch with %d workers, but this run has %d steps per epoch and %d workers: use another run folder",
				t.options.Dir, file.Path, file.Steps, len(file.Losses), t.stepsPerEpoch(), t.group.Size())
		}
	}
	t.epoch, t.step, t.progress, t.resumed = file.Epochs, file.Step, checkpointProgress(file), &file
	if file.Untrained != nil {
		if err := json.Unmarshal(file.Untrained, &t.untrained); err != nil {
			return fmt.Errorf("checkpoint %s: invalid untrained scores: %w", file.Path, err)
		}
	}
	if err := file.CheckTensors(t.train); err != nil { // Strategy.Start restores them
		return err
	}
	if err := restoreLossScale(t.can, file.LossScale); err != nil {
		return fmt.Errorf("checkpoint %s: %w", file.Path, err)
	}
	return nil
}

// checkRecordedFiles returns an error if a file that the run wrote before it saved c is missing. A
// resumed run would otherwise replace the file by a shorter one.
func (t *Trainer) checkRecordedFiles(c checkpoint.Checkpoint) error {
	var names []string
	if c.Epochs > 0 {
		names = append(names, "epochs.csv")
		var untrained Scores
		if json.Unmarshal(c.Untrained, &untrained) == nil && untrained.Classes != nil {
			names = append(names, "classes.csv")
		}
	}
	if c.Step > 0 {
		for rank := range t.group.Size() {
			names = append(names, fmt.Sprintf("steps-%d.jsonl", rank))
		}
	}
	for _, name := range names {
		path := filepath.Join(t.options.Dir, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("resume %s: %s is missing, although the run has a checkpoint of step %d: restore the file from a copy; if there is none, create an empty file of that name to continue without its lines",
				t.options.Dir, path, c.Step)
		}
	}
	return nil
}

// checkpointInterval returns the number of epochs between two checkpoints of a run, or 0 if it is unknown.
func checkpointInterval(i runs.Info) int {
	c, err := ConfigOf(i)
	if err != nil {
		return 0
	}
	return c.Checkpoint.Every
}

// checkSameCheckpoint returns an error on all ranks unless all resume from the same checkpoint. c
// is this rank's checkpoint. All ranks must call it.
func (t *Trainer) checkSameCheckpoint(ctx context.Context, c checkpoint.Checkpoint) error {
	size, rank := t.group.Size(), t.group.Rank()
	if size == 1 {
		return nil
	}
	const perRank = 3
	all := make([]float64, perRank*size)
	copy(all[perRank*rank:], []float64{float64(c.Epochs), float64(c.Step), float64(c.Steps)})
	if err := t.allReduce(ctx, all); err != nil {
		return err
	}
	for r := range size {
		if of := all[perRank*r : perRank*(r+1)]; !slices.Equal(of, all[:perRank]) {
			return fmt.Errorf("resume %s: rank 0 has a checkpoint of step %.0f, but rank %d has one of step %.0f: give all ranks the same run folder",
				t.options.Dir, all[1], r, of[1])
		}
	}
	return nil
}

func (t *Trainer) runningStatNames() []string {
	p := t.train.Program()
	names := make([]string, len(p.States))
	for i, id := range p.States {
		names[i] = p.Tensors[id].Name
	}
	return names
}
