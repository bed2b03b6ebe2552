// Package fields is the vocabulary of the values in logs: the names of the fields, what their
// values mean, and the names that programs give them. Templates, tables, JSON lines and
// proposals of rules (package suggest) use the same table of fields.
//
//	fields.Named("seconds").Kind              // Seconds
//	fields.Lookup("Validation Loss").Name     // val_loss
package fields

import (
	"strings"
	"sync"

	"lockstep/pkg/runs"
)

// Kind is the kind of a field's values, such as a time in seconds or a fraction.
type Kind uint8

// The kinds of values.
const (
	Metric   Kind = iota // number with a meaning that only the user knows
	Number               // number without a unit of time
	Whole                // integer that is not negative
	Seconds              // duration
	Fraction             // number from 0 to 1, or a percentage
	Moment               // time of day with its date, or seconds since 1970
	Text
)

// The names of the fields.
const (
	Epoch            = "epoch"
	Step             = "step"
	Rank             = "rank"
	Workers          = "workers"
	Nodes            = "nodes"
	Seed             = "seed"
	EpochSeconds     = "seconds" // of the epoch
	StepSeconds      = "step_seconds"
	SamplesPerSecond = "samples_per_second"
	Samples          = "samples" // of the epoch
	TrainLoss        = "train_loss"
	ValLoss          = "val_loss"
	IoU              = "iou"
	Dice             = "dice"
	Accuracy         = "accuracy"
	ValAccuracy      = "val_accuracy"
	LearningRate     = "lr"
	ValSeconds       = "val_seconds"
	Elapsed          = "elapsed_seconds"
	Epochs           = "epochs" // total, as in 3/10
	Steps            = "steps"  // total
	Series           = "series"
	Model            = "model"
	Batch            = "batch" // samples per worker and step

	// Fields of tables only.
	WorkersPerNode  = "workers_per_node"
	Cores           = "cores"
	Time            = "time"
	TrainingTime    = "training_time"
	TrainingSeconds = "training_seconds"
	WallSeconds     = "wall_seconds"
	SummedSeconds   = "summed_seconds"
	Energy          = "energy_joules"
	Timestamp       = "timestamp"
	Study           = "study"
	Run             = "run"
	GlobalBatch     = "global_batch"
	Trial           = "trial"
	Spread          = "spread"
	Split           = "split"
	MetricName      = "metric"
	MetricValue     = "value"
	Status          = "status"
	ExitCode        = "exit_code"
	Started         = "started"
	Ended           = "ended"
	Host            = "host"
	Command         = "command"
	Setting         = "setting"
)

// Field describes the meaning of a value and its names in logs.
type Field struct {
	Name  string
	Kind  Kind
	About string
	// InTemplates and InTables state where the field can be used. In tables, numbers of epochs or
	// steps in total are ordinary settings. The fields of tables only are texts, times of
	// day, and values whose meaning other columns or rows show.
	InTemplates, InTables bool
	// Names are the names that show the field anywhere, separated by blanks. Case and punctuation
	// do not count.
	Names string
	// ColumnNames are names that mean this field only as the name of a column. In a line of text,
	// "workers" often means data loader workers, "gpus" lists devices, and "batch" counts steps.
	ColumnNames string
	// WeakNames are names that also have other meanings. Package suggest accepts such a name only if its
	// values fit the field, as epochs that rise by one do.
	WeakNames string
	// OfEpoch returns where an epoch stores the value. It is nil if the value belongs to no epoch,
	// if other rows decide whether it does, and for the integer number of samples.
	OfEpoch func(*runs.Epoch) *float64
}

