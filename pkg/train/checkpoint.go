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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/weights"
)

const checkpointFormat = "lockstep checkpoint 1"

// ErrNoCheckpoint is the error that OpenPredictor wraps if a run folder has no checkpoint.
var ErrNoCheckpoint = errors.New("no checkpoint")

type snapshot struct {
	name     string // path of the checkpoint, relative to the run folder
	tensors  []weights.Tensor
	metadata map[string]string
}

// takeSnapshot copies all persistent tensors on rank 0. On the other ranks, the result has
// only the checkpoint's name.
func (t *Trainer) takeSnapshot() (snapshot, error) {
	s := snapshot{name: checkpointPlace{epochs: t.epoch}.path()}
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
	scale, err := marshalLossScale(t.can)
	if err != nil {
		return s, err
	}
	if scale != "" {
		s.metadata[lossScaleKey] = scale
	}
	s.tensors, err = t.persistentTensors()
	t.strategyState = nil // the snapshot has it
	return s, err
}

// saveIfDue takes a snapshot after an epoch. It saves it if Checkpoint.Every requires it, or else
// keeps it in memory, to be saved if the run ends early.
func (t *Trainer) saveIfDue(rec *recorder) error {
	if t.options.Dir == "" {
		return nil
	}
	now, err := t.takeSnapshot()
	if err != nil {
		return err
	}
	// The snapshot may be saved now or at an interrupt, because every rank has written its
	// steps to disk; see prepareSave.
	t.unsaved = &now
	if t.epoch%t.cfg.Checkpoint.Every != 0 && t.epoch != t.cfg.Epochs {
		return nil
	}
	return t.saveLastEpoch(rec)
}

// saveLastEpoch saves the snapshot of the last complete epoch, unless it is saved already.
func (t *Trainer) saveLastEpoch(rec *recorder) error {
	s := t.unsaved
	if s == nil {
		return nil
	}
	t.unsaved, rec.saved = nil, s.name
	return t.writeCheckpoint(rec, *s)
}

// writeCheckpoint writes s on rank 0, completely or not at all, records it in run.json, and deletes old
// checkpoints. It returns a *runs.LostError if another program has deleted the previous checkpoint.
func (t *Trainer) writeCheckpoint(rec *recorder, s snapshot) error {
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
	// Record the new checkpoint before an older one is deleted, so that the recorded one, or a
	// newer one, always exists.
	if err := rec.writer.UpdateInfo(func(i *runs.Info) { i.Checkpoint = s.name }); err != nil {
		return err
	}
	return t.deleteOldCheckpoints()
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
		slot, _, isState := cutSlot(name)
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
		of := tensorOfRank(name)
		if _, param, isState := cutSlot(of); isState {
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

// restoreCheckpoint restores the newest undamaged checkpoint of before, or initializes the
// parameters if there is none. before is the run to resume; nil: it was never started. Every rank
// reads the checkpoint. Nevertheless, New then broadcasts the tensors of rank 0.
func (t *Trainer) restoreCheckpoint(ctx context.Context, before *runs.Run) error {
	var all []string
	var err error
	if before != nil {
		all, err = listRunCheckpoints(*before)
	}
	if errors.Is(err, ErrNoCheckpoint) && before.Info.Status == runs.StatusDone && lastEpoch(before.Epochs) >= t.cfg.Epochs {
		t.finished, all, err = before, nil, nil
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.options.Dir, err)
	}
	if len(all) == 0 { // the run ended before its first checkpoint, was never started, or is finished
		if err := t.checkSameCheckpoint(ctx, checkpoint{}); err != nil {
			return err
		}
		return t.initParameters(ctx)
	}
	file, damaged, err := readNewestUndamaged(ctx, t.options.Dir, all, t.net.Name())
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.options.Dir, err)
	}
	if err := t.checkRecord(file); err != nil {
		return err
	}
	t.saved = all[len(all)-1-len(damaged)]
	// Wait until every rank has read the damaged files before they are renamed.
	if err := t.checkSameCheckpoint(ctx, file); err != nil {
		return err
	}
	if err := t.renameDamaged(damaged); err != nil {
		return err
	}
	if file.epoch > t.cfg.Epochs {
		return fmt.Errorf("resume %s: the run has %s already, but epochs is %d: set epochs to at least %d", t.options.Dir, english.Count(file.epoch, "epoch"), t.cfg.Epochs, file.epoch)
	}
	if p := file.progress; p.steps > 0 {
		switch {
		case file.epoch+1 > t.cfg.Epochs:
			return fmt.Errorf("resume %s: the checkpoint is in epoch %d, but epochs is %d: set epochs to at least %[2]d", t.options.Dir, file.epoch+1, t.cfg.Epochs)
		case p.steps > t.stepsPerEpoch() || len(p.losses) != t.group.Size():
			return fmt.Errorf("resume %s: checkpoint %s was saved after step %d of an epoch with %d workers, but this run has %d steps per epoch and %d workers: use another run folder",
				t.options.Dir, file.path, p.steps, len(p.losses), t.stepsPerEpoch(), t.group.Size())
		}
	}
	t.epoch, t.step, t.untrained, t.progress, t.resumed = file.epoch, file.step, file.untrained, file.progress, &file
	if err := file.checkTensors(t.train); err != nil { // Strategy.Start restores them
		return err
	}
	if err := restoreLossScale(t.can, file.lossScale); err != nil {
		return fmt.Errorf("checkpoint %s: %w", file.path, err)
	}
	return nil
}

