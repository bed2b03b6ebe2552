// Package runs is the run folder: what a training run leaves, written so that
// it reads back after a kill at any moment.
//
//	logs/<study>/<series>-n<workers>-s<seed>/
//	    run.json               Info
//	    epochs.csv             an Epoch a row
//	    steps-<rank>.jsonl     a Worker line, then a Step a line
//	    load.csv               a Load a row, where the system tells it
//	    out.log                lines for people, as Python's logging writes them
//	    events.out.tfevents.*  scalars for TensorBoard
//	    checkpoints/
//	    owners.jsonl           the run's lock, and an Owner a line
//
// One process at a time owns a run and writes it; see Lock. Reading needs no
// lock.
package runs

import (
	"strconv"
	"time"

	"lockstep/pkg/internal/clean"
)

// SchemaVersion is the version of the folder that this package writes.
const SchemaVersion = 1

// Status of a run.
const (
	StatusRunning  = "running"
	StatusDone     = "done"
	StatusFailed   = "failed"
	StatusCanceled = "canceled"
	// StatusKilled is never written: Read gives it to a run whose run.json says
	// "running" although no process owns it.
	StatusKilled = "killed"
)

// Info is run.json: what was run, where, with what, and what came of it.
type Info struct {
	Schema           int               `json:"schema"`
	Study            string            `json:"study"`
	Series           string            `json:"series"`  // what is compared: a strategy, a framework
	Workers          int               `json:"workers"` // world size
	Seed             int64             `json:"seed"`
	Status           string            `json:"status"`
	Error            string            `json:"error,omitempty"`
	Started          time.Time         `json:"started"`
	Ended            time.Time         `json:"ended,omitzero"`
	WallSeconds      float64           `json:"wall_seconds,omitempty"` // from start to end whatever the clock was set to; of all parts of a run that was resumed
	Command          []string          `json:"command,omitempty"`      // of a program that is not ours
	Config           map[string]any    `json:"config,omitempty"`       // the whole train.Config as a document
	Engine           string            `json:"engine,omitempty"`
	Strategy         string            `json:"strategy,omitempty"`
	Collective       string            `json:"collective,omitempty"`
	BatchPerWorker   int               `json:"batch_per_worker,omitempty"`
	GlobalBatch      int               `json:"global_batch,omitempty"`
	ThreadsPerWorker int               `json:"threads_per_worker,omitempty"`
	Parameters       int               `json:"parameters,omitempty"`
	SamplesPerEpoch  int               `json:"samples_per_epoch,omitempty"`     // distinct samples an epoch, all workers together
	FLOPsPerStep     int64             `json:"flops_per_step,omitempty"`        // of one worker's batch, forward and backward, convolutions counted as direct ones
	PeakFLOPS        float64           `json:"peak_flops_per_second,omitempty"` // of one worker, measured on rank 0 at the start; 0 where not measured
	Host             Host              `json:"host"`
	Versions         map[string]string `json:"versions,omitempty"` // lockstep, go, gorgonia, …
	Git              string            `json:"git,omitempty"`
	JobIDs           map[string]string `json:"job_ids,omitempty"`
	Nodes            int               `json:"nodes,omitempty"`         // machines; 0 where unknown
	Accelerator      string            `json:"accelerator,omitempty"`   // device of a worker, such as "NVIDIA H200"; empty where unknown or a CPU
	EnergyJoules     float64           `json:"energy_joules,omitempty"` // of all devices over the whole run; 0 where not recorded
	Test             *Test             `json:"test,omitempty"`          // after training
	Load             *LoadSummary      `json:"load,omitempty"`          // of the epochs but the first (of another program: of all); nil where unknown
}

