// Package runs writes and reads run folders, the records of training runs. A run folder
// can be read after a kill at any moment.
//
//	logs/<study>/<series>-n<workers>-s<seed>/
//	    run.json               an Info
//	    epochs.csv             one Epoch per row
//	    classes.csv            one ClassScores per row; only of segmentation into several classes
//	    images.csv             the NamedScores of each held-out image after the last epoch; only of segmentation
//	    steps-<rank>.jsonl     a Worker, then one Step per line
//	    collectives-<rank>.jsonl  the last collective operations, if one has failed; see package flight
//	    stacks-<rank>.txt      the stacks of the rank's process at that time
//	    load.csv               one Load per row; only on systems with /proc
//	    out.log                log messages, in the format of Python's logging
//	    events.out.tfevents.*  scalars for TensorBoard
//	    checkpoints/
//	    owners.jsonl           the run's lock, and one Owner per line
//
// One process at a time owns a run and writes it; see Lock. Reading needs no
// lock.
//
// The package is slightly larger than others because readers, the writer and the lock of a run folder
// share the formats of its files.
package runs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/clean"
)

// SchemaVersion is the version of the run folder format that this package writes.
const SchemaVersion = 1

// Status of a run.
const (
	StatusRunning  = "running"
	StatusDone     = "done"
	StatusFailed   = "failed"
	StatusCanceled = "canceled"
	// StatusKilled is never written. Read returns it for a run with status "running" that no process owns.
	StatusKilled = "killed"
)

// Info is the content of run.json: the settings of a run, its machine, its software
// versions and its result.
type Info struct {
	Schema           int               `json:"schema"`
	Study            string            `json:"study"`
	Series           string            `json:"series"`              // what runs are compared by, such as a strategy or a framework
	Workers          int               `json:"workers"`             // world size
	Processes        int               `json:"processes,omitempty"` // of all workers; 0 if unknown
	Seed             int64             `json:"seed"`
	Status           string            `json:"status"`
	Error            string            `json:"error,omitempty"`
	Started          time.Time         `json:"started"`
	Ended            time.Time         `json:"ended,omitzero"`
	WallSeconds      float64           `json:"wall_seconds,omitempty"` // from start to end by the monotonic clock; of a resumed run, the sum over its parts
	Command          []string          `json:"command,omitempty"`      // of a program other than lockstep
	Profiler         string            `json:"profiler,omitempty"`     // that started the program and adds to its times, such as "nsys"; "" if none
	Config           map[string]any    `json:"config,omitempty"`       // the complete train.Config as a document
	Engine           string            `json:"engine,omitempty"`
	Strategy         string            `json:"strategy,omitempty"`
	Collective       string            `json:"collective,omitempty"`
	BatchPerWorker   int               `json:"batch_per_worker,omitempty"`
	GlobalBatch      int               `json:"global_batch,omitempty"`
	ThreadsPerWorker int               `json:"threads_per_worker,omitempty"`
	Parameters       int               `json:"parameters,omitempty"`
	SamplesPerEpoch  int               `json:"samples_per_epoch,omitempty"`     // distinct samples per epoch, all workers together
	FLOPsPerStep     int64             `json:"flops_per_step,omitempty"`        // for one worker's batch, forward and backward, counting direct convolutions
	PeakFLOPS        float64           `json:"peak_flops_per_second,omitempty"` // of one worker, measured on rank 0 at the start; 0 if not measured
	Binding          *Binding          `json:"binding,omitempty"`               // nil if no launcher of Lockstep started the run
	RankSource       string            `json:"rank_source,omitempty"`           // which launcher's variables have set rank and world size, such as "Slurm step"; empty: those of lockstep launch, or none
	Host             Host              `json:"host"`
	Versions         map[string]string `json:"versions,omitempty"` // lockstep, go, gorgonia, …
	Git              string            `json:"git,omitempty"`
	JobIDs           map[string]string `json:"job_ids,omitempty"`
	Nodes            int               `json:"nodes,omitempty"`         // machines; 0 if unknown
	Accelerator      string            `json:"accelerator,omitempty"`   // device of a worker, such as "NVIDIA H200"; empty if unknown or a CPU
	GPUs             int               `json:"gpus,omitempty"`          // of all workers of a program, that the launcher has provided; 0 if none, or unknown
	EnergyJoules     float64           `json:"energy_joules,omitempty"` // of all devices over the complete run; 0 if not recorded
	Checkpoint       string            `json:"checkpoint,omitempty"`    // newest checkpoint that was saved, relative to the run folder; empty: none, or unknown
	Test             *Test             `json:"test,omitempty"`          // evaluation after training; nil before
	Final            *Test             `json:"final,omitempty"`         // of the test part, on complete images, if the data have three parts; nil before the end
	Notes            []string          `json:"notes,omitempty"`         // messages for the user about the data and the run
	Load             *LoadSummary      `json:"load,omitempty"`          // of all epochs except the first (of all, if Command is set); nil if unknown

	// Source is the origin of a run that was not trained here: "published by …" or
	// "recorded on 2026-11-29, 2 cores of AMD EPYC"; empty otherwise.
	Source string `json:"source,omitempty"`

	// Fields that only some strategies set.
	Unreal         string  `json:"unreal,omitempty"`          // why losses and scores are not those of a training with these workers; empty if they are
	OptimizerBytes []int64 `json:"optimizer_bytes,omitempty"` // size of the optimizer's state on each rank; nil if every rank has the complete state
	// SentFormula is the mean number of bytes that a worker sends in a step according to the
	// strategy's formula, to compare with Step.Sent; 0 with one worker or without a formula.
	SentFormula            float64 `json:"sent_bytes_per_step_formula,omitempty"`
	CompleteOptimizerBytes int64   `json:"complete_optimizer_bytes,omitempty"` // size of the complete optimizer's state; 0 if OptimizerBytes is nil
}

