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
	"sort"
	"strconv"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/runs"
	"lockstep/pkg/weights"
)

// checkpointDir is the folder of checkpoints in a run folder.
const checkpointDir = "checkpoints"

// checkpointFormat is the value of the key "format" in a checkpoint's metadata.
const checkpointFormat = "lockstep checkpoint 1"

// damagedSuffix is appended to the name of a damaged checkpoint when a run is resumed.
// Lockstep neither reads nor deletes such files.
const damagedSuffix = ".damaged"

// ErrNoCheckpoint is wrapped by errors about a run folder without checkpoints.
var ErrNoCheckpoint = errors.New("no checkpoint")

// state is a checkpoint in memory.
type state struct {
	name     string // relative to the run folder
	tensors  []weights.Tensor
	metadata map[string]string
}

// capture copies all persistent tensors on rank 0. On the other ranks, it returns only the
// checkpoint's name.
func (t *Trainer) capture() (state, error) {
	s := state{name: filepath.Join(checkpointDir, fmt.Sprintf("epoch-%04d.safetensors", t.epoch))}
	if t.group.Rank() != 0 {
		return s, nil
	}
	counts, err := json.Marshal(t.untrained)
	if err != nil {
		return s, err
	}
	s.metadata = map[string]string{
		"format": checkpointFormat, "model": t.net.Name(),
		"epoch": strconv.Itoa(t.epoch), "step": strconv.Itoa(t.step), "untrained": string(counts),
	}
	if t.average != nil {
		s.metadata["averages"] = strconv.Itoa(t.average.updates)
	}
	scale, err := lossScaleOf(t.train)
	if err != nil {
		return s, err
	}
	if scale != "" {
		s.metadata[lossScaleKey] = scale
	}
	s.tensors, err = t.tensors()
	return s, err
}

// checkpoint saves the epoch that was completed if a checkpoint is due. Otherwise it keeps
// the state in memory, so that it can be saved if the run ends early.
func (t *Trainer) checkpoint(rec *recorder) error {
	if t.options.Dir == "" {
		return nil
	}
	now, err := t.capture()
	if err != nil {
		return err
	}
	// The state may be saved now or at an interrupt, because every rank has written its
	// steps to disk; see settle.
	t.unsaved = &now
	if t.epoch%t.cfg.Checkpoint.Every != 0 && t.epoch != t.cfg.Epochs {
		return nil
	}
	return t.saveUnsaved(rec)
}

// saveUnsaved saves the last complete epoch if it is not saved yet. The file is written
// completely or not at all.
func (t *Trainer) saveUnsaved(rec *recorder) error {
	s := t.unsaved
	if s == nil {
		return nil
	}
	t.unsaved, rec.saved = nil, s.name
	return t.save(*s)
}

