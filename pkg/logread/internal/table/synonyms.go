package table

import (
	"fmt"
	"strings"
	"sync"

	"lockstep/pkg/runs"
)

// valueKind is the kind of value that a field has.
type valueKind uint8

// The kinds of values.
const (
	numberValue   valueKind = iota
	countValue              // integer that is not negative
	secondsValue            // duration
	fractionValue           // number from 0 to 1, or a percentage
	momentValue             // time of day with its date, or seconds since 1970
	textValue
)

// The fields to which the columns of tables are mapped. Those of an epoch, a step, a rank
// and a run have the names that the fields of templates have.
const (
	fieldEpoch            = "epoch"
	fieldStep             = "step"
	fieldRank             = "rank"
	fieldWorkers          = "workers"
	fieldNodes            = "nodes"
	fieldWorkersPerNode   = "workers_per_node"
	fieldSeed             = "seed"
	fieldSeconds          = "seconds"
	fieldElapsed          = "elapsed_seconds"
	fieldTime             = "time"
	fieldTrainingTime     = "training_time"
	fieldStepSeconds      = "step_seconds"
	fieldSamplesPerSecond = "samples_per_second"
	fieldSamples          = "samples"
	fieldTrainLoss        = "train_loss"
	fieldValLoss          = "val_loss"
	fieldIoU              = "iou"
	fieldDice             = "dice"
	fieldAccuracy         = "accuracy"
	fieldValAccuracy      = "val_accuracy"
	fieldLearningRate     = "lr"
	fieldValSeconds       = "val_seconds"
	fieldTrainingSeconds  = "training_seconds"
	fieldWallSeconds      = "wall_seconds"
	fieldEnergy           = "energy_joules"
	fieldTimestamp        = "timestamp"
	fieldStudy            = "study"
	fieldSeries           = "series"
	fieldModel            = "model"
	fieldRun              = "run"
	fieldBatch            = "batch"
	fieldGlobalBatch      = "global_batch"
	fieldTrial            = "trial"
	fieldSpread           = "spread"
	fieldSplit            = "split"
	fieldMetric           = "metric"
	fieldValue            = "value"
	fieldStatus           = "status"
	fieldExitCode         = "exit_code"
	fieldStarted          = "started"
	fieldEnded            = "ended"
	fieldHost             = "host"
	fieldCommand          = "command"
	fieldSetting          = "setting"
)

// field describes one of the fields: the kind of its values and the names that columns with
// these values have. Case, blanks and punctuation in the names do not count.
type field struct {
	name  string
	kind  valueKind
	about string
	names string // separated by blanks
}

