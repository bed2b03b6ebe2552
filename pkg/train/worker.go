package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/model"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Worker contains the command-line options of one worker process. If the environment contains the
// variables of lockstep launch, torchrun, mpirun, srun or TF_CONFIG (see rendezvous.FromEnv), the
// process is one of several workers; otherwise it is the only one.
type Worker struct {
	Config  string   // name of a shipped config, or path of a .yaml file; empty: Own
	Own     *Config  // config of the calling program, used if Config is empty
	Set     []string // config overrides key=value, which take precedence over the fields below
	Run     string   // run folder; empty: logs/<config>/<strategy>-n<world>-s<seed>
	Data    string   // folder of the data, which also replaces generated data; empty: the config's data
	Seed    int64
	Epochs  int    // number of epochs; 0: the config's
	Threads int    // computing threads; 0: the config's
	Device  string // device of the engine; empty: the config's
	Resume  bool   // resume from the newest checkpoint of the run folder
	// AcceptChangedData allows Resume to continue with data that differ from those the run was
	// trained on.
	AcceptChangedData bool
	Profile           string // steps to profile, see ParseProfile; empty: none
	Trace             bool   // also record the time of every GPU kernel in the profile
	// Replicas is the number of replicas of the network in this process, for strategy mirrored. 0
	// means as many as can have their threads on separate cores.
	Replicas int
	// Oversubscribe allows more than four threads per core.
	Oversubscribe bool
	// TimeoutJoin is how long the workers wait for each other at the start; 0 means the config's
	// value.
	TimeoutJoin time.Duration
	// TimeoutCollective is how long to wait for a worker in one exchange; 0 means the config's
	// value.
	TimeoutCollective time.Duration
	// Master is rank 0's address as HOST or HOST:PORT. Empty means MASTER_ADDR and MASTER_PORT, or
	// the address set by the launcher.
	Master string

	Build model.Builder // builds the network; nil: the config's network
	Out   io.Writer     // receives log lines on rank 0; nil: no log

	// EpochDone is called on every rank after each epoch, when the epoch's row and checkpoint have
	// been written. It may be nil. An error ends the run.
	EpochDone func(runs.Epoch) error
}

// A UsageError is an error in the user's input: in flags, config or environment.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// configOverrides returns overrides of the config, in the form key=value. Those of w's set fields
// come first, so that w.Set takes precedence.
func (w Worker) configOverrides() []string {
	set := []string{fmt.Sprintf("seed=%d", w.Seed)}
	if w.Epochs != 0 {
		set = append(set, fmt.Sprintf("epochs=%d", w.Epochs))
	}
	if w.Threads != 0 {
		set = append(set, fmt.Sprintf("engine.threads=%d", w.Threads))
	}
	if w.Device != "" {
		set = append(set, "engine.device="+QuoteYAML(w.Device))
	}
	if w.TimeoutJoin != 0 {
		set = append(set, "timeout_join="+w.TimeoutJoin.String())
	}
	if w.TimeoutCollective != 0 {
		set = append(set, "timeout_collective="+w.TimeoutCollective.String())
	}
	return append(set, w.Set...)
}

