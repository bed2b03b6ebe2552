package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// mpirun starts this executable again for each rank. That process reads the rank from mpirun's
// variables, starts the worker with its output in the worker's log, and passes signals on to it. If
// the worker fails, it reports this to the launcher by a line that mpirun forwards.

// rankArgument is the first argument of a process that mpirun has started for a rank. After it are
// a RankTask as JSON, and the argv of the worker.
const rankArgument = "lockstep rank"

// init checks whether mpirun has started this process for a rank. If so, it runs the rank and ends
// the process, so that main does not run.
func init() {
	if len(os.Args) > 3 && os.Args[1] == rankArgument {
		os.Exit(runRank(os.Args[2], os.Args[3:]))
	}
}

// RankTask describes the run of a rank that mpirun starts.
type RankTask struct {
	Dir     string        `json:"dir"`
	Ranks   int           `json:"ranks"` // in each process
	Seed    int64         `json:"seed"`
	Threads int           `json:"threads"`
	Foreign bool          `json:"foreign,omitempty"` // whether it is a program other than lockstep
	Grace   time.Duration `json:"grace"`
	// TFAddresses lists the addresses of all processes for TF_CONFIG. It is nil if the program does
	// not need TF_CONFIG.
	TFAddresses []string `json:"tf_addresses,omitempty"`
	Disturbed   string   `json:"disturbed,omitempty"` // as in runs.Binding
}

type rankReport struct {
	Process int    `json:"process"`
	Reason  string `json:"reason"` // such as "rank 1 ended with exit code 2"
}

// rankReportMark begins a rankReport in the output. mpirun may be configured to write a prefix before it.
const rankReportMark = "lockstep rank failed: "

// String returns the line that reports the failure.
func (r rankReport) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		return rankReportMark + "{}" // numbers and texts always can be encoded
	}
	return rankReportMark + string(text)
}

// parseRankReport returns the report in a line of mpirun's output. ok is false if there is none.
func parseRankReport(line string) (r rankReport, ok bool) {
	_, text, ok := strings.Cut(line, rankReportMark)
	return r, ok && json.Unmarshal([]byte(strings.TrimSpace(text)), &r) == nil && r.Reason != ""
}

// LaunchCommand returns the command that mpirun starts for each process: this executable, which starts
// the worker command argv.
func (t RankTask) LaunchCommand(argv []string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which mpirun starts for each rank: %w", err)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return append([]string{self, rankArgument, string(text)}, argv...), nil
}

// runRank runs the worker of a rank and returns the exit code for this process. text is a RankTask
// as JSON.
//
// If the worker fails, this process reports that and waits until the launcher asks all ranks to
// end. If it ended at once, mpirun of Open MPI would kill the other ranks soon, and mpirun of MPICH
// would not end them at all.
func runRank(text string, argv []string) (code int) {
	// The worker is killed if the thread that starts it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child.EndWithParent() // mpirun, or its process on this machine
	ctx, stop := signal.NotifyContext(context.Background(), append(process.ShutdownSignals(), mpirun.StopSignals()...)...)
	defer stop()
	var task RankTask
	number := -1
	err := json.Unmarshal([]byte(text), &task)
	if err == nil {
		number, err = task.runWorker(ctx, argv)
	}
	var failed *WorkerExit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		fmt.Println(rankReport{number, failed.reason()}) // one write, because mpirun mixes the output of ranks
	default:
		fmt.Println(rankReport{number, fmt.Sprintf("process %d of mpirun: %v", number, err)})
	}
	asked, cancel := process.WithTimeout(ctx, reportTimeout)
	defer cancel()
	<-asked.Done()
	if ctx.Err() != nil {
		return 0
	}
	return 1
}

// reportTimeout limits how long a failed rank waits until the launcher asks it to end. The launcher
// normally needs less time.
const reportTimeout = settleTime + 5*time.Second

// runWorker starts the worker and waits until it has ended. When ctx is canceled, it ends the worker. err
// is a *WorkerExit if the worker failed before that. number is the number of this process in the
// run, from 0, or -1 if it is unknown.
func (t RankTask) runWorker(ctx context.Context, argv []string) (number int, err error) {
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return -1, err
	}
	variables := os.Environ()
	if t.Foreign {
		env = env.ResolveMaster(ctx)
		variables = ProgramEnvironment(env, t.Threads)
		if t.TFAddresses != nil {
			variables = append(variables, rendezvous.FormatTFConfig(t.TFAddresses, env.Rank))
		}
	}
	variables = append(variables, "LOCKSTEP_SEED="+strconv.FormatInt(t.Seed, 10))
	if !t.Foreign {
		variables = append(variables, MPIBinding(t.Disturbed).EnvironmentEntry())
	}
	c := &Group{
		run: Run{
			Dir: t.Dir, Ranks: t.Ranks, Foreign: t.Foreign, Resume: true, // the launcher has removed old logs
			Output: output.NewLineWriter(nil), GracePeriod: t.Grace,
		},
		forwarded: make(chan os.Signal, 1),
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, mpirun.FlightRecordSignal)
	defer signal.Stop(signals)
	go func() {
		for range signals {
			c.forwarded <- unix.SIGUSR2
		}
	}()
	if _, err := c.Start(env.Rank*t.Ranks, argv, variables); err != nil {
		return env.Rank, err
	}
	if t.Foreign { // lockstep's workers record what they use themselves
		stop := runfolder.RecordResourceUsage(t.Dir, c.ProcessIDs(), func(err error) { fmt.Fprintf(os.Stderr, "lockstep: note: %v\n", err) })
		defer stop()
	}
	failed, err := c.Wait(ctx)
	if len(failed) > 0 {
		err = &failed[0]
	}
	return env.Rank, err
}

// MPIBinding returns the binding of workers that mpirun starts: the launcher does not bind them.
// disturbed is as in runs.Binding.
func MPIBinding(disturbed string) binding.Binding {
	return binding.Binding{Binding: runs.Binding{Mode: binding.None, Reason: "mpirun starts them, and Lockstep does not bind them", Disturbed: disturbed}}
}