// fields returns the table of all fields and of their synonyms. A column whose name has no
// entry is a metric, which becomes a curve, or a setting.
func fields() []field {
	return []field{
		{fieldEpoch, countValue, "number of the epoch; if it starts at 0, the epochs are counted from 1", "epoch ep epoch_num epoch_number epoch_id epoch_idx epoch_index current_epoch"},
		{fieldStep, countValue, "number of the step", "step global_step trainer/global_step train/global_step _step iter iteration it iter_num n_iter num_updates train_step"},
		{fieldRank, countValue, "rank of the worker that measured the row", "rank global_rank worker_rank process_index process_rank"},
		{fieldWorkers, countValue, "number of workers (not of a data loader)", "workers n_workers n_gpus num_gpus gpus gpu_count num_gpu number_of_gpus total_gpus gpus_total world_size world ranks n_ranks num_ranks np nproc nprocs n_procs num_procs processes n_processes num_processes devices n_devices num_devices device_count replicas n_replicas num_replicas tasks n_tasks num_tasks accelerators num_accelerators n_tpus num_tpus tpus"},
		{fieldNodes, countValue, "number of nodes", "nodes n_nodes num_nodes node_count number_of_nodes machines n_machines num_machines"},
		{fieldWorkersPerNode, countValue, "number of workers per node", "workers_per_node gpus_per_node devices_per_node nproc_per_node ranks_per_node tasks_per_node processes_per_node"},
		{fieldSeed, countValue, "seed, or number of the repeat", "seed random_seed rng_seed manual_seed repeat repetition rep replicate"},
		{fieldSeconds, secondsValue, "seconds of training per epoch", "seconds epoch_seconds time_per_epoch epoch_time epoch_duration epoch_runtime seconds_per_epoch sec_per_epoch s/epoch time_epoch train_epoch_time train_time_per_epoch avg_epoch_time mean_epoch_time average_epoch_time"},
		{fieldElapsed, secondsValue, "seconds since the start of the run; their differences are the seconds of the epochs", "elapsed_seconds elapsed elapsed_time time_elapsed total_elapsed cumulative_time cum_time total_time wall_time wall_clock wall_clock_time time_since_start relative_time relative_time_process relative_time_wall _runtime"},
		{fieldTime, secondsValue, "seconds per epoch or since the start, whichever the complete column shows; of the run, if a row is a run", "time duration runtime time_taken"},
		{fieldTrainingTime, secondsValue, "the same, of training", "training_time train_time"},
		{fieldStepSeconds, secondsValue, "seconds per step", "step_seconds step_time time_per_step iter_time iteration_time time_per_iter time_per_iteration batch_time time_per_batch seconds_per_step sec_per_step sec_per_batch s/it s/step"},
		{fieldSamplesPerSecond, numberValue, "samples per second, of all workers together", "samples_per_second samples_per_sec samples/s samples/sec throughput total_throughput aggregate_throughput train_throughput train_samples_per_second images_per_second images_per_sec images/s images/sec image_per_sec img_per_sec imgs_per_sec img/s img/sec imgs/s imgs/sec ips sps examples_per_second examples_per_sec examples/s examples/sec sequences_per_second seq/s"},
		{fieldSamples, countValue, "samples per epoch", "samples n_samples num_samples samples_per_epoch images_per_epoch train_samples train_size dataset_size"},
		{fieldTrainLoss, numberValue, "loss on the training set", "train_loss training_loss loss loss_train train/loss loss/train trn_loss tr_loss avg_loss average_loss mean_loss epoch_loss train/epoch_loss"},
		{fieldValLoss, numberValue, "loss on the validation set", "val_loss valid_loss validation_loss loss_val loss_valid val/loss valid/loss loss/val loss/valid eval_loss eval/loss dev_loss"},
		{fieldIoU, fractionValue, "intersection over union on the validation set", "iou val_iou mean_iou val_mean_iou miou val_miou jaccard val_jaccard jaccard_index"},
		{fieldDice, fractionValue, "Dice coefficient on the validation set", "dice val_dice dice_score val_dice_score dice_coef val_dice_coef mean_dice dsc mdice val_mdice"},
		{fieldAccuracy, fractionValue, "accuracy on the training set", "accuracy acc train_accuracy train_acc training_accuracy train/accuracy train/acc acc_train accuracy_train train_top1 train_acc1 categorical_accuracy sparse_categorical_accuracy binary_accuracy accuracy_top1 accuracy/top1 top1_acc"},
		{fieldValAccuracy, fractionValue, "accuracy on the validation set", "val_accuracy val_acc valid_accuracy valid_acc validation_accuracy val/accuracy val/acc eval_accuracy eval_acc eval/accuracy acc_val accuracy_val dev_accuracy dev_acc val_top1 eval_top1 val_acc1 metrics/accuracy_top1 val_categorical_accuracy val_sparse_categorical_accuracy val_binary_accuracy val_accuracy_top1 val_accuracy/top1 val_top1_acc"},
		{fieldLearningRate, numberValue, "learning rate", "lr learning_rate lr/pg0 lr-adam lr-adamw lr-sgd lr_0 train/learning_rate base_lr"},
		{fieldValSeconds, secondsValue, "seconds of validation per epoch", "val_seconds val_time valid_time validation_time eval_time eval_seconds eval_runtime time_val"},
		{fieldTrainingSeconds, secondsValue, "seconds of the complete training", "training_seconds total_training_time total_train_time train_runtime"},
		{fieldWallSeconds, secondsValue, "seconds of the complete run", "wall_seconds total_seconds JobRuntime"},
		{fieldEnergy, numberValue, "energy of the run in joules", "energy_joules energy_j energy"},
		{fieldTimestamp, momentValue, "date and time of the row", "timestamp _timestamp time_stamp datetime date_time"},
		{fieldStudy, textValue, "name of the study", "study"},
		{fieldSeries, textValue, "name of the series, by which runs are compared", "series framework strategy method backend implementation variant config configuration setup label approach algorithm experiment experiment_name"},
		{fieldModel, textValue, "name of the model", "model model_name arch architecture network backbone"},
		{fieldRun, textValue, "identifier of the run", "run run_id run_name"},
		{fieldBatch, countValue, "samples per worker and step", "batch batch_per_worker batch_size_per_worker batch_size_per_gpu batch_per_gpu per_gpu_batch_size per_device_batch_size per_device_train_batch_size local_batch local_batch_size micro_batch_size"},
		{fieldGlobalBatch, countValue, "samples per step, of all workers together", "global_batch global_batch_size total_batch_size effective_batch_size"},
		{fieldTrial, textValue, "name of a trial: IO, SYNTHETIC or FULL", "trial"},
		{fieldSpread, numberValue, "standard deviation of samples_per_second", "spread"},
		{fieldSplit, textValue, "part of the data set of the row: train, or val", "split phase subset"},
		{fieldMetric, textValue, "name of the value in the column value", "metric key tag metric_name"},
		{fieldValue, numberValue, "value with the name in the column metric", "value"},
		{fieldStatus, textValue, "how the run ended", "status state"},
		{fieldExitCode, countValue, "exit code of the run", "exit_code Exitval"},
		{fieldStarted, momentValue, "when the run started", "started start_time Starttime created"},
		{fieldEnded, momentValue, "when the run ended", "ended end_time"},
		{fieldHost, textValue, "host of the run", "host hostname"},
		{fieldCommand, textValue, "command line of the run", "command cmd"},
		{fieldSetting, textValue, "a setting of the run, such as the worker processes of its data loader", "num_workers loader_workers dataloader_workers dataloader_num_workers batch_size optimizer dataset precision dtype"},
	}
}