// QuoteYAML returns s as a single-quoted YAML string, for use as the value of key=value.
func QuoteYAML(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Resolve returns the worker's validated config with all overrides. It does not open the data.
func (w Worker) Resolve() (c Config, err error) {
	if w.Config == "" && w.Own != nil {
		c = *w.Own
	} else if c, err = loadConfig(w.Config); err != nil {
		return Config{}, err
	}
	if w.Data != "" {
		setDataPath(&c.Data, w.Data)
		if kind, ok := fileDataKinds[c.Data.Kind]; ok {
			c.Data.Kind = kind
		}
	}
	if c, err = c.With(w.configOverrides()...); err != nil {
		return Config{}, err
	}
	if c, err = c.ForData(); err != nil {
		return Config{}, err
	}
	if cores := runtime.NumCPU(); c.Engine.Threads > ThreadsPerCore*cores && !w.Oversubscribe {
		return Config{}, fmt.Errorf("engine.threads is %d, but this machine has %s: use at most %d threads per core, or allow more with --oversubscribe", c.Engine.Threads, english.FormatCount(cores, "core"), ThreadsPerCore)
	}
	return c, nil
}

// StrategyName returns the name of the strategy in the worker's config, which may be an unknown
// one. It returns strategy.NameDDP if the config cannot be read.
func (w Worker) StrategyName() string {
	c, err := loadConfig(w.Config)
	if err == nil {
		c, err = c.applyOverrides(w.Set)
	}
	if err != nil {
		return strategy.NameDDP
	}
	return c.strategyName()
}

// ThreadsPerCore is the maximum number of threads per core unless Worker.Oversubscribe is set.
const ThreadsPerCore = 4

// setDataPath sets the path of the data to dir. If the held-out data have a separate path, both
// paths become subfolders of dir, named like the old folders.
func setDataPath(c *DataConfig, dir string) {
	if c.TestPath == "" {
		c.Path = dir
		return
	}
	c.Path, c.TestPath = filepath.Join(dir, filepath.Base(c.Path)), filepath.Join(dir, filepath.Base(c.TestPath))
}

// fileDataKinds maps each kind of generated data to the kind of data in files that has the same
// structure.
var fileDataKinds = map[string]string{data.KindCells: data.KindPairs, data.KindShapes: data.KindFolders, data.KindFields: data.KindVolumes}

// Train joins the other workers, trains, and writes the run folder. For invalid input it returns a
// *UsageError.
func (w Worker) Train(ctx context.Context) error {
	cfg, err := w.Resolve()
	if err == nil {
		err = CheckEnvironment(os.Getenv)
	}
	if err != nil {
		return &UsageError{err}
	}
	profile, err := ParseProfile(w.Profile)
	if err != nil {
		return &UsageError{err}
	}
	if profile.Trace = w.Trace; w.Trace && profile.Steps == 0 {
		return &UsageError{errors.New("--trace needs --profile FIRST:STEPS")}
	}
	if w.AcceptChangedData && !w.Resume {
		return &UsageError{errors.New("--accept-changed-data needs --resume: a new run may have any data")}
	}
	env, err := w.readEnvironment()
	if err != nil {
		return &UsageError{err}
	}
	replicas, err := w.countReplicas(cfg, env)
	if err != nil {
		return &UsageError{err}
	}
	p := trainingProcess{cfg: cfg, env: env, replicas: replicas, out: w.Out}
	p.options = WorkerOptions{Resume: w.Resume, AcceptChangedData: w.AcceptChangedData, Profile: profile, Build: w.Build, processes: env.World, binding: readCPUBinding(os.Getenv, p.worldSize())}
	if env.Source != rendezvous.SourceExplicit || !StartedByLauncher() {
		p.options.rankSource = env.Source
	}
	p.options.EpochDone = w.EpochDone
	if p.options.usage, err = monitor.UsageEnabled(os.Getenv); err != nil {
		return &UsageError{err}
	}
	dir := w.Run
	if dir == "" {
		dir = cfg.runFolder(p.worldSize())
	}
	if dir, err = runs.ResolveOrCreateLogs(dir, os.Stderr); err != nil {
		return err
	}
	if err := checkNotLocked(dir); err != nil {
		return err
	}
	p.options.Dir, p.options.Study, p.options.Series = dir, filepath.Base(filepath.Dir(dir)), trimRunSuffix(filepath.Base(dir))
	return p.run(ctx)
}

// readEnvironment reads this worker's rank from the environment. Rank 0 warns on standard error if
// the ranks need a secret and have none.
func (w Worker) readEnvironment() (rendezvous.Env, error) {
	getenv, err := rendezvous.WithMaster(os.Getenv, w.Master)
	if err != nil {
		return rendezvous.Env{}, err
	}
	env, err := rendezvous.FromEnv(getenv)
	if err == nil && env.ConnectsToMaster() && env.Rank == 0 && env.Token == "" {
		fmt.Fprintln(os.Stderr, "note: the workers have no secret, so any user of this machine could join them: set LOCKSTEP_TOKEN, or run lockstep launch once, which writes a secret for this user")
	}
	return env, err
}

// StartedByLauncher reports whether a launcher has started this process. The launcher then reports
// the run's outcome to the user.
func StartedByLauncher() bool { return os.Getenv("LOCKSTEP_RUN") != "" }

// trimRunSuffix removes the suffix "-n<workers>-s<seed>" from the name of a run folder.
func trimRunSuffix(name string) string {
	if m := runNamePattern.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

var runNamePattern = regexp.MustCompile(`^(.+)-n\d+-s-?\d+$`)

// seedVariable is the environment variable with which a launcher sets the seed of a run.
const seedVariable = "LOCKSTEP_SEED"

// CheckEnvironment returns an error if an environment variable that workers read has an invalid
// value. Call it before anything starts. getenv is os.Getenv except in tests.
func CheckEnvironment(getenv func(string) string) error {
	if err := rendezvous.CheckVariables(getenv); err != nil {
		return err
	}
	if err := engine.CheckEnvironment(getenv); err != nil {
		return err
	}
	if _, err := monitor.UsageEnabled(getenv); err != nil {
		return err
	}
	_, err := readSeed(getenv, 0)
	return err
}

func readSeed(getenv func(string) string, def int64) (int64, error) {
	text := getenv(seedVariable)
	if text == "" {
		return def, nil
	}
	seed, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seed < 0 {
		return 0, fmt.Errorf("invalid %s %q: use a whole number from 0, or leave it unset", seedVariable, text)
	}
	return seed, nil
}