// Host is the machine of rank 0.
type Host struct {
	Name        string `json:"name"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
}

// Test is the evaluation over the whole held-out set with the final
// parameters, beside what needs no training.
type Test struct {
	Samples       int     `json:"samples"`
	Loss          float64 `json:"loss"`
	IoU           float64 `json:"iou"`
	Dice          float64 `json:"dice"`
	IoUConstant   float64 `json:"iou_constant"` // the better of all-0 and all-1
	DiceConstant  float64 `json:"dice_constant"`
	IoUUntrained  float64 `json:"iou_untrained"` // the same network before the first step
	DiceUntrained float64 `json:"dice_untrained"`
	Checkpoint    string  `json:"checkpoint"` // relative to the run folder
	Seconds       float64 `json:"seconds"`

	// Of a task other than segmentation, which has no IoU and no Dice.
	Task              string  `json:"task,omitempty"` // "classification", "regression"; empty: segmentation
	Accuracy          float64 `json:"accuracy,omitempty"`
	AccuracyConstant  float64 `json:"accuracy_constant,omitempty"` // always the most frequent class
	AccuracyUntrained float64 `json:"accuracy_untrained,omitempty"`
	LossUntrained     float64 `json:"loss_untrained,omitempty"`
}

// Epoch is a row of epochs.csv. A value that was not measured is NaN and an
// empty cell.
type Epoch struct {
	Epoch            int     // from 1
	Seconds          float64 // of training, without validation
	Samples          int     // trained on, all workers, padding included
	PaddingSamples   int     // of these, repeated to fill the last batch or shard
	SamplesPerSecond float64 // Samples / Seconds
	TrainLoss        float64
	ValLoss          float64
	IoU              float64 // over the whole validation set
	Dice             float64
	ValSeconds       float64
	LearningRate     float64 // of the epoch's last step
	Accuracy         float64 // 0 to 1, on the training set
	ValAccuracy      float64 // 0 to 1, on the validation set
	Line             int     // of Run.File where the epoch's time stands, from 1; 0 where unknown; not in epochs.csv
}

// Worker is the first line of steps-<rank>.jsonl.
type Worker struct {
	Rank      int       `json:"rank"`
	LocalRank int       `json:"local_rank"`
	WorldSize int       `json:"world_size"`
	PID       int       `json:"pid"`
	Host      string    `json:"host"`
	Started   time.Time `json:"started"`
	BuildID   string    `json:"build_id,omitempty"`
	// ConfigHash and DataHash are SHA-256s of what all ranks must have in common of
	// their config, and of samples of their data; "" in a folder of an older version.
	ConfigHash string `json:"config_hash,omitempty"`
	DataHash   string `json:"data_hash,omitempty"`
	FromStep   int    `json:"from_step,omitempty"` // steps that were done in the checkpoint it goes on from; 0 where it begins
}

// Step is the span of one step of one rank, in seconds.
type Step struct {
	Epoch     int     `json:"epoch"`
	Step      int     `json:"step"` // from 1, over the whole run
	Samples   int     `json:"samples"`
	Data      float64 `json:"data_seconds"` // waiting for the loader
	Forward   float64 `json:"forward_seconds"`
	Backward  float64 `json:"backward_seconds"`
	Wait      float64 `json:"wait_seconds"`       // exposed communication
	AllReduce float64 `json:"all_reduce_seconds"` // inside the collective, hidden or not
	Optimizer float64 `json:"optimizer_seconds"`
	Loss      float64 `json:"loss"`
	// UntilCollective is the time from the step's start to its first collective: a straggler arrives late.
	UntilCollective float64 `json:"until_collective_seconds"`
}

// Run is a run folder (or another tool's log) as read.
type Run struct {
	Dir      string // folder, or file of a foreign log
	Info     Info
	Epochs   []Epoch
	Workers  []Worker // by rank; empty for foreign logs
	Loads    []Load   // by epoch; empty where unknown
	Problems []Problem

	File string // that Epochs were read from; epochs.csv of a run folder
	Kind string // of the log: "run folder", "study CSV", "SC21 log", …

	// What other programs' logs tell beside epochs; empty for run folders.
	Curves      []Curve
	Trials      []Trial
	Spans       []Span
	WallSeconds float64 // of the whole job, start-up included; 0 where unknown
	// OutOfMemory are the lines that say that memory ran out; the run ended there.
	OutOfMemory []Problem
}

// Curve is a value that was logged by step, such as a TensorBoard tag or a
// column of Lightning's metrics.csv.
type Curve struct {
	Name   string    // as the log has it: Loss/train, val_acc, …
	Rank   int       // −1 where it is of all ranks together
	Steps  []int64   // as logged, in the order of the log
	Values []float64 // one a step; NaN as logged
	Times  []float64 // Unix seconds, one a step; nil where unknown
}

// Trial is a measured throughput of the training loop, or of a part of it, as
// benchy measures it: IO (the loader alone), SYNTHETIC (the training on data
// that is there already), FULL (both).
type Trial struct {
	Name   string    // IO, SYNTHETIC, FULL
	Rate   float64   // samples per second
	Spread float64   // standard deviation over the single trials, NaN where the log tells none
	Rates  []float64 // of the single trials, where the log tells them
	Line   int       // where Rate stands; 0 where unknown
}

// Span is a stretch of a rank's time in a trace.
type Span struct {
	Rank    int
	Lane    string  // thread or stream
	Kind    string  // one of the Span constants
	Name    string  // as the trace has it
	Start   float64 // seconds from the trace's first span, on that rank's clock
	Seconds float64
}

// Kinds of a Span.
const (
	SpanData          = "data"          // loading, copying a batch to the device
	SpanCompute       = "compute"       // forward, backward, optimiser
	SpanCommunication = "communication" // collectives
	SpanOther         = "other"         // such as a step's whole extent, which holds others
)

// Problem is something that a reader could not use.
type Problem struct {
	File   string
	Line   int // from 1; 0 where the whole file is meant
	Reason string
}

// String is the problem on a line, fit to be shown: file:line: reason.
func (p Problem) String() string {
	if p.Line == 0 {
		return clean.Text(p.File + ": " + p.Reason)
	}
	return clean.Text(p.File + ":" + strconv.Itoa(p.Line) + ": " + p.Reason)
}