// save writes a checkpoint on rank 0, and deletes old ones. It returns a *runs.LostError if
// the previous checkpoint was deleted by somebody else.
func (t *Trainer) save(s state) error {
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
	if err := os.Mkdir(filepath.Join(t.options.Dir, checkpointDir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := weights.Write(filepath.Join(t.options.Dir, s.name), s.tensors, s.metadata); err != nil {
		return err
	}
	t.saved = s.name
	return t.prune()
}

// tensors returns the parameters, the running statistics, the optimizer's state, and the
// averaged parameters if there are any.
func (t *Trainer) tensors() ([]weights.Tensor, error) {
	p := t.train.Program()
	shapes := map[string][]int{}
	for _, x := range p.Tensors {
		if x.Role == plan.Parameter || x.Role == plan.State {
			shapes[x.Name] = x.Shape
		}
	}
	slots := t.cfg.Optimizer.Update(0, 1).Slots()
	var out []weights.Tensor
	for _, name := range t.train.Names() {
		of := name
		if isSlot(name) {
			slot, param, _ := strings.Cut(strings.TrimPrefix(name, slotPrefix), ".")
			if !slices.Contains(slots, slot) {
				continue
			}
			of = param
		}
		v, err := t.train.Get(name)
		if err != nil {
			return nil, err
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

// prune deletes the oldest checkpoints, except the newest Checkpoint.Keep at the end of
// epochs. A checkpoint within an epoch is kept while it is the newest or second newest one:
// the second newest serves if the newest is damaged. At the end of its epoch it is deleted
// if there is a checkpoint of an earlier epoch.
func (t *Trainer) prune() error {
	all, err := checkpoints(t.options.Dir)
	if err != nil {
		return err
	}
	within := func(name string) bool { return strings.Contains(filepath.Base(name), "-step-") }
	var drop, whole []string
	for i, name := range all {
		switch after := all[i+1:]; {
		case !within(name):
			whole = append(whole, name)
		case len(after) > 1, len(after) == 1 && !within(after[0]) && len(whole) > 0:
			drop = append(drop, name)
		}
	}
	if keep := t.cfg.Checkpoint.Keep; keep > 0 && len(whole) > keep {
		drop = append(drop, whole[:len(whole)-keep]...)
	}
	for _, name := range drop {
		if err := os.Remove(filepath.Join(t.options.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkpoints returns the paths of the checkpoints in a run folder, relative to it, oldest
// first. This is the order of their names: epoch-0002-step-000007.safetensors, within epoch
// 2, sorts before epoch-0002.safetensors, at its end.
func checkpoints(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, checkpointDir, "epoch-*.safetensors"))
	if err != nil {
		return nil, err
	}
	sort.Strings(found)
	for i, f := range found {
		found[i] = filepath.Join(checkpointDir, filepath.Base(f))
	}
	return found, nil
}

// restore restores the newest undamaged checkpoint, or initializes the parameters if there
// is no checkpoint. Every rank reads the checkpoint, but New then broadcasts the tensors of
// rank 0.
func (t *Trainer) restore(ctx context.Context) error {
	all, err := checkpoints(t.options.Dir)
	if err != nil {
		return err
	}
	if len(all) == 0 { // the run ended before its first checkpoint, or never started
		if err := t.sameCheckpoint(ctx, checkpoint{}); err != nil {
			return err
		}
		return t.initialise(ctx)
	}
	file, damaged, err := newestWhole(ctx, t.options.Dir, all, t.net.Name())
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.options.Dir, err)
	}
	t.saved = all[len(all)-1-len(damaged)]
	// Wait until every rank has read the damaged files before they are renamed.
	if err := t.sameCheckpoint(ctx, file); err != nil {
		return err
	}
	if err := t.setAside(damaged); err != nil {
		return err
	}
	if file.epoch > t.cfg.Epochs {
		return fmt.Errorf("resume %s: %s already done, epochs is %d: use at least as many", t.options.Dir, english.Count(file.epoch, "epoch"), t.cfg.Epochs)
	}
	if p := file.begun; p.steps > 0 {
		switch {
		case file.epoch+1 > t.cfg.Epochs:
			return fmt.Errorf("resume %s: the checkpoint is in epoch %d, but epochs is %d: set epochs to at least %[2]d", t.options.Dir, file.epoch+1, t.cfg.Epochs)
		case p.steps > t.steps() || len(p.losses) != t.group.Size():
			return fmt.Errorf("resume %s: checkpoint %s is after step %d of an epoch of %d workers, here are %d steps and %d workers: use another run folder",
				t.options.Dir, file.path, p.steps, len(p.losses), t.steps(), t.group.Size())
		}
	}
	t.epoch, t.step, t.untrained, t.begun, t.resumed = file.epoch, file.step, file.untrained, file.begun, &file
	if err := file.apply(t.train); err != nil {
		return err
	}
	if err := applyLossScale(t.train, file.lossScale); err != nil {
		return fmt.Errorf("checkpoint %s: %w", file.path, err)
	}
	return nil
}

// newestWhole reads the newest undamaged checkpoint. all are the checkpoints, oldest first.
// damaged are the errors of the newer ones, newest first.
func newestWhole(ctx context.Context, dir string, all []string, modelName string) (file checkpoint, damaged []*weights.DamagedError, err error) {
	for _, name := range slices.Backward(all) {
		file, err = readCheckpoint(ctx, filepath.Join(dir, name), modelName)
		var d *weights.DamagedError
		if !errors.As(err, &d) {
			return file, damaged, err
		}
		damaged = append(damaged, d)
	}
	return checkpoint{}, nil, fmt.Errorf("no checkpoint is whole: %w; put a copy of it back, or delete %s to train from the beginning",
		damaged[0], filepath.Join(dir, checkpointDir))
}

// sameCheckpoint returns an error unless all ranks resume from the same checkpoint. All
// ranks must call it.
func (t *Trainer) sameCheckpoint(ctx context.Context, c checkpoint) error {
	size, rank := t.group.Size(), t.group.Rank()
	if size == 1 {
		return nil
	}
	const perRank = 3
	all := make([]float64, perRank*size)
	copy(all[perRank*rank:], []float64{float64(c.epoch), float64(c.step), float64(c.begun.steps)})
	if err := t.sum(ctx, all); err != nil {
		return err
	}
	for r := range size {
		if of := all[perRank*r : perRank*(r+1)]; !slices.Equal(of, all[:perRank]) {
			return fmt.Errorf("resume %s: rank 0 reads a checkpoint of step %.0f, rank %d one of step %.0f: the ranks need the same run folder",
				t.options.Dir, all[1], r, of[1])
		}
	}
	return nil
}

// setAside appends damagedSuffix to the names of damaged checkpoints, on rank 0, and adds
// notes for the logs.
func (t *Trainer) setAside(damaged []*weights.DamagedError) error {
	if t.group.Rank() != 0 {
		return nil
	}
	for _, d := range damaged {
		if err := os.Rename(d.Path, d.Path+damagedSuffix); err != nil {
			return fmt.Errorf("resume %s: set a damaged checkpoint aside: %w", t.options.Dir, err)
		}
		t.notes = append(t.notes, fmt.Sprintf("checkpoint %s is damaged (%v); it is kept as %s, and the run goes on from %s",
			filepath.Base(d.Path), d.Err, filepath.Base(d.Path)+damagedSuffix, filepath.Base(t.saved)))
	}
	return nil
}

// checkpoint is the content of a checkpoint file.
type checkpoint struct {
	path        string
	epoch, step int
	begun       progress // within the next epoch
	untrained   *Scores  // scores of the untrained network; nil if not recorded
	tensors     map[string][]float64
	averaged    bool // the checkpoint contains averaged parameters
	averages    int  // number of updates of the average
	lossScale   string
}

// readCheckpoint reads the checkpoint at path. It returns an error if the checkpoint is not
// of the network modelName.
func readCheckpoint(ctx context.Context, path, modelName string) (checkpoint, error) {
	file, err := weights.ReadContext(ctx, path)
	if err != nil {
		return checkpoint{}, err
	}
	meta := file.Metadata
	if got := meta["format"]; got != "" && got != checkpointFormat {
		return checkpoint{}, fmt.Errorf("checkpoint %s has format %q, this program reads %q: use the lockstep that wrote it, or another run folder", path, got, checkpointFormat)
	}
	c := checkpoint{path: path, tensors: map[string][]float64{}, lossScale: meta[lossScaleKey]}
	if got := meta["model"]; got != modelName {
		return c, fmt.Errorf("checkpoint %s is of %q, not of %q: use the config that it was trained with", path, got, modelName)
	}
	if c.epoch, err = strconv.Atoi(meta["epoch"]); err != nil {
		return c, unreadable(path, "epoch", err)
	}
	if c.step, err = strconv.Atoi(meta["step"]); err != nil {
		return c, unreadable(path, "step", err)
	}
	if c.begun, err = readProgress(c.epoch, meta); err != nil {
		return c, unreadable(path, "progress", err)
	}
	if u, ok := meta["averages"]; ok {
		c.averaged = true
		if c.averages, err = strconv.Atoi(u); err != nil {
			return c, unreadable(path, "averages", err)
		}
	}
	if s := meta["untrained"]; s != "" && s != "null" {
		c.untrained = new(Scores)
		if err := json.Unmarshal([]byte(s), c.untrained); err != nil {
			return c, unreadable(path, "untrained scores", err)
		}
	}
	for _, w := range file.Tensors {
		c.tensors[w.Name] = w.Float64s()
	}
	return c, nil
}

// unreadable returns an error, with advice, for an undamaged checkpoint with invalid
// metadata. what names the invalid part.
func unreadable(path, what string, err error) error {
	return fmt.Errorf("checkpoint %s: %s: %w; it is no checkpoint of this version of lockstep: use the version that wrote it, or delete the file to go on from the one before", path, what, err)
}

// apply sets the tensors of x from c. It returns an error if a parameter or a running
// statistic is missing in c. It skips averages, and for an evaluation program the
// optimizer's state.
func (c checkpoint) apply(x engine.Executable) error {
	p := x.Program()
	for _, t := range p.Tensors {
		if t.Role == plan.Parameter || t.Role == plan.State {
			if _, ok := c.tensors[t.Name]; !ok {
				return fmt.Errorf("checkpoint %s lacks %s", c.path, t.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.tensors)) {
		if isSlot(name) && len(p.Buckets) == 0 || strings.HasPrefix(name, averagePrefix) {
			continue
		}
		if err := x.Set(name, c.tensors[name]); err != nil {
			return fmt.Errorf("checkpoint %s: %w", c.path, err)
		}
	}
	return nil
}

// stateNames returns the names of the running statistics.
func (t *Trainer) stateNames() []string {
	p := t.train.Program()
	names := make([]string, len(p.States))
	for i, id := range p.States {
		names[i] = p.Tensors[id].Name
	}
	return names
}

// slotPrefix is the prefix of the optimizer's state tensors: optimizer.<slot>.<parameter>.
const slotPrefix = "optimizer."

// isSlot reports whether the persistent tensor belongs to the optimizer.
func isSlot(name string) bool { return strings.HasPrefix(name, slotPrefix) }
