package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/logread"
)

// logFlags contains the flags that determine how logs are read. The commands that read logs
// share them.
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
	c.Flags().StringArrayVar(&f.columns, "columns", nil, "fields of the columns of tables, such as 'workers=n_gpus,seconds=epoch_time'; repeatable; 'help' lists fields and known columns")
}

// options converts the flags to options. It returns an error that names the flag if a value
// is invalid.
func (f *logFlags) options() (logread.Options, error) {
	o := logread.Options{Lines: f.lines, Columns: f.columns, Strict: f.strict}
	for _, text := range f.as {
		p, err := logread.ParsePattern(text)
		if err != nil {
			return o, fmt.Errorf("--as: %w", err)
		}
		o.As = append(o.As, p)
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("--line: %w", err)
	}
	return o, nil
}
