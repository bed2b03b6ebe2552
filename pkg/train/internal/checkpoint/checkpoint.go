package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/strategy"
	"lockstep/pkg/weights"
)

const formatVersion = "lockstep checkpoint 1"

// Checkpoint is the state of a run at a save point.
type Checkpoint struct {
	Path    string // of the file that Read has read
	Network string // name of the network
	SavePoint
	Step    int       // completed optimizer steps of the run
	Seconds float64   // duration of the steps of an epoch that is not complete
	Losses  []float64 // sum of their losses, by rank
	// Right is the number of samples that were classified correctly in these steps. It is nil
	// unless the task is classification.
	Right          *float64
	Untrained      json.RawMessage      // scores of the untrained network; nil if not recorded
	Tensors        map[string][]float64 // of a checkpoint that Read has read
	HasAverages    bool                 // the checkpoint contains averaged parameters
	AverageUpdates int                  // number of updates of the averages
	LossScale      string               // loss scale of fp16 as JSON; empty if there is none
}

// Write writes c with the given tensors to the run folder dir, completely or not at all.
func (c Checkpoint) Write(dir string, tensors []weights.Tensor) error {
	untrained := "null"
	if c.Untrained != nil {
		untrained = string(c.Untrained)
	}
	meta := map[string]string{
		"format": formatVersion, "model": c.Network, "epoch": strconv.Itoa(c.Epochs), "step": strconv.Itoa(c.Step), "untrained": untrained,
	}
	if c.HasAverages {
		meta["averages"] = strconv.Itoa(c.AverageUpdates)
	}
	if c.LossScale != "" {
		meta["loss_scale"] = c.LossScale
	}
	if c.Steps > 0 {
		losses, err := json.Marshal(c.Losses)
		if err != nil {
			return err
		}
		meta["epoch_steps"] = strconv.Itoa(c.Steps)
		meta["epoch_seconds"] = strconv.FormatFloat(c.Seconds, 'g', -1, 64)
		meta["epoch_losses"] = string(losses)
		if c.Right != nil {
			meta["epoch_right"] = strconv.FormatFloat(*c.Right, 'g', -1, 64)
		}
	}
	return weights.Write(filepath.Join(dir, c.SavePoint.Path()), tensors, meta)
}

// Read reads the checkpoint in the file path. An error that wraps a *weights.DamagedError means that the
// file is damaged.
func Read(ctx context.Context, path string) (Checkpoint, error) {
	file, err := weights.ReadContext(ctx, path)
	if err != nil {
		return Checkpoint{}, err
	}
	meta := file.Metadata
	if got := meta["format"]; got != "" && got != formatVersion {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: got format %q, want %q: use the version of lockstep that wrote it, or another run folder", path, got, formatVersion)
	}
	c := Checkpoint{Path: path, Network: meta["model"], Tensors: map[string][]float64{}, LossScale: meta["loss_scale"]}
	if c.Epochs, err = strconv.Atoi(meta["epoch"]); err != nil {
		return c, newMetadataError(path, "epoch", err)
	}
	if c.Step, err = strconv.Atoi(meta["step"]); err != nil {
		return c, newMetadataError(path, "step", err)
	}
	if err = c.readProgress(meta); err != nil {
		return c, newMetadataError(path, "progress", err)
	}
	if want := filepath.Base(c.SavePoint.Path()); want != filepath.Base(path) {
		return c, fmt.Errorf("checkpoint %s: the file contains the checkpoint %s: give it that name, or move it out of the folder", path, want)
	}
	if u, ok := meta["averages"]; ok {
		c.HasAverages = true
		if c.AverageUpdates, err = strconv.Atoi(u); err != nil {
			return c, newMetadataError(path, "averages", err)
		}
	}
	if s := meta["untrained"]; s != "" && s != "null" {
		if c.Untrained = json.RawMessage(s); !json.Valid(c.Untrained) {
			return c, newMetadataError(path, "untrained scores", errors.New("not JSON"))
		}
	}
	for _, w := range file.Tensors {
		c.Tensors[w.Name] = w.Float64s()
	}
	return c, nil
}

// readProgress reads the progress within an epoch from a checkpoint's metadata. There is none in a
// checkpoint at the end of an epoch.
func (c *Checkpoint) readProgress(metadata map[string]string) (err error) {
	steps, ok := metadata["epoch_steps"]
	if !ok {
		return nil
	}
	if c.Steps, err = strconv.Atoi(steps); err != nil {
		return fmt.Errorf("epoch_steps: %w", err)
	}
	if c.Seconds, err = strconv.ParseFloat(metadata["epoch_seconds"], 64); err != nil {
		return fmt.Errorf("epoch_seconds: %w", err)
	}
	if err := json.Unmarshal([]byte(metadata["epoch_losses"]), &c.Losses); err != nil {
		return fmt.Errorf("epoch_losses: %w", err)
	}
	if text, ok := metadata["epoch_right"]; ok {
		right, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("epoch_right: %w", err)
		}
		c.Right = &right
	}
	return nil
}

