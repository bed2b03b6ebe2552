package analysis

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/logread"
)

// logFlags contains the flags common to all commands that read logs.
type logFlags struct {
	as      []string
	lines   []string
	columns []string
	strict  bool
}

func (f *logFlags) addTo(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.as, "as", nil, "what paths say about runs, such as 'log_hvd_{workers}.csv=PyTorch Horovod' or '*.out=workers:1,series:native'; repeatable")
	c.Flags().BoolVar(&f.strict, "strict", false, "refuse runs whose workers, nodes, seed or series are only assumed from names; list the assumptions")
	c.Flags().StringArrayVar(&f.lines, "line", nil, "template of lines to read, such as 'Epoch {epoch}: loss {train_loss} time {seconds}s'; repeatable")
	c.Flags().StringArrayVar(&f.columns, "columns", nil, "fields of the columns of tables, such as 'workers=n_gpus,seconds=epoch_time'; repeatable; see lockstep help columns")
}

// ColumnsTopic returns the help topic about columns.
func ColumnsTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "columns",
		Short: "Columns of tables that are known, and fields for --columns",
		Long: `Any CSV or TSV with a header is read if its columns show what its rows are: steps,
epochs, runs, or values at a time. The columns below are known by their names; case,
blanks and punctuation do not count, and a unit may follow, as in "epoch_time (ms)" or
epoch_time_ms. Other columns become curves if they have numbers, otherwise settings of
the run. --explain lists the columns that are not used. Delimiters are commas,
semicolons, tabs and bars; decimal commas and separators of thousands are detected from
the complete column, which --explain shows as assumptions.

--columns 'FIELD=COLUMN,…' maps other columns. A column is given by its name, in double
quotes if it contains a comma, or by its position from 1 if the table has no header; its
unit may follow. Any other field is the name of a metric.

  lockstep read results --columns 'workers=P,seconds=t_ep'
  lockstep read results --columns 'seconds=epoch_time:ms'
  lockstep read results --columns 'step=1,train_loss=2'

` + logread.ColumnFields(),
	}
}

// options converts the flags. Its error names the flag with the invalid value.
func (f *logFlags) options() (logread.Options, error) {
	o := logread.Options{Lines: f.lines, Columns: f.columns, Strict: f.strict}
	for _, text := range f.as {
		p, err := logread.ParsePattern(text)
		if err != nil {
			return o, fmt.Errorf("--as: %w", err)
		}
		o.As = append(o.As, p)
	}
	if err := (logread.Options{Lines: o.Lines}).Validate(); err != nil {
		return o, fmt.Errorf("--line: %w", err)
	}
	if err := (logread.Options{Columns: o.Columns}).Validate(); err != nil {
		return o, fmt.Errorf("--columns: %w", err)
	}
	return o, nil
}