// FieldNames returns the names of the fields to which columns can be mapped.
func FieldNames() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

// DescribeFields returns a text that lists each field with its meaning and with the names of
// the columns that are mapped to it.
func DescribeFields() string {
	var b strings.Builder
	for _, f := range fields() {
		fmt.Fprintf(&b, "%s: %s\n    %s\n", f.name, f.about, strings.Join(strings.Fields(f.names), ", "))
	}
	return b.String()
}

// synonyms returns the field of each normalized name of a column.
var synonyms = sync.OnceValue(func() map[string]*field {
	known := map[string]*field{}
	all := fields()
	for i := range all {
		for name := range strings.FieldsSeq(all[i].names) {
			known[normalizeName(name)] = &all[i]
		}
	}
	return known
})

// EpochValue returns the field of an epoch that values with a name set, and whether they may
// be percentages. It returns nil if the name has no field, or one whose meaning depends on
// the other rows of a table.
func EpochValue(name string) (of func(*runs.Epoch) *float64, percentage bool) {
	f := synonyms()[normalizeName(name)]
	if f == nil || f.name == fieldTime || f.name == fieldTrainingTime || f.name == fieldElapsed {
		return nil, false
	}
	return epochField(f.name), f.kind == fractionValue
}

// fieldNamed returns the field with a name, or nil.
func fieldNamed(name string) *field {
	all := fields()
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// normalizeName returns name in lower case, with its letters and digits only. A slash
// between two letters is kept, so that s/epoch differs from sepoch.
func normalizeName(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 0x7f {
			b.WriteRune(r)
		}
	}
	return b.String()
}