// all contains the table of fields, in the order in which messages list them.
var all = [...]Field{
	{
		Name: Epoch, Kind: Whole, InTemplates: true, InTables: true, About: "number of the epoch; if it starts at 0, the epochs are counted from 1",
		Names:     "epoch ep epoch_num epoch_number epoch_id epoch_idx epoch_index current_epoch",
		WeakNames: "epochs e round pass runde epoche époque epoca época",
	},
	{
		Name: Step, Kind: Whole, InTemplates: true, InTables: true, About: "number of the step",
		Names:     "step global_step trainer/global_step train/global_step _step iter iteration it iter_num n_iter num_updates train_step update current_steps",
		WeakNames: "steps iters iterations itr batch minibatch batches",
	},
	{
		Name: Rank, Kind: Whole, InTemplates: true, InTables: true, About: "rank of the worker that measured the row",
		Names:     "rank global_rank worker_rank process_index process_rank",
		WeakNames: "node worker gpu device process proc replica",
	},
	{
		Name: Workers, Kind: Whole, InTemplates: true, InTables: true, About: "number of workers (not of a data loader)",
		Names:       "n_workers n_gpus num_gpus gpu_count num_gpu number_of_gpus total_gpus gpus_total world_size distributed_world_size n_ranks num_ranks nproc nprocs n_procs num_procs n_processes num_processes n_devices num_devices device_count n_replicas num_replicas n_tasks num_tasks num_accelerators n_tpus num_tpus",
		ColumnNames: "workers gpus world ranks np processes devices replicas tasks accelerators tpus",
	},
	{
		Name: Nodes, Kind: Whole, InTemplates: true, InTables: true, About: "number of nodes",
		Names:       "n_nodes num_nodes node_count number_of_nodes n_machines num_machines",
		ColumnNames: "nodes machines",
	},
	{
		Name: WorkersPerNode, Kind: Whole, InTables: true, About: "number of workers per node",
		Names:       "workers_per_node gpus_per_node devices_per_node nproc_per_node ranks_per_node tasks_per_node processes_per_node",
		ColumnNames: "ppn gpus/node gpu/node devices/node ranks/node tasks/node procs/node workers/node gpu_per_node procs_per_node ntasks_per_node num_gpus_per_node num_tasks_per_node num_procs_per_node n_gpus_per_node gpus_per_machine gpus_per_host gpus_per_server procs_per_machine workers_per_machine workers_per_host",
	},
	{
		Name: Cores, Kind: Whole, InTables: true, About: "cores or threads: the number of workers, if the table has no other",
		ColumnNames: "cores n_cores num_cores number_of_cores core cpu_cores threads n_threads num_threads number_of_threads thread omp_threads omp_num_threads cpus n_cpus num_cpus",
	},
	{
		Name: Seed, Kind: Whole, InTemplates: true, InTables: true, About: "seed, or number of the repeat",
		Names:       "seed random_seed rng_seed manual_seed",
		ColumnNames: "repeat repetition rep replicate attempt try",
	},
	{
		Name: EpochSeconds, Kind: Seconds, InTemplates: true, InTables: true, About: "seconds of training per epoch",
		Names: "seconds epoch_seconds time_per_epoch epoch_time epoch_duration epoch_runtime seconds_per_epoch sec_per_epoch s/epoch time_epoch train_epoch_time train_time_per_epoch avg_epoch_time mean_epoch_time average_epoch_time", WeakNames: "t/epoch",
		OfEpoch: func(e *runs.Epoch) *float64 { return &e.Seconds },
	},
	{
		Name: Elapsed, Kind: Seconds, InTemplates: true, InTables: true, About: "seconds since the start of the run; their differences are the seconds of the epochs",
		Names:     "elapsed_seconds elapsed elapsed_time time_elapsed total_elapsed cumulative_time cum_time total_time wall_time wall_clock wall_clock_time time_since_start relative_time relative_time_process relative_time_wall",
		WeakNames: "wall walltime total",
	},
	{
		Name: Time, Kind: Seconds, InTables: true, About: "seconds per epoch or since the start, whichever the complete column shows; of the run, if a row is a run",
		Names:     "time duration runtime time_taken",
		WeakNames: "took time_cost cost_time dur dauer zeit durée secs epoch_took epoch_finished epoch_done this_epoch",
	},
	{
		Name: TrainingTime, Kind: Seconds, InTables: true, About: "the same, of training",
		Names: "training_time train_time",
	},
	{
		Name: StepSeconds, Kind: Seconds, InTemplates: true, InTables: true, About: "seconds per step",
		Names: "step_seconds step_time time_per_step iter_time iteration_time time_per_iter time_per_iteration batch_time time_per_batch seconds_per_step sec_per_step sec_per_batch s/it s/step", WeakNames: "time/batch time/step time/iter",
	},
	{
		Name: SamplesPerSecond, Kind: Number, InTemplates: true, InTables: true, About: "samples per second, of all workers together",
		Names:     "samples_per_second samples_per_sec samples/s samples/sec throughput total_throughput aggregate_throughput train_throughput average_train_throughput train_samples_per_second images_per_second images_per_sec images/s images/sec image_per_sec img_per_sec imgs_per_sec img/s img/sec imgs/s imgs/sec ips train_ips sps examples_per_second examples_per_sec examples/s examples/sec sequences_per_second seq/s images_per_sec_global images_per_second_global samples_per_sec_global samples_per_second_global total_samples_per_second total_samples_per_sec total_images_per_second total_images_per_sec overall_throughput global_throughput mean_throughput avg_throughput",
		WeakNames: "image/sec sample/sec example/sec images/second samples/second examples/second seq/sec seqs/s seqs/sec sequences/s sequences/sec samples_per_s images_per_s bilder/s volumes/s patches/s",
		OfEpoch:   func(e *runs.Epoch) *float64 { return &e.SamplesPerSecond },
	},
	{
		Name: Samples, Kind: Whole, InTemplates: true, InTables: true, About: "samples per epoch",
		Names: "samples n_samples num_samples samples_per_epoch images_per_epoch train_samples train_size dataset_size", WeakNames: "images examples sequences",
	},
	{
		Name: TrainLoss, Kind: Number, InTemplates: true, InTables: true, About: "loss on the training set",
		Names:     "train_loss training_loss loss loss_train train/loss loss/train trn_loss tr_loss avg_loss average_loss mean_loss epoch_loss train/epoch_loss",
		WeakNames: "cost objective train_cross_entropy verlust trainingsverlust perte",
		OfEpoch:   func(e *runs.Epoch) *float64 { return &e.TrainLoss },
	},
	{
		Name: ValLoss, Kind: Number, InTemplates: true, InTables: true, About: "loss on the validation set",
		Names:     "val_loss valid_loss validation_loss loss_val loss_valid val/loss valid/loss loss/val loss/valid eval_loss eval/loss dev_loss",
		WeakNames: "val_cost val_objective val_cross_entropy val_verlust validierungsverlust val_perte",
		OfEpoch:   func(e *runs.Epoch) *float64 { return &e.ValLoss },
	},
	{
		Name: IoU, Kind: Fraction, InTemplates: true, InTables: true, About: "intersection over union on the validation set",
		Names:   "iou val_iou mean_iou val_mean_iou miou val_miou jaccard val_jaccard jaccard_index",
		OfEpoch: func(e *runs.Epoch) *float64 { return &e.IoU },
	},
	{
		Name: Dice, Kind: Fraction, InTemplates: true, InTables: true, About: "Dice coefficient on the validation set",
		Names:   "dice val_dice dice_score val_dice_score dice_coef val_dice_coef mean_dice dsc mdice val_mdice",
		OfEpoch: func(e *runs.Epoch) *float64 { return &e.Dice },
	},
	{
		Name: Accuracy, Kind: Fraction, InTemplates: true, InTables: true, About: "accuracy on the training set",
		Names:     "accuracy acc train_accuracy train_acc training_accuracy train/accuracy train/acc acc_train accuracy_train train_top1 train_acc1 categorical_accuracy sparse_categorical_accuracy binary_accuracy accuracy_top1 accuracy/top1 top1_acc",
		WeakNames: "top1 top-1 acc1 acc@1 prec@1 genauigkeit",
		OfEpoch:   func(e *runs.Epoch) *float64 { return &e.Accuracy },
	},
	{
		Name: ValAccuracy, Kind: Fraction, InTemplates: true, InTables: true, About: "accuracy on the validation set",
		Names:     "val_accuracy val_acc valid_accuracy valid_acc validation_accuracy val/accuracy val/acc eval_accuracy eval_acc eval/accuracy acc_val accuracy_val dev_accuracy dev_acc val_top1 eval_top1 val_acc1 metrics/accuracy_top1 val_categorical_accuracy val_sparse_categorical_accuracy val_binary_accuracy val_accuracy_top1 val_accuracy/top1 val_top1_acc",
		WeakNames: "val_top-1 val_acc@1 val_prec@1 val_genauigkeit",
		OfEpoch:   func(e *runs.Epoch) *float64 { return &e.ValAccuracy },
	},
	{
		Name: LearningRate, Kind: Number, InTemplates: true, InTables: true, About: "learning rate",
		Names:   "lr learning_rate train_lr lr/pg0 lr-adam lr-adamw lr-sgd lr_0 train/learning_rate base_lr",
		OfEpoch: func(e *runs.Epoch) *float64 { return &e.LearningRate },
	},
	{
		Name: ValSeconds, Kind: Seconds, InTemplates: true, InTables: true, About: "seconds of validation per epoch",
		Names:   "val_seconds val_time valid_time validation_time eval_time eval_seconds eval_runtime time_val",
		OfEpoch: func(e *runs.Epoch) *float64 { return &e.ValSeconds },
	},
	{
		Name: TrainingSeconds, Kind: Seconds, InTables: true, About: "seconds of the complete training",
		Names: "training_seconds total_training_time total_train_time train_runtime",
	},
	{
		Name: WallSeconds, Kind: Seconds, InTables: true, About: "seconds of the complete run",
		Names: "wall_seconds total_seconds JobRuntime", WeakNames: "t_wall",
	},
	{
		Name: SummedSeconds, Kind: Seconds, InTables: true, About: "seconds of all workers together; their mean is the time of the run",
		ColumnNames: "summed_seconds sum_seconds seconds_sum summed_time sum_time time_sum sum_of_times total_rank_seconds rank_seconds gpu_seconds core_seconds worker_seconds device_seconds gpu_time core_time cpu_time total_cpu_time",
	},
	{Name: Energy, Kind: Number, InTables: true, About: "energy of the run in joules", Names: "energy_joules energy_j energy"},
	{Name: Timestamp, Kind: Moment, InTables: true, About: "date and time of the row", Names: "timestamp _timestamp time_stamp datetime date_time"},
	{Name: Study, Kind: Text, InTables: true, About: "name of the study", Names: "study"},
	{
		Name: Series, Kind: Text, InTemplates: true, InTables: true, About: "name of the series, by which runs are compared",
		Names: "series framework strategy method backend implementation variant config configuration setup label approach algorithm experiment experiment_name",
	},
	{Name: Model, Kind: Text, InTemplates: true, InTables: true, About: "name of the model", Names: "model model_name arch architecture network backbone"},
	{Name: Run, Kind: Text, InTables: true, About: "identifier of the run", Names: "run run_id run_name"},
	{
		Name: Batch, Kind: Whole, InTemplates: true, InTables: true, About: "samples per worker and step",
		Names:       "batch_per_worker batch_size_per_worker batch_size_per_gpu batch_per_gpu per_gpu_batch_size per_device_batch_size per_device_train_batch_size local_batch local_batch_size micro_batch_size",
		ColumnNames: "batch",
	},
	{
		Name: GlobalBatch, Kind: Whole, InTables: true, About: "samples per step, of all workers together",
		Names: "global_batch global_batch_size total_batch_size effective_batch_size",
	},
	{Name: Trial, Kind: Text, InTables: true, About: "name of a trial: IO, SYNTHETIC or FULL; numbers are repeats", Names: "trial"},
	{Name: Spread, Kind: Number, InTables: true, About: "standard deviation of samples_per_second", Names: "spread"},
	{Name: Split, Kind: Text, InTables: true, About: "part of the data set of the row: train, or val", Names: "split phase subset"},
	{Name: MetricName, Kind: Text, InTables: true, About: "name of the value in the column value", Names: "metric key tag metric_name"},
	{Name: MetricValue, Kind: Number, InTables: true, About: "value with the name in the column metric", Names: "value"},
	{Name: Status, Kind: Text, InTables: true, About: "how the run ended", Names: "status state"},
	{Name: ExitCode, Kind: Whole, InTables: true, About: "exit code of the run", Names: "exit_code Exitval"},
	{Name: Started, Kind: Moment, InTables: true, About: "when the run started", Names: "started start_time Starttime created"},
	{Name: Ended, Kind: Moment, InTables: true, About: "when the run ended", Names: "ended end_time"},
	{Name: Host, Kind: Text, InTables: true, About: "host of the run", Names: "host hostname"},
	{Name: Command, Kind: Text, InTables: true, About: "command line of the run", Names: "command cmd"},
	{
		Name: Setting, Kind: Text, InTables: true, About: "a setting of the run, such as the worker processes of its data loader",
		Names: "num_workers loader_workers dataloader_workers dataloader_num_workers batch_size optimizer dataset precision dtype",
	},
	{Name: Epochs, Kind: Whole, InTemplates: true, About: "planned number of epochs"},
	{Name: Steps, Kind: Whole, InTemplates: true, About: "number of steps per epoch, or of all"},
}

