// Package logread reads training logs, both the run folders of this project and
// the logs of other programs, into [runs.Run].
//
// [Read] walks a path. A folder with run.json is a run folder, which [runs.Read] reads.
// Of its other files only traces are read, except in the run folder of another program
// that lockstep launch started: all of its files, such as worker-<rank>.log, add to the run.
// In other folders, every regular file that is not hidden is decompressed if necessary
// (gzip, zstd, xz, bzip2) and read by the first format that recognizes its first bytes. A link is
// followed if its target is not read otherwise.
//
// Below this package, internal/record contains what all formats share, internal/scan
// splits text, and internal/template matches lines with templates. The formats are in
// internal/textlog (lines that programs print), internal/table (tables with a header),
// internal/programfile (files with a form that one program fixes), internal/jsonlog (JSON
// lines), internal/ipynb (notebooks), internal/events (TensorBoard) and internal/trace. A file
// becomes runs in four steps: internal/files finds it, internal/content opens it, the format's
// reader returns a record.Part for each run, internal/merge merges the parts that belong to one
// run, and internal/identity determines what identifies the run.
//
// What identifies a run (its numbers of workers and nodes, seed, series, batch and model) comes
// from the source with the highest precedence: a pattern in [Options], the content, a
// configuration in the same folder, the command that started the program, the name of a folder,
// the name of the file. [runs.Run].Origins contains the source of each property, and a
// contradiction is a problem. If the number of workers is unknown, it is 0 and a problem is
// reported.
//
// Any CSV or TSV with a header is read if the names of its columns show what its rows are:
// values at a step, epochs, runs, or values at a time. [ColumnFields] lists the names that are
// known, and [Options].Columns maps others. Other columns become curves or settings, and a
// report lists the columns that are not used. The reader detects delimiters, decimal commas,
// separators of thousands and units. If a detection is not certain, the report states it as an
// assumption: the decimal mark of a column, whether a time is that of an epoch or the time since
// the start, and whether accuracies are percentages.
//
// Lines of other programs can be read by templates ([Options].Lines), such as
//
//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
//
// A template describes a complete line, without the labels and time stamps that launchers
// and loggers add. {name} matches a number, * any text, and one or more blanks match one or
// more blanks; {{ is a brace. /…/ is a regular expression with groups such as
// (?P<epoch>\d+). The names are epoch, step, rank, workers, nodes, seed, seconds (of the
// epoch), step_seconds, samples_per_second, samples (of the epoch), train_loss, val_loss,
// iou, dice, accuracy, val_accuracy, lr, val_seconds, elapsed_seconds (since the start), epochs
// and steps (totals), series, model and batch. Any other name is a metric. {?1} and the like
// match any text, as * does.
//
// Units that follow a number in the log or in the template are understood: ms, s, min, h,
// 1:02:03, 3m12s, 1.2k, 1.2M and %. Times become seconds, and percentages of accuracies, iou
// and dice become fractions. For a line that does not contain the unit, the template does:
// {seconds:ms}, {accuracy:%}. If a comma is the decimal mark of a number, the template states it
// too: {train_loss:,} reads 0,25, and {seconds:,ms} reads 12,5.
//
// A line with {epoch} sets values of that epoch; if the numbering starts again, a new run
// begins. A line with {step} adds points to curves that are named like the fields, and the
// last one of an epoch also sets the epoch's values, except that the rate of an epoch is its
// steps over the time that their rates give. If no line has {seconds}, the differences of
// {elapsed_seconds} are the times of the epochs. A line with neither belongs to the
// epoch that another line has opened; if there is none, the n-th such line is epoch n,
// which is reported as an assumption. A metric becomes a curve by step or by epoch. The
// other fields set properties of the run. runs.Run.Kind of such a run is "lines".
//
// [Suggest] proposes templates of lines and mappings of columns for logs that no format
// reads, with reasons and a preview. The rules can be kept beside the logs in the file
// [RulesFile]:
//
//	s, err := logread.Suggest("results")
//	fmt.Println(s)                    // a notebook shows s as tables
//	path, err := s.Save("results")    // after a look at the proposal
//
// Of the standard output of training programs, the following is read. Epochs that a program
// counts from 0 count from 1. A value with a step is a curve.
//
//	kind                       epochs                                     throughput            workers
//	Hugging Face Trainer       loss, eval_loss, eval_accuracy, lr; the    train_samples_per_    header: total / per
//	                           total time and the epochs that it covers   second                device batch
//	PyTorch ImageNet example   mean loss, accuracies, mean step time                            processes that print
//	                           times steps
//	torchvision reference      total time, mean loss, accuracies, lr                            world_size, ranks
//	timm                       mean step time times steps, mean loss,     mean samples/s        total of processes
//	                           accuracies, lr
//	tqdm bars                  time and values of bars with an epoch
//	Lightning bars             time and values of the bars                                      processes
//	nnU-Net                    time, losses, mean dice, lr                                      world size
//	Megatron-LM                none (curves of all fields by iteration)   global batch / time   world size
//	DeepSpeed                  none (curves lr, loss)                     CurrSamplesPerSec     world size
//	nanoGPT                    none (curves of loss, step time, mfu)      tokens/s
//	tf_cnn_benchmarks          none (curve total_loss)                    total images/sec      devices, or global /
//	                                                                                            device batch
//
// Lines before the values such as "World size: 8", "Using 2 GPUs" and "precision: fp16"
// state properties of the run. Tables in Markdown pages, and JSON objects with the result of
// a run, are read as tables; a second table of a series is another series. A log whose numbers go back is one run that was resumed, unless they start
// again; see the reports.
//
// Runs of one series with the same number of workers count as repeats. Those that
// differ in what is known about them become separate series; see [SeparateSeries].
//
// Nothing is guessed silently. [Explain] returns a [Report] per file that lists
// what was read, what was not, and what was assumed. A value that cannot be used
// becomes a [runs.Problem] with file and line.
//
// [Tidy] returns everything as one table with one row per measured value, and
// [Write] writes that table as CSV or JSON. [Follow] reads a folder
// of logs while it grows.
//
//	found, problems, err := logread.Read("logs/published")
//	if err != nil {
//		return err
//	}
//	for _, run := range found {
//		fmt.Println(run.Info.Series, run.Info.Workers, len(run.Epochs))
//	}
package logread
