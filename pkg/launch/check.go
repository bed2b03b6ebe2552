package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/launch/internal/binary"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Binary returns the path of the lockstep command that the workers run: $LOCKSTEP_BIN, else
// the running program if that is lockstep itself, else lockstep in the folder of the running
// program. It returns an error if the command was not built from the same sources as the
// running program.
func Binary(ctx context.Context) (string, error) { return binary.Find(ctx) }

// checkConfigs checks the config, an outline of the data, and the sizes of each series with its largest
// worker count, so that mistakes are found before anything starts. It sets the config of
// each run. The check is done by the lockstep command at the path binary, which the
// workers will run, because that may be a user's program with its own networks.
func (s *Sweep) checkConfigs(ctx context.Context, binary string, all []*run) error {
	largest := map[string]*run{}
	for _, r := range all {
		if l := largest[r.variant.Series]; l == nil || r.workers > l.workers {
			largest[r.variant.Series] = r
		}
	}
	configs := map[string]map[string]any{}
	for _, r := range all {
		series := r.variant.Series
		if configs[series] != nil {
			continue
		}
		config, err := largest[series].checkConfig(ctx, binary)
		if err != nil {
			return err
		}
		configs[series] = config
	}
	return setConfigs(all, configs)
}

// setConfigs sets the config and the strategy of each run. configs contains the configs by
// series. It returns an error if a strategy cannot be used with the workers of a run.
func setConfigs(all []*run, configs map[string]map[string]any) (err error) {
	for _, r := range all {
		r.config = configs[r.variant.Series]
		if s := r.sweep; s.GlobalBatch > 0 {
			r.config = maps.Clone(r.config)
			r.config["batch"] = float64(s.GlobalBatch / r.workers) // as decoded from JSON
		}
		if r.method, err = train.StrategyOf(r.config); err != nil {
			return err
		}
		if err := r.method.CheckWorkers(r.workers); err != nil {
			return &train.UsageError{Err: err}
		}
	}
	return nil
}

// checkConfig checks the run with the lockstep command at the path binary and returns the
// run's config.
func (r *run) checkConfig(ctx context.Context, binary string) (map[string]any, error) {
	cmd := exec.CommandContext(ctx, binary, append(r.trainArguments(), "--check", strconv.Itoa(r.workers))...)
	without := append(rendezvous.RankVariables(), "LOCKSTEP_TOKEN")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &exit) && errs.Len() > 0:
		lines := strings.TrimSpace(errs.String())
		return nil, &train.UsageError{Err: errors.New(strings.TrimPrefix(lines, "lockstep: "))}
	case err != nil:
		return nil, fmt.Errorf("check config %s with %s: %w", r.sweep.Config, binary, err)
	}
	var config map[string]any
	if err := json.Unmarshal(out, &config); err != nil {
		return nil, fmt.Errorf("check config %s with %s: read config: %w", r.sweep.Config, binary, err)
	}
	return config, nil
}

// checkSameConfig returns an error if the settings of existing, the run that is already in
// the run folder, differ from those of this sweep. The error lists the settings that
// differ.
func (r *run) checkSameConfig(existing runs.Info) error {
	var keys []string
	if r.sweep.isForeign() {
		if !slices.Equal(existing.Command, r.command) {
			keys = append(keys, fmt.Sprintf("command is %q there, %q in this sweep", strings.Join(existing.Command, " "), strings.Join(r.command, " ")))
		}
		if existing.ThreadsPerWorker != r.sweep.Threads {
			keys = append(keys, fmt.Sprintf("threads is %d there, %d in this sweep", existing.ThreadsPerWorker, r.sweep.Threads))
		}
	}
	config := maps.Clone(r.config)
	delete(config, "seed") // a part of the folder's name
	for _, d := range train.Differences(existing.Config, config) {
		keys = append(keys, fmt.Sprintf("%s is %v there, %v in this sweep", d.Key, d.Was, d.Now))
	}
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("run %s: %s contains a run of another config: %s; use its config, or another study or series (--study, --series)",
		r.name, r.dir, strings.Join(keys, "; "))
}

// plannedEpochs returns the number of epochs that the run will have, or 0 if unknown.
func (r *run) plannedEpochs() int {
	if n, ok := r.config["epochs"].(float64); ok {
		return int(n)
	}
	return r.sweep.Epochs
}