// All returns the fields in the order of messages. The caller must not modify them.
func All() []Field { return all[:] }

// ByName returns the field with the name, or nil.
func ByName(name string) *Field {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// fieldsByName maps normalized names to fields.
var fieldsByName = sync.OnceValue(func() (n struct{ strong, column, weak map[string]*Field }) {
	n.strong, n.column, n.weak = map[string]*Field{}, map[string]*Field{}, map[string]*Field{}
	for i := range all {
		f := &all[i]
		for _, x := range []struct {
			to   map[string]*Field
			list string
		}{{n.strong, f.Names}, {n.column, f.ColumnNames}, {n.weak, f.WeakNames}} {
			for name := range strings.FieldsSeq(x.list) {
				x.to[Normalize(name)] = f
			}
		}
	}
	return n
})

// Lookup returns the field that a name shows anywhere, or nil.
func Lookup(name string) *Field { return fieldsByName().strong[Normalize(name)] }

// LookupColumn returns the field that the name of a column shows, or nil.
func LookupColumn(name string) *Field {
	key := Normalize(name)
	if f := fieldsByName().strong[key]; f != nil {
		return f
	}
	return fieldsByName().column[key]
}

// CountsWorkers reports whether a column or setting with this name counts or lists the workers.
func CountsWorkers(name string) bool {
	f := LookupColumn(name)
	return f != nil && f.Name == Workers
}

// LookupWeakName returns the field that has name among its WeakNames, or nil.
func LookupWeakName(name string) *Field { return fieldsByName().weak[Normalize(name)] }

// Normalize returns the letters and digits of name in lower case.
func Normalize(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 0x7f {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// DescribesTraining reports whether the field describes the training and not the validation.
func (f *Field) DescribesTraining() bool {
	switch f.Name {
	case TrainLoss, Accuracy, LearningRate, EpochSeconds, SamplesPerSecond:
		return true
	}
	return false
}

// LookupValidationField returns the validation field for name, such as val_loss for loss: the prefix may
// be missing. It returns nil if there is none. lookup is Lookup, LookupColumn or LookupWeakName.
func LookupValidationField(name string, lookup func(string) *Field) *Field {
	if f := lookup("val_" + name); f != nil {
		return f
	}
	if f := lookup(name); f != nil && f.OfEpoch != nil && !f.DescribesTraining() {
		return f
	}
	return nil
}