// readNewestUndamaged reads the newest undamaged checkpoint of the run folder dir. all are the paths of
// the checkpoints, oldest first. damaged are the errors of the checkpoints newer than file, newest first.
func readNewestUndamaged(ctx context.Context, dir string, all []string, modelName string) (file checkpoint, damaged []*weights.DamagedError, err error) {
	for _, name := range slices.Backward(all) {
		if file, err = readCheckpoint(ctx, filepath.Join(dir, name)); err == nil {
			err = file.checkNetwork(modelName)
		}
		var d *weights.DamagedError
		if !errors.As(err, &d) {
			return file, damaged, err
		}
		damaged = append(damaged, d)
	}
	return checkpoint{}, nil, fmt.Errorf("all checkpoints are damaged: %w; restore a copy of one, or train again in another run folder", damaged[0])
}

// checkSameCheckpoint returns an error on all ranks unless all resume from the same checkpoint. c
// is this rank's checkpoint. All ranks must call it.
func (t *Trainer) checkSameCheckpoint(ctx context.Context, c checkpoint) error {
	size, rank := t.group.Size(), t.group.Rank()
	if size == 1 {
		return nil
	}
	const perRank = 3
	all := make([]float64, perRank*size)
	copy(all[perRank*rank:], []float64{float64(c.epoch), float64(c.step), float64(c.progress.steps)})
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

type checkpoint struct {
	path           string
	network        string // name of the network
	epoch, step    int
	progress       progress // progress within the epoch after epoch
	untrained      *Scores  // scores of the untrained network; nil if not recorded
	tensors        map[string][]float64
	hasAverages    bool   // the checkpoint contains averaged parameters
	averageUpdates int    // number of updates of the averages
	lossScale      string // loss scale of fp16 as JSON; empty if there is none
}

func readCheckpoint(ctx context.Context, path string) (checkpoint, error) {
	file, err := weights.ReadContext(ctx, path)
	if err != nil {
		return checkpoint{}, err
	}
	meta := file.Metadata
	if got := meta["format"]; got != "" && got != checkpointFormat {
		return checkpoint{}, fmt.Errorf("checkpoint %s: got format %q, want %q: use the version of lockstep that wrote it, or another run folder", path, got, checkpointFormat)
	}
	c := checkpoint{path: path, network: meta["model"], tensors: map[string][]float64{}, lossScale: meta[lossScaleKey]}
	if c.epoch, err = strconv.Atoi(meta["epoch"]); err != nil {
		return c, newMetadataError(path, "epoch", err)
	}
	if c.step, err = strconv.Atoi(meta["step"]); err != nil {
		return c, newMetadataError(path, "step", err)
	}
	if c.progress, err = readProgress(c.epoch, meta); err != nil {
		return c, newMetadataError(path, "progress", err)
	}
	if want := (checkpointPlace{c.epoch, c.progress.steps}).path(); filepath.Base(want) != filepath.Base(path) {
		return c, fmt.Errorf("checkpoint %s: the file contains the checkpoint %s: give it that name, or move it out of the folder", path, filepath.Base(want))
	}
	if u, ok := meta["averages"]; ok {
		c.hasAverages = true
		if c.averageUpdates, err = strconv.Atoi(u); err != nil {
			return c, newMetadataError(path, "averages", err)
		}
	}
	if s := meta["untrained"]; s != "" && s != "null" {
		c.untrained = new(Scores)
		if err := json.Unmarshal([]byte(s), c.untrained); err != nil {
			return c, newMetadataError(path, "untrained scores", err)
		}
	}
	for _, w := range file.Tensors {
		c.tensors[w.Name] = w.Float64s()
	}
	return c, nil
}

// checkNetwork returns an error if c belongs to a network with another name.
func (c checkpoint) checkNetwork(name string) error {
	if c.network != name {
		return fmt.Errorf("checkpoint %s: got network %q, want %q: use the config that the checkpoint was trained with", c.path, c.network, name)
	}
	return nil
}

// newMetadataError returns the error, with advice, for an undamaged checkpoint with an invalid
// value of key in its metadata.
func newMetadataError(path, key string, err error) error {
	return fmt.Errorf("checkpoint %s: invalid %s: %w; this version of lockstep cannot read it: use the version that wrote it, or delete the file to continue from the checkpoint before it", path, key, err)
}

// checkTensors returns an error if c lacks a parameter or a running statistic of x, or has a
// tensor that x does not have.
func (c checkpoint) checkTensors(x engine.Executable) error {
	for _, t := range x.Program().Tensors {
		if t.Role == plan.Parameter || t.Role == plan.State {
			if _, ok := c.tensors[t.Name]; !ok {
				return fmt.Errorf("checkpoint %s lacks %s, a tensor of the network: use the config that the checkpoint was trained with", c.path, t.Name)
			}
		}
	}
	known := x.Names()
	for _, name := range slices.Sorted(maps.Keys(c.tensors)) {
		ofStrategy := tensorOfRank(name) != name && strings.HasPrefix(tensorOfRank(name), strategy.CompressionPrefix)
		if !ofStrategy && !strings.HasPrefix(name, averagePrefix) && !slices.Contains(known, tensorOfRank(name)) {
			return fmt.Errorf("checkpoint %s has %s, which is no tensor of the network: use the config that the checkpoint was trained with", c.path, name)
		}
	}
	return nil
}

// tensorOfRank removes the prefix of strategy.RankPrefix, if any, from a tensor's name.
func tensorOfRank(name string) string {
	if _, of, found := strings.Cut(name, "/"); found && ofOtherRank.MatchString(name) {
		return of
	}
	return name
}

// ofOtherRank matches names of tensors of ranks other than 0; see strategy.RankPrefix.
var ofOtherRank = regexp.MustCompile(`^rank[0-9]+/`)

// applyTo sets the tensors of x, an evaluation program. It returns an error if c lacks a parameter
// or a running statistic of x.
func (c checkpoint) applyTo(x engine.Executable) error {
	if err := c.checkTensors(x); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.tensors)) {
		if isSlot(name) || strings.HasPrefix(name, averagePrefix) || ofOtherRank.MatchString(name) {
			continue
		}
		if err := x.Set(name, c.tensors[name]); err != nil {
			return fmt.Errorf("checkpoint %s: %w", c.path, err)
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

const slotPrefix = "optimizer."

// cutSlot splits optimizer.SLOT.PARAMETER, the name of a state tensor of the optimizer. ok is false
// for other names.
func cutSlot(name string) (slot, param string, ok bool) {
	if !isSlot(name) {
		return "", "", false
	}
	slot, param, _ = strings.Cut(strings.TrimPrefix(name, slotPrefix), ".")
	return slot, param, true
}

func isSlot(name string) bool { return strings.HasPrefix(name, slotPrefix) }