// ReadNewest reads the newest undamaged checkpoint of the run folder dir. all lists the paths of
// the checkpoints, oldest first. damaged contains the errors of damaged checkpoints that are newer
// than file, newest first.
func ReadNewest(ctx context.Context, dir string, all []string, network string) (file Checkpoint, damaged []*weights.DamagedError, err error) {
	for _, name := range slices.Backward(all) {
		if file, err = Read(ctx, filepath.Join(dir, name)); err == nil {
			err = file.CheckNetwork(network)
		}
		var d *weights.DamagedError
		if !errors.As(err, &d) {
			return file, damaged, err
		}
		damaged = append(damaged, d)
	}
	return Checkpoint{}, nil, fmt.Errorf("all checkpoints are damaged: %w; restore a copy of one, or train again in another run folder", damaged[0])
}

// CheckNetwork returns an error if c belongs to a network with another name.
func (c Checkpoint) CheckNetwork(name string) error {
	if c.Network != name {
		return fmt.Errorf("checkpoint %s: got network %q, want %q: use the config that the checkpoint was trained with", c.Path, c.Network, name)
	}
	return nil
}

// newMetadataError returns an error, with advice, about an invalid metadata value in a checkpoint
// that is not damaged.
func newMetadataError(path, key string, err error) error {
	return fmt.Errorf("checkpoint %s: invalid %s: %w; this version of lockstep cannot read it: use the version that wrote it, or delete the file to continue from the checkpoint before it", path, key, err)
}

// CheckTensors returns an error if a parameter or a running statistic of x is missing in c, or if c
// has a tensor that x does not have.
func (c Checkpoint) CheckTensors(x engine.Executable) error {
	for _, t := range x.Program().Tensors {
		if t.Role == plan.Parameter || t.Role == plan.State {
			if _, ok := c.Tensors[t.Name]; !ok {
				return fmt.Errorf("checkpoint %s lacks %s, a tensor of the network: use the config that the checkpoint was trained with", c.Path, t.Name)
			}
		}
	}
	known := x.Names()
	for _, name := range slices.Sorted(maps.Keys(c.Tensors)) {
		ofStrategy := TrimRankPrefix(name) != name && strings.HasPrefix(TrimRankPrefix(name), strategy.CompressionPrefix)
		if !ofStrategy && !strings.HasPrefix(name, model.AveragePrefix) && !slices.Contains(known, TrimRankPrefix(name)) {
			return fmt.Errorf("checkpoint %s has %s, which is no tensor of the network: use the config that the checkpoint was trained with", c.Path, name)
		}
	}
	return nil
}

// TrimRankPrefix removes the prefix of strategy.RankPrefix, if any, from a tensor's name.
func TrimRankPrefix(name string) string {
	if _, of, found := strings.Cut(name, "/"); found && rankPrefixPattern.MatchString(name) {
		return of
	}
	return name
}

// rankPrefixPattern matches the names of tensors that belong to ranks other than 0; see
// strategy.RankPrefix.
var rankPrefixPattern = regexp.MustCompile(`^rank[0-9]+/`)

// CopyTensorsTo copies the tensors of c to x, an evaluation program. It returns an error if a parameter
// or a running statistic of x is missing in c.
func (c Checkpoint) CopyTensorsTo(x engine.Executable) error {
	if err := c.CheckTensors(x); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tensors)) {
		if isSlotName(name) || strings.HasPrefix(name, model.AveragePrefix) || rankPrefixPattern.MatchString(name) {
			continue
		}
		if err := x.Set(name, c.Tensors[name]); err != nil {
			return fmt.Errorf("checkpoint %s: %w", c.Path, err)
		}
	}
	return nil
}

const optimizerSlotPrefix = "optimizer."

// ParseOptimizerSlotName splits the name of an optimizer's state tensor, optimizer.SLOT.PARAMETER, into its
// parts. ok is false for other names.
func ParseOptimizerSlotName(name string) (slot, param string, ok bool) {
	if !isSlotName(name) {
		return "", "", false
	}
	slot, param, _ = strings.Cut(strings.TrimPrefix(name, optimizerSlotPrefix), ".")
	return slot, param, true
}

func isSlotName(name string) bool { return strings.HasPrefix(name, optimizerSlotPrefix) }
