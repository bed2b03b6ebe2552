package training

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/figure"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs/transfers"
)

func transfersCommand() *cobra.Command {
	var o bench.RecordOptions
	var out string
	c := &cobra.Command{
		Use:   "transfers [FILE.json]",
		Short: "Record an all-reduce, and show which worker sends which chunk to whom",
		Long: `Starts workers on this machine, lets them add up a buffer by one algorithm, and records
each transfer: who sent which chunks to whom, when they were sent, and when they had
arrived. With a FILE that it has saved before, it shows that recording.

Without --out it prints a table. With --out it saves the recording (.json), a figure
with an arrow for each transfer (.png, .svg, .pdf), its numbers (.csv), or a page on
which the steps play one after another (.html), which needs no network.

  lockstep transfers --algorithm ring --workers 4
  lockstep transfers --algorithm hierarchical --workers 6 --ranks-per-node 3 --out steps.html
  lockstep transfers --algorithm tree --bytes 8000000 --out tree.json
  lockstep transfers tree.json --out tree.png`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckOutput(out, args...); err != nil {
				return err
			}
			var r *transfers.Recording
			var err error
			if len(args) == 1 {
				for _, name := range []string{"workers", "algorithm", "transport", "bytes", "ranks-per-node"} {
					if c.Flags().Changed(name) {
						return cli.AsUsageError(fmt.Errorf("--%s is for a new recording, but %s is one: leave one of them out", name, args[0]))
					}
				}
				r, err = transfers.Read(c.Context(), args[0])
			} else {
				if err := o.Validate(); err != nil {
					return cli.AsUsageError(err)
				}
				r, err = bench.RecordAllReduce(c.Context(), o)
			}
			if err != nil {
				return err
			}
			if out == "" {
				_, err := fmt.Fprint(c.OutOrStdout(), r.Format())
				return err
			}
			if err := saveRecording(r, out); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "saved", out)
			return err
		},
	}
	f := c.Flags()
	f.IntVar(&o.Workers, "workers", 4, "number of processes")
	f.StringVar(&o.Algorithm, "algorithm", schedule.Ring, strings.Join(schedule.Names(), ", "))
	f.StringVar(&o.Transport, "transport", "", strings.Join(bench.ScheduledTransports(), ", ")+" (default: shm; with --ranks-per-node tcp)")
	f.IntVarP(&o.Bytes, "bytes", "b", 1_000_000, "size of each worker's buffer of float32 numbers")
	f.IntVar(&o.PerNode, "ranks-per-node", 0, "workers that count as one node (default: all)")
	f.StringVar(&out, "out", "", "file to save: .json, .html, "+"."+strings.Join(figure.Formats(), ", ."))
	return c
}

// saveRecording saves a recording in the format for path's extension.
func saveRecording(r *transfers.Recording, path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return fmt.Errorf("save recording: %w", err)
		}
		return saveFile(path, append(text, '\n'))
	case ".html":
		frames, err := figure.NewFrames(r)
		if err != nil {
			return err
		}
		return saveFile(path, []byte("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>All-reduce, "+r.Algorithm+"</title></head>\n<body>\n"+frames.HTML()+"</body>\n</html>\n"))
	}
	f, err := figure.Options{}.Transfers(r)
	if err != nil {
		return err
	}
	return f.Save(path)
}

// saveFile writes a file, and creates missing folders.
func saveFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	if err := wholefile.WriteBytes(path, text, 0o644); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}
