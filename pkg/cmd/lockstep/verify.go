package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/runs"
	"lockstep/pkg/verify"
)

func verifyCommand() *cobra.Command {
	c := &cobra.Command{Use: "verify", Short: "Prove what Lockstep claims: dp (the invariant), run (a run folder)"}
	c.AddCommand(verifyDPCommand(), verifyRunCommand())
	return c
}

func verifyDPCommand() *cobra.Command {
	var o verify.DPOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "dp",
		Short: "N workers equal 1 worker with an N-fold batch, and broken exchanges are noticed",
		Long: `Trains the same network with 1 worker and an N-fold batch and with N workers,
compares every parameter after 20 steps (float64: 1e-10; float32 SGD: 1e-5), and
shows that a sum in place of the mean, a bucket left out, equal shards and batch
norms that do not exchange their statistics make the comparison fail: with SGD,
Adam, AdamW, LARS and LAMB, and with Nesterov's momentum, clipping, accumulation
and averaged parameters at once; with BCE, soft Dice, smoothed labels and L1; with
synchronised batch norms. Those that are not synchronised take a shard's
statistics, so that they are left out. With --device cuda on the GPU, in float32.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			checks, err := verify.DP(c.Context(), o)
			if err != nil {
				return err
			}
			return printVerdict(c.OutOrStdout(), checks, asJSON)
		},
	}
	c.Flags().IntVar(&o.Workers, "workers", 2, "N")
	c.Flags().StringVar(&o.Device, "device", "", "a GPU: cuda, or cuda:1 for all workers on that one; cpu, as without, for the CPU and the reference engine")
	c.Flags().BoolVar(&asJSON, "json", false, "as a JSON array")
	return c
}

func verifyRunCommand() *cobra.Command {
	var o verify.RunOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "run DIR",
		Short: "Recompute what a run folder claims",
		Long: `Recomputes what a run folder claims: its samples and world size from the steps
of each rank, that each rank was a process of its own, that one process at a time
owned the run and every step that was done again was replayed from a checkpoint,
that the checkpoint loads, and IoU, Dice and loss from the checkpoint and the
data.`,
		Args: exactArgs(1, "name a run folder, for example logs/unet2d-cells/ddp-n2-s1"),
		RunE: func(c *cobra.Command, args []string) error {
			noteReadPaths(c, args[0])
			dir, err := runs.ResolveLogs(args[0])
			if err != nil {
				return err
			}
			checks, err := verify.Run(c.Context(), dir, o)
			if err != nil {
				return err
			}
			return printVerdict(c.OutOrStdout(), checks, asJSON)
		},
	}
	c.Flags().StringVar(&o.Data, "data", "", "where the data lie now, if they were moved")
	c.Flags().BoolVar(&asJSON, "json", false, "as a JSON array")
	return c
}

// printVerdict prints the checks, and returns an error if one failed.
func printVerdict(w io.Writer, checks []verify.Check, asJSON bool) error {
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
			if _, err := fmt.Fprintln(w, clean.Text(k.String())); err != nil {
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
		return errors.New("nothing was checked")
	}
	return nil
}
