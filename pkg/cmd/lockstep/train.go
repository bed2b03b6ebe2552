package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// trainFlags are the flags of one worker; launch passes them on.
type trainFlags struct {
	config, run, data string
	seed              int64
	epochs, threads   int
	device            string
	profile           string
	trace             bool
	set               []string
	resume            bool
}

func trainCommand() *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use:   "train",
		Short: "Train, as one worker",
		Long: `Trains as one worker. Alone it is a world of one; with RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT and LOCKSTEP_TOKEN in the environment
(lockstep launch sets them) it is one of many.

  lockstep train --config unet2d-cells
  lockstep train --config em-membrane --data DIR --epochs 3 --set batch=8

Configs: ` + strings.Join(train.Names(), ", ") + `, or a .yaml file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.work(c) },
	}
	c.Flags().StringVar(&f.config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	c.Flags().StringVar(&f.run, "run", "", "run folder (default: logs/<config>/ddp-n<world>-s<seed>)")
	c.Flags().StringVar(&f.data, "data", "", "a folder with image/ and label/, instead of the config's data")
	c.Flags().Int64Var(&f.seed, "seed", 1, "of initial weights, order and augmentation")
	c.Flags().IntVar(&f.epochs, "epochs", 0, "instead of the config's")
	c.Flags().IntVar(&f.threads, "threads", 0, "of this worker, instead of the config's")
	c.Flags().StringVar(&f.device, "device", "", "cpu, reference, cuda (the GPU of the local rank) or cuda:1, instead of the config's")
	c.Flags().StringVar(&f.profile, "profile", "", "FIRST:STEPS, such as 10:5: steps that a GPU's profiler sees (nsys profile -c cudaProfilerApi lockstep train …)")
	c.Flags().BoolVar(&f.trace, "trace", false, "the time of every kernel in the --profile, as trace-<rank>.json of the run folder, for Chrome's trace viewer or Perfetto")
	c.Flags().StringArrayVar(&f.set, "set", nil, "key=value in the config, repeatable (--set optimizer.learning_rate=0.01)")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on from the newest checkpoint of the run folder")
	return c
}

// overrides are the flags as key=value of the config; what the user set by
// --set comes last and wins.
func (f trainFlags) overrides() []string {
	set := []string{fmt.Sprintf("seed=%d", f.seed)}
	if f.data != "" {
		set = append(set, "data.kind=pairs", "data.path="+quoted(f.data))
	}
	if f.epochs != 0 {
		set = append(set, fmt.Sprintf("epochs=%d", f.epochs))
	}
	if f.threads != 0 {
		set = append(set, fmt.Sprintf("engine.threads=%d", f.threads))
	}
	if f.device != "" {
		set = append(set, "engine.device="+quoted(f.device))
	}
	return append(set, f.set...)
}

// quoted makes a string safe as a YAML value.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (f trainFlags) work(c *cobra.Command) error {
	ctx := c.Context()
	cfg, err := train.Named(f.config, f.overrides()...)
	if err != nil {
		return usage(err)
	}
	profile, err := train.ParseProfile(f.profile)
	if err != nil {
		return usage(err)
	}
	if profile.Trace = f.trace; f.trace && profile.Steps == 0 {
		return usage(errors.New("--trace needs --profile FIRST:STEPS"))
	}
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return usage(err)
	}
	dir := f.run
	if dir == "" {
		dir = fmt.Sprintf("logs/%s/ddp-n%d-s%d", cfg.Name, env.World, cfg.Seed)
	}
	if dir, err = runs.ResolveLogs(dir); err != nil {
		return err
	}
	group, err := rendezvous.Join(ctx, env, rendezvous.Options{BuildID: buildid.ID})
	if err != nil {
		return err
	}
	place := train.Place{Dir: dir, LocalRank: env.LocalRank, Resume: f.resume, Profile: profile}
	place.Study, place.Series = filepath.Base(filepath.Dir(dir)), series(filepath.Base(dir))
	if env.Rank == 0 {
		place.Log = func(line string) { fmt.Fprintln(c.OutOrStdout(), line) }
		if atTerminal() {
			place.Progress = epochBar()
		}
	}
	err = trainAndClose(ctx, cfg, group, place, env.LocalWorld)
	if cerr := group.Close(); err == nil && cerr != nil {
		err = cerr
	}
	if os.Getenv("LOCKSTEP_RUN") != "" { // the launcher says it
		return err
	}
	return goOn(ctx, err)
}

// atTerminal says whether somebody watches standard error.
func atTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

// epochBar shows the steps of each epoch.
func epochBar() func(epoch, step, steps int) {
	var bar *notebook.Progress
	return func(epoch, step, steps int) {
		if bar == nil {
			bar = notebook.NewProgress(fmt.Sprintf("epoch %d", epoch), steps)
		}
		bar.Set(step, "")
		if step == steps {
			bar.Done("")
			bar = nil
		}
	}
}

// series is the name of a run folder without its "-n<workers>-s<seed>".
func series(name string) string {
	if m := runName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

var runName = regexp.MustCompile(`^(.+)-n\d+-s-?\d+$`)

func trainAndClose(ctx context.Context, cfg train.Config, group collective.Group, place train.Place, neighbours int) (err error) {
	begin := time.Now()
	t, err := train.New(ctx, cfg, group, place)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		}
	}()
	limitProcs(cfg.Engine.Threads, neighbours, t.Overlaps())
	res, err := t.Run(ctx)
	if err != nil {
		return err
	}
	if place.Log != nil {
		place.Log(fmt.Sprintf("done in %.1f s: %s; %s", time.Since(begin).Seconds(), train.Headline(res.Test), place.Dir))
	}
	return nil
}
