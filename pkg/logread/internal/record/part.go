package record

import "lockstep/pkg/runs"

// Role says how a part becomes a run or adds to one.
type Role int

// What a part is to the runs.
const (
	RunFolder  Role = iota // a run folder of this project; only spans are added to it
	Principal              // a run of its own
	Companion              // adds to a run; companions without one form a run together
	Config                 // adds Info.Config to runs; never a run of its own
	Accounting             // adds to the run of the job in Info.JobIDs["slurm"]
)

// Part is what one file says about one run.
type Part struct {
	Run            runs.Run
	Role           Role
	Line           int  // where the run begins in its file; 0 if it is the whole file
	SeedKnown      bool // Run.Info.Seed comes from the content
	SeriesFromPath bool // Run.Info.Series comes from the path
	SumRates       bool // Epoch.SamplesPerSecond is per rank; the ranks' rates are summed
	// State and StateOf order the files that hold states of the same run; the last counts.
	State   int64
	StateOf string
	Report  *Report
	// Source is what a format keeps of a companion until the companions of a
	// folder are joined: *events.Reader, *trace.file, or nil.
	Source any
}
