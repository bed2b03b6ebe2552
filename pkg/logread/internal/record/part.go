package record

import "lockstep/pkg/runs"

// Role is what a part is to the runs.
type Role int

const (
	RunFolder  Role = iota // a run folder: nothing but spans is added to it
	Principal              // a run by itself
	Companion              // adds to a run, or is one with its like
	Config                 // adds Info.Config to runs; never one by itself
	Accounting             // adds to the run of the job Info.JobIDs["slurm"]
)

// Part is what one file tells of one run.
type Part struct {
	Run            runs.Run
	Role           Role
	Line           int  // where the run begins in its file; 0 for the whole of it
	SeedKnown      bool // run.Info.Seed is what the content says
	SeriesFromPath bool // run.Info.Series is what the path says
	SumRates       bool // Epoch.SamplesPerSecond is of one rank: that of all is the sum
	// State and stateOf order several files that hold states of one run.
	State   int64
	StateOf string
	Report  *Report
	// Source is what the reader of a companion keeps until the companions of a
	// folder are joined: of an event file *eventReader, of a trace *trace; nil else.
	Source any
}