// Names of the part of the data that is evaluated after each epoch; see Info.EvaluatedPart.
const (
	HeldOutPart    = "held-out"
	ValidationPart = "validation"
)

// EvaluatedPart returns the name of the part of the data that was evaluated after each epoch:
// ValidationPart if the config sets data.validation_images, and keeps a third part for one final
// test, and otherwise HeldOutPart.
func (i Info) EvaluatedPart() string {
	part, _ := i.Config["data"].(map[string]any)
	if n, _ := part["validation_images"].(float64); n > 0 {
		return ValidationPart
	}
	return HeldOutPart
}

// Binding describes the CPUs to which the launcher has bound the workers, in lists such as "0-3,8".
type Binding struct {
	Mode    string   `json:"mode"`                   // "cores", "numa" or "none"
	Reason  string   `json:"reason,omitempty"`       // why the workers are not bound, unless the user has chosen that
	CPUs    []string `json:"cpus,omitempty"`         // of each worker, by rank; nil if they are not bound
	Allowed string   `json:"allowed_cpus,omitempty"` // that the launcher might use; empty if unknown
	// Disturbed says why other sweeps disturb the run, or is empty if unknown.
	Disturbed string `json:"disturbed,omitempty"`
}

// DisturbanceNote returns a message for the user of a run that other sweeps disturb.
func (b Binding) DisturbanceNote() string {
	return "other sweeps disturb the times of this run: " + b.Disturbed
}

const maxListedRanks = 8

// String returns a sentence without a period, with the CPUs of the first eight ranks.
func (b Binding) String() string {
	if len(b.CPUs) == 0 {
		if b.Reason != "" {
			return "workers not bound to CPUs: " + b.Reason
		}
		return "workers not bound to CPUs"
	}
	list := b.CPUs
	more := ""
	if n := len(list) - maxListedRanks; n > 0 {
		list, more = list[:maxListedRanks], fmt.Sprintf(" and %d more", n)
	}
	what := b.Mode
	if b.Mode == "numa" {
		what = "NUMA nodes"
	}
	return fmt.Sprintf("workers bound to %s; CPUs by rank: %s%s", what, strings.Join(list, " | "), more)
}

