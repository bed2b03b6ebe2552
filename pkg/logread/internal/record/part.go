package record

import (
	"fmt"

	"lockstep/pkg/runs"
)

// PartRole states whether a part becomes a run or adds values to another run.
type PartRole int

// The roles of parts.
const (
	RunFolder  PartRole = iota // a run folder of this project; only spans are added to it
	Principal                  // forms a run
	Companion                  // adds to a run; if a folder has none, its companions form one
	Config                     // adds Info.Config to runs; never forms a run
	Unfinished                 // the command of a run without values; adds to a part of the other output of the job
	Accounting                 // adds to the run with the same job in Info.JobIDs["slurm"], or forms one
)

// Part contains what one file states about one run.
type Part struct {
	Run  runs.Run
	Role PartRole
	// Evidence lists what sources other than the content of the file show about the run, such as
	// a command. What the content states is in Run.Info.
	Evidence       []Evidence
	Line           int  // line at which the run begins in its file; 0 if the file has only this run
	WorkersDerived bool // Run.Info.Workers is computed from other numbers in the content
	SeedKnown      bool // Run.Info.Seed comes from the content
	SeriesFromPath bool // Run.Info.Series comes from the path
	RankKnown      bool // the content states that one worker has written the file
	Rank           int  // of that worker
	// Ranks contains the ranks that wrote the lines, ascending, if the lines state several.
	// RanksProblem is a problem if no other file has the remaining ranks.
	Ranks        []int
	RanksProblem string
	Resumes      bool // the content states that the run resumes an earlier one
	SumRates     bool // Epoch.SamplesPerSecond is per rank; the ranks' rates are summed
	// Parts with the same StateOf are successive states of one run; only the one with the largest
	// State is used.
	State   int64
	StateOf string
	Report  *Report
	// Source is the parsed content of a companion file (*events.Parser or *trace.traceFile) or a
	// job script (*launchline.Script). It is nil for other files.
	Source any
}

// HasValues reports whether a run has measurements, and not only how it ended.
func HasValues(r *runs.Run) bool {
	return len(r.Epochs)+len(r.Curves)+len(r.Trials)+len(r.Spans)+len(r.AllReduces) > 0 || r.WallSeconds > 0
}

// EvidenceKind states how a source shows a value, for example directly or as a lower bound.
type EvidenceKind int

// The kinds of evidence.
const (
	Stated     EvidenceKind = iota // the source states the value
	PerNode                        // the source states it, maybe for each node
	DeviceList                     // the source lists the devices, maybe of each node
	Device                         // the source states the value, or the number of one device, as --gpus 2 may do
	AtLeast                        // the value counts the ranks that lines or files show; there may be more
	Derived                        // the value is computed from others
	Devices                        // the source states the devices of one node, or those that a program can use
)

// IsStated reports whether the source states the value in some way.
func (k EvidenceKind) IsStated() bool { return k < AtLeast }

// Evidence is what one source shows about a property that identifies a run. Several sources may
// contradict each other; package identity decides which evidence is used.
type Evidence struct {
	Property runs.Property
	Number   int64  // number of workers or nodes, rank, seed or batch size
	Text     string // the series or the model; empty for a property that is a number
	Kind     EvidenceKind
	Origin   runs.Origin
}

// String returns the property and its value, such as "workers 4".
func (e Evidence) String() string {
	if e.Text != "" {
		return fmt.Sprintf("%s %q", e.Property, e.Text)
	}
	return fmt.Sprintf("%s %d", e.Property, e.Number)
}

// AddEvidence adds evidence for a numeric property of the run. detail is the text in which it was
// found, such as a command.
func (p *Part) AddEvidence(property runs.Property, n int64, kind EvidenceKind, source runs.Source, detail string) {
	p.Evidence = append(p.Evidence, Evidence{Property: property, Number: n, Kind: kind, Origin: runs.Origin{Source: source, Detail: detail}})
}

// AddTextEvidence is like AddEvidence for a stated property that is a text.
func (p *Part) AddTextEvidence(property runs.Property, text string, source runs.Source, detail string) {
	p.Evidence = append(p.Evidence, Evidence{Property: property, Text: text, Origin: runs.Origin{Source: source, Detail: detail}})
}
