package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binary"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Binary returns the path of the lockstep command that the workers run. It is $LOCKSTEP_BIN if that
// is set, else the running program if that is lockstep, else lockstep in the running program's
// folder. Binary returns an error if the command was built from other sources than the running
// program.
func Binary(ctx context.Context) (string, error) { return binary.Find(ctx) }

// checkSeriesConfigs validates the config of each series before anything starts, for the run with the
// most workers, and then sets the config of each run. The workers' lockstep command does the check,
// because it may be a user's program with its own networks.
func (p *SweepPlan) checkSeriesConfigs(ctx context.Context) error {
	largest := map[string]*PlannedRun{} // by series
	for i := range p.Runs {
		r := &p.Runs[i]
		if l := largest[r.Series]; l == nil || r.Workers > l.Workers {
			largest[r.Series] = r
		}
	}
	configs := map[string]map[string]any{} // by series
	for i := range p.Runs {
		series := p.Runs[i].Series
		if configs[series] != nil {
			continue
		}
		config, err := p.checkConfig(ctx, largest[series])
		if err != nil {
			return err
		}
		configs[series] = config
	}
	return p.setRunConfigs(configs)
}

// setRunConfigs sets the config of each run; configs is by series.
func (p *SweepPlan) setRunConfigs(configs map[string]map[string]any) error {
	for i := range p.Runs {
		r := &p.Runs[i]
		config := configs[r.Series]
		if batch := p.Sweep.GlobalBatch; batch > 0 {
			config = maps.Clone(config)
			config["batch"] = float64(batch / r.Workers) // as decoded from JSON
		}
		if err := r.setConfig(config); err != nil {
			return err
		}
	}
	return nil
}

// checkConfig runs the worker command of r with --check, and returns the config that it prints.
func (p *SweepPlan) checkConfig(ctx context.Context, r *PlannedRun) (map[string]any, error) {
	cmd := exec.CommandContext(ctx, r.Command[0], slices.Concat(r.Command[1:], []string{"--check", strconv.Itoa(r.Workers)})...)
	cmd.Env = process.ModifiedEnvironment(nil, append(rendezvous.RankVariables(), "LOCKSTEP_TOKEN")...)
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
		return nil, fmt.Errorf("check config %s with %s: %w", p.Sweep.Config, r.Command[0], err)
	}
	var config map[string]any
	if err := json.Unmarshal(out, &config); err != nil {
		return nil, fmt.Errorf("check config %s with %s: read config: %w", p.Sweep.Config, r.Command[0], err)
	}
	return config, nil
}

func (p *SweepPlan) checkExistingConfigs() error {
	for i := range p.Runs {
		r := &p.Runs[i]
		before, err := runs.Read(r.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		if err := p.checkExistingConfig(r, before.Info); err != nil {
			return err
		}
	}
	return nil
}

// checkExistingConfig returns an error if existing, the run that is already in the folder of r, has
// other settings than this sweep. The error lists the differences.
func (p *SweepPlan) checkExistingConfig(r *PlannedRun, existing runs.Info) error {
	var keys []string
	if r.Program {
		if !slices.Equal(existing.Command, r.Command) {
			keys = append(keys, fmt.Sprintf("command is %q there, %q in this sweep", strings.Join(existing.Command, " "), strings.Join(r.Command, " ")))
		}
		if existing.ThreadsPerWorker != p.Sweep.Threads {
			keys = append(keys, fmt.Sprintf("threads is %d there, %d in this sweep", existing.ThreadsPerWorker, p.Sweep.Threads))
		}
	}
	if _, err := train.StrategyOf(existing.Config); err != nil {
		return fmt.Errorf("run %s: %s: %w", r.Name, r.Dir, err)
	}
	config := maps.Clone(r.Config)
	delete(config, "seed") // a part of the folder's name
	for _, d := range train.Differences(existing.Config, config) {
		keys = append(keys, fmt.Sprintf("%s is %v there, %v in this sweep", d.Key, d.Was, d.Now))
	}
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("run %s: %s contains a run of another config: %s; use its config, or another study or series (--study, --series)",
		r.Name, r.Dir, strings.Join(keys, "; "))
}

// hasNothingToDo reports whether all runs are done, and no study logs are to be written.
func (p *SweepPlan) hasNothingToDo() bool {
	return !slices.ContainsFunc(p.Runs, func(r PlannedRun) bool { return r.Action != ActionNone || r.StudyLogs != "" })
}

// chooseActions decides from each run folder whether the run is started, continued or done. It
// returns an error if the sweep cannot use a folder.
func (p *SweepPlan) chooseActions() error {
	if err := checkSeparateFolders(p.Runs); err != nil {
		return err
	}
	for i := range p.Runs {
		if err := p.chooseAction(&p.Runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// chooseAction implements chooseActions for one run.
func (p *SweepPlan) chooseAction(r *PlannedRun) error {
	r.Action, r.Reason = ActionStart, ""
	before, err := runs.Read(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r.checkStudyLog(runs.Info{})
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.Name, err)
	}
	if err := p.checkExistingConfig(r, before.Info); err != nil {
		return err
	}
	if err := r.checkStudyLog(before.Info); err != nil {
		return fmt.Errorf("run %s: %w", r.Name, err)
	}
	switch {
	case before.Info.Status == runs.StatusDone && len(before.Epochs) >= r.Epochs:
		r.Action, r.Reason = ActionNone, reasonRunDone
	case r.Program:
		return fmt.Errorf("run %s: the run in %s is unfinished, and only runs of a config can be resumed: delete the folder to run it again", r.Name, r.Dir)
	case !p.Sweep.Resume:
		return fmt.Errorf("run %s: %s already contains an unfinished run: resume it (Resume, --resume), choose another series or seed (--series, --seeds), or delete the folder", r.Name, r.Dir)
	default:
		r.Action = ActionContinue
	}
	return nil
}

// checkSeparateFolders returns an error if two of the runs have the same folder because of links.
func checkSeparateFolders(all []PlannedRun) error {
	byTarget := map[string]string{}
	for i := range all {
		r := &all[i]
		target, err := filepath.EvalSymlinks(r.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		if other := byTarget[target]; other != "" {
			return fmt.Errorf("runs %s and %s have the same folder, %s: remove one of the links, so that each run has a folder of its own", other, r.Dir, target)
		}
		byTarget[target] = r.Dir
	}
	return nil
}