// Host describes the machine of rank 0.
type Host struct {
	Name        string `json:"name"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
}

// Test is the evaluation on the complete held-out set with the final parameters, and with two
// baselines: constant predictions and the untrained network.
type Test struct {
	Samples       int     `json:"samples"`
	Loss          float64 `json:"loss"`
	IoU           float64 `json:"iou"`
	Dice          float64 `json:"dice"`
	IoUConstant   float64 `json:"iou_constant"` // of the best constant prediction
	DiceConstant  float64 `json:"dice_constant"`
	IoUUntrained  float64 `json:"iou_untrained"` // the same network before the first step
	DiceUntrained float64 `json:"dice_untrained"`
	Checkpoint    string  `json:"checkpoint"` // relative to the run folder
	Seconds       float64 `json:"seconds"`
	// Classes contains the scores by class index. IoU and Dice are then their means without NaN. It
	// is nil for segmentation into foreground and background, where IoU and Dice are those of the
	// foreground, and for other tasks.
	Classes []NamedScores `json:"classes,omitempty"`

	// The fields below are for tasks other than segmentation, which have no IoU and no Dice.
	Task              string  `json:"task,omitempty"` // "classification", "regression"; empty: segmentation
	Accuracy          float64 `json:"accuracy,omitempty"`
	AccuracyConstant  float64 `json:"accuracy_constant,omitempty"` // when always predicting the most frequent class
	AccuracyUntrained float64 `json:"accuracy_untrained,omitempty"`
	LossUntrained     float64 `json:"loss_untrained,omitempty"`
}

// Epoch is one row of epochs.csv. A value that was not measured is NaN, and an empty cell in the file.
type Epoch struct {
	Epoch            int     // from 1
	Seconds          float64 // of training, without validation
	Samples          int     // trained on by all workers, including PaddingSamples
	PaddingSamples   int     // repeated to fill the last batch or shard
	SamplesPerSecond float64 // Samples / Seconds
	TrainLoss        float64
	ValLoss          float64
	IoU              float64 // on the complete validation set; of several classes, the mean over those in its masks
	Dice             float64
	ValSeconds       float64
	LearningRate     float64 // of the epoch's last step
	Accuracy         float64 // 0 to 1, on the training set
	ValAccuracy      float64 // 0 to 1, on the validation set
	Line             int     // line of Run.File with the epoch's time, from 1; 0 if unknown; no column of epochs.csv
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
	// ConfigHash is the SHA-256 of the settings that all ranks must share, and DataHash
	// the fingerprint of their data. Both are "" in folders of other programs.
	ConfigHash string `json:"config_hash,omitempty"`
	DataHash   string `json:"data_hash,omitempty"`
	Data       Data   `json:"data,omitzero"` // the data that DataHash identifies
	// AcceptedChangedData reports that the worker resumed the run with other data, as its user accepted.
	AcceptedChangedData bool `json:"accepted_changed_data,omitempty"`
	FromStep            int  `json:"from_step,omitempty"` // steps before the checkpoint that the worker resumed from; 0 if it started the run
}

// Step contains the times of one training step on one rank, in seconds, and its loss.
type Step struct {
	Epoch     int     `json:"epoch"`
	Step      int     `json:"step"`         // from 1, over the whole run
	Samples   int     `json:"samples"`      // 0 if the strategy has left out the step's batches, whose loss is unknown
	Data      float64 `json:"data_seconds"` // waiting for the loader
	Forward   float64 `json:"forward_seconds"`
	Backward  float64 `json:"backward_seconds"`
	Wait      float64 `json:"wait_seconds"`       // exposed communication
	AllReduce float64 `json:"all_reduce_seconds"` // inside the collective, hidden or not
	Optimizer float64 `json:"optimizer_seconds"`
	Loss      float64 `json:"loss"`
	// UntilCollective is the time from the start of the step to its first collective operation,
	// which is longest on a straggler.
	UntilCollective float64 `json:"until_collective_seconds"`
	// Staleness is set by asynchronous strategies. It is the number of updates that were applied to
	// the parameters after they were used to compute this step's gradient and before the gradient
	// was applied.
	Staleness int   `json:"staleness,omitempty"`
	Sent      int64 `json:"sent_bytes,omitempty"` // bytes that the rank's transport has sent since its previous step, in an epoch's last step also until the end of the epoch; 0 if it does not count them
	Dropped   bool  `json:"dropped,omitempty"`    // the gradient came too late and was not used; runs with the removed strategy option backup_workers have it
}

// Run is the content of a run folder or of another program's log.
type Run struct {
	Dir      string // run folder, or the file of another program's log
	Info     Info
	Epochs   []Epoch
	Workers  []Worker      // the last worker of each rank, by rank; empty for other programs' logs
	Starts   []Worker      // all workers, also those before a resumption: by rank, then in the order of their start
	Loads    []Load        // by epoch; empty if unknown
	Classes  []ClassScores // by epoch, then by class index; empty unless the task is segmentation into several classes
	Problems []Problem
	// Origins states where the properties that identify the run were found. Missing ones are
	// unknown. It is nil for a run folder, whose run.json has them all, unless the number of
	// workers of a run of one process is from its command, such as --n_gpus 2.
	Origins map[Property]Origin

	File string // the file that Epochs were read from; epochs.csv for a run folder
	Kind string // kind of log: "run folder", "study CSV", "SC21 log", …

	// Curves, Trials, Spans, AllReduces and OutOfMemory come from other programs' logs. They are
	// empty for run folders, except that Spans has the spans of the traces in the folder.
	Curves      []Curve
	Trials      []Trial
	Spans       []Span
	AllReduces  []AllReduce // of a benchmark of collectives such as nccl-tests
	WallSeconds float64     // of the complete job, including start-up; 0 if unknown
	// ThroughputUnit is the unit of Epochs, Trials and curves, such as "images/s" or "tokens/s".
	// Empty means samples per second.
	ThroughputUnit string
	// OutOfMemory lists the lines of the log that report that memory ran out. It is empty if the
	// run continued nevertheless, unless it may have continued with a smaller batch.
	OutOfMemory []Problem
}

// Curve is a quantity by step, such as a TensorBoard tag or a column of Lightning's metrics.csv.
type Curve struct {
	Name   string    // as in the log: Loss/train, val_acc, …
	Rank   int       // −1 for all ranks together
	Steps  []int64   // as logged, in the order of the log
	Values []float64 // one per step; NaN as logged
	Times  []float64 // Unix seconds, one per step; nil if unknown
}

// Trial is a measured throughput of the training loop or of a part of it. The names are benchy's:
// IO (loading only), SYNTHETIC (training on data in memory) and FULL (both).
type Trial struct {
	Name   string    // IO, SYNTHETIC, FULL
	Rate   float64   // in samples per second or Run.ThroughputUnit, all workers together
	Spread float64   // standard deviation over the trials; NaN if not logged
	Rates  []float64 // of each trial, in samples per second; nil if not logged
	Line   int       // line of Rate in the log, from 1; 0 if unknown
}

// AllReduce is the time of an all-reduce over all workers in a benchmark.
type AllReduce struct {
	Bytes   float64 // size of each worker's buffer
	Seconds float64 // mean over the repetitions
	Line    int     // line in the log, from 1; 0 if unknown
}

// Span is an interval of a rank's time in a trace.
type Span struct {
	Rank    int
	Lane    string  // thread or stream
	Kind    string  // one of the Span constants
	Name    string  // as in the trace
	Start   float64 // seconds since the start of the trace's first span, on the rank's clock
	Seconds float64
}

// Kinds of a Span.
const (
	SpanData          = "data"          // loading, copying a batch to the device
	SpanCompute       = "compute"       // forward, backward, optimizer
	SpanCommunication = "communication" // collectives
	SpanOther         = "other"         // such as a complete step, which contains other spans
)

// Problem describes a line or file that a reader could not use.
type Problem struct {
	File   string
	Line   int // from 1; 0 for the complete file
	Reason string
}

// String formats p on one line as "file:line: reason", with control characters escaped.
func (p Problem) String() string {
	if p.Line == 0 {
		return clean.EscapeText(p.File + ": " + p.Reason)
	}
	return clean.EscapeText(p.File + ":" + strconv.Itoa(p.Line) + ": " + p.Reason)
}
