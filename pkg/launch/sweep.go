package launch

import (
	"cmp"
	"io"
	"time"

	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/series"
	"lockstep/pkg/logread"
	"lockstep/pkg/train"
)

// Sweep describes the runs to start. Workers and either Config or Command are required.
type Sweep struct {
	// Config is the name of a shipped config or a .yaml file for the lockstep command.
	Config string
	// Command is a program with its arguments, to be run in place of lockstep with a Config. Local
	// returns an error if the program is not in PATH. The arguments may contain placeholders for
	// values of each run: {workers}, {seed}, {run} (the run folder), and products and quotients
	// with the number of workers. If an argument is the batch of all workers, {16*workers} makes it
	// weak scaling. If it is the batch of one worker, {64/workers} makes it strong scaling.
	// {{seed}} stands for the text {seed}.
	Command []string

	// Lines lists templates of the lines that Command prints, such as
	//
	//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
	//
	// They are needed if logread does not know the form of these lines; see
	// logread.Options.Lines. Local adds them to lockstep-logs.yaml in the study's folder, where
	// everything that reads the folder finds them.
	Lines []string

	Workers []int   // worker counts, one run for each
	Seeds   []int64 // each is combined with every worker count; the default is seed 1
	// Threads is the number of threads of each worker in every run. 0 means 1.
	Threads int
	// Oversubscribe allows more threads than the machine has cores. The times of such runs do not
	// measure scaling.
	Oversubscribe bool
	// Bind chooses the CPUs on which the workers of a run may run:
	//
	//	cores  each worker gets neighboring cores of one NUMA node, with all their SMT
	//	       siblings: one core for each thread, and up to two more if there are enough
	//	numa   each worker may use all cores of one NUMA node
	//	none   each worker may use all CPUs
	//
	// The workers never get CPUs that the launcher itself may not use. No CPU belongs to two
	// workers, except with Oversubscribe and with numa. The default is cores if the workers of
	// the largest run of the sweep fit on the machine's CPUs, and none otherwise; it is also
	// none for Command, on GPUs, under a CPU quota, and if other processes may be bound to the
	// same CPUs. run.json and out.log contain the CPUs of each worker, or why it has none of
	// its own. Systems other than Linux cannot bind processes.
	Bind string

	// Logs is the logs folder. The default is the one that runs.ResolveOrCreateLogs finds or creates.
	Logs string
	// Study is the name of the sweep's folder in Logs. The default is the name of the config or program.
	Study string
	// Series is the name by which runs are compared. The default is the name of the config's
	// strategy, such as "ddp", or of the program.
	Series string

	Data   string   // folder with image/ and label/ in place of the config's data; only with Config
	Epochs int      // number of epochs in place of the config's, unless 0; only with Config
	Set    []string // settings key=value that change the config; only with Config
	// GlobalBatch is the number of samples that all workers together process in each forward and
	// backward pass, as in strong scaling. Each worker gets GlobalBatch divided by the number of
	// workers. 0 means that each worker has the config's batch in every run, as in weak scaling.
	// Only with Config.
	GlobalBatch int
	// Vary lists the settings in which the series of the sweep differ, each as key=value,value…,
	// such as engine.overlap=true,false. There is one series, named for example ddp-overlap-true,
	// for each combination of values. Runs to be compared follow each other, because a machine may
	// get slower over time. Only with Config.
	Vary []string
	// Strategies lists the strategies to compare. A name may be followed by options, such as
	// local_sgd:steps=4; see strategy.Parse. Each strategy is one series, which has the strategy's
	// name by default. Combinations with Vary, and the order of the runs, are as for Vary. Only
	// with Config.
	Strategies []string
	// Profile is the range of steps that every worker profiles, as epoch=1,steps=0-9 or FIRST:STEPS
	// (see train.ParseProfile). On the CPU, the trace of rank R is trace-<R>.json in the run
	// folder. Only with Config.
	Profile string
	// StudyLogs is a folder to which each finished run is also written for the notebooks of the
	// U-Net scaling study: as log_<N>.csv, or log_hvd_<N>.csv for the series horovod. Runs with
	// other seeds than the first are in seed<S>/, and runs of several series (Vary) in <series>/. A
	// file of another run is never replaced. DefaultStudyLogs is the folder study-logs in the
	// study's folder. If it is empty, no such files are written.
	StudyLogs string
	// OneProcess starts Command as one process per run, which uses the devices of all workers itself, as
	// a program with tf.distribute.MirroredStrategy or torch.nn.DataParallel does. The run counts as
	// one with as many workers. The process gets the GPUs of all workers, in CUDA_VISIBLE_DEVICES, or
	// without GPUs their cores. {gpus} in Command is the number of these GPUs. Only with Command.
	OneProcess bool
	// GPUsPerWorker is the number of GPUs of each worker of Command. 0 means the default, which is
	// 1 on Slurm if the partition has GPUs, 1 with OneProcess if this machine has GPUs, and
	// otherwise none. NoGPUs means none. On this machine, a number needs OneProcess, because each
	// of several processes sees all GPUs and uses the one with the number LOCAL_RANK.
	GPUsPerWorker int
	// Framework is the framework of Command. FrameworkTensorFlow makes workers get TF_CONFIG in
	// addition to the environment variables that all workers get. Only with Command.
	Framework string
	// NSys is the name of the run folder of the run that nsys profiles, or NSysLast for the last
	// run with the first seed. The program itself calls cudaProfilerStart and cudaProfilerStop
	// around the range to be profiled. The profile of rank R is nsys-<R>.nsys-rep in the run
	// folder. Only with Command.
	NSys string
	// TimeoutJoin limits how long the workers wait until all of them have joined the run. 0 means
	// the config's timeout_join. Only with Config.
	TimeoutJoin time.Duration
	// Resume continues interrupted runs. Without it, an unfinished run in the run folder is an
	// error. Finished runs are never run again.
	Resume bool
	// AcceptChangedData lets Resume continue runs with other data than they were trained on, which
	// would otherwise fail. The run folder records it.
	AcceptChangedData bool
	// Timeout limits the duration of each run. The time for which the launcher was stopped (Ctrl-Z)
	// does not count. 0 means no limit.
	Timeout time.Duration

	// Now starts the sweep even if another sweep of this user is running on this machine. Otherwise the
	// sweep waits for its end, because simultaneous work would distort the measured times. A sweep
	// inside a run (LOCKSTEP_RUN is set) or in a scheduler's job never waits. If several users share the
	// cores of this machine (see the package's documentation), Now also starts it without free cores.
	Now bool
	// NoWait makes Local return a *BusyError if the sweep would have to wait.
	NoWait bool
	// Detach lets a sweep continue when the notebook's kernel, or the program that launched it,
	// ends or is killed; Attach finds it again. Jobs of Slurm always continue.
	Detach bool

	// Slurm contains the options that only Slurm uses.
	Slurm SlurmOptions
	// MPI contains the options that only MPI uses.
	MPI MPIOptions

	// Output, unless it is nil, receives the output of all workers. Each line has a prefix such as
	// "[n2 s1 rank 0] ". At most one goroutine writes to Output at a time.
	Output io.Writer `json:"-"`

	// gracePeriod is how long workers may take to shut down before they are killed.
	gracePeriod time.Duration
}

