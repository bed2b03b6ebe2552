package analysis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/logread"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

type readCommandFlags struct {
	format, what, out string
	logs              logFlags
	explain           bool
	suggest, save     bool
}

func readCommand() *cobra.Command {
	var f readCommandFlags
	c := &cobra.Command{
		Use:   "read PATH…",
		Short: "Print every measured value of a folder of logs as tidy rows",
		Long: `Reads run folders and the logs of other programs under each PATH, and prints one
row per measured value, with the columns

  run, series, workers, seed, rank, epoch, step, name, value

The rows are printed while the logs are read, always in the same order. The rank is
empty for a value of all ranks, the epoch for a value of the run, and the step for a
value of the epoch. Problems are printed to stderr; --explain describes for each file
what was read from it. A CSV of such rows can be read again if it is named; in a folder it is not
read, because its runs would count twice. Texts that a spreadsheet would take for formulas
have an apostrophe before them in CSV.

Files are recognized by their content, also if they are compressed with gzip, zstd, xz or bzip2:
TensorBoard events, traces of PyTorch's profiler and Horovod's timeline, the output of
training programs (Keras, Hugging Face's Trainer, PyTorch's ImageNet example, torchvision's
references, timm, bars of tqdm and Lightning, Megatron-LM, DeepSpeed, torchtitan, nanoGPT,
nnU-Net, tf_cnn_benchmarks, Horovod's benchmark, MLPerf, DLLogger), and the logs, tables
and reports of other programs. What a file does not contain is taken from
the files beside it and from names, as --explain shows; --strict refuses what is only
assumed from names. A pattern (--as) states it: {workers}, {nodes}, {rank}, {seed},
{series}, {batch}, {model} and * match parts of the path's end, and after = come the
name of the series or properties and their values.

Any CSV or TSV with a header is read: columns with common names are known, and --columns
maps others (lockstep help columns lists both).

Lines that no known program prints are read by templates of complete lines (--line,
also in scaling, plot and report). {name} matches a number with its unit (ms, s, min,
1:02:03, 1.2k, %), and * any text. The names are epoch, step, rank, workers, nodes,
seed, seconds (of the epoch), step_seconds, samples_per_second, samples, train_loss,
val_loss, iou, dice, accuracy, val_accuracy, lr, val_seconds, elapsed_seconds (since the
start), epochs and steps (totals), series, model and batch; any other name is a metric.
{?1} matches any text, as * does. {seconds:ms} and {accuracy:%} give
the unit of a line that does not contain it, {train_loss:,} reads a decimal comma (0,25),
{{ is a brace, and /regular expression with (?P<epoch>\d+)/ is searched in the line. Labels
of ranks and time stamps are removed before. --suggest proposes templates for a script's
output, with the evidence for each number that it names, a preview and the command to run;
nothing is used before you run it. With --save, the rules are kept
in lockstep-logs.yaml beside the logs, so that no options are needed any more.

If an exchange between the workers of a run has failed, each worker has written its last
1,000 collective operations to collectives-<rank>.jsonl, also on SIGUSR2 (to the worker or
to lockstep launch). A problem then says which rank the others waited for, such as "rank 3
never entered all-reduce 812 (bucket 2 of step 406)", and in which functions it was, unless
it has ended, is stopped or runs on another host; stacks-<rank>.txt has all its stacks.

  lockstep read logs/unet2d-cells
  lockstep read logs/unet2d-cells --what steps --format json
  lockstep read results --what all --out results.csv
  lockstep read results --as 'log_hvd_{workers}.csv=PyTorch Horovod'
  lockstep read results --line 'Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec'
  lockstep read results --columns 'workers=n_gpus,seconds=epoch_time'
  lockstep read results --as 'run_{nodes}n.out=workers:{nodes}*8,series:native'
  lockstep read results/my.log --suggest
  lockstep read results --explain`,
		Args: cli.AtLeastOneArg("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			options, err := f.parseOptions()
			if err != nil {
				return cli.AsUsageError(err)
			}
			if err := cli.CheckLogsOutput(f.out, args); err != nil {
				return err
			}
			if f.suggest {
				return f.writeSuggestedRules(c, options, args)
			}
			done := showProgress(c, &options)
			problems, err := f.writeOutput(c, options, args)
			done()
			for _, p := range problems {
				fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
			}
			if err != nil {
				return err
			}
			return powerCutError(problems)
		},
	}
	c.Flags().StringVar(&f.format, "format", logread.FormatCSV, strings.Join(logread.Formats(), ", "))
	c.Flags().StringVar(&f.what, "what", logread.Epochs, strings.Join(logread.Kinds(), ", "))
	c.Flags().StringVarP(&f.out, "out", "o", "", "file to write; it is written only if everything succeeds (default: standard output)")
	f.logs.addTo(c)
	c.Flags().BoolVar(&f.explain, "explain", false, "describe for each file what was read, what was not and why, instead of the rows")
	c.Flags().BoolVar(&f.suggest, "suggest", false, "propose templates (--line) for logs that no known format reads, with reasons and a preview, instead of the rows")
	c.Flags().BoolVar(&f.save, "save", false, "with --suggest: keep the rules in "+logread.RulesFile+" beside the logs, which all commands and notebooks use")
	return c
}

