package record

import "lockstep/pkg/runs"

// Role states whether a part becomes a run of its own or adds values to another
// run.
type Role int

// The roles of parts.
const (
	RunFolder  Role = iota // a run folder of this project; only spans are added to it
	Principal              // forms a run
	Companion              // adds to a run; if a folder has none, its companions form one
	Config                 // adds Info.Config to runs; never forms a run
	Unfinished             // the command of a run without values; adds to a part of the other output of the job
	Accounting             // adds to the run with the same job in Info.JobIDs["slurm"], or forms one
)

// Part contains what one file states about one run.
type Part struct {
	Run  runs.Run
	Role Role
	// Evidence lists what other sources than the content of the file show about the run, such as
	// a command in it. What the content states is in Run.Info.
	Evidence       []Evidence
	Line           int  // line at which the run begins in its file; 0 if the file has only this run
	WorkersDerived bool // Run.Info.Workers is computed from other numbers in the content
	SeedKnown      bool // Run.Info.Seed comes from the content
	SeriesFromPath bool // Run.Info.Series comes from the path
	RankKnown      bool // the content states that one worker has written the file
	Rank           int  // of that worker
	// Ranks contains the ranks that wrote the lines, in ascending order, if the lines state
	// several. RanksProblem is the problem with them that remains if no other file has the rest.
	Ranks        []int
	RanksProblem string
	Resumes      bool // the content states that the run resumes an earlier one
	SumRates     bool // Epoch.SamplesPerSecond is per rank; the ranks' rates are summed
	// Files with the same StateOf contain states of one run at different steps.
	// Only the file with the largest State is used.
	State   int64
	StateOf string
	Report  *Report
	// Source is the content of a companion file (*events.Parser or
	// *trace.traceFile), which the package that parsed the file needs to join
	// the companions of a folder. It is nil for other files.
	Source any
}
