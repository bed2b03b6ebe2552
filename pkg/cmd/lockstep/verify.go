package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/runs"
	"lockstep/pkg/verify"
)

func verifyCommand() *cobra.Command {
	c := &cobra.Command{Use: "verify", Short: "Verify Lockstep's claims: dp (data parallelism), run (a run folder)"}
	c.AddCommand(verifyDPCommand(), verifyRunCommand())
	return c
}

func verifyDPCommand() *cobra.Command {
	var o verify.DPOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "dp",
		Short: "Verify that N workers equal 1 worker with an N-fold batch, and that broken exchanges are detected",
		Long: `Trains the same network with 1 worker and an N-fold batch and with N workers, and
compares every parameter after 20 steps (tolerance 1e-10 in float64, 1e-5 for SGD in
float32). It also checks that the comparison fails if gradients are summed instead of
averaged, a bucket is omitted, all shards are equal, batch norms do not exchange
their statistics, or a loss over classes of pixels is divided by the number of pixels
that count in a shard, or has soft Dice of a shard's batch. It covers SGD, Adam, AdamW,
LARS and LAMB; Nesterov momentum, clipping, accumulation and averaged parameters
together; BCE, soft Dice, smoothed labels, classes of pixels with ignored ones and
weights, and L1; and synchronized batch norms. Batch norms that are not synchronized use
the statistics of a shard and are not compared. With --device cuda it runs on the GPU,
in float32. With --strategy it checks that strategy in place of ddp, in all of this. The
workers of strategy pipeline are compared with one worker that has the same batch and
micro-batches; their faults are lost or late messages, and norms of single stages.
local_sgd:steps=1 is compared with SGD without clipping only: an average of parameters
equals one of gradients only there.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			checks, err := verify.DataParallelism(c.Context(), o)
			if err != nil {
				return err
			}
			return printCheckResults(c.OutOrStdout(), checks, asJSON)
		},
	}
	c.Flags().IntVar(&o.Workers, "workers", 2, "number of workers (N)")
	c.Flags().StringVar(&o.Strategy, "strategy", "", "strategy to check, with options as NAME:option=value (default: ddp, and briefly the other exact ones)")
	c.Flags().StringVar(&o.Device, "device", "", "cuda, or cuda:1 for all workers on that GPU; cpu (the default) for the CPU and the reference engine")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

func verifyRunCommand() *cobra.Command {
	var o verify.RunOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "run DIR",
		Short: "Verify a run folder by recomputing its results",
		Long: `Verifies a run folder: samples and world size from the steps of each rank, that each
rank was a separate process, that only one process at a time owned the run, that every
repeated step was replayed from a checkpoint, that the checkpoint loads, and IoU, Dice
and loss, which are recomputed from the checkpoint and the data.`,
		Args: cli.ExactArgs(1, "name a run folder, for example logs/unet2d-cells/ddp-n2-s1"),
		RunE: func(c *cobra.Command, args []string) error {
			cli.PrintReadPaths(c, args[0])
			dir, err := runs.LocateLogs(args[0])
			if err != nil {
				return err
			}
			checks, err := verify.Run(c.Context(), dir, o)
			if err != nil {
				return err
			}
			return printCheckResults(c.OutOrStdout(), checks, asJSON)
		},
	}
	c.Flags().StringVar(&o.Data, "data", "", "folder of the data, if they were moved")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

// printCheckResults prints the checks. It returns an error if a check failed, or if there are no checks.
func printCheckResults(w io.Writer, checks []verify.Check, asJSON bool) error {
	failed := 0
	var rows []map[string]any
	for _, k := range checks {
		if !k.OK {
			failed++
		}
		row := map[string]any{"name": k.Name, "ok": k.OK, "detail": k.Detail}
		if !math.IsNaN(k.Value) {
			row["value"], row["limit"] = k.Value, k.Limit
		}
		rows = append(rows, row)
		if !asJSON {
			if _, err := fmt.Fprintln(w, clean.EscapeText(k.String())); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := json.NewEncoder(w).Encode(rows); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	if len(checks) == 0 {
		return errors.New("no checks were run")
	}
	return nil
}