// validate checks the flags and converts them to options.
func (f *readCommandFlags) parseOptions() (logread.Options, error) {
	var options logread.Options
	if !slices.Contains(logread.Formats(), f.format) {
		return options, fmt.Errorf("unknown --format %q: use one of %q; for another format, convert the CSV, for example with pandas.read_csv(\"rows.csv\").to_parquet(\"rows.parquet\")", f.format, logread.Formats())
	}
	if !slices.Contains(logread.Kinds(), f.what) {
		return options, fmt.Errorf("unknown --what %q: use one of %q", f.what, logread.Kinds())
	}
	if f.save && !f.suggest {
		return options, errors.New("--save needs --suggest")
	}
	if f.suggest && (f.explain || f.out != "") {
		return options, errors.New("--suggest cannot be combined with --explain or --out")
	}
	return f.logs.options()
}

// minProgressBarBytes is the total size of logs from which on a progress bar is shown.
const minProgressBarBytes = 256 << 20

// showProgress shows a progress bar on a terminal while large logs are read. The caller must call done after
// reading.
func showProgress(c *cobra.Command, o *logread.Options) (done func()) {
	var bar *notebook.Progress
	last := int64(0)
	done = func() {
		if bar != nil {
			bar.Done("")
			bar = nil
		}
	}
	if !cli.IsTerminal(c.ErrOrStderr()) {
		return done
	}
	o.Progress = func(read, total int64) {
		if total < minProgressBarBytes {
			return
		}
		if total != last { // reading of the next path has started
			done()
			bar, last = notebook.NewProgress("read, MB", int(total/1e6)), total
		}
		bar.Set(int(read/1e6), "")
	}
	return done
}

// writeOutput writes the rows or the reports to standard output or to --out.
func (f *readCommandFlags) writeOutput(c *cobra.Command, o logread.Options, paths []string) ([]runs.Problem, error) {
	cli.PrintReadPaths(c, paths...)
	if f.out == "" {
		return f.writeRowsOrReports(c.Context(), c.OutOrStdout(), o, paths)
	}
	var problems []runs.Problem
	err := wholefile.Write(f.out, 0o644, func(file *os.File) (err error) {
		problems, err = f.writeRowsOrReports(c.Context(), file, o, paths)
		return err
	})
	return problems, err
}

// writeSuggestedRules prints proposed rules for the logs. With --save it keeps them in the folders of the logs.
func (f *readCommandFlags) writeSuggestedRules(c *cobra.Command, o logread.Options, paths []string) error {
	cli.PrintReadPaths(c, paths...)
	s, err := o.Suggest(c.Context(), paths...)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.OutOrStdout(), s.String()); err != nil || !f.save {
		return err
	}
	if len(s.Commands()) == 0 {
		return errors.New("no rules are proposed, so none are saved")
	}
	for _, path := range paths {
		dir, err := runs.LocateLogs(path)
		if err != nil {
			return err
		}
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			dir = filepath.Dir(dir)
		}
		saved, err := s.Save(dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "saved: %s; its rules apply from now on\n", saved)
	}
	return nil
}

// write writes the rows, or with --explain the reports, to w.
func (f *readCommandFlags) writeRowsOrReports(ctx context.Context, w io.Writer, o logread.Options, paths []string) ([]runs.Problem, error) {
	if !f.explain {
		return o.Write(ctx, w, f.format, f.what, paths...)
	}
	var places []string
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	reports, err := o.Explain(ctx, places...)
	if err != nil {
		return nil, err
	}
	b := bufio.NewWriter(w)
	_, err = b.WriteString(reports.String())
	return nil, errors.Join(err, b.Flush())
}