// NoGPUs is the value of Sweep.GPUsPerWorker for workers without GPUs.
const NoGPUs = -1

// FrameworkTensorFlow is a value of Sweep.Framework: each worker gets TF_CONFIG, from which
// tf.distribute.MultiWorkerMirroredStrategy takes the addresses of all workers and its own index.
const FrameworkTensorFlow = "tensorflow"

// NSysLast is the value of Sweep.NSys for the last run with the first seed.
const NSysLast = "last"

// defaultGracePeriod is enough time for a training step and a check of the context.
const defaultGracePeriod = 10 * time.Second

func (s Sweep) hasCommand() bool { return len(s.Command) > 0 }

// seriesAxes returns the fields of s that determine its series.
func (s Sweep) seriesAxes() series.SweepAxes {
	return series.SweepAxes{Series: s.Series, Strategies: s.Strategies, Vary: s.Vary, Set: s.Set}
}

// withDefaults returns s with the defaults of empty fields filled in.
func (s Sweep) withDefaults() Sweep {
	s.Threads = cmp.Or(s.Threads, 1)
	if len(s.Seeds) == 0 {
		s.Seeds = []int64{1}
	}
	s.gracePeriod = cmp.Or(s.gracePeriod, defaultGracePeriod)
	name := series.PlainNameFromPath(s.Config)
	if s.hasCommand() {
		name = series.ProgramName(s.Command)
	}
	s.Study = cmp.Or(s.Study, name)
	switch {
	case s.Series != "" || len(s.Strategies) > 0: // each strategy names a series
	case s.hasCommand():
		s.Series = name
	default:
		s.Series = train.Worker{Config: s.Config, Set: s.Set}.StrategyName()
	}
	return s
}

// saveLineTemplates adds the line templates to the rules in the study's folder dir.
func (s Sweep) saveLineTemplates(dir string) error {
	if len(s.Lines) == 0 {
		return nil
	}
	_, err := logread.Rules{Lines: s.Lines}.Save(dir)
	return runfolder.WrapWriteError("keep the line templates", err)
}
