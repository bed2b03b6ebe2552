package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/weights"
)

// checkpointDir is the folder of checkpoints in a run folder.
const checkpointDir = "checkpoints"

// ErrNoCheckpoint is wrapped when a run folder holds no checkpoint to go on from.
var ErrNoCheckpoint = errors.New("no checkpoint")

// state is a checkpoint in memory.
type state struct {
	name     string // relative to the run folder
	tensors  []weights.Tensor
	metadata map[string]string
}

// capture takes every persistent tensor as it is now, on rank 0 alone; the
// others know the name.
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
		"format": "lockstep checkpoint 1", "model": t.net.Name(),
		"epoch": strconv.Itoa(t.epoch), "step": strconv.Itoa(t.step), "untrained": string(counts),
	}
	s.tensors, err = t.tensors()
	return s, err
}

// savePatience bounds the wait for the other ranks at the end of an epoch, where
// all are done with it.
const savePatience = 10 * time.Second

// checkpoint saves the epoch that is done, where that is due, and keeps it for
// an early end where it is not.
func (t *Trainer) checkpoint(ctx context.Context, rec *recorder) error {
	if t.place.Dir == "" {
		return nil
	}
	now, err := t.capture()
	if err != nil {
		return err
	}
	// The epoch may be saved, here or when the run is interrupted, once every
	// rank has written its steps: a run that is resumed does not do them again.
	// An interrupt does not end this wait, since every rank that lives arrives.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), savePatience)
	defer cancel()
	if err := t.group.Barrier(last); err != nil {
		return err
	}
	t.unsaved = &now
	if t.epoch%t.cfg.Checkpoint.Every != 0 && t.epoch != t.cfg.Epochs {
		return nil
	}
	return t.saveUnsaved(rec)
}

// saveUnsaved writes the last epoch that was done, where that was not yet. The
// file appears whole or not at all.
func (t *Trainer) saveUnsaved(rec *recorder) error {
	s := t.unsaved
	if s == nil {
		return nil
	}
	t.unsaved, rec.saved = nil, s.name
	if t.group.Rank() != 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(t.place.Dir, checkpointDir), 0o755); err != nil {
		return err
	}
	if err := weights.Write(filepath.Join(t.place.Dir, s.name), s.tensors, s.metadata); err != nil {
		return err
	}
	return t.prune()
}

// tensors are the parameters, the running statistics and the slots that the
// optimiser's rule uses.
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
	return out, nil
}

// prune deletes the oldest checkpoints beyond those to keep.
func (t *Trainer) prune() error {
	all, err := checkpoints(t.place.Dir)
	if err != nil || t.cfg.Checkpoint.Keep == 0 {
		return err
	}
	for len(all) > t.cfg.Checkpoint.Keep {
		if err := os.Remove(filepath.Join(t.place.Dir, all[0])); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

// checkpoints lists those of a run folder, oldest first, relative to it.
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

// restore sets this trainer to the newest checkpoint, or to the beginning
// where there is none. Every rank reads its
// progress; the tensors that count are rank 0's, which are broadcast.
func (t *Trainer) restore() error {
	all, err := checkpoints(t.place.Dir)
	if err != nil {
		return err
	}
	if len(all) == 0 { // it ended before its first checkpoint, or never began
		return t.initialise()
	}
	t.saved = all[len(all)-1]
	file, err := readCheckpoint(filepath.Join(t.place.Dir, t.saved), t.net.Name())
	if err != nil {
		return fmt.Errorf("resume %s: %w", t.place.Dir, err)
	}
	if file.epoch > t.cfg.Epochs {
		return fmt.Errorf("resume %s: %d epochs are done already, epochs is %d: use at least as many", t.place.Dir, file.epoch, t.cfg.Epochs)
	}
	t.epoch, t.step, t.untrained = file.epoch, file.step, file.untrained
	return file.apply(t.train)
}

// checkpoint is a checkpoint file as read.
type checkpoint struct {
	path        string
	epoch, step int
	untrained   *Scores
	tensors     map[string][]float64
}

func readCheckpoint(path, modelName string) (checkpoint, error) {
	file, err := weights.Read(path)
	if err != nil {
		return checkpoint{}, err
	}
	meta := file.Metadata
	c := checkpoint{path: path, tensors: map[string][]float64{}}
	if got := meta["model"]; got != modelName {
		return c, fmt.Errorf("checkpoint %s is of %q, not of %q: use the config that it was trained with", path, got, modelName)
	}
	if c.epoch, err = strconv.Atoi(meta["epoch"]); err != nil {
		return c, fmt.Errorf("checkpoint %s: epoch: %w", path, err)
	}
	if c.step, err = strconv.Atoi(meta["step"]); err != nil {
		return c, fmt.Errorf("checkpoint %s: step: %w", path, err)
	}
	if s := meta["untrained"]; s != "" && s != "null" {
		c.untrained = new(Scores)
		if err := json.Unmarshal([]byte(s), c.untrained); err != nil {
			return c, fmt.Errorf("checkpoint %s: untrained scores: %w", path, err)
		}
	}
	for _, w := range file.Tensors {
		c.tensors[w.Name] = w.Float64s()
	}
	return c, nil
}

// apply sets every tensor of c; parameters and running statistics that c
// lacks are an error. Optimiser slots that x does not use are left out of an
// evaluation program.
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
		if isSlot(name) && len(p.Buckets) == 0 {
			continue
		}
		if err := x.Set(name, c.tensors[name]); err != nil {
			return fmt.Errorf("checkpoint %s: %w", c.path, err)
		}
	}
	return nil
}

// stateNames are the tensors that are neither parameters nor optimiser slots:
// the running statistics.
func (t *Trainer) stateNames() []string {
	p := t.train.Program()
	names := make([]string, len(p.States))
	for i, id := range p.States {
		names[i] = p.Tensors[id].Name
	}
	return names
}

// slotPrefix begins the name of an optimiser's slot: optimizer.<slot>.<parameter>.
const slotPrefix = "optimizer."

// isSlot says whether a persistent tensor belongs to the optimiser.
func isSlot(name string) bool { return strings.HasPrefix(name, slotPrefix) }
