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

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// placeVariables tell a worker its place among others. A check has none.
var placeVariables = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_TOKEN"}

// check has the command that will be the workers check the config, the data and
// the sizes of each series with its largest worker count, so that a mistake is
// known before anything has started. It asks the command because that may be a
// program with a network of its own. Each run keeps its series' config.
func (s *Sweep) check(ctx context.Context, binary string, all []*run) error {
	largest := map[string]*run{}
	for _, r := range all {
		if l := largest[r.variant.series]; l == nil || r.workers > l.workers {
			largest[r.variant.series] = r
		}
	}
	configs := map[string]map[string]any{}
	for _, r := range all {
		series := r.variant.series
		if configs[series] == nil {
			config, err := largest[series].checked(ctx, binary)
			if err != nil {
				return err
			}
			configs[series] = config
		}
		r.config = configs[series]
	}
	return nil
}

// checked has binary check r, and returns the run's config.
func (r *run) checked(ctx context.Context, binary string) (map[string]any, error) {
	cmd := exec.CommandContext(ctx, binary, append(r.trainArguments(), "--check", strconv.Itoa(r.workers))...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(placeVariables, name)
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
		return nil, fmt.Errorf("check %s with %s: %w", r.sweep.Config, binary, err)
	}
	var config map[string]any
	if err := json.Unmarshal(out, &config); err != nil {
		return nil, fmt.Errorf("check %s with %s: read its config: %w", r.sweep.Config, binary, err)
	}
	return config, nil
}

// differs reports an error that names the keys in which the run in the folder was
// made otherwise than this sweep would make it.
func (r *run) differs(before runs.Info) error {
	var keys []string
	if r.sweep.foreign() {
		if !slices.Equal(before.Command, r.sweep.Command) {
			keys = append(keys, fmt.Sprintf("command is %q there, %q in this sweep", strings.Join(before.Command, " "), strings.Join(r.sweep.Command, " ")))
		}
		if before.ThreadsPerWorker != r.sweep.Threads {
			keys = append(keys, fmt.Sprintf("threads is %d there, %d in this sweep", before.ThreadsPerWorker, r.sweep.Threads))
		}
	}
	config := maps.Clone(r.config)
	delete(config, "seed") // a part of the folder's name
	for _, d := range train.Differences(before.Config, config) {
		keys = append(keys, fmt.Sprintf("%s is %v there, %v in this sweep", d.Key, d.Was, d.Now))
	}
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("run %s: %s holds a run of another config: %s; use its config, or another study or series (--study, --series)",
		r.name, r.dir, strings.Join(keys, "; "))
}

// epochs is how many epochs the run will have, 0 if that is not known.
func (r *run) epochs() int {
	if n, ok := r.config["epochs"].(float64); ok {
		return int(n)
	}
	return r.sweep.Epochs
}
